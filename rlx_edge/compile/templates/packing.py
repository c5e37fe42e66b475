"""Kernels that bring constant or computed operands into the order the micro-kernels read.

Packed B is a sequence of panels; panel p holds `columns` columns (the tile's, fewer in the last) as
`[k][columns]`, so column c of slice s starts at `s * b_slice + (c // columns) * columns * k * 4`.
Columns beyond n in the last panel, and channels beyond C in a block of four, are +0.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.contraction import ZERO
from rlx_edge.compile.templates.offsets import add_constant
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES
from rlx_edge.compile.templates.words import Words
from rlx_edge.ir.dims import Dim, DimLike, as_dim, ceildiv


@dataclass(frozen=True, slots=True)
class PanelPack:
    """Pack `b[slices, k, n]` with any byte strides into panels of `columns` columns."""

    columns: int

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the buffer slots, in order."""
        return ("out", "b")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the words after the slots; strides in bytes."""
        return ("slices", "n", "k", "b_slice", "b_row", "b_column")

    def arguments(
        self, n: DimLike, k: DimLike, slices: DimLike = 1, transposed: bool = False
    ) -> tuple[Dim, ...]:
        """Parameter dims for row-major f32 `[slices, k, n]`, or `[slices, n, k]` if transposed."""
        n, k = as_dim(n), as_dim(k)
        row, column = (as_dim(4), k * 4) if transposed else (n * 4, as_dim(4))
        return (as_dim(slices), n, k, n * k * 4, row, column)

    def emit(self, module: ModuleBuilder) -> int:
        """Function index of the kernel in a module."""
        return _PanelPacker(module, self).emit().index


class _PanelPacker:
    """Emitter of `PanelPack`: whole 4x4 blocks by vectors, the rest element by element."""

    def __init__(self, module: ModuleBuilder, pack: PanelPack) -> None:
        self.pack = pack
        self.body = module.function("pack_panels", [("args", I32), ("thread", I32)])

    def emit(self) -> FunctionBuilder:
        body, words = self.body, Words((*self.pack.slots, *self.pack.parameters))
        self.n, self.k, self.row, self.column_step = (
            words.local(body, name) for name in ("n", "k", "b_row", "b_column")
        )
        slices = words.local(body, "slices")
        base, self.out = words.local(body, "b"), words.local(body, "out")
        self.column, self.source, self.pitch, self.panel = (
            body.local(I32, name) for name in ("column", "source", "pitch", "panel")
        )
        width = body.local(I32, "width")
        body.block("empty")
        for size in (slices, self.n, self.k):
            body.local_get(size).i32_eqz().br_if("empty")
        body.loop("slice").i32_const(0).local_set(self.column)
        body.local_get(self.out).local_set(self.panel)
        body.loop("vector")
        # Width of the panel that holds the column: the tile's, or what is left of n.
        body.local_get(self.column).i32_const(self.pack.columns).i32_rem_u().local_tee(width)
        body.i32_eqz().if_()
        body.local_get(self.n).local_get(self.column).i32_sub().i32_const(LANES - 1).i32_add()
        body.i32_const(-LANES).i32_and().local_tee(width)
        body.i32_const(self.pack.columns).local_get(width).i32_const(self.pack.columns)
        body.i32_lt_u().select().i32_const(2).i32_shl().local_set(self.pitch).end()
        body.local_get(base).local_get(self.column).local_get(self.column_step).i32_mul()
        body.i32_add().local_set(self.source)
        self.pack_vector()
        add_constant(body, self.column, LANES)
        # The next vector lies beside this one, or starts the next panel.
        add_constant(body, self.panel, VECTOR_BYTES)
        body.local_get(self.column).i32_const(self.pack.columns).i32_rem_u().i32_eqz().if_()
        body.local_get(self.k).i32_const(1).i32_sub().local_get(self.pitch).i32_mul()
        body.local_get(self.panel).i32_add().local_set(self.panel).end()
        body.local_get(self.column).local_get(self.n).i32_lt_u().br_if("vector").end()
        # One slice takes ceil(n / 4) * k vectors.
        body.local_get(self.n).i32_const(LANES - 1).i32_add().i32_const(2).i32_shr_u()
        body.local_get(self.k).i32_mul().i32_const(VECTOR_BYTES).i32_mul()
        body.local_get(self.out).i32_add().local_set(self.out)
        body.local_get(base)
        words.push(body, "b_slice").i32_add().local_set(base)
        body.local_get(slices).i32_const(1).i32_sub().local_tee(slices).br_if("slice").end().end()
        return body

    def pack_vector(self) -> None:
        """Four columns for all k, from `source` to `panel` with `pitch` between rows."""
        body = self.body
        left, at, target = (body.local(I32, name) for name in ("left", "at", "target"))
        self.left, self.at, self.target = left, at, target
        body.local_get(self.k).local_set(left).local_get(self.source).local_set(at)
        body.local_get(self.panel).local_set(target)
        body.block("packed")
        body.local_get(self.n).local_get(self.column).i32_sub().i32_const(LANES).i32_ge_u().if_()
        body.local_get(self.column_step).i32_const(4).i32_eq().if_().loop("row")
        body.local_get(target).local_get(at).v128_load().v128_store()
        self.next_row(1, "row")
        body.end().br("packed").end()
        body.local_get(self.row).i32_const(4).i32_eq().local_get(left).i32_const(LANES).i32_ge_u()
        body.i32_and().if_().loop("block")
        self.transpose_block()
        self.next_row(LANES, "block")
        body.end().end().local_get(left).i32_eqz().br_if("packed").end()
        self.pack_elements()
        body.end()

    def next_row(self, count: int, label: str) -> None:
        """Advance by `count` rows and continue while as many are left."""
        body = self.body
        body.local_get(self.at).local_get(self.row)
        body.i32_const(count).i32_mul().i32_add().local_set(self.at)
        body.local_get(self.target).local_get(self.pitch)
        body.i32_const(count).i32_mul().i32_add().local_set(self.target)
        body.local_get(self.left).i32_const(count).i32_sub().local_tee(self.left)
        body.i32_const(count).i32_ge_s().br_if(label)

    def transpose_block(self) -> None:
        """Four consecutive k of four columns, k contiguous in memory."""
        body = self.body
        columns = body.local_array(V128, "column", LANES)
        pairs = body.local_array(V128, "pair", LANES)
        pointer = body.local(I32, "pointer")
        body.local_get(self.at).local_set(pointer)
        for column in columns:
            body.local_get(pointer).v128_load().local_set(column)
            body.local_get(pointer).local_get(self.column_step).i32_add().local_set(pointer)
        for half, lanes in enumerate(((0, 4, 1, 5), (2, 6, 3, 7))):
            for side in range(2):
                body.local_get(columns[2 * side]).local_get(columns[2 * side + 1])
                body.i32x4_shuffle(lanes).local_set(pairs[2 * half + side])
        body.local_get(self.target).local_set(pointer)
        for half in range(2):
            for lanes in ((0, 1, 4, 5), (2, 3, 6, 7)):
                body.local_get(pointer).local_get(pairs[2 * half]).local_get(pairs[2 * half + 1])
                body.i32x4_shuffle(lanes).v128_store()
                body.local_get(pointer).local_get(self.pitch).i32_add().local_set(pointer)

    def pack_elements(self) -> None:
        """Row by row with +0 beyond column n."""
        body = self.body
        value, pointer = body.local(V128, "value"), body.local(I32, "element")
        body.loop("element").v128_const(ZERO).local_set(value)
        body.local_get(self.at).local_set(pointer).block("gathered")
        for lane in range(LANES):
            body.local_get(self.n).local_get(self.column).i32_sub().i32_const(lane).i32_le_s()
            body.br_if("gathered")
            body.local_get(pointer).local_get(value).v128_load32_lane(lane).local_set(value)
            body.local_get(pointer).local_get(self.column_step).i32_add().local_set(pointer)
        body.end().local_get(self.target).local_get(value).v128_store()
        self.next_row(1, "element")
        body.end()


@dataclass(frozen=True, slots=True)
class WeightPack:
    """Pack weights `[groups * n, channels, rows, columns]` into panels in the contract's k order.

    With `blocked` the channels of a group are padded to a multiple of four with +0 weights.
    """

    columns: int
    blocked: bool

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the buffer slots, in order."""
        return ("out", "w")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the words after the slots: counts."""
        return ("slices", "n", "channels", "taps")

    def arguments(
        self, groups: DimLike, n: DimLike, channels: DimLike, kernel: tuple[DimLike, DimLike]
    ) -> tuple[Dim, ...]:
        """Parameter dims: n output and `channels` input channels for each group."""
        return (as_dim(groups), as_dim(n), as_dim(channels), as_dim(kernel[0]) * kernel[1])

    def packed_bytes(
        self, groups: DimLike, n: DimLike, channels: DimLike, kernel: tuple[DimLike, DimLike]
    ) -> Dim:
        """Bytes of the packed weights."""
        depth = ceildiv(channels, LANES) * LANES if self.blocked else as_dim(channels)
        taps = as_dim(kernel[0]) * kernel[1]
        return as_dim(groups) * ceildiv(n, LANES) * depth * taps * VECTOR_BYTES

    def emit(self, module: ModuleBuilder) -> int:
        """Function index of the kernel in a module."""
        return _emit_weight_pack(module, self).index


def _emit_weight_pack(module: ModuleBuilder, pack: WeightPack) -> FunctionBuilder:
    body = module.function("pack_weights", [("args", I32), ("thread", I32)])
    words = Words((*pack.slots, *pack.parameters))
    slices, n, channels, taps = (words.local(body, name) for name in pack.parameters)
    out, w = words.local(body, "out"), words.local(body, "w")
    panel, width, block, tap, lane, column = (
        body.local(I32, name) for name in ("panel", "width", "block", "tap", "lane", "column")
    )
    per_output = body.local(I32, "per_output")
    body.local_get(channels).local_get(taps).i32_mul().i32_const(4).i32_mul()
    body.local_set(per_output)
    body.block("empty")
    for size in (slices, n, channels, taps):
        body.local_get(size).i32_eqz().br_if("empty")
    body.loop("slice").i32_const(0).local_set(panel).loop("panel")
    body.local_get(n).local_get(panel).i32_sub().i32_const(LANES - 1).i32_add()
    body.i32_const(-LANES).i32_and().local_tee(width).i32_const(pack.columns)
    body.local_get(width).i32_const(pack.columns).i32_lt_u().select().local_set(width)
    body.i32_const(0).local_set(block).loop("block").i32_const(0).local_set(tap).loop("tap")
    body.i32_const(0).local_set(lane).loop("lane").i32_const(0).local_set(column).loop("column")
    body.local_get(out)
    body.local_get(panel).local_get(column).i32_add().local_get(n).i32_lt_u()
    body.local_get(block).local_get(lane).i32_add().local_get(channels).i32_lt_u().i32_and()
    body.if_(result=0x7D)
    body.local_get(panel).local_get(column).i32_add().local_get(per_output).i32_mul()
    body.local_get(block).local_get(lane).i32_add().local_get(taps).i32_mul()
    body.local_get(tap).i32_add().i32_const(4).i32_mul().i32_add()
    body.local_get(w).i32_add().f32_load().else_().f32_const(0.0).end().f32_store()
    add_constant(body, out, 4)
    add_constant(body, column, 1)
    body.local_get(column).local_get(width).i32_lt_u().br_if("column").end()
    add_constant(body, lane, 1)
    body.local_get(lane).i32_const(LANES).i32_lt_u()
    if not pack.blocked:
        body.local_get(block).local_get(lane).i32_add().local_get(channels).i32_lt_u().i32_and()
    body.br_if("lane").end()
    add_constant(body, tap, 1)
    body.local_get(tap).local_get(taps).i32_lt_u().br_if("tap").end()
    add_constant(body, block, LANES)
    body.local_get(block).local_get(channels).i32_lt_u().br_if("block").end()
    body.local_get(panel).local_get(width).i32_add().local_tee(panel)
    body.local_get(n).i32_lt_u().br_if("panel").end()
    body.local_get(n).local_get(per_output).i32_mul().local_get(w).i32_add().local_set(w)
    body.local_get(slices).i32_const(1).i32_sub().local_tee(slices).br_if("slice").end().end()
    return body


@dataclass(frozen=True, slots=True)
class ChannelPack:
    """Pack depthwise weights `[channels, 1, rows, columns]` into `[channels / 4][taps][4]`."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the buffer slots, in order."""
        return ("out", "w")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the words after the slots: counts."""
        return ("channels", "taps")

    def arguments(self, channels: DimLike, kernel: tuple[DimLike, DimLike]) -> tuple[Dim, ...]:
        """Parameter dims."""
        return (as_dim(channels), as_dim(kernel[0]) * kernel[1])

    def packed_bytes(self, channels: DimLike, kernel: tuple[DimLike, DimLike]) -> Dim:
        """Bytes of the packed weights."""
        return ceildiv(channels, LANES) * kernel[0] * kernel[1] * VECTOR_BYTES

    def emit(self, module: ModuleBuilder) -> int:
        """Function index of the kernel in a module."""
        body = module.function("pack_channels", [("args", I32), ("thread", I32)])
        words = Words((*self.slots, *self.parameters))
        channels, taps = (words.local(body, name) for name in self.parameters)
        out, w = words.local(body, "out"), words.local(body, "w")
        block, tap, lane = (body.local(I32, name) for name in ("block", "tap", "lane"))
        body.block("empty").local_get(channels).i32_eqz().br_if("empty")
        body.local_get(taps).i32_eqz().br_if("empty")
        body.loop("block").i32_const(0).local_set(tap).loop("tap")
        body.i32_const(0).local_set(lane).loop("lane").local_get(out)
        body.local_get(block).local_get(lane).i32_add().local_get(channels).i32_lt_u()
        body.if_(result=0x7D)
        body.local_get(block).local_get(lane).i32_add().local_get(taps).i32_mul()
        body.local_get(tap).i32_add().i32_const(4).i32_mul().local_get(w).i32_add().f32_load()
        body.else_().f32_const(0.0).end().f32_store()
        add_constant(body, out, 4)
        add_constant(body, lane, 1)
        body.local_get(lane).i32_const(LANES).i32_lt_u().br_if("lane").end()
        add_constant(body, tap, 1)
        body.local_get(tap).local_get(taps).i32_lt_u().br_if("tap").end()
        add_constant(body, block, LANES)
        body.local_get(block).local_get(channels).i32_lt_u().br_if("block").end().end()
        return body.index
