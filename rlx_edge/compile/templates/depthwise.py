"""Depthwise convolution in NCHW4c: four channels a vector, one chain a pixel over the taps.

Tap order: kernel row, kernel column. Weights are `[channels / 4][taps][4]` (`packing.ChannelPack`).
Blocks of pixels and the finish are those of the contraction driver; a plane of four channels takes
the place of a panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.templates.contraction import (
    LANES,
    VECTOR_BYTES,
    ZERO,
    add_constant,
    for_each_tile,
    multiply_add,
)
from rlx_edge.compile.templates.conv2d import (
    Geometry,
    byte_strides,
    output_words,
    require_layout,
    tap_origin,
)
from rlx_edge.compile.templates.driver import (
    emit_pointer_fill,
    emit_tap_table,
    fill_block_tables,
)
from rlx_edge.compile.templates.finish import (
    BLOCK_ROWS,
    BLOCKED,
    TABLE_BYTES,
    EmitEpilogue,
    Output,
    emit_finish,
)
from rlx_edge.compile.templates.words import Words
from rlx_edge.ir.dims import Dim, DimLike, align, as_dim

PIXELS = 6
"""Pixels of a full tile: their chains, inputs and one weight vector fit sixteen registers."""


@dataclass(frozen=True, slots=True)
class Depthwise:
    """Baked configuration of a depthwise kernel; `extras` as for `Conv2d`."""

    extras: tuple[str, ...] = ()

    @property
    def output(self) -> Output:
        """Layout of the output and kinds of the extra operands."""
        return Output(BLOCKED, self.extras)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the buffer slots, in order."""
        return ("out", "a", "b", *self.output.slots, "scratch")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the words after the slots, in order; strides and origins in bytes."""
        return (
            *("images", "height", "width", "n", "kernel_rows", "kernel_columns"),
            *("a_origin", "a_image", "a_row", "a_pixel", "a_plane", "a_tap_row", "a_tap_column"),
            *("out_origin", "out_image", "out_row", "out_plane"),
            *(name for name in self.output.words if not name.endswith("_slice")),
        )

    def arguments(
        self,
        x: Physical,
        out: Physical,
        geometry: Geometry,
        extras: Sequence[Physical | None] = (),
    ) -> tuple[Dim, ...]:
        """Parameter dims for stored operands; `extras` gives each `full` extra's storage.

        Raises:
            RlxError: a layout is not NCHW4c, or the border is narrower than the padding.
        """
        require_layout("input", x, BLOCKED)
        require_layout("output", out, BLOCKED)
        image, plane, row, pixel = byte_strides(x)
        values = {
            "images": x.type.shape[0],
            "height": out.type.shape[2],
            "width": out.type.shape[3],
            "n": out.type.shape[1],
            "kernel_rows": as_dim(geometry.kernel[0]),
            "kernel_columns": as_dim(geometry.kernel[1]),
            "a_origin": tap_origin(x, geometry.padding),
            "a_image": image,
            "a_row": row * geometry.stride[0],
            "a_pixel": pixel * geometry.stride[1],
            "a_plane": plane,
            "a_tap_row": row * geometry.dilation[0],
            "a_tap_column": pixel * geometry.dilation[1],
        }
        values |= output_words(self.output, out, extras)
        return tuple(values[name] for name in self.parameters)

    def scratch_bytes(self, kernel: tuple[DimLike, DimLike]) -> Dim:
        """Bytes of the scratch buffer."""
        return self._taps_at + align(as_dim(kernel[0]) * kernel[1] * 4, VECTOR_BYTES)

    @property
    def _acc_at(self) -> int:
        return TABLE_BYTES * (1 + self.output.tables)

    @property
    def _taps_at(self) -> int:
        return self._acc_at + BLOCK_ROWS * VECTOR_BYTES

    def emit(self, module: ModuleBuilder, epilogue: EmitEpilogue | None = None) -> int:
        """Function index of the kernel in a module."""
        constants = {"out_pixel": VECTOR_BYTES, "a_slice": 0, "out_slice": 0}
        constants |= dict.fromkeys(
            (name for name in self.output.words if name.endswith("_slice")), 0
        )
        words = Words((*self.slots, *self.parameters), constants)
        fill = emit_pointer_fill(module)
        tap_fill = emit_tap_table(module, "quads")
        chains = _emit_chain_block(module)
        finish = emit_finish(module, self.output, words, epilogue)
        body = module.function("depthwise", [("args", I32), ("thread", I32)])
        first, count, total = (body.local(I32, name) for name in ("first", "count", "total"))
        channel, offset, weights = (body.local(I32, name) for name in ("channel", "offset", "w"))
        scratch, taps, tap_count = (
            words.local(body, "scratch"),
            body.local(I32, "taps"),
            body.local(I32, "tap_count"),
        )
        n, plane = words.local(body, "n"), words.local(body, "a_plane")
        words.push(body, "images")
        words.push(body, "height").i32_mul()
        words.push(body, "width").i32_mul().local_set(total)
        words.push(body, "kernel_rows")
        words.push(body, "kernel_columns").i32_mul().local_set(tap_count)
        body.block("empty").local_get(total).i32_eqz().local_get(n).i32_eqz().i32_or()
        body.br_if("empty")
        body.local_get(scratch).i32_const(self._taps_at).i32_add().local_tee(taps)
        body.i32_const(LANES)
        words.push(body, "kernel_rows")
        words.push(body, "kernel_columns").i32_const(0)
        words.push(body, "a_tap_row")
        words.push(body, "a_tap_column").call(tap_fill)
        body.loop("block")
        body.local_get(total).local_get(first).i32_sub().local_tee(count)
        body.i32_const(BLOCK_ROWS).i32_gt_u().if_()
        body.i32_const(BLOCK_ROWS).local_set(count).end()
        fill_block_tables(body, words, self.output, fill, scratch, None, first, count)
        body.i32_const(0).local_set(channel).i32_const(0).local_set(offset)
        words.push(body, "b").local_set(weights)
        body.loop("plane")
        body.local_get(scratch).local_get(offset).local_get(weights).local_get(tap_count)
        body.local_get(taps).local_get(scratch).i32_const(self._acc_at).i32_add()
        body.local_get(count).call(chains)
        body.local_get(0).local_get(scratch).i32_const(self._acc_at).i32_add()
        body.local_get(count).i32_const(1).local_get(channel).local_get(channel)
        body.local_get(scratch).i32_const(TABLE_BYTES).i32_add().call(finish)
        body.local_get(offset).local_get(plane).i32_add().local_set(offset)
        body.local_get(tap_count).i32_const(VECTOR_BYTES).i32_mul().local_get(weights).i32_add()
        body.local_set(weights)
        body.local_get(channel).i32_const(LANES).i32_add().local_tee(channel)
        body.local_get(n).i32_lt_u().br_if("plane").end()
        body.local_get(first).local_get(count).i32_add().local_tee(first)
        body.local_get(total).i32_lt_u().br_if("block").end().end()
        return body.index


def flops(
    images: DimLike,
    channels: DimLike,
    height: DimLike,
    width: DimLike,
    kernel: tuple[DimLike, DimLike],
) -> Dim:
    """Floating-point operations of the taps, pad lanes not counted."""
    return as_dim(images) * channels * height * width * kernel[0] * kernel[1] * 2


def _emit_chain_block(module: ModuleBuilder) -> int:
    """Function index: the chains of one plane for a block of pixels.

    Parameters of the function: `table` (pixel pointers), `offset` (of the plane), `weights`,
    `count` (taps, at least 1), `taps` (offsets), `acc` (`[pixel][4]`), `pixels`.
    """

    def emit() -> FunctionBuilder:
        callees = {pixels: _emit_chains(module, pixels) for pixels in range(1, PIXELS + 1)}
        names = ("table", "offset", "weights", "count", "taps", "acc", "pixels")
        body = module.function("depthwise_block", [(name, I32) for name in names])
        table, offset, weights, count, taps, target, pixels = range(7)

        def call(height: int, tiles: int) -> None:
            for name in (table, offset, weights, count, taps, target, tiles):
                body.local_get(name)
            body.call(callees[height])

        def advance(rows: int) -> None:
            for pointer, size in ((table, 4), (target, VECTOR_BYTES)):
                body.local_get(rows).i32_const(size).i32_mul().local_get(pointer).i32_add()
                body.local_set(pointer)

        for_each_tile(body, PIXELS, pixels, call, advance)
        return body

    return module.once("depthwise_block", emit)


def _emit_chains(module: ModuleBuilder, pixels: int) -> int:
    def emit() -> FunctionBuilder:
        names = ("table", "offset", "weights", "count", "taps", "acc", "tiles")
        body = module.function(f"depthwise_{pixels}", [(name, I32) for name in names])
        table, offset, weights, count, taps, target, tiles = range(7)
        tap, end, weight_at, at = (
            body.local(I32, name) for name in ("tap", "end", "weight_at", "at")
        )
        pointers = body.local_array(I32, "pixel", pixels)
        totals = body.local_array(V128, "acc", pixels)
        weight = body.local(V128, "weight")
        body.local_get(count).i32_const(2).i32_shl().local_get(taps).i32_add().local_set(end)
        body.loop("tile")
        for number, (pointer, total) in enumerate(zip(pointers, totals, strict=True)):
            body.local_get(table).i32_load(4 * number).local_get(offset).i32_add()
            body.local_set(pointer).v128_const(ZERO).local_set(total)
        body.local_get(taps).local_set(tap).local_get(weights).local_set(weight_at)
        body.loop("tap").local_get(tap).i32_load().local_set(at)
        body.local_get(weight_at).v128_load().local_set(weight)
        for pointer, total in zip(pointers, totals, strict=True):

            def push_pixel(pointer: int = pointer) -> None:
                body.local_get(pointer).local_get(at).i32_add().v128_load()

            multiply_add(body, total, push_pixel, weight)
        add_constant(body, weight_at, VECTOR_BYTES)
        body.local_get(tap).i32_const(4).i32_add().local_tee(tap).local_get(end).i32_lt_u()
        body.br_if("tap").end()
        for number, total in enumerate(totals):
            body.local_get(target).local_get(total).v128_store(VECTOR_BYTES * number)
        add_constant(body, target, VECTOR_BYTES * pixels)
        add_constant(body, table, 4 * pixels)
        body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
        return body

    return module.once(("depthwise_chains", pixels), emit)
