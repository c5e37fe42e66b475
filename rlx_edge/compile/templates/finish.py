"""From raw chains to the output: epilogue, residual operands and the output's layout.

A finish function takes a block of rows (pixels) of one panel from the accumulator buffer, applies
the epilogue to each vector of four consecutive columns (channels) and stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.offsets import add_constant
from rlx_edge.compile.templates.planes import PlaneRows, emit_plane_stores
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES
from rlx_edge.compile.templates.words import Words

ROWS = "rows"
"""Column-contiguous rows: row pointer + 4 * column."""
BLOCKED = "blocked"
"""NCHW4c: pixel pointer + plane * (channel / 4), four channels together, +0 in pad lanes."""
PLANES = "planes"
"""NCHW: pixel pointer + plane * channel."""

FULL = "full"
CHANNEL = "channel"
BATCH_CHANNEL = "batch_channel"
SCALAR = "scalar"

BLOCK_ROWS = 192
"""Rows in one block of a driver, and entries of each pointer table."""
TABLE_BYTES = 4 * BLOCK_ROWS

EmitEpilogue = Callable[[FunctionBuilder, int, Sequence[Callable[[], None]]], None]
"""`emit(body, acc, loads)` pushes the v128 result for the chain vector in local `acc`; `loads[i]()`
pushes the four values of extra operand i at the same position. It must leave `acc` and every
other local of the caller unchanged."""


@dataclass(frozen=True, slots=True)
class Output:
    """Layout of the output and kinds of the extra operands (the residual has this layout too)."""

    layout: str
    extras: tuple[str, ...] = ()

    @property
    def slots(self) -> tuple[str, ...]:
        """Argument names of the extra operands' addresses."""
        return tuple(f"extra{number}" for number in range(len(self.extras)))

    @property
    def words(self) -> tuple[str, ...]:
        """Argument names of the extra operands' strides, in bytes."""
        names: list[str] = []
        for slot, kind in zip(self.slots, self.extras, strict=True):
            names += [f"{slot}_{part}" for part in self._parts(kind)]
        return tuple(names)

    def _parts(self, kind: str) -> tuple[str, ...]:
        if kind == FULL:
            if self.layout == ROWS:
                return ("slice", "pixel")
            return ("origin", "slice", "image", "row", "plane")
        if kind == BATCH_CHANNEL:
            return ("slice",) if self.layout == ROWS else ("image",)
        return ()

    @property
    def pointed(self) -> tuple[int, ...]:
        """Extra operands that need a pointer for each row, in the order of their tables."""
        return tuple(
            number for number, kind in enumerate(self.extras) if kind in (FULL, BATCH_CHANNEL)
        )

    @property
    def tables(self) -> int:
        """Pointer tables of a block: the output's, then one for each pointed extra."""
        return 1 + len(self.pointed)

    @property
    def pixel_bytes(self) -> int | None:
        """Byte distance of two neighbouring pixels; `None` where it is a word."""
        return {ROWS: None, BLOCKED: VECTOR_BYTES, PLANES: 4}[self.layout]


def emit_finish(
    module: ModuleBuilder, output: Output, words: Words, epilogue: EmitEpilogue | None
) -> int:
    """Function index of the finish of one kernel.

    Parameters of the function: `args`, `acc` (rows of `4 * vectors`), `rows`, `vectors`, `column`
    (first column in the slice), `channel` (first column for per-channel operands), `table` (the
    pointer tables).
    """
    return _Finish(module, output, words, epilogue).emit().index


class _Finish:
    def __init__(
        self, module: ModuleBuilder, output: Output, words: Words, epilogue: EmitEpilogue | None
    ) -> None:
        names = ("args", "acc", "rows", "vectors", "column", "channel", "table")
        self.body = module.function("finish", [(name, I32) for name in names])
        self.output = output
        self.words = words
        self.epilogue = epilogue
        self.args, self.acc, self.rows, self.vectors, self.column, self.channel, self.table = range(
            7
        )

    def emit(self) -> FunctionBuilder:
        body = self.body
        pitch, entry, left, source, lanes = (
            body.local(I32, name) for name in ("pitch", "entry", "left", "source", "lanes")
        )
        self.entry, self.lanes = entry, lanes
        self.value = body.local(V128, "value")
        self.result = body.local(V128, "result")
        self.plane = self.at = 0
        if self.output.layout != ROWS:
            self.plane = self.words.local(body, "out_plane")
        self.at = body.local(I32, "at")
        self.prepare_extras()
        n = self.words.local(body, "n")
        body.local_get(self.vectors).i32_const(VECTOR_BYTES).i32_mul().local_set(pitch)
        body.loop("vector")
        body.local_get(n).local_get(self.column).i32_sub().local_set(lanes)
        self.start_vector()
        body.local_get(self.acc).local_set(source)
        body.local_get(self.table).local_set(entry).local_get(self.rows).local_set(left)
        body.loop("row")
        body.local_get(source).v128_load().local_set(self.value)
        self.finish_vector(source)
        body.local_get(source).local_get(pitch).i32_add().local_set(source)
        add_constant(body, entry, 4)
        body.local_get(left).i32_const(1).i32_sub().local_tee(left).br_if("row").end()
        if self.output.layout == PLANES:
            body.local_get(self.acc).local_set(source)
            body.local_get(self.table).local_set(entry).local_get(self.rows).local_set(left)
            rows = PlaneRows(source, pitch, entry, left)
            emit_plane_stores(body, rows, self.at, self.plane, self.lanes)
        add_constant(body, self.acc, VECTOR_BYTES)
        add_constant(body, self.column, LANES)
        add_constant(body, self.channel, LANES)
        body.local_get(self.vectors).i32_const(1).i32_sub().local_tee(self.vectors)
        body.br_if("vector").end()
        return body

    def prepare_extras(self) -> None:
        """Values and strides that hold for the whole block."""
        body = self.body
        self.vectors_of: dict[int, int] = {}
        self.offset_of: dict[int, int] = {}
        self.plane_of: dict[int, int] = {}
        self.table_of = {
            number: TABLE_BYTES * (1 + position)
            for position, number in enumerate(self.output.pointed)
        }
        for number, (slot, kind) in enumerate(
            zip(self.output.slots, self.output.extras, strict=True)
        ):
            if kind in (CHANNEL, SCALAR):
                self.vectors_of[number] = body.local(V128, slot)
            if kind == SCALAR:
                self.words.push(body, slot).v128_load32_splat().local_set(self.vectors_of[number])
            if kind in (FULL, BATCH_CHANNEL):
                self.offset_of[number] = body.local(I32, f"{slot}_at")
            if kind == FULL and self.output.layout != ROWS:
                self.plane_of[number] = self.words.local(body, f"{slot}_plane")
        if self.output.layout == BLOCKED:
            self.mask = body.local(V128, "mask")

    def start_vector(self) -> None:
        """Values that hold for one vector of columns."""
        body = self.body
        for number, (slot, kind) in enumerate(
            zip(self.output.slots, self.output.extras, strict=True)
        ):
            if kind == CHANNEL:
                self.words.push(body, slot).local_get(self.channel).i32_const(2).i32_shl()
                body.i32_add().v128_load().local_set(self.vectors_of[number])
            elif kind == BATCH_CHANNEL:
                body.local_get(self.channel).i32_const(2).i32_shl()
                body.local_set(self.offset_of[number])
            elif kind == FULL:
                self.push_column_offset(self.plane_of.get(number))
                body.local_set(self.offset_of[number])
        self.push_column_offset(self.plane if self.output.layout != ROWS else None)
        body.local_set(self.at)
        if self.output.layout == BLOCKED:
            body.i32x4_const((0, 1, 2, 3)).local_get(self.lanes).i32x4_splat().i32x4_lt_s()
            body.local_set(self.mask)

    def push_column_offset(self, plane: int | None) -> None:
        """Byte offset of the current column from a row pointer."""
        body = self.body.local_get(self.column)
        if plane is None:
            body.i32_const(2).i32_shl()
        elif self.output.layout == BLOCKED:
            body.i32_const(2).i32_shr_u().local_get(plane).i32_mul()
        else:
            body.local_get(plane).i32_mul()

    def push_pointer(self, table_offset: int, at: int) -> None:
        """Address of the current vector in a tensor with its own pointer table."""
        self.body.local_get(self.entry).i32_load(table_offset).local_get(at).i32_add()

    def load_extra(self, number: int) -> Callable[[], None]:
        """The push of one extra operand's vector at the current position."""
        body = self.body
        if number in self.vectors_of:
            return lambda: _push(body, self.vectors_of[number])
        table, at = self.table_of[number], self.offset_of[number]
        strided = number in self.plane_of and self.output.layout == PLANES
        if not strided:
            return lambda: self.load_contiguous(table, at)
        loaded = body.local(V128, f"extra{number}")
        self.load_planes(table, at, self.plane_of[number], loaded)
        return lambda: _push(body, loaded)

    def load_contiguous(self, table: int, at: int) -> None:
        self.push_pointer(table, at)
        self.body.v128_load()

    def load_planes(self, table: int, at: int, plane: int, target: int) -> None:
        """Four channels from four planes; channels past the last are not read."""
        body = self.body
        pointer = body.local(I32)
        self.push_pointer(table, at)
        body.local_tee(pointer).v128_load32_zero().local_set(target).block("loaded")
        for lane in range(1, LANES):
            body.local_get(self.lanes).i32_const(lane).i32_le_s().br_if("loaded")
            body.local_get(pointer).local_get(plane).i32_add().local_tee(pointer)
            body.local_get(target).v128_load32_lane(lane).local_set(target)
        body.end()
        body.release(pointer)

    def finish_vector(self, source: int) -> None:
        """Apply the epilogue to `value` and store it at the current row and column; for planes
        back at `source`, from where several rows are stored together."""
        body = self.body
        loads = [self.load_extra(number) for number in range(len(self.output.extras))]
        if self.epilogue is None:
            body.local_get(self.value)
        else:
            self.epilogue(body, self.value, loads)
        body.local_set(self.result)
        if self.output.layout == BLOCKED:
            self.push_pointer(0, self.at)
            body.local_get(self.result).local_get(self.mask).v128_and().v128_store()
        elif self.output.layout == ROWS:
            self.store_row()
        elif self.epilogue is not None:
            body.local_get(source).local_get(self.result).v128_store()

    def store_row(self) -> None:
        body = self.body
        body.local_get(self.lanes).i32_const(LANES).i32_ge_s().if_()
        self.push_pointer(0, self.at)
        body.local_get(self.result).v128_store().else_().block("stored")
        for lane in range(LANES - 1):
            if lane:
                body.local_get(self.lanes).i32_const(lane).i32_le_s().br_if("stored")
            self.push_pointer(0, self.at)
            body.local_get(self.result).v128_store32_lane(lane, 4 * lane)
        body.end().end()


def _push(body: FunctionBuilder, local: int) -> None:
    body.local_get(local)
