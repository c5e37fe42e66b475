"""From matrices of sums to results: through workgroup memory, four columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.contraction_operands import Extras, Operands, Place
from rlx_edge.compile.codegen.spirv.cooperative_memory import Subgroups, WorkgroupArray
from rlx_edge.compile.codegen.spirv.region import Conditional
from rlx_edge.compile.codegen.spirv.words import SUBGROUP_SCOPE, Words, barrier
from rlx_edge.compile.targets.vulkan import Matrices
from rlx_edge.compile.templates.cooperative import LANES, CooperativeTile

ROW_MAJOR = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """Four results of an invocation: whether they are any, what ``Operands.locate`` says of their
    row, their first column and the extra operands."""

    inside: int
    at: list[int]
    column: int
    extras: Extras


@dataclass(frozen=True, slots=True)
class Finish:
    """Finishes a tile: ``totals`` are the variables of a subgroup's matrices of ``kind``, row by
    row, ``columns`` of them side by side; ``sums`` has a place for one matrix of each subgroup."""

    operands: Operands
    tile: CooperativeTile
    matrices: Matrices
    subgroups: Subgroups
    sums: WorkgroupArray
    kind: int
    totals: Sequence[int]
    columns: int

    def finish(self, code: Code, place: Place) -> None:
        """Every matrix of sums through workgroup memory; the parts of a matrix share it out. Extra
        operands are read a row of matrices ahead."""
        ops, matrices = self.operands, self.matrices
        spots = self.spots(code)
        w = Words(code)
        begin = w.add(place.column, self.subgroups.column)
        columns = [
            [w.add(w.plus(begin, column * matrices.columns), spot) for _, spot in spots]
            for column in range(self.columns)
        ]
        known = [[ops.column_extras(code, place, at) for at in ats] for ats in columns]
        waiting: list[list[Finished]] = []
        for number in range(len(self.totals) + self.columns):
            if number < len(self.totals):
                row, column = divmod(number, self.columns)
                first = w.plus(w.add(place.row, self.subgroups.row), row * matrices.rows)
                waiting.append(
                    self.read_extras(code, place, first, spots, columns[column], known[column])
                )
            if number >= self.columns:
                done = number - self.columns
                self.finish_one(code, place, self.totals[done], spots, waiting[done])

    def spots(self, code: Code) -> list[tuple[int, int]]:
        """Row and column in a matrix of the vectors of four that this invocation finishes."""
        ops, tile, matrices, w = self.operands, self.tile, self.matrices, Words(code)
        quads = matrices.columns // LANES
        together = matrices.subgroup * tile.parts
        first = w.add(w.scaled(self.subgroups.part, matrices.subgroup), self.subgroups.lane)
        length = matrices.rows if ops.a_rows_first else quads
        line, at = w.split(first, length)
        found: list[tuple[int, int]] = []
        for start in range(0, matrices.rows * quads, together):
            if together % length:
                line, at = w.split(w.plus(first, start), length)
                step = 0
            else:
                step = start // length
            along, across = at, w.plus(line, step)
            row, quad = (along, across) if ops.a_rows_first else (across, along)
            found.append((row, w.scaled(quad, LANES)))
        return found

    def read_extras(
        self,
        code: Code,
        place: Place,
        first: int,
        spots: Sequence[tuple[int, int]],
        columns: Sequence[int],
        known: Sequence[Extras],
    ) -> list[Finished]:
        """Where the vectors of a matrix, whose first row is ``first``, go, and their extras."""
        ops, matrices, w = self.operands, self.matrices, Words(code)
        together = matrices.subgroup * self.tile.parts
        rows: dict[int, tuple[int, list[int]]] = {}
        found = []
        for number, ((row, spot), column, extras) in enumerate(
            zip(spots, columns, known, strict=True)
        ):
            if row not in rows:
                line = w.add(first, row)
                rows[row] = line, ops.locate(code, place, line)
            line, at = rows[row]
            inside = w.both(w.below(line, ops.rows), w.below(column, ops.columns))
            if (number + 1) * together > matrices.rows * matrices.columns // LANES:
                inside = w.both(inside, w.below(row, w.c(matrices.rows)))
                inside = w.both(inside, w.below(spot, w.c(matrices.columns)))
            every = ops.row_extras(code, place, at, column, inside, extras)
            found.append(Finished(inside, at, column, every))
        return found

    def finish_one(
        self,
        code: Code,
        place: Place,
        total: int,
        spots: Sequence[tuple[int, int]],
        waiting: Sequence[Finished],
    ) -> None:
        """A matrix of sums: what ``spots`` of it become goes where ``waiting`` says."""
        ops, tile, matrices, w = self.operands, self.tile, self.matrices, Words(code)
        pitch, length = tile.sum_pitch(matrices), tile.sum_length(matrices)
        layout, stride = (code.module.integer(item, signed=False) for item in (ROW_MAJOR, pitch))
        mine = self.sums.at(code, w.scaled(self.subgroups.number, length))
        code.do(
            "CooperativeMatrixStoreKHR", mine, code.op("Load", self.kind, total), layout, stride
        )
        self.meet(code)
        begin = w.scaled(self.subgroups.in_part, length)
        for (row, spot), one in zip(spots, waiting, strict=True):
            test = Conditional(code, one.inside)
            v = Words(test.body)
            vector = v.add(begin, v.scaled(row, pitch), v.div(spot, v.c(LANES)))
            totals = self.joined(test.body, vector, length)
            ops.store(test.body, place, one.at, one.column, totals, one.extras)
            test.close()
        self.meet(code)

    def joined(self, code: Code, at: int, length: int) -> list[int]:
        """Four sums, of all parts in order."""
        w, real = Words(code), code.module.float_type()
        total = code.op("Load", self.sums.vector, self.sums.at(code, at))
        for part in range(1, self.tile.parts):
            place = w.plus(at, part * self.tile.part_subgroups * length)
            other = code.op("Load", self.sums.vector, self.sums.at(code, place))
            total = code.op("FAdd", self.sums.vector, total, other)
        return [code.op("CompositeExtract", real, total, lane) for lane in range(LANES)]

    def meet(self, code: Code) -> None:
        """Wait for whoever shares a matrix of sums."""
        if self.tile.parts > 1:
            barrier(code)
        else:
            barrier(code, SUBGROUP_SCOPE)
