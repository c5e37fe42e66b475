"""Convolutions through images whose channels lie together, as libraries want them.

Scratch memory holds the result ``[image][y][x][group][channel]`` in f32, behind it the input,
``[image][y][x][group][channel]`` of the pixels that taps reach, borders included: a library
pads nothing. Weights are ``[group][output][row][column][channel]``. Input and weights are f16
in ``fp16``, else f32; channels of a group are padded with +0 to whole ``lanes``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.physical import LANES
from rlx_edge.compile.select import Geometry
from rlx_edge.ir.attributes import FP16
from rlx_edge.ir.dims import Dim, as_dim, ceildiv, product

PIXELS, QUADS = 32, 8
"""Pixels by fours of channels that a workgroup turns round."""
PACK_WORDS = ("slices", "n", "channels", "taps", "output_stride", "channel_stride")
"""Of packed weights: groups, outputs and inputs of a group, taps, which follow each other; elements
from output to output and from channel to channel."""
WEIGHTS, SCRATCH = "weights", "scratch"
"""Slots behind the extra operands: a second form of the weights, if operand ``b`` is another one,
and scratch memory."""


def lanes(precision: str) -> int:
    """Channels of 16 bytes."""
    return 2 * LANES if precision == FP16 else LANES


def element_bytes(precision: str) -> int:
    """Of input and weights."""
    return 2 if precision == FP16 else 4


def wide(channels: Dim, precision: str) -> Dim:
    """Channels of a group with the padding."""
    return ceildiv(channels, as_dim(lanes(precision))) * lanes(precision)


@dataclass(frozen=True, slots=True)
class Window:
    """How taps walk over an image, vertically and horizontally; all numbers are known."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def config(self) -> dict[str, int]:
        """As options of a kernel."""
        named = {"": self.taps, "_stride": self.stride, "_dilation": self.dilation}
        return {
            f"{axis}{suffix}" if suffix else f"{axis}s": number
            for suffix, numbers in named.items()
            for axis, number in zip(("row", "column"), numbers, strict=True)
        }

    def reach(self, size: Dim, axis: int) -> Dim:
        """Pixels of the input under ``size`` pixels of the result."""
        return (size - 1) * self.stride[axis] + (self.taps[axis] - 1) * self.dilation[axis] + 1


def window_of(geometry: Geometry) -> Window | None:
    """The window of a convolution, ``None`` where a number of it is symbolic."""
    pairs = []
    for pair in (geometry.kernel, geometry.stride, geometry.dilation):
        dims = [as_dim(item) for item in pair]
        if not all(dim.is_constant for dim in dims):
            return None
        pairs.append((dims[0].value, dims[1].value))
    return Window(*pairs)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a convolution's result and the channels of its groups."""

    images: Dim
    height: Dim
    width: Dim
    slices: Dim
    n: Dim
    channels: Dim

    def input_elements(self, window: Window, precision: str) -> Dim:
        """With the padding of channels."""
        pixels = product((self.images, window.reach(self.height, 0), window.reach(self.width, 1)))
        return pixels * self.slices * wide(self.channels, precision)

    def result_elements(self, precision: str) -> Dim:
        """With the padding of channels."""
        pixels = product((self.images, self.height, self.width))
        return pixels * self.slices * wide(self.n, precision)

    def scratch_bytes(self, window: Window, precision: str) -> Dim:
        """Result and input."""
        inputs = self.input_elements(window, precision) * element_bytes(precision)
        return self.result_elements(precision) * 4 + inputs

    def turns(self, elements: Dim, width: Dim) -> Dim:
        """Workgroups that turn ``elements`` round, ``width`` of them a pixel."""
        return ceildiv(elements // width, as_dim(PIXELS)) * ceildiv(width, as_dim(4 * QUADS))
