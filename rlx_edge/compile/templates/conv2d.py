"""Two-dimensional convolution as a contraction over taps, without an im2col matrix.

The input is NCHW4c (`blocked`) with channels of a group in multiples of four, or NCHW (`planes`)
with any channels; its buffer has a border of zeros at least as wide as the padding. The output is
NCHW4c or NCHW and may have a border of its own, which is left alone. Weights are packed in panels
(`packing.WeightPack`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.select import Geometry
from rlx_edge.compile.templates.driver import Contraction, emit_driver, scratch_bytes
from rlx_edge.compile.templates.finish import (
    BATCH_CHANNEL,
    BLOCKED,
    FULL,
    PLANES,
    EmitEpilogue,
    Output,
)
from rlx_edge.compile.templates.offsets import QUADS, SINGLES
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES, Tile
from rlx_edge.compile.templates.words import Words
from rlx_edge.ir.dims import ONE, Dim, DimLike, as_dim, ceildiv
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.ops.contraction import chain_blocks


@dataclass(frozen=True, slots=True)
class Conv2d:
    """Baked configuration of a conv2d kernel.

    Attributes:
        tile: shape and form of the micro-kernels.
        input: layout of the input, `blocked` or `planes`.
        output: layout of the output, `blocked` or `planes`.
        extras: kinds of the extra operands: `full` (the output's shape and layout, with its own
            border), `channel` (`[C]`), `batch_channel` (`[N, C, 1, 1]`, plain), `scalar`.
    """

    tile: Tile
    input: str
    output: str
    extras: tuple[str, ...] = ()

    @property
    def contraction(self) -> Contraction:
        """What the driver is generated for."""
        source = QUADS if self.input == BLOCKED else SINGLES
        output = Output(self.output, self.extras)
        return Contraction(f"conv2d_{self.input}_{self.output}", self.tile, source, output, True)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the buffer slots, in order."""
        return ("out", "a", "b", *self.contraction.output.slots, "scratch")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the words after the slots, in order; strides and origins in bytes."""
        return (
            *("slices", "images", "height", "width", "n", "k", "chain"),
            *("channels", "kernel_rows", "kernel_columns"),
            *("a_origin", "a_slice", "a_image", "a_row", "a_pixel"),
            *("a_plane", "a_tap_row", "a_tap_column", "b_slice"),
            *("out_origin", "out_slice", "out_image", "out_row", "out_plane"),
            *self.contraction.output.words,
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
            RlxError: a layout differs from the baked one, a border is narrower than the padding,
                or groups of an NCHW4c operand do not consist of whole blocks.
        """
        require_layout("input", x, self.input)
        require_layout("output", out, self.output)
        images, channels = x.type.shape[:2]
        out_channels, height, width = out.type.shape[1:]
        groups = as_dim(geometry.groups)
        n, group_channels = out_channels // groups, channels // groups
        self._require_whole_blocks(groups, group_channels, n)
        blocks = ceildiv(group_channels, LANES)
        image, plane, row, pixel = byte_strides(x)
        taps = as_dim(geometry.kernel[0]) * geometry.kernel[1]
        blocked = self.input == BLOCKED
        k = (blocks * LANES if blocked else group_channels) * taps
        values = {
            "slices": groups,
            "images": images,
            "height": height,
            "width": width,
            "n": n,
            "k": k,
            "chain": chain_length(geometry.kernel),
            "channels": group_channels,
            "kernel_rows": as_dim(geometry.kernel[0]),
            "kernel_columns": as_dim(geometry.kernel[1]),
            "a_origin": tap_origin(x, geometry.padding),
            "a_slice": (blocks if blocked else group_channels) * plane,
            "a_image": image,
            "a_row": row * geometry.stride[0],
            "a_pixel": pixel * geometry.stride[1],
            "a_plane": plane,
            "a_tap_row": row * geometry.dilation[0],
            "a_tap_column": pixel * geometry.dilation[1],
            "b_slice": ceildiv(n, LANES) * k * VECTOR_BYTES,
        }
        values |= output_words(self.contraction.output, out, extras, n)
        return tuple(values[name] for name in self.parameters)

    def _require_whole_blocks(self, groups: Dim, group_channels: Dim, n: Dim) -> None:
        if groups is ONE:
            return
        for layout, channels, what in (
            (self.input, group_channels, "input"),
            (self.output, n, "output"),
        ):
            if layout == BLOCKED and not channels.divisible_by(LANES):
                raise RlxError(
                    "template.groups",
                    f"every group must start at a block of four {what} channels in NCHW4c",
                    found=f"{channels} {what} channels in a group",
                    allowed="a multiple of 4",
                )

    def scratch_bytes(self, channels: DimLike, kernel: tuple[DimLike, DimLike]) -> Dim:
        """Bytes of the scratch buffer, for the input channels of one group."""
        taps = as_dim(kernel[0]) * kernel[1]
        if self.input == BLOCKED:
            quads = ceildiv(channels, LANES) * taps
            return scratch_bytes(self.contraction, quads * LANES, quads)
        singles = as_dim(channels) * taps
        return scratch_bytes(self.contraction, singles, singles)

    def emit(self, module: ModuleBuilder, epilogue: EmitEpilogue | None = None) -> int:
        """Function index of the kernel in a module."""
        pixel = {BLOCKED: VECTOR_BYTES, PLANES: 4}[self.output]
        words = Words((*self.slots, *self.parameters), {"out_pixel": pixel})
        return emit_driver(module, self.contraction, words, epilogue)


def output_words(
    output: Output,
    out: Physical,
    extras: Sequence[Physical | None],
    n: Dim | None = None,
) -> dict[str, Dim]:
    """Origins and strides of the output and the extras, by word name; n channels a slice.

    Raises:
        RlxError: a full extra operand has no storage or another layout.
    """
    channels = out.type.shape[1]
    slice_channels = channels if n is None else n
    values = _storage_words("out", out, slice_channels)
    for number, (slot, kind) in enumerate(zip(output.slots, output.extras, strict=True)):
        stored = extras[number] if number < len(extras) else None
        if kind == FULL:
            if stored is None:
                raise RlxError("template.extra", "a full extra operand needs its storage")
            require_layout(slot, stored, output.layout)
            values |= _storage_words(slot, stored, slice_channels)
        elif kind == BATCH_CHANNEL:
            values[f"{slot}_image"] = channels * 4
    return values


def _storage_words(slot: str, stored: Physical, n: Dim) -> dict[str, Dim]:
    image, plane, row, _ = byte_strides(stored)
    planes = ceildiv(n, LANES) if stored.is_blocked else n
    return {
        f"{slot}_origin": stored.origin * 4,
        f"{slot}_slice": planes * plane,
        f"{slot}_image": image,
        f"{slot}_row": row,
        f"{slot}_plane": plane,
    }


def chain_length(kernel: tuple[DimLike, DimLike]) -> Dim:
    """Steps of k in one chain."""
    rows, columns = as_dim(kernel[0]), as_dim(kernel[1])
    return chain_blocks(rows, columns) * rows * columns * LANES


def byte_strides(stored: Physical) -> tuple[Dim, Dim, Dim, Dim]:
    """Bytes from image to image, plane (channel or channel block), row, pixel."""
    image, plane, row, pixel = stored.strides[:4]
    return image * 4, plane * 4, row * 4, pixel * 4


def tap_origin(x: Physical, padding: tuple[int, int, int, int]) -> Dim:
    """Byte offset of the first tap of output pixel (0, 0) in the input's buffer.

    Raises:
        RlxError: the border is narrower than the padding.
    """
    if any(border < pad for border, pad in zip(x.border, padding, strict=True)):
        raise RlxError(
            "template.border",
            "the input's border is narrower than the padding",
            found=str(x.border),
            allowed=f"at least {padding}",
        )
    _, _, row, pixel = byte_strides(x)
    top, left = x.border[0] - padding[0], x.border[1] - padding[1]
    return row * top + pixel * left


def require_layout(what: str, stored: Physical, layout: str) -> None:
    if stored.is_blocked != (layout == BLOCKED):
        raise RlxError(
            "template.layout",
            f"the {what} is not stored as the kernel was built for",
            found=stored.layout,
            allowed=layout,
        )


def flops(
    images: DimLike,
    out_channels: DimLike,
    height: DimLike,
    width: DimLike,
    group_channels: DimLike,
    kernel: tuple[DimLike, DimLike],
) -> Dim:
    """Floating-point operations: a multiplication and an addition for each tap and channel."""
    outputs = as_dim(images) * out_channels * height * width
    return outputs * group_channels * kernel[0] * kernel[1] * 2
