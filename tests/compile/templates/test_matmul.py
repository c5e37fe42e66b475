"""Matmul: the contract's chain bit for bit, for every tile, shape, layout and epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.codegen.wasm.module import FunctionBuilder
from rlx_edge.compile.templates.driver import MOST_COLUMNS
from rlx_edge.compile.templates.finish import BLOCK_ROWS
from rlx_edge.compile.templates.matmul import Matmul, flops, packed_bytes
from rlx_edge.compile.templates.packing import PanelPack
from rlx_edge.compile.templates.tiles import TILES, Tile, choose_tile, parse_tile, variants
from rlx_edge.ir.errors import RlxError
from tests.kernel_host import KernelHost, assert_same_bits

NAMES = tuple(dict.fromkeys(tile.name for style in TILES for tile in variants(style)))
EXTRAS = ("full", "channel", "batch_channel", "scalar")


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The oracle: f32 chains of 128 products from +0.0, k ascending, two roundings a step."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    depth = a.shape[-1]
    total = np.zeros(shape, np.float32)
    with np.errstate(all="ignore"):
        for first in range(0, depth, 128):
            part = np.zeros(shape, np.float32)
            for k in range(first, min(first + 128, depth)):
                part = part + a[..., :, k, None] * b[..., None, k, :]
            total = part if first == 0 else total + part
    return total


def residual(body: FunctionBuilder, acc: int, loads: Sequence[Callable[[], None]]) -> None:
    """`relu((acc + channel) * scalar + full - batch_channel)`."""
    full, channel, batch_channel, scalar = loads
    body.local_get(acc)
    channel()
    body.f32x4_add()
    scalar()
    body.f32x4_mul()
    full()
    body.f32x4_add()
    batch_channel()
    body.f32x4_sub().f32x4_const((0, 0, 0, 0)).f32x4_pmax()


@cache
def matmul_host(tile: str, fused: bool) -> tuple[Matmul, KernelHost]:
    kernel = Matmul(parse_tile(tile), EXTRAS if fused else ())
    return kernel, KernelHost(
        lambda module: kernel.emit(module, residual if fused else None), pages=160
    )


@cache
def pack_host(columns: int) -> KernelHost:
    return KernelHost(PanelPack(columns).emit, pages=160)


def packed(b: np.ndarray, columns: int, transposed: bool = False) -> np.ndarray:
    """Panels of `b[slices, k, n]` made by the pack kernel; `transposed` stores b as [s, n, k]."""
    slices, k, n = b.shape
    stored = np.ascontiguousarray(b.swapaxes(1, 2)) if transposed else np.ascontiguousarray(b)
    out = np.full(slices * packed_bytes(n, k).value // 4, np.nan, np.float32)
    arguments = PanelPack(columns).arguments(n, k, slices, transposed)
    (result,) = pack_host(columns).run([out, stored], [dim.value for dim in arguments])
    return result


def run_matmul(
    tile: str, a: np.ndarray, b: np.ndarray, extras: Sequence[np.ndarray] = ()
) -> np.ndarray:
    kernel, host = matmul_host(tile, bool(extras))
    m, k = a.shape[1:]
    n = b.shape[2]
    slices = max(len(a), len(b))
    out = np.full((slices, m, n), np.nan, np.float32)
    scratch = np.zeros(kernel.scratch_bytes(k).value, np.uint8)
    panels = packed(b, kernel.tile.columns)
    arguments = kernel.arguments(m, n, k, slices, len(a) < slices, len(b) < slices)
    buffers = [out, a, panels, *extras, scratch]
    result, _ = host.run(buffers, [dim.value for dim in arguments], (0, len(buffers) - 1))
    return result


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


sizes = st.integers(1, 40)


@pytest.mark.parametrize("tile", NAMES)
@given(m=sizes, n=sizes, k=sizes, batch=st.sampled_from([(1, 1), (3, 3), (1, 2), (2, 1)]))
def test_matmul_equals_the_chain(tile: str, m: int, n: int, k: int, batch: tuple[int, int]) -> None:
    a, b = normal(1, batch[0], m, k), normal(2, batch[1], k, n)
    assert_same_bits(run_matmul(tile, a, b), chain(a, b))


@pytest.mark.parametrize("tile", NAMES)
@given(m=st.integers(1, 60), n=st.integers(1, 30), k=st.integers(1, 9), slices=st.integers(1, 2))
def test_epilogue_sees_every_operand_at_its_position(
    tile: str, m: int, n: int, k: int, slices: int
) -> None:
    a, b = normal(3, slices, m, k), normal(4, slices, k, n)
    full, channel = normal(5, slices, m, n), normal(6, n)
    batch_channel, scalar = normal(7, slices, 1, n), normal(8, 1)
    x = (chain(a, b) + channel) * scalar + full - batch_channel
    expected = np.where(x < 0, np.float32(0), x)
    actual = run_matmul(tile, a, b, [full, channel, batch_channel, scalar])
    assert_same_bits(actual, expected)


@pytest.mark.parametrize("tile", NAMES)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (2 * BLOCK_ROWS + 3, 20, 300),
        (BLOCK_ROWS + 1, 9, 20),
        (100, 20, 700),
        (7, 24, 9001),
        (50, 4, 1),
        (5, 9, 128),
        (5, 9, 256),
        (1, 83, 64),
        (BLOCK_ROWS + 50, MOST_COLUMNS + 33, 2 * 128 + 9),
        (1, 2 * MOST_COLUMNS + 101, 128 + 1),
    ],
)
def test_blocks_of_rows_columns_and_depths(tile: str, m: int, n: int, k: int) -> None:
    a, b = normal(9, 1, m, k), normal(10, 1, k, n)
    assert_same_bits(run_matmul(tile, a, b), chain(a, b))


@pytest.mark.parametrize("tile", NAMES)
def test_special_values_follow_the_chain(tile: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1.5])
    rng = np.random.default_rng(11)
    a = rng.choice(values, (1, 9, 5)).astype(np.float32)
    b = rng.choice(values, (1, 5, 13)).astype(np.float32)
    assert_same_bits(run_matmul(tile, a, b), chain(a, b))


@pytest.mark.parametrize("tile", NAMES)
def test_empty_chain_is_zero(tile: str) -> None:
    a, b = normal(1, 1, 5, 0), normal(1, 1, 0, 7)
    kernel, host = matmul_host(tile, False)
    out = np.full((1, 5, 7), np.nan, np.float32)
    scratch = np.zeros(kernel.scratch_bytes(0).value, np.uint8)
    arguments = [dim.value for dim in kernel.arguments(5, 7, 0)]
    result, _ = host.run([out, a, b, scratch], arguments, (0, 3))
    assert_same_bits(result, np.zeros((1, 5, 7), np.float32))


@pytest.mark.parametrize("tile", NAMES)
def test_rows_of_a_may_be_strided_along_k(tile: str) -> None:
    """A transposed: element k of a row lies a row of the stored matrix further."""
    a, b = normal(1, 1, 11, 6), normal(2, 1, 6, 10)
    kernel, host = matmul_host(tile, False)
    values = dict(
        zip(kernel.parameters, (dim.value for dim in kernel.arguments(11, 10, 6)), strict=True)
    )
    values |= {"a_pixel": 4, "a_step": 44}
    out = np.full((1, 11, 10), np.nan, np.float32)
    scratch = np.zeros(kernel.scratch_bytes(6).value, np.uint8)
    stored = np.ascontiguousarray(a.swapaxes(1, 2))
    buffers = [out, stored, packed(b, kernel.tile.columns), scratch]
    result, _ = host.run(buffers, list(values.values()), (0, 3))
    assert_same_bits(result, chain(a, b))


@given(
    k=sizes,
    n=sizes,
    slices=st.integers(1, 3),
    columns=st.sampled_from([4, 8, 12, 16]),
    transposed=st.booleans(),
)
def test_panels(k: int, n: int, slices: int, columns: int, transposed: bool) -> None:
    b = normal(12, slices, k, n)
    expected = []
    for matrix in b:
        padded = np.zeros((k, -(-n // 4) * 4), np.float32)
        padded[:, :n] = matrix
        for start in range(0, padded.shape[1], columns):
            expected.append(padded[:, start : start + columns].reshape(-1))
    assert_same_bits(packed(b, columns, transposed), np.concatenate(expected))


def test_tile_names_round_trip_and_unknown_ones_are_refused() -> None:
    for style in TILES:
        for tile in variants(style):
            assert parse_tile(tile.name) == tile
    assert Tile("splat", 4, 2, 4).name == "splat4x8u4"
    with pytest.raises(RlxError, match="unknown tile"):
        parse_tile("spread9x9")
    with pytest.raises(RlxError, match="unknown emit style"):
        variants("spidermonkey")


def test_few_columns_are_read_in_place() -> None:
    for style in TILES:
        assert choose_tile(style, None) == choose_tile(style, 1000) == variants(style)[0]
        for columns in (1, 8, 16):
            tile = choose_tile(style, columns)
            assert tile.in_place
            assert tile in variants(style)
    with pytest.raises(RlxError, match="unknown emit style"):
        choose_tile("spidermonkey", 8)


def test_flops_count_multiplications_and_additions() -> None:
    assert flops(3, 5, 7, 2).value == 2 * 3 * 5 * 7 * 2
