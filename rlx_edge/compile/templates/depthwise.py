"""Depthwise convolution in NCHW4c: four channels a vector, one chain a pixel over the taps.

Tap order: kernel row, kernel column. Weights are `[channels / 4][taps][4]` (`packing.ChannelPack`).
Blocks of pixels and the finish are those of the contraction driver; a plane of four channels takes
the place of a panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rlx_edge.compile.codegen.wasm.encoder import I32
from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.select import Geometry
from rlx_edge.compile.templates.conv2d import (
    byte_strides,
    output_words,
    require_layout,
    tap_origin,
)
from rlx_edge.compile.templates.depthwise_chains import (
    RUN_PIXELS,
    emit_any_chains,
    emit_run_chains,
)
from rlx_edge.compile.templates.finish import (
    BLOCK_ROWS,
    BLOCKED,
    TABLE_BYTES,
    EmitEpilogue,
    Output,
    emit_finish,
)
from rlx_edge.compile.templates.offsets import QUADS
from rlx_edge.compile.templates.tables import (
    emit_pointer_fill,
    emit_tap_table,
    fill_block_tables,
)
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES
from rlx_edge.compile.templates.words import Words
from rlx_edge.ir.dims import ONE, Dim, DimLike, align, as_dim
from rlx_edge.ir.errors import RlxError


@dataclass(frozen=True, slots=True)
class Depthwise:
    """Baked configuration of a depthwise kernel; `for_geometry` chooses it.

    Attributes:
        extras: kinds of the extra operands, as for `Conv2d`.
        columns: kernel columns of a specialised form, 0 for any kernel.
        stride: horizontal stride of the specialised form (its horizontal dilation is 1).
    """

    extras: tuple[str, ...] = ()
    columns: int = 0
    stride: int = 0

    @classmethod
    def for_geometry(cls, geometry: Geometry, extras: tuple[str, ...] = ()) -> Self:
        """The fastest form for a geometry; symbolic sizes get the form for any."""
        columns, stride = as_dim(geometry.kernel[1]), as_dim(geometry.stride[1])
        if as_dim(geometry.dilation[1]) is ONE and columns.is_constant and stride.is_constant:
            key = (columns.value, stride.value)
            if key in RUN_PIXELS:
                return cls(extras, *key)
        return cls(extras)

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
            RlxError: a layout is not NCHW4c, the border is narrower than the padding, or the
                geometry is not the specialised one.
        """
        require_layout("input", x, BLOCKED)
        require_layout("output", out, BLOCKED)
        if self.columns and self != self.for_geometry(geometry, self.extras):
            raise RlxError(
                "template.geometry",
                "the depthwise kernel was built for another geometry",
                found=f"{geometry.kernel}, stride {geometry.stride}",
                allowed=f"{self.columns} columns, stride {self.stride}, horizontal dilation 1",
            )
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
        tap_fill = emit_tap_table(module, QUADS)
        if self.columns:
            chains = emit_run_chains(module, self.columns, self.stride)
        else:
            chains = emit_any_chains(module)
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
        body.local_get(scratch).local_get(offset).local_get(weights)
        if self.columns:
            words.push(body, "kernel_rows")
            words.push(body, "a_tap_row")
        else:
            body.local_get(tap_count).local_get(taps)
        body.local_get(scratch).i32_const(self._acc_at).i32_add().local_get(count)
        if self.columns:
            body.local_get(first)
            words.push(body, "width").i32_rem_u()
            words.push(body, "width")
        body.call(chains)
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
