"""Conv2d: the contract's chain bit for bit, over tiles, layouts, geometries and epilogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.compile.codegen.wasm.module import FunctionBuilder
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.select import Geometry
from rlx_edge.compile.templates.conv2d import Conv2d, flops
from rlx_edge.compile.templates.finish import BLOCKED, PLANES
from rlx_edge.compile.templates.packing import WeightPack
from rlx_edge.compile.templates.tiles import TILES, parse_tile, variants
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.types import F32, tensor_type
from tests.compile.templates.storage import load_stored, store
from tests.kernel_host import KernelHost, assert_same_bits

NAMES = tuple(dict.fromkeys(tile.name for style in TILES for tile in variants(style)))
LAYOUTS = (BLOCKED, PLANES)
EXTRAS = ("full", "channel", "batch_channel", "scalar")


@dataclass(frozen=True)
class Case:
    """One convolution: sizes, geometry, and borders of the input, output and residual."""

    images: int
    channels: int
    out_channels: int
    height: int
    width: int
    geometry: Geometry
    slack: tuple[int, int, int, int]
    out_border: tuple[int, int, int, int]
    full_border: tuple[int, int, int, int]


def conv(x: np.ndarray, w: np.ndarray, geometry: Geometry) -> np.ndarray:
    """The oracle: chains over channel block, kernel row, kernel column, channel in the block.

    A chain holds as many channel blocks as give at most 32 taps, at least one; chains are summed.
    """
    top, left, bottom, right = geometry.padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    groups = geometry.groups
    out_channels, group_channels, rows, columns = w.shape
    down, across = geometry.stride
    lower, further = geometry.dilation
    height = (x.shape[2] - lower * (rows - 1) - 1) // down + 1
    width = (x.shape[3] - further * (columns - 1) - 1) // across + 1
    per_group = out_channels // groups
    total = np.zeros((len(x), out_channels, height, width), np.float32)
    chain = np.zeros_like(total)
    blocks = max(1, 32 // (rows * columns))
    for block in range(0, group_channels, 4):
        if block and block % (4 * blocks) == 0:
            total = chain if block == 4 * blocks else total + chain
            chain = np.zeros_like(chain)
        for r in range(rows):
            for s in range(columns):
                for c in range(block, min(block + 4, group_channels)):
                    window = x[
                        :,
                        :,
                        r * lower : r * lower + down * (height - 1) + 1 : down,
                        s * further : s * further + across * (width - 1) + 1 : across,
                    ]
                    for group in range(groups):
                        span = slice(group * per_group, (group + 1) * per_group)
                        a = window[:, group * group_channels + c, None]
                        b = w[None, span, c, r, s, None, None]
                        chain[:, span] = chain[:, span] + a * b
    return chain if group_channels <= 4 * blocks else total + chain


def residual(body: FunctionBuilder, acc: int, loads: Sequence[Callable[[], None]]) -> None:
    """`((acc + channel) * batch_channel + full) / scalar`, which is not 0 in pad lanes."""
    full, channel, batch_channel, scalar = loads
    body.local_get(acc)
    channel()
    body.f32x4_add()
    batch_channel()
    body.f32x4_mul()
    full()
    body.f32x4_add()
    scalar()
    body.f32x4_div()


@cache
def conv_host(tile: str, layouts: tuple[str, str], fused: bool) -> tuple[Conv2d, KernelHost]:
    kernel = Conv2d(parse_tile(tile), *layouts, EXTRAS if fused else ())
    return kernel, KernelHost(lambda module: kernel.emit(module, residual if fused else None))


@cache
def pack_host(columns: int, blocked: bool) -> KernelHost:
    return KernelHost(WeightPack(columns, blocked).emit)


def packed(w: np.ndarray, groups: int, columns: int, blocked: bool) -> np.ndarray:
    pack = WeightPack(columns, blocked)
    n, channels = len(w) // groups, w.shape[1]
    kernel = (w.shape[2], w.shape[3])
    out = np.full(pack.packed_bytes(groups, n, channels, kernel).value // 4, np.nan, np.float32)
    arguments = [dim.value for dim in pack.arguments(groups, n, channels, kernel)]
    return pack_host(columns, blocked).run([out, w], arguments)[0]


def physical(shape: tuple[int, ...], layout: str, border: tuple[int, int, int, int]) -> Physical:
    name = "NCHW4c" if layout == BLOCKED else "NCHW"
    return Physical(tensor_type(F32, *shape), name, border)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(tile: str, layouts: tuple[str, str], case: Case, fused: bool) -> None:
    kernel, host = conv_host(tile, layouts, fused)
    geometry = case.geometry
    groups = geometry.groups
    x = normal(1, case.images, case.channels, case.height, case.width)
    w = normal(2, case.out_channels, case.channels // groups, *geometry.kernel)
    expected = conv(x, w, geometry)
    shape = expected.shape
    border = tuple(pad + more for pad, more in zip(geometry.padding, case.slack, strict=True))
    x_at = physical(x.shape, layouts[0], border)
    out_at = physical(shape, layouts[1], case.out_border)
    extras: list[np.ndarray] = []
    stored: list[Physical] = []
    if fused:
        full = normal(3, *shape)
        channel, scalar = normal(4, shape[1]), normal(6, 1)
        batch_channel = normal(5, shape[0], shape[1], 1, 1)
        biased = (expected + channel[None, :, None, None]) * batch_channel
        expected = (biased + full) / scalar
        stored = [physical(shape, layouts[1], case.full_border)]
        extras = [store(full, stored[0]), channel, batch_channel, scalar]
    depth = case.channels // groups
    scratch = np.zeros(kernel.scratch_bytes(depth, geometry.kernel).value, np.uint8)
    out = store(np.full(shape, np.nan, np.float32), out_at)
    panels = packed(w, groups, kernel.tile.columns, layouts[0] == BLOCKED)
    arguments = kernel.arguments(x_at, out_at, geometry, stored)
    buffers = [out, store(x, x_at), panels, *extras, scratch]
    result, _ = host.run(buffers, [dim.value for dim in arguments], (0, len(buffers) - 1))
    actual, rest = load_stored(result, out_at)
    assert_same_bits(actual, expected)
    assert not rest.view(np.uint32).any(), "pad lanes or the border are not +0"


def border() -> st.SearchStrategy[tuple[int, int, int, int]]:
    return st.tuples(*[st.integers(0, 2)] * 4)


@st.composite
def cases(draw: st.DrawFn, layouts: tuple[str, str]) -> Case:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    # In NCHW4c every group starts at a block of four channels.
    whole_input = layouts[0] == BLOCKED and groups > 1
    whole_output = layouts[1] == BLOCKED and groups > 1
    group_channels = draw(st.integers(1, 2)) * 4 if whole_input else draw(st.integers(1, 9))
    per_group = draw(st.integers(1, 4)) * 4 if whole_output else draw(st.integers(1, 18))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    geometry = Geometry(
        kernel, (draw(st.integers(1, 3)), draw(st.integers(1, 3))), dilation, draw(border()), groups
    )
    low = [max(1, d * (k - 1) + 1) for k, d in zip(kernel, dilation, strict=True)]
    return Case(
        draw(st.integers(1, 2)),
        group_channels * groups,
        per_group * groups,
        draw(st.integers(low[0], low[0] + 7)),
        draw(st.integers(low[1], low[1] + 7)),
        geometry,
        draw(border()),
        draw(border()),
        draw(border()),
    )


PAIRS = tuple((first, second) for first in LAYOUTS for second in LAYOUTS)


@pytest.mark.parametrize("tile", NAMES)
@settings(max_examples=80)
@given(data=st.data(), layouts=st.sampled_from(PAIRS), fused=st.booleans())
def test_conv_equals_the_chain(
    tile: str, data: st.DataObject, layouts: tuple[str, str], fused: bool
) -> None:
    check(tile, layouts, data.draw(cases(layouts)), fused)


@pytest.mark.parametrize("tile", NAMES)
def test_blocks_of_pixels_cross_images(tile: str) -> None:
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    none = (0, 0, 0, 0)
    check(tile, (BLOCKED, BLOCKED), Case(7, 40, 20, 9, 7, geometry, none, none, none), True)


@pytest.mark.parametrize("tile", NAMES)
@pytest.mark.parametrize("layouts", PAIRS)
@pytest.mark.parametrize(
    ("channels", "kernel", "groups"),
    [
        (128, (1, 1), 1),
        (129, (1, 1), 1),
        (300, (1, 1), 1),
        (26, (3, 3), 1),
        (12, (5, 5), 1),
        (7, (7, 6), 1),
        (64, (2, 3), 2),
    ],
)
def test_chains_are_cut_between_channel_blocks(
    tile: str, layouts: tuple[str, str], channels: int, kernel: tuple[int, int], groups: int
) -> None:
    none = (0, 0, 0, 0)
    geometry = Geometry(kernel, (1, 1), (1, 1), none, groups)
    case = Case(2, channels, 8 * groups, kernel[0] + 2, kernel[1] + 3, geometry, none, none, none)
    check(tile, layouts, case, False)


@given(
    groups=st.integers(1, 3),
    n=st.integers(1, 18),
    channels=st.integers(1, 9),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    columns=st.sampled_from([4, 8, 12, 16]),
    blocked=st.booleans(),
)
def test_packed_weights(
    groups: int, n: int, channels: int, kernel: tuple[int, int], columns: int, blocked: bool
) -> None:
    """[group][panel][channel block, row, column, channel][output channel], pads +0."""
    w = normal(7, groups * n, channels, *kernel)
    padded = np.zeros((groups, -(-n // 4) * 4, -(-channels // 4) * 4, *kernel), np.float32)
    padded[:, :n, :channels] = w.reshape(groups, n, channels, *kernel)
    panels = []
    for group in padded:
        for start in range(0, group.shape[0], columns):
            panel = group[start : start + columns]
            for block in range(0, panel.shape[1], 4):
                depth = 4 if blocked else min(4, channels - block)
                panels.append(panel[:, block : block + depth].transpose(2, 3, 1, 0).reshape(-1))
    assert_same_bits(packed(w, groups, columns, blocked), np.concatenate(panels))


def test_layouts_and_borders_are_checked() -> None:
    kernel = Conv2d(variants("v8")[0], BLOCKED, BLOCKED)
    padded = Geometry((3, 3), padding=(1, 1, 1, 1))
    x, out = (1, 4, 8, 8), (1, 4, 8, 8)
    none = (0, 0, 0, 0)
    with pytest.raises(RlxError, match="border is narrower than the padding"):
        kernel.arguments(physical(x, BLOCKED, none), physical(out, BLOCKED, none), padded)
    with pytest.raises(RlxError, match="not stored as the kernel was built for"):
        kernel.arguments(physical(x, PLANES, none), physical(out, BLOCKED, none), Geometry((1, 1)))


@pytest.mark.parametrize(("channels", "out_channels"), [(12, 16), (16, 12)])
def test_blocked_groups_are_whole_blocks(channels: int, out_channels: int) -> None:
    kernel = Conv2d(variants("v8")[0], BLOCKED, BLOCKED)
    x = physical((1, channels, 5, 5), BLOCKED, (0, 0, 0, 0))
    out = physical((1, out_channels, 5, 5), BLOCKED, (0, 0, 0, 0))
    with pytest.raises(RlxError, match=r"block of four .*3 .* channels in a group"):
        kernel.arguments(x, out, Geometry((1, 1), groups=4))


def test_full_extras_need_their_storage() -> None:
    kernel = Conv2d(variants("v8")[0], BLOCKED, BLOCKED, ("full",))
    at = physical((1, 4, 5, 5), BLOCKED, (0, 0, 0, 0))
    with pytest.raises(RlxError, match="needs its storage"):
        kernel.arguments(at, at, Geometry((1, 1)))


def test_flops_count_multiplications_and_additions() -> None:
    assert flops(2, 8, 5, 6, 4, (3, 3)).value == 2 * 8 * 5 * 6 * 4 * 9 * 2
