"""Contractions by workgroup tiles: what matmul and conv2d have in common.

A workgroup takes tiles of outputs, one after another. For ``depth`` steps of k at a time it brings
a part of each operand into workgroup memory, each invocation then adds its products one by one to
4 × 4 (or more) chains in registers, while the operands of the next steps are on their way. Chains
end where the contract says, are added up in order, and go through the epilogue. Steps beyond the
end of a chain are 0 · 0, which leaves a chain alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.contraction_operands import Extras, Operands, Place
from rlx_edge.compile.codegen.spirv.contraction_shape import LANES, Shape, workgroup_memory
from rlx_edge.compile.codegen.spirv.emit_loops import add_entry
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared
from rlx_edge.compile.codegen.spirv.region import Conditional, StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars
from rlx_edge.compile.codegen.spirv.words import Words, barrier
from rlx_edge.ir.program import Entry
from rlx_edge.ir.types import F32, U32


@dataclass(frozen=True, slots=True)
class Item:
    """What an invocation brings in at a time: the vector in workgroup memory and its lane where it
    goes, its step of ``depth``, what of its address stays, and whether there is such a row or
    column."""

    place: int
    lane: int | None
    k: int
    base: int
    inside: int


@dataclass(frozen=True, slots=True)
class Steps:
    """``depth`` steps of a part: the first of them, and where their chain ends."""

    first: int
    stop: int


def each_tile(
    io: Interface,
    operands: Operands,
    rows: int,
    columns: int,
    emit: Callable[[Code, Place], None],
) -> None:
    """Tiles of ``rows`` × ``columns``, shared out among the workgroups."""
    root, w = io.root, Words(io.root.code)
    tall, wide = w.ceildiv(operands.rows, rows), w.ceildiv(operands.columns, columns)
    total = w.mul(w.mul(tall, wide), operands.slices)
    step, start = io.input("NumWorkgroups"), io.input("WorkgroupId")
    loop = StructuredLoop(root.code, [(w.code.module.int_type(32, False), start)])
    body = Words(loop.body)
    number = loop.carried[0]
    rest, across = body.divided(number, wide)
    slice_, down = body.divided(rest, tall)
    emit(loop.body, Place(slice_, body.scaled(down, rows), body.scaled(across, columns)))
    following = Words(loop.body).add(number, step)
    loop.close(Words(loop.check).below(number, total), [following])


class Contraction:
    """Emits one kernel."""

    def __init__(self, io: Interface, operands: Operands, shape: Shape, memory: int) -> None:
        self.io, self.operands, self.shape, self.memory = io, operands, shape, memory
        w = Words(io.root.code)
        self.part, self.local = w.c(0), io.input("LocalInvocationId")
        if shape.tile.parts > 1:
            self.part, self.local = w.split(self.local, shape.part_threads)
        if shape.rows_first:
            self.across, self.down = w.split(self.local, shape.down)
        else:
            self.down, self.across = w.split(self.local, shape.across)
        self.a_vectors = operands.a_quads or operands.a_fours
        self.a_items: list[Item] = []
        self.b_items: list[Item] = []

    def emit(self) -> None:
        """Tiles, each by all invocations of a workgroup."""
        tile = self.shape.tile
        each_tile(self.io, self.operands, tile.rows, tile.columns, self.tile)

    # ---- one tile ----------------------------------------------------------------------------

    def tile(self, code: Code, place: Place) -> None:
        """Chains, as many at once as there are parts, and what they add up to."""
        ops, shape, w = self.operands, self.shape, Words(code)
        self.prepare(code, place)
        word, real = code.module.int_type(32, False), code.module.float_type()
        start, zero = w.c(0), w.s.const(0.0, F32)
        count = shape.finished * shape.vectors * LANES
        some = Conditional(code, w.below(start, ops.depth))
        fetched = self.fetch(some.body, self.steps(some.body, start, start))
        kinds = [kind for kind, _ in fetched]
        ahead = some.close([(kind, value, code.module.null(kind)) for kind, value in fetched])
        starts = [(word, start), *[(real, zero)] * count, *zip(kinds, ahead, strict=True)]
        chains = StructuredLoop(code, starts)
        first, totals, ahead = _parted(chains.carried, count)
        sums, ahead = self.chain(chains.body, first, kinds, ahead)
        totals = self.join(chains.body, totals, sums)
        following = Words(chains.body).plus(first, ops.chain * shape.tile.parts)
        chains.close(Words(chains.check).below(first, ops.depth), [following, *totals, *ahead])
        self.finish(code, place, _parted(chains.carried, count)[1])

    def chain(
        self, code: Code, first: int, kinds: list[int], ahead: list[int]
    ) -> tuple[list[int], list[int]]:
        """A chain of each part, of which the first part's begins at ``first``, and what was read
        ahead of the chains that follow. ``ahead``: of types ``kinds``, what was read of these."""
        ops, shape, w = self.operands, self.shape, Words(code)
        word, real = code.module.int_type(32, False), code.module.float_type()
        count = shape.fours * LANES
        length = w.least(w.sub(ops.depth, first), w.c(ops.chain))
        starts = [(word, w.c(0)), *[(real, w.s.const(0.0, F32))] * count]
        loop = StructuredLoop(code, [*starts, *zip(kinds, ahead, strict=True)])
        at, sums, ahead = _parted(loop.carried, count)
        body = Words(loop.body)
        self.bring(loop.body, self.steps(loop.body, first, at), ahead)
        barrier(loop.body)
        following = body.plus(at, shape.tile.depth)
        more = body.below(following, length)
        others = body.plus(first, ops.chain * shape.tile.parts)
        ahead = [
            value
            for _, value in self.fetch(
                loop.body,
                self.steps(
                    loop.body,
                    body.s.select(U32, more, first, others),
                    body.kept(more, following),
                ),
            )
        ]
        sums = self.products(loop.body, sums)
        barrier(loop.body)
        loop.close(Words(loop.check).below(at, length), [following, *sums, *ahead])
        _, sums, ahead = _parted(loop.carried, count)
        return sums, ahead

    def steps(self, code: Code, first: int, at: int) -> Steps:
        """This part's steps, ``at`` into its chain, where the first part's begins at ``first``."""
        ops, w = self.operands, Words(code)
        if self.shape.tile.parts > 1:
            first = w.add(first, w.scaled(self.part, ops.chain))
        return Steps(w.add(first, at), w.least(w.plus(first, ops.chain), ops.depth))

    def prepare(self, code: Code, place: Place) -> None:
        """Which elements this invocation brings in, and what of their addresses stays."""
        ops, shape, w = self.operands, self.shape, Words(code)
        tile, quads = shape.tile, shape.tile.depth // LANES
        begin = w.scaled(self.part, shape.part_vectors)
        self.a_items, self.b_items = [], []
        width, steps = (quads, LANES) if self.a_vectors else (tile.depth, 1)
        for number in range(tile.rows * width // shape.part_threads):
            item = w.plus(self.local, number * shape.part_threads)
            if ops.a_rows_first:
                k, row = w.split(item, tile.rows)
            else:
                row, k = w.split(item, width)
            k = w.scaled(k, steps)
            vector, lane = w.split(row, LANES)
            at = w.add(place.row, row)
            self.a_items.append(
                Item(
                    w.add(begin, w.scaled(k, shape.a_pitch), vector),
                    lane,
                    k,
                    ops.at_row(code, place, at),
                    w.below(at, ops.rows),
                )
            )
        width = tile.columns // LANES if ops.b_quads else tile.columns
        for number in range(tile.depth * width // shape.part_threads):
            k, column = w.split(w.plus(self.local, number * shape.part_threads), width)
            if ops.b_quads:
                vector, only, column = column, None, w.scaled(column, LANES)
            else:
                vector, only = w.split(column, LANES)
            at = w.add(place.column, column)
            self.b_items.append(
                Item(
                    w.plus(w.add(begin, w.scaled(k, shape.b_pitch), vector), shape.b_first),
                    only,
                    k,
                    ops.at_column(code, place, at),
                    w.below(at, ops.columns),
                )
            )

    def exists(self, code: Code, item: Item, steps: Steps) -> tuple[int, int]:
        """An item's k, and whether it is one of the chain."""
        w = Words(code)
        k = w.add(steps.first, item.k)
        return k, w.both(item.inside, w.below(k, steps.stop))

    def fetch(self, code: Code, steps: Steps) -> list[tuple[int, int]]:
        """Types and values of what this invocation brings in, A's before B's; beyond the edges
        anything."""
        ops, module = self.operands, code.module
        vector, real = module.vector_type(LANES), module.float_type()
        found: list[tuple[int, int]] = []
        for item in self.a_items:
            k, exists = self.exists(code, item, steps)
            if ops.a_fours:
                four = ops.a_four(code, item.base, k, exists)
                found.append((vector, code.op("CompositeConstruct", vector, *four)))
                continue
            exists = ops.a_exists(code, k, exists)
            found.append((vector if ops.a_quads else real, ops.a(code, item.base, k, exists)))
        for item in self.b_items:
            k, exists = self.exists(code, item, steps)
            found.append((vector if ops.b_quads else real, ops.b(code, item.base, k, exists)))
        return found

    def bring(self, code: Code, steps: Steps, values: list[int]) -> None:
        """Put what was fetched into workgroup memory, +0 beyond the edges."""
        ops, shape, w = self.operands, self.shape, Words(code)
        for item, value in zip(self.a_items, values, strict=False):
            k, exists = self.exists(code, item, steps)
            if not self.a_vectors:
                exists = ops.a_exists(code, k, exists)
                self.put(code, item.place, item.lane, w.or_zero(exists, value))
                continue
            lanes = [self.lane(code, value, lane) for lane in range(LANES)]
            for lane, number in enumerate(lanes):
                present = ops.a_exists(code, w.plus(k, lane), exists) if ops.a_fours else exists
                place = w.plus(item.place, lane * shape.a_pitch)
                self.put(code, place, item.lane, w.or_zero(present, number))
        for item, value in zip(self.b_items, values[len(self.a_items) :], strict=True):
            _, exists = self.exists(code, item, steps)
            zeroed = w.vector_or_zero if ops.b_quads else w.or_zero
            self.put(code, item.place, item.lane, zeroed(exists, value))

    def products(self, code: Code, sums: list[int]) -> list[int]:
        """Add ``depth`` products to each chain."""
        shape, module = self.shape, code.module
        word, real = module.int_type(32, False), module.float_type()
        w = Words(code)
        begin = w.scaled(self.part, shape.part_vectors)
        a_first = w.add(begin, w.scaled(self.down, shape.each // LANES))
        b_first = w.plus(w.add(begin, self.across), shape.b_first)
        loop = StructuredLoop(code, [(word, w.c(0)), *[(real, item) for item in sums]])
        w, s = Words(loop.body), Scalars(loop.body)
        step, chains = loop.carried[0], loop.carried[1:]
        a_line = w.add(w.scaled(step, shape.a_pitch), a_first)
        b_line = w.add(w.scaled(step, shape.b_pitch), b_first)
        left = self.numbers(loop.body, a_line, shape.each // LANES, 1)
        right = self.numbers(loop.body, b_line, shape.vectors, shape.across)
        add = s.fused if self.operands.fused else s.multiplied
        factors = [(row, column) for row in left for column in right]
        following = [
            add(row, column, chain) for (row, column), chain in zip(factors, chains, strict=True)
        ]
        condition = Words(loop.check).below(step, Words(loop.check).c(shape.tile.depth))
        loop.close(condition, [w.plus(step, 1), *following], unroll=True)
        return loop.carried[1:]

    def join(self, code: Code, totals: list[int], sums: list[int]) -> list[int]:
        """Add finished chains to the totals of the rows that this invocation finishes, in order."""
        shape, s, w = self.shape, Scalars(code), Words(code)
        parts, threads = shape.tile.parts, shape.part_threads
        if parts == 1:
            return [s.rounded("FAdd", F32, *pair) for pair in zip(totals, sums, strict=True)]
        kind = code.module.vector_type(LANES)
        own = w.add(w.scaled(self.part, shape.fours * threads), self.local)
        for number in range(shape.fours):
            four = sums[number * LANES : (number + 1) * LANES]
            vector = code.op("CompositeConstruct", kind, *four)
            self.put(code, w.plus(own, number * threads), None, vector)
        barrier(code)
        finished = shape.finished * shape.vectors
        mine = w.add(w.scaled(self.part, finished * threads), self.local)
        joined: list[int] = []
        for number in range(finished):
            four = totals[number * LANES : (number + 1) * LANES]
            for other in range(parts):
                at = w.plus(mine, (other * shape.fours + number) * threads)
                vector = self.get(code, at)
                four = [
                    s.rounded("FAdd", F32, total, self.lane(code, vector, lane))
                    for lane, total in enumerate(four)
                ]
            joined += four
        barrier(code)
        return joined

    def finish(self, code: Code, place: Place, totals: list[int]) -> None:
        """Epilogue and stores, row by row."""
        shape, w = self.shape, Words(code)
        first = w.add(place.row, w.scaled(self.down, shape.each))
        if shape.tile.parts > 1:
            first = w.add(first, w.scaled(self.part, shape.finished))
        for vector in range(shape.vectors):
            across = w.plus(self.across, vector * shape.across)
            column = w.add(place.column, w.scaled(across, LANES))
            fours = [
                totals[number * LANES : (number + 1) * LANES]
                for number in range(vector, shape.finished * shape.vectors, shape.vectors)
            ]
            self.finish_columns(code, place, first, column, fours)

    def finish_columns(
        self, code: Code, place: Place, first: int, column: int, fours: list[list[int]]
    ) -> None:
        """Rows from ``first`` on at four columns; all extra operands are read first."""
        ops, w = self.operands, Words(code)
        fits = w.below(column, ops.columns)
        known = ops.column_extras(code, place, column)
        rows: list[tuple[int, list[int], Extras]] = []
        for row in range(len(fours)):
            number = w.plus(first, row)
            at, inside = ops.locate(code, place, number), w.both(w.below(number, ops.rows), fits)
            extras = ops.row_extras(code, place, at, column, inside, known)
            rows.append((inside, at, extras))
        for four, (inside, at, extras) in zip(fours, rows, strict=True):
            one = Conditional(code, inside)
            ops.store(one.body, place, at, column, four, extras)
            one.close()

    # ---- workgroup memory --------------------------------------------------------------------

    def get(self, code: Code, place: int) -> int:
        vector = code.module.vector_type(LANES)
        pointer = code.module.pointer("Workgroup", vector)
        return code.op("Load", vector, code.op("AccessChain", pointer, self.memory, place))

    def put(self, code: Code, place: int, lane: int | None, value: int) -> None:
        module = code.module
        kind = module.vector_type(LANES) if lane is None else module.float_type()
        indices = (place,) if lane is None else (place, lane)
        pointer = code.op("AccessChain", module.pointer("Workgroup", kind), self.memory, *indices)
        code.do("Store", pointer, value)

    def numbers(self, code: Code, place: int, count: int, apart: int) -> list[int]:
        """The numbers of ``count`` vectors from ``place`` on, ``apart`` from each other."""
        w = Words(code)
        vectors = [self.get(code, w.plus(place, part * apart)) for part in range(count)]
        return [self.lane(code, vector, lane) for vector in vectors for lane in range(LANES)]

    def lane(self, code: Code, vector: int, lane: int) -> int:
        return code.op("CompositeExtract", code.module.float_type(), vector, lane)


def _parted(carried: list[int], count: int) -> tuple[int, list[int], list[int]]:
    """A position, ``count`` numbers, and what was read ahead."""
    return carried[0], carried[1 : 1 + count], carried[1 + count :]


def emit_contraction(
    shared: Shared, io: Interface, operands: Operands, shape: Shape, name: str
) -> Entry:
    """The entry point of a contraction; ``io.root`` holds what ``operands`` has computed."""
    first = io.root.code.label
    memory = workgroup_memory(shared, shape, name)
    Contraction(io, operands, shape, memory).emit()
    io.root.code.do("Return")
    function = shared.module.function(io.root.code, first)
    add_entry(shared, function, name, shape.threads, io.inputs)
    return Entry(name, shape.threads, io.words)
