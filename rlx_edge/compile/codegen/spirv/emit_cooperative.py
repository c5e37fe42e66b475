"""Contractions on cooperative matrices: operands rounded to f16, sums in f32.

A workgroup brings ``DEPTH`` steps of k of its rows and columns into workgroup memory, rounded,
while what comes next is on its way; its subgroups multiply matrices of them. Two stages take turns,
so one barrier a round suffices. Which invocation holds which sum is not known: each matrix of sums
goes through a place in workgroup memory, from which the shared epilogues take four columns at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code, Instruction, instruction
from rlx_edge.compile.codegen.spirv.contraction_operands import Extras, Operands, Place
from rlx_edge.compile.codegen.spirv.cooperative_memory import Subgroups, WorkgroupArray
from rlx_edge.compile.codegen.spirv.emit_contraction import each_tile
from rlx_edge.compile.codegen.spirv.emit_conv import ConvOperands
from rlx_edge.compile.codegen.spirv.emit_loops import add_entry
from rlx_edge.compile.codegen.spirv.emit_matmul import MatmulOperands
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared
from rlx_edge.compile.codegen.spirv.opcodes import ENUMS
from rlx_edge.compile.codegen.spirv.region import Conditional, StructuredLoop
from rlx_edge.compile.codegen.spirv.template_words import TemplateWords
from rlx_edge.compile.codegen.spirv.words import SUBGROUP_SCOPE, Words, barrier
from rlx_edge.compile.targets.vulkan import Matrices
from rlx_edge.compile.templates.cooperative import (
    DEPTH,
    LANES,
    CooperativeTile,
    cooperative_tile,
)
from rlx_edge.compile.templates.gpu import MATMUL_WORDS, conv_words
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry

MATRIX = "CooperativeMatrixKHR"
"""The type and the capability."""
LEFT, RIGHT, SUMS = 0, 1, 2
"""What a cooperative matrix is used for."""
ROW_MAJOR = 0


@dataclass(frozen=True, slots=True)
class Item:
    """Four neighbouring elements that an invocation brings in, steps of a row of the left operand
    or columns of the right one: where they go in a stage, their first step of k, what of their
    addresses stays, and whether there is such a row or column; one base and one test for all four
    where they share them."""

    is_left: bool
    place: int
    k: int
    bases: Sequence[int]
    insides: Sequence[int]


class Cooperative:
    """Emits one kernel."""

    def __init__(
        self, io: Interface, operands: Operands, tile: CooperativeTile, matrices: Matrices
    ) -> None:
        self.io, self.operands, self.tile, self.matrices = io, operands, tile, matrices
        shared, module = io.shared, io.module
        module.capability(MATRIX, "GroupNonUniform")
        stages, sums = 2 * tile.stage_length, tile.subgroups * tile.sum_length(matrices)
        self.stages = WorkgroupArray(shared, module.float_type(16), stages, "stages")
        self.sums = WorkgroupArray(shared, module.float_type(), sums, "sums")
        scope = module.integer(SUBGROUP_SCOPE, signed=False)
        m, n, k = (
            module.integer(size, signed=False)
            for size in (matrices.rows, matrices.columns, matrices.depth)
        )
        self.left, self.right, self.total = (
            module.type(MATRIX, kind, scope, *size, module.integer(use, signed=False))
            for kind, size, use in (
                (module.float_type(16), (m, k), LEFT),
                (module.float_type(16), (k, n), RIGHT),
                (module.float_type(), (m, n), SUMS),
            )
        )
        self.subgroups = Subgroups(io, tile)
        self.rows, self.columns = (
            tile.sub_rows // matrices.rows,
            tile.sub_columns // matrices.columns,
        )
        """Matrices of a subgroup, one below another and side by side."""
        pointer = module.pointer("Function", self.total)
        self.totals = [module.id() for _ in range(self.rows * self.columns)]
        storage = ENUMS["Storage"]["Function"]
        self.variables: list[Instruction] = [
            instruction("Variable", pointer, total, storage) for total in self.totals
        ]

    def emit(self) -> None:
        """Tiles, each by all invocations of a workgroup."""
        each_tile(self.io, self.operands, self.tile.rows, self.tile.columns, self.one_tile)

    # ---- one tile ----------------------------------------------------------------------------

    def one_tile(self, code: Code, place: Place) -> None:
        """Rounds of ``DEPTH`` steps of k for every part, then the epilogue."""
        module, w, tile = code.module, Words(code), self.tile
        word, vector = module.int_type(32, False), module.vector_type(LANES)
        zero = module.composite(self.total, module.real(0.0))
        for total in self.totals:
            code.do("Store", total, zero)
        items = [*self.left_items(code, place), *self.right_items(code, place)]
        ahead = self.fetch(code, items, w.c(0))
        loop = StructuredLoop(
            code, [(word, w.c(0)), (word, w.c(0)), *((vector, value) for value in ahead)]
        )
        k, stage, *ahead = loop.carried
        body = Words(loop.body)
        self.bring(loop.body, items, k, stage, ahead)
        barrier(loop.body)
        following = body.plus(k, DEPTH * tile.parts)
        ahead = self.fetch(loop.body, items, following)
        self.multiply(loop.body, stage)
        other = body.sub(body.c(tile.stage_length), stage)
        condition = Words(loop.check).below(k, self.operands.depth)
        loop.close(condition, [following, other, *ahead])
        # The next tile's first stage may be the one that is read last.
        barrier(code)
        self.finish(code, place)

    def left_items(self, code: Code, place: Place) -> list[Item]:
        """Four steps of a row each."""
        ops, tile, w = self.operands, self.tile, Words(code)
        threads = tile.part_subgroups * self.matrices.subgroup
        found = []
        for number in range(tile.rows * DEPTH // LANES // threads):
            item = w.plus(self.subgroups.local, number * threads)
            if ops.a_rows_first:
                quad, row = w.split(item, tile.rows)
            else:
                row, quad = w.split(item, DEPTH // LANES)
            at = w.add(place.row, row)
            found.append(
                Item(
                    True,
                    w.add(self.begin(w), w.scaled(row, tile.a_pitch), quad),
                    w.add(self.first(w), w.scaled(quad, LANES)),
                    [ops.at_row(code, place, at)],
                    [w.below(at, ops.rows)],
                )
            )
        return found

    def right_items(self, code: Code, place: Place) -> list[Item]:
        """Four columns of a step each."""
        ops, tile, w = self.operands, self.tile, Words(code)
        threads = tile.part_subgroups * self.matrices.subgroup
        found = []
        for number in range(tile.columns * DEPTH // LANES // threads):
            k, quad = w.split(w.plus(self.subgroups.local, number * threads), tile.columns // LANES)
            first = w.add(place.column, w.scaled(quad, LANES))
            columns = [w.plus(first, lane) for lane in range(1 if ops.b_quads else LANES)]
            found.append(
                Item(
                    False,
                    w.plus(w.add(self.begin(w), w.scaled(k, tile.b_pitch), quad), tile.a_length),
                    w.add(self.first(w), k),
                    [ops.at_column(code, place, column) for column in columns],
                    [w.below(column, ops.columns) for column in columns],
                )
            )
        return found

    def begin(self, w: Words) -> int:
        """Where what an invocation brings in for its part begins in a stage."""
        return w.scaled(self.subgroups.bringing, self.tile.part_length)

    def first(self, w: Words) -> int:
        """The first step of k, in a round, of the part that an invocation brings in."""
        return w.scaled(self.subgroups.bringing, DEPTH)

    # ---- operands ----------------------------------------------------------------------------

    def fetch(self, code: Code, items: Sequence[Item], k: int) -> list[int]:
        """What this invocation brings in for a round, vectors of four; beyond the edges
        anything."""
        ops, found = self.operands, []
        for item in items:
            read = ops.a if item.is_left else ops.b
            tests, steps = self.exist(code, item, k)
            bases = [*item.bases] * (LANES // len(item.bases))
            if ops.a_quads if item.is_left else ops.b_quads:
                found.append(read(code, bases[0], steps[0], tests[0]))
                continue
            values = [
                read(code, base, step, test)
                for base, step, test in zip(bases, steps, tests, strict=True)
            ]
            vector = code.module.vector_type(LANES)
            found.append(code.op("CompositeConstruct", vector, *values))
        return found

    def bring(
        self, code: Code, items: Sequence[Item], k: int, stage: int, values: Sequence[int]
    ) -> None:
        """Round what was fetched and put it into a stage, +0 beyond the edges."""
        module, w = code.module, Words(code)
        vector, halves = module.vector_type(LANES), self.stages.vector
        truths = module.type("Vector", module.bool_type(), LANES)
        for item, value in zip(items, values, strict=True):
            tests, _ = self.exist(code, item, k)
            condition = code.op("CompositeConstruct", truths, *tests)
            inside = code.op("Select", vector, condition, value, module.null(vector))
            rounded = code.op("FConvert", halves, inside)
            code.do("Store", self.stages.at(code, w.add(stage, item.place)), rounded)

    def exist(self, code: Code, item: Item, k: int) -> tuple[list[int], list[int]]:
        """Of each of an item's four elements, whether it is one, and its step of k; ``k`` is the
        first of the round."""
        ops, w = self.operands, Words(code)
        first = w.add(k, item.k)
        if item.is_left and ops.a_quads:
            test = w.both(item.insides[0], w.below(first, ops.depth))
            return [ops.a_exists(code, first, test)] * LANES, [first] * LANES
        if item.is_left:
            steps = [w.plus(first, lane) for lane in range(LANES)]
            tests = [
                ops.a_exists(code, step, w.both(item.insides[0], w.below(step, ops.depth)))
                for step in steps
            ]
            return tests, steps
        before = w.below(first, ops.depth)
        tests = [w.both(inside, before) for inside in item.insides]
        return tests * (LANES // len(tests)), [first] * LANES

    # ---- products ----------------------------------------------------------------------------

    def multiply(self, code: Code, stage: int) -> None:
        """Add a round's products to the sums of this subgroup."""
        tile, matrices, w = self.tile, self.matrices, Words(code)
        start = w.add(stage, w.scaled(self.subgroups.part, tile.part_length))
        left = w.add(start, w.scaled(self.subgroups.row, tile.a_pitch))
        right = w.plus(w.add(start, w.div(self.subgroups.column, w.c(LANES))), tile.a_length)
        for step in range(0, DEPTH, matrices.depth):
            places = [
                w.plus(left, row * matrices.rows * tile.a_pitch + step // LANES)
                for row in range(self.rows)
            ]
            rows = [self.load(code, self.left, place, tile.a_pitch) for place in places]
            places = [
                w.plus(right, step * tile.b_pitch + column * matrices.columns // LANES)
                for column in range(self.columns)
            ]
            columns = [self.load(code, self.right, place, tile.b_pitch) for place in places]
            for number, total in enumerate(self.totals):
                row, column = divmod(number, self.columns)
                before = code.op("Load", self.total, total)
                after = code.op(
                    "CooperativeMatrixMulAddKHR", self.total, rows[row], columns[column], before
                )
                code.do("Store", total, after)

    def load(self, code: Code, kind: int, place: int, pitch: int) -> int:
        layout, stride = (code.module.integer(item, signed=False) for item in (ROW_MAJOR, pitch))
        return code.op(
            "CooperativeMatrixLoadKHR", kind, self.stages.at(code, place), layout, stride
        )

    # ---- the epilogue ------------------------------------------------------------------------

    def finish(self, code: Code, place: Place) -> None:
        """Every matrix of sums through workgroup memory; the parts of a matrix share it out."""
        ops, tile, matrices, w = self.operands, self.tile, self.matrices, Words(code)
        quads = matrices.columns // LANES
        together = matrices.subgroup * tile.parts
        first = w.add(w.scaled(self.subgroups.part, matrices.subgroup), self.subgroups.lane)
        spots: list[tuple[int, int]] = []
        for start in range(0, matrices.rows * quads, together):
            item = w.plus(first, start)
            if ops.a_rows_first:
                quad, row = w.split(item, matrices.rows)
            else:
                row, quad = w.split(item, quads)
            spots.append((row, w.scaled(quad, LANES)))
        begin = w.add(place.column, self.subgroups.column)
        columns = [
            [w.add(w.plus(begin, column * matrices.columns), spot) for _, spot in spots]
            for column in range(self.columns)
        ]
        known = [[ops.column_extras(code, place, at) for at in spots_] for spots_ in columns]
        begin = w.add(place.row, self.subgroups.row)
        for row in range(self.rows):
            numbers = [w.add(w.plus(begin, row * matrices.rows), spot) for spot, _ in spots]
            lines = [(number, ops.locate(code, place, number)) for number in numbers]
            for column in range(self.columns):
                self.finish_one(
                    code,
                    place,
                    self.totals[row * self.columns + column],
                    spots,
                    lines,
                    list(zip(columns[column], known[column], strict=True)),
                )

    def finish_one(
        self,
        code: Code,
        place: Place,
        total: int,
        spots: Sequence[tuple[int, int]],
        lines: Sequence[tuple[int, list[int]]],
        columns: Sequence[tuple[int, Extras]],
    ) -> None:
        """A matrix of sums; ``spots`` are rows and columns in it of what this invocation finishes,
        ``lines`` and ``columns`` their places in the result."""
        ops, tile, matrices = self.operands, self.tile, self.matrices
        pitch, length = tile.sum_pitch(matrices), tile.sum_length(matrices)
        w, module = Words(code), code.module
        waiting = []
        for (number, at), (column, known) in zip(lines, columns, strict=True):
            inside = w.both(w.below(number, ops.rows), w.below(column, ops.columns))
            waiting.append((inside, ops.row_extras(code, place, at, column, inside, known)))
        layout, stride = (module.integer(item, signed=False) for item in (ROW_MAJOR, pitch))
        mine = self.sums.at(code, w.scaled(self.subgroups.number, length))
        code.do(
            "CooperativeMatrixStoreKHR", mine, code.op("Load", self.total, total), layout, stride
        )
        self.meet(code)
        begin = w.scaled(self.subgroups.in_part, length)
        count = matrices.rows * matrices.columns // LANES
        for number, (row, spot) in enumerate(spots):
            inside, extras = waiting[number]
            if (number + 1) * matrices.subgroup * tile.parts > count:
                inside = w.both(inside, w.below(row, w.c(matrices.rows)))
                inside = w.both(inside, w.below(spot, w.c(matrices.columns)))
            one = Conditional(code, inside)
            v = Words(one.body)
            vector = v.add(begin, v.scaled(row, pitch), v.div(spot, v.c(LANES)))
            totals = self.joined(one.body, vector, length)
            ops.store(one.body, place, lines[number][1], columns[number][0], totals, extras)
            one.close()
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


def _emit(shared: Shared, words: TemplateWords, operands: Operands, name: str) -> Entry:
    first, tile = words.root.label, cooperative_tile(str(words.kernel.option("tile")))
    matrices = shared.target.matrix_shape
    assert matrices is not None, "claims take such kernels for devices that have matrices"
    kernel = Cooperative(words.io, operands, tile, matrices)
    kernel.emit()
    words.root.do("Return")
    function = shared.module.function(words.root, first, kernel.variables)
    threads = tile.subgroups * matrices.subgroup
    add_entry(shared, function, name, threads, words.io.inputs)
    shared.module.capability("RoundingModeRTE")
    shared.module.mode(function, "RoundingModeRTE", 16)
    return Entry(name, threads, words.io.words)


def emit_cooperative_matmul(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point of a product; words as those of the plain template."""
    words = TemplateWords(shared, kernel, MATMUL_WORDS)
    return _emit(shared, words, MatmulOperands(words), name)


def emit_cooperative_conv(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point of a convolution; words and packed weights as the plain template's."""
    words = TemplateWords(shared, kernel, conv_words(kernel.extras))
    return _emit(shared, words, ConvOperands(words), name)
