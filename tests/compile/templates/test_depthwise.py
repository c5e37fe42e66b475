"""Depthwise conv2d: the contract's chain bit for bit, over geometries, borders and epilogues."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.select import Geometry
from rlx_edge.compile.templates.depthwise import Depthwise, flops
from rlx_edge.compile.templates.depthwise_chains import RUN_PIXELS
from rlx_edge.compile.templates.finish import BLOCKED, PLANES
from rlx_edge.compile.templates.packing import ChannelPack
from rlx_edge.ir.errors import RlxError
from tests.compile.templates.storage import load_stored, store
from tests.compile.templates.test_conv2d import (
    EXTRAS,
    Case,
    border,
    conv,
    normal,
    physical,
    residual,
)
from tests.kernel_host import KernelHost, assert_same_bits

FORMS = ((0, 0), *RUN_PIXELS)


@cache
def depthwise_host(fused: bool, form: tuple[int, int]) -> tuple[Depthwise, KernelHost]:
    kernel = Depthwise(EXTRAS if fused else (), *form)
    return kernel, KernelHost(lambda module: kernel.emit(module, residual if fused else None))


@cache
def pack_host() -> KernelHost:
    return KernelHost(ChannelPack().emit)


def packed(w: np.ndarray) -> np.ndarray:
    channels, kernel = len(w), (w.shape[2], w.shape[3])
    out = np.full(ChannelPack().packed_bytes(channels, kernel).value // 4, np.nan, np.float32)
    arguments = [dim.value for dim in ChannelPack().arguments(channels, kernel)]
    return pack_host().run([out, w], arguments)[0]


@st.composite
def cases(draw: st.DrawFn, form: tuple[int, int]) -> Case:
    columns, stride = form
    kernel = (draw(st.integers(1, 5)), columns or draw(st.integers(1, 5)))
    dilation = (draw(st.integers(1, 2)), 1 if columns else draw(st.integers(1, 2)))
    channels = draw(st.integers(1, 13))
    strides = (draw(st.integers(1, 3)), stride or draw(st.integers(1, 3)))
    low = [max(1, d * (k - 1) + 1) for k, d in zip(kernel, dilation, strict=True)]
    return Case(
        draw(st.integers(1, 2)),
        channels,
        channels,
        draw(st.integers(low[0], low[0] + 7)),
        draw(st.integers(low[1], low[1] + 19)),
        Geometry(kernel, strides, dilation, draw(border()), channels),
        draw(border()),
        draw(border()),
        draw(border()),
    )


def check(case: Case, fused: bool, form: tuple[int, int]) -> None:
    kernel, host = depthwise_host(fused, form)
    geometry = case.geometry
    x = normal(1, case.images, case.channels, case.height, case.width)
    w = normal(2, case.channels, 1, *geometry.kernel)
    expected = conv(x, w, geometry)
    shape = expected.shape
    x_border = tuple(pad + more for pad, more in zip(geometry.padding, case.slack, strict=True))
    x_at = physical(x.shape, BLOCKED, x_border)
    out_at = physical(shape, BLOCKED, case.out_border)
    extras, stored = [], []
    if fused:
        full, channel = normal(3, *shape), normal(4, shape[1])
        batch_channel, scalar = normal(5, shape[0], shape[1], 1, 1), normal(6, 1)
        expected = ((expected + channel[None, :, None, None]) * batch_channel + full) / scalar
        stored = [physical(shape, BLOCKED, case.full_border)]
        extras = [store(full, stored[0]), channel, batch_channel, scalar]
    scratch = np.zeros(kernel.scratch_bytes(geometry.kernel).value, np.uint8)
    out = store(np.full(shape, np.nan, np.float32), out_at)
    arguments = kernel.arguments(x_at, out_at, geometry, stored)
    buffers = [out, store(x, x_at), packed(w), *extras, scratch]
    result, _ = host.run(buffers, [dim.value for dim in arguments], (0, len(buffers) - 1))
    actual, rest = load_stored(result, out_at)
    assert_same_bits(actual, expected)
    assert not rest.view(np.uint32).any(), "pad lanes or the border are not +0"


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data(), fused=st.booleans())
def test_depthwise_equals_the_chain(
    form: tuple[int, int], data: st.DataObject, fused: bool
) -> None:
    check(data.draw(cases(form)), fused, form)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_pixels_cross_images(form: tuple[int, int]) -> None:
    none = (0, 0, 0, 0)
    columns, stride = form
    geometry = Geometry((3, columns or 3), (1, stride or 1), padding=(1, 2, 1, 2), groups=10)
    check(Case(3, 10, 10, 9, 7, geometry, none, none, none), True, form)


@given(channels=st.integers(1, 9), kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_packed_weights(channels: int, kernel: tuple[int, int]) -> None:
    w = normal(7, channels, 1, *kernel)
    padded = np.zeros((-(-channels // 4) * 4, *kernel), np.float32)
    padded[:channels] = w[:, 0]
    blocks = padded.reshape(-1, 4, *kernel).transpose(0, 2, 3, 1)
    assert_same_bits(packed(w), np.ascontiguousarray(blocks).reshape(-1))


def test_form_follows_the_geometry() -> None:
    forms = {
        Geometry((3, 3)): (3, 1),
        Geometry((1, 5), (1, 2)): (5, 2),
        Geometry((3, 3), dilation=(1, 2)): (0, 0),
        Geometry((3, 7)): (0, 0),
    }
    for geometry, form in forms.items():
        chosen = Depthwise.for_geometry(geometry)
        assert (chosen.columns, chosen.stride) == form
    at = physical((1, 8, 5, 5), BLOCKED, (1, 1, 1, 1))
    with pytest.raises(RlxError, match="built for another geometry"):
        Depthwise((), 3, 1).arguments(at, at, Geometry((3, 3), (1, 2), groups=8))


def test_only_blocked_storage_is_taken() -> None:
    shape, none = (1, 8, 5, 5), (0, 0, 0, 0)
    blocked, plain = physical(shape, BLOCKED, none), physical(shape, PLANES, none)
    for x, out in ((plain, blocked), (blocked, plain)):
        with pytest.raises(RlxError, match="not stored as the kernel was built for"):
            Depthwise().arguments(x, out, Geometry((1, 1), groups=8))


def test_flops_count_multiplications_and_additions() -> None:
    assert flops(2, 6, 5, 7, (3, 3)).value == 2 * 6 * 5 * 7 * 9 * 2
