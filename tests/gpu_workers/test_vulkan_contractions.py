"""Contractions on the Vulkan device at hand: wide tiles, and chains side by side."""

# covers R15, R18

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rlx_edge.compile.claims.vulkan import splits
from rlx_edge.compile.codegen.spirv import contraction_shape
from rlx_edge.compile.codegen.spirv.contraction_shape import share_out
from rlx_edge.compile.select import Geometry
from rlx_edge.compile.templates.gpu import SPLIT, WIDE, GpuTile
from rlx_edge.gpu_workers.vulkan.context import VulkanContext
from rlx_edge.ir.dims import DimLike
from rlx_edge.ir.opdef import Example
from rlx_edge.ir.types import F32, tensor_type
from tests.compile.templates.test_conv2d import conv
from tests.compile.templates.test_matmul import chain
from tests.oracles import same_bits
from tests.vulkan_host import VARIANTS, compiled_example, opened, run_compiled, validate

LESS_MEMORY = {"shared": 12000}
"""Room for the wide tile, not for chains side by side."""


@pytest.fixture(scope="module", params=["as it is", "descriptor", "adreno", "less memory"], ids=str)
def owner(request: pytest.FixtureRequest) -> Iterator[VulkanContext]:
    with opened(**VARIANTS.get(request.param, LESS_MEMORY)) as found:
        yield found


def compiled(owner: VulkanContext, name: str, *shapes: tuple[DimLike, ...], **attrs: Any) -> Any:
    operands = tuple(tensor_type(F32, *shape) for shape in shapes)
    found = compiled_example(name, Example("case", operands, attrs), owner.device.target)
    if found.program.code:
        validate(found.program.code)
    return found


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("batch", "m", "k", "n"),
    [
        # Chains: one, as many as parts, more with a short last one.
        ((), 3, 20, 8),
        ((), 37, 512, 33),
        ((), 33, 650, 36),
        ((2,), 5, 516, 40),
        ((), 70, 132, 68),
        ((3,), 600, 390, 400),  # enough tiles for one chain after another
    ],
)
def test_products(owner: VulkanContext, batch: tuple[int, ...], m: int, k: int, n: int) -> None:
    a, b = normal(*batch, m, k), normal(*batch, k, n)
    program = compiled(owner, "rlxc::matmul", a.shape, b.shape)
    assert same_bits([run_compiled(owner, program, [a, b], {})], [chain(a, b)])


@pytest.mark.parametrize(
    ("x", "w", "groups", "padding"),
    [
        ((2, 40, 9, 7), (50, 40, 3, 3), 1, 1),
        ((1, 3, 11, 11), (9, 3, 7, 7), 1, 3),
        ((1, 520, 6, 6), (36, 520, 1, 1), 1, 0),
        ((1, 96, 5, 5), (12, 48, 3, 3), 2, 1),
    ],
    ids=str,
)
def test_convolutions(
    owner: VulkanContext, x: tuple[int, ...], w: tuple[int, ...], groups: int, padding: int
) -> None:
    border = (padding,) * 4
    program = compiled(
        owner, "rlxc::conv2d", x, w, padding=border, groups=groups, stride=(1, 1), dilation=(1, 1)
    )
    images, weights = normal(*x), normal(*w)
    geometry = Geometry(w[2:], padding=border, groups=groups)  # type: ignore[arg-type]
    expected = conv(images, weights, geometry)
    assert same_bits([run_compiled(owner, program, [images, weights], {})], [expected])


@pytest.mark.parametrize(("rows", "vectors"), [(8, 1), (4, 2), (8, 2)])
def test_invocations_of_several_sizes(
    owner: VulkanContext, monkeypatch: pytest.MonkeyPatch, rows: int, vectors: int
) -> None:
    """The bits do not tell how a tile is shared out."""
    monkeypatch.setattr(contraction_shape, "ROWS", rows)
    monkeypatch.setattr(contraction_shape, "VECTORS", vectors)
    test_products(owner, (), 70, 132, 68)
    test_convolutions(owner, (1, 3, 11, 11), (9, 3, 7, 7), 1, 3)


def test_a_device_without_room_computes_chain_after_chain(owner: VulkanContext) -> None:
    """Both ways were taken by what stands above."""
    target = owner.device.target
    assert splits(target) is (target.shared >= 20000)
    program = compiled(owner, "rlxc::matmul", ("m", 512), (512, 33)).program
    assert (len(program.entries) == 2) is splits(target)


@pytest.mark.parametrize("most", [1024, 256, 128, 64])
@pytest.mark.parametrize("tile", [WIDE, SPLIT, GpuTile(64, 32, 16)], ids=lambda tile: tile.name)
def test_tiles_are_shared_out_evenly(tile: GpuTile, most: int) -> None:
    shape = share_out(tile, most, rows_first=False, pad=1)
    assert shape.threads <= most
    assert shape.threads * shape.fours * 4 == tile.rows * tile.columns * tile.parts
    assert shape.finished * tile.parts == shape.each
    assert tile.rows * tile.depth % (4 * shape.part_threads) == 0
    assert np.gcd(tile.columns * tile.depth, 4 * shape.part_threads) == 4 * shape.part_threads
