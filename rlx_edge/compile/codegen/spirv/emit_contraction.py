"""Contractions by workgroup tiles: what matmul and conv2d have in common.

A workgroup takes tiles of outputs, one after another. For ``depth`` steps of k at a time it brings
a part of each operand into workgroup memory, each invocation then adds its products one by one to
4 × 4 (or more) chains in registers. Chains end where the contract says, are added up in order, and
go through the epilogue. Steps beyond the end of a chain are 0 · 0, which leaves a chain alone.

Operand A lies in workgroup memory k by k with its rows side by side, operand B with its columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.emit_loops import add_entry
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared
from rlx_edge.compile.codegen.spirv.region import Conditional, StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars
from rlx_edge.compile.codegen.spirv.words import Words, barrier
from rlx_edge.compile.templates.gpu import EACH, GpuTile
from rlx_edge.ir.errors import LimitError
from rlx_edge.ir.program import Entry
from rlx_edge.ir.types import F32

LANES = 4
PAD = 1
"""Vectors after each row of A, so that its transposed stores meet other banks."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a tile is shared out: ``threads`` invocations of ``each`` rows by 4 columns.

    ``rows_first``: neighbouring invocations have neighbouring rows, else columns.
    """

    tile: GpuTile
    each: int
    rows_first: bool

    @property
    def threads(self) -> int:
        return self.tile.rows // self.each * (self.tile.columns // LANES)

    @property
    def a_pitch(self) -> int:
        """Vectors from one k to the next of A."""
        return self.tile.rows // LANES + PAD

    @property
    def b_pitch(self) -> int:
        return self.tile.columns // LANES


def share_out(tile: GpuTile, most: int, rows_first: bool) -> Shape:
    """The shape for at most ``most`` invocations."""
    each = EACH
    while tile.rows // each * (tile.columns // LANES) > most and each < tile.rows:
        each *= 2
    return Shape(tile, each, rows_first)


@dataclass(slots=True)
class Place:
    """Where a workgroup is: slice, first row and column of the tile."""

    slice: int
    row: int
    column: int


class Operands(ABC):
    """What a contraction reads and writes; everything is emitted by ``emit_contraction``.

    ``rows``, ``columns``, ``depth`` are words; k beyond ``depth`` is never asked for.
    """

    io: Interface
    slices: int
    rows: int
    columns: int
    depth: int
    chain: int
    """Steps of k in one chain."""
    a_quads: bool
    """Whether A is read four k at a time, else one element."""
    b_quads: bool
    """Whether B is read four columns at a time."""
    a_rows_first: bool
    """Whether A's rows lie side by side in memory, else its k."""

    @abstractmethod
    def at_row(self, code: Code, place: Place, row: int) -> int:
        """What ``a`` needs of a row (of all), computed once a tile; rows beyond the last too."""

    @abstractmethod
    def a(self, code: Code, base: int, k: int, inside: int) -> int:
        """An element of A, or four k of it, +0 unless ``inside``."""

    @abstractmethod
    def at_column(self, code: Code, place: Place, column: int) -> int:
        """What ``b`` needs of a column, computed once a tile."""

    @abstractmethod
    def b(self, code: Code, base: int, k: int, inside: int) -> int:
        """An element of B, or four columns of it, +0 unless ``inside``."""

    @abstractmethod
    def store(self, code: Code, place: Place, row: int, column: int, totals: list[int]) -> None:
        """Epilogue and store of four neighbouring columns; the row is inside."""


@dataclass(slots=True)
class Memory:
    """Workgroup memory: vectors of four f32."""

    a: int
    b: int


def workgroup_memory(shared: Shared, shape: Shape, name: str) -> Memory:
    """The two arrays of a tile; kernels of one shape share them.

    ``LimitError`` ``target.shared`` where the device has less.
    """
    module, target = shared.module, shared.target
    vectors = shape.tile.depth * shape.a_pitch, shape.tile.depth * shape.b_pitch
    need = 16 * sum(vectors)
    if need > target.shared:
        raise LimitError(
            "target.shared",
            f"the tile {shape.tile.name} does not fit into workgroup memory",
            found=f"{need} bytes",
            allowed=f"at most {target.shared}",
            where=name,
        )
    found: list[int] = []
    for operand, length in zip("ab", vectors, strict=True):
        key = f"workgroup {operand} {length}"
        if key not in shared.variables:
            kind = module.array(module.vector_type(LANES), length)
            shared.variables[key] = module.variable("Workgroup", kind)
            module.name(shared.variables[key], f"tile_{operand}_{length}")
        found.append(shared.variables[key])
    return Memory(*found)


class Contraction:
    """Emits one kernel."""

    def __init__(self, io: Interface, operands: Operands, shape: Shape, memory: Memory) -> None:
        self.io, self.operands, self.shape, self.memory = io, operands, shape, memory
        self.local = io.input("LocalInvocationId")
        w = Words(io.root.code)
        across = shape.tile.columns // LANES
        down = shape.tile.rows // shape.each
        if shape.rows_first:
            self.down, self.across = w.rem(self.local, w.c(down)), w.div(self.local, w.c(down))
        else:
            self.across, self.down = (
                w.rem(self.local, w.c(across)),
                w.div(self.local, w.c(across)),
            )

    def emit(self) -> None:
        """Tiles, each by all invocations of a workgroup."""
        root, ops, tile = self.io.root, self.operands, self.shape.tile
        w = Words(root.code)
        tall, wide = w.ceildiv(ops.rows, tile.rows), w.ceildiv(ops.columns, tile.columns)
        total = w.mul(w.mul(tall, wide), ops.slices)
        step, start = self.io.input("NumWorkgroups"), self.io.input("WorkgroupId")
        loop = StructuredLoop(root.code, [(w.code.module.int_type(32, False), start)])
        body = Words(loop.body)
        number = loop.carried[0]
        rest, across = body.div(number, wide), body.rem(number, wide)
        place = Place(
            body.div(rest, tall),
            body.scaled(body.rem(rest, tall), tile.rows),
            body.scaled(across, tile.columns),
        )
        self.tile(loop.body, place)
        following = Words(loop.body).add(number, step)
        loop.close(Words(loop.check).below(number, total), [following])

    # ---- one tile ----------------------------------------------------------------------------

    def tile(self, code: Code, place: Place) -> None:
        ops, w = self.operands, Words(code)
        self.prepare(code, place)
        count = self.shape.each * LANES
        zero = w.s.const(0.0, F32)
        word, real = code.module.int_type(32, False), code.module.float_type()
        starts = [(word, w.c(0)), *[(real, zero)] * count]
        chains = StructuredLoop(code, starts)
        first, totals = chains.carried[0], chains.carried[1:]
        inner = Words(chains.body)
        left = inner.sub(ops.depth, first)
        length = inner.least(left, inner.c(ops.chain))
        steps = StructuredLoop(chains.body, starts)
        at, sums = steps.carried[0], steps.carried[1:]
        self.fill(steps.body, Words(steps.body).add(first, at), at, length)
        sums = self.products(steps.body, sums)
        barrier(steps.body)
        following = Words(steps.body).plus(at, self.shape.tile.depth)
        steps.close(Words(steps.check).below(at, length), [following, *sums])
        s = Scalars(chains.body)
        joined = [
            s.rounded("FAdd", F32, total, part)
            for total, part in zip(totals, steps.carried[1:], strict=True)
        ]
        following = Words(chains.body).plus(first, ops.chain)
        chains.close(Words(chains.check).below(first, ops.depth), [following, *joined])
        self.finish(code, place, chains.carried[1:])

    def prepare(self, code: Code, place: Place) -> None:
        """Which elements this invocation brings in, and what of their addresses stays."""
        ops, tile, w = self.operands, self.shape.tile, Words(code)
        threads = self.shape.threads
        quads = tile.depth // LANES
        self.a_parts: list[tuple[int, int, int, int]] = []
        width = quads if ops.a_quads else tile.depth
        for part in range(tile.rows * width // threads):
            item = w.plus(self.local, part * threads)
            if ops.a_rows_first and not ops.a_quads:
                k, row = w.split(item, tile.rows)
            else:
                row, k = w.split(item, width)
            at = w.add(place.row, row)
            base, inside = ops.at_row(code, place, at), w.below(at, ops.rows)
            self.a_parts.append((row, k, base, inside))
        self.b_parts: list[tuple[int, int, int, int]] = []
        width = tile.columns // LANES if ops.b_quads else tile.columns
        for part in range(tile.depth * width // threads):
            k, column = w.split(w.plus(self.local, part * threads), width)
            at = w.add(place.column, w.scaled(column, LANES) if ops.b_quads else column)
            base, inside = ops.at_column(code, place, at), w.below(at, ops.columns)
            self.b_parts.append((column, k, base, inside))

    def fill(self, code: Code, k: int, at: int, length: int) -> None:
        """Bring ``depth`` steps from ``k`` on into workgroup memory.

        ``at`` is how far they are into a chain of ``length`` steps.
        """
        ops, shape = self.operands, self.shape
        for row, step, base, inside in self.a_parts:
            w = Words(code)
            step = w.scaled(step, LANES) if ops.a_quads else step
            exists = w.both(inside, w.below(w.add(at, step), length))
            value = ops.a(code, base, w.add(k, step), exists)
            for lane in range(LANES if ops.a_quads else 1):
                one = self.lane(code, value, lane) if ops.a_quads else value
                place = w.add(w.scaled(w.plus(step, lane), shape.a_pitch), w.div(row, w.c(LANES)))
                self.put(code, self.memory.a, place, w.rem(row, w.c(LANES)), one)
        for column, step, base, inside in self.b_parts:
            w = Words(code)
            exists = w.both(inside, w.below(w.add(at, step), length))
            value = ops.b(code, base, w.add(k, step), exists)
            line = w.scaled(step, shape.b_pitch)
            if ops.b_quads:
                self.put(code, self.memory.b, w.add(line, column), None, value)
            else:
                place = w.add(line, w.div(column, w.c(LANES)))
                self.put(code, self.memory.b, place, w.rem(column, w.c(LANES)), value)
        barrier(code)

    def products(self, code: Code, sums: list[int]) -> list[int]:
        """Add ``depth`` products to each chain."""
        shape, module = self.shape, code.module
        word, real = module.int_type(32, False), module.float_type()
        loop = StructuredLoop(code, [(word, Words(code).c(0)), *[(real, item) for item in sums]])
        w, s = Words(loop.body), Scalars(loop.body)
        step, chains = loop.carried[0], loop.carried[1:]
        vectors = shape.each // LANES
        line = w.add(w.scaled(step, shape.a_pitch), w.scaled(self.down, vectors))
        left = [
            self.lane(loop.body, vector, lane)
            for vector in [
                self.get(loop.body, self.memory.a, w.plus(line, part)) for part in range(vectors)
            ]
            for lane in range(LANES)
        ]
        place = w.add(w.scaled(step, shape.b_pitch), self.across)
        vector = self.get(loop.body, self.memory.b, place)
        right = [self.lane(loop.body, vector, lane) for lane in range(LANES)]
        following = [
            s.rounded("FAdd", F32, chains[row * LANES + column],
                      s.rounded("FMul", F32, left[row], right[column]))
            for row in range(shape.each)
            for column in range(LANES)
        ]  # fmt: skip
        condition = Words(loop.check).below(step, Words(loop.check).c(shape.tile.depth))
        loop.close(condition, [w.plus(step, 1), *following], unroll=True)
        return loop.carried[1:]

    def finish(self, code: Code, place: Place, totals: list[int]) -> None:
        """Epilogue and stores, row by row."""
        ops, shape, w = self.operands, self.shape, Words(code)
        first = w.add(place.row, w.scaled(self.down, shape.each))
        column = w.add(place.column, w.scaled(self.across, LANES))
        for row in range(shape.each):
            at = Words(code).plus(first, row)
            test = Words(code)
            inside = Conditional(
                code, test.both(test.below(at, ops.rows), test.below(column, ops.columns))
            )
            four = totals[row * LANES : (row + 1) * LANES]
            ops.store(inside.body, place, at, column, four)
            inside.close()

    # ---- workgroup memory --------------------------------------------------------------------

    def get(self, code: Code, array: int, place: int) -> int:
        vector = code.module.vector_type(LANES)
        pointer = code.op("AccessChain", code.module.pointer("Workgroup", vector), array, place)
        return code.op("Load", vector, pointer)

    def put(self, code: Code, array: int, place: int, lane: int | None, value: int) -> None:
        module = code.module
        kind = module.vector_type(LANES) if lane is None else module.float_type()
        indices = (place,) if lane is None else (place, lane)
        pointer = code.op("AccessChain", module.pointer("Workgroup", kind), array, *indices)
        code.do("Store", pointer, value)

    def lane(self, code: Code, vector: int, lane: int) -> int:
        return code.op("CompositeExtract", code.module.float_type(), vector, lane)


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
