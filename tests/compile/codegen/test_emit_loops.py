"""Loop nests of real operators: layouts, transposes, broadcasts, padding, joins, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from rlx_edge.compile.codegen.wasm.dump import dump
from rlx_edge.compile.codegen.wasm.emit import emit_module
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    INDEX,
    Expr,
    binary,
    cast,
    const,
    index,
    load,
    reduce,
    select,
    unary,
)
from rlx_edge.ir.kernel import Loop, LoopKernel, generalize
from rlx_edge.ir.types import BOOL, F32, I32, I64, U8, DType
from tests.kernel_oracle import NUMPY, evaluate_kernel, same_bits
from tests.wasm_runner import run_kernel

V = [symbol(f"_v{axis}") for axis in range(5)]
LANE = symbol("_l")


def kernel_over(
    extents: Sequence[int],
    offset: Dim,
    value: Expr,
    buffers: Sequence[DType],
    lanes: bool = False,
) -> LoopKernel:
    names = [f"_v{axis}" for axis in range(len(extents))]
    if lanes:
        names[-1] = "_l"
    loops = tuple(Loop(name, as_dim(extent)) for name, extent in zip(names, extents, strict=True))
    return LoopKernel(loops, tuple(buffers), offset, value, lanes=lanes)


def check(kernel: LoopKernel, *buffers: np.ndarray) -> str:
    """Compare with the oracle and return the text of the code."""
    generic, arguments = generalize(kernel)
    wasm = emit_module([generic], WasmTarget())
    actual = run_kernel(wasm, 0, buffers, [dim.value for dim in arguments])
    assert same_bits(actual, evaluate_kernel(kernel, buffers))
    return dump(wasm)


def data(dtype: DType, count: int) -> np.ndarray:
    random = np.random.default_rng(count)
    if dtype.is_float:
        return random.standard_normal(count).astype(NUMPY[dtype])
    high = 2 if dtype is BOOL else 100
    return random.integers(0, high, count).astype(NUMPY[dtype])


def row_major(names: Sequence[Dim], extents: Sequence[int]) -> Dim:
    offset = as_dim(0)
    for name, extent in zip(names, extents, strict=True):
        offset = offset * extent + name
    return offset


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 5, 6), (1, 9, 4), (8, 3, 13)], ids=str)
@pytest.mark.parametrize("dtype", [F32, I32, I64, U8], ids=str)
def test_transpose(order: tuple[int, ...], shape: tuple[int, ...], dtype: DType) -> None:
    extents = [shape[axis] for axis in order]
    source: list[Dim] = [as_dim(0)] * 3
    for position, axis in enumerate(order):
        source[axis] = V[position]
    value = load(1, dtype, [row_major(source, shape)])
    size = int(np.prod(shape))
    kernel = kernel_over(extents, row_major(V[:3], extents), value, (dtype, dtype))
    check(kernel, data(dtype, size), data(dtype, size))


def test_transpose_uses_tiles() -> None:
    value = load(1, F32, [V[1] * 9 + V[0]]) + load(2, F32, [V[0] * 7 + V[1]])
    kernel = kernel_over((9, 7), V[0] * 7 + V[1], value, (F32, F32, F32))
    text = check(kernel, data(F32, 63), data(F32, 63), data(F32, 63))
    assert text.count("i8x16.shuffle") == 8


@pytest.mark.parametrize("channels", [4, 6, 8])
@pytest.mark.parametrize("pixels", [1, 4, 7, 20])
def test_to_channel_blocks(channels: int, pixels: int) -> None:
    """NCHW to NCHW4c; lanes beyond the channels hold +0."""
    blocks = -(-channels // 4)
    channel = V[0] * 4 + LANE
    at = dim_min(channel, channels - 1) * pixels + V[1]
    value: Expr = load(1, F32, [at])
    if channels % 4:
        value = select(index(channel) < channels, value, 0.0)
    else:
        value = load(1, F32, [channel * pixels + V[1]])
    offset = (V[0] * pixels + V[1]) * 4 + LANE
    kernel = kernel_over((blocks, pixels, 4), offset, value, (F32, F32), lanes=True)
    check(kernel, data(F32, blocks * pixels * 4), data(F32, channels * pixels))


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("pixels", [1, 5, 16])
def test_from_channel_blocks(channels: int, pixels: int) -> None:
    at = (V[0] // 4 * pixels + V[1]) * 4 + V[0] % 4
    kernel = kernel_over((channels, pixels), V[0] * pixels + V[1], load(1, F32, [at]), (F32, F32))
    check(kernel, data(F32, channels * pixels), data(F32, -(-channels // 4) * 4 * pixels))


@pytest.mark.parametrize("columns", [1, 3, 4, 30])
def test_broadcast(columns: int) -> None:
    """Row, column and scalar operands beside a full one, with a store into a padded row."""
    full = load(1, F32, [V[0] * columns + V[1]])
    value = full * load(2, F32, [V[1]]) + load(3, F32, [V[0]]) / load(4, F32, [0])
    kernel = kernel_over((5, columns), V[0] * (columns + 3) + V[1], value, (F32,) * 5)
    check(
        kernel, data(F32, 5 * (columns + 3)), data(F32, 5 * columns), data(F32, columns),
        data(F32, 5), data(F32, 1),
    )  # fmt: skip


def test_reversed_and_strided() -> None:
    value = load(1, F32, [as_dim(30) - V[0]]) - load(1, F32, [V[0] * 2]) * load(1, F32, [V[0] + 7])
    check(kernel_over((16,), V[0] * 3, value, (F32, F32)), data(F32, 48), data(F32, 31))


@pytest.mark.parametrize("pads", [(0, 0), (1, 2), (4, 0), (9, 9)], ids=str)
def test_pad(pads: tuple[int, int]) -> None:
    """A constant border along the vector axis: clamped loads chosen by a lane mask."""
    before, after = pads
    columns = 11
    at = V[1] - before
    inside = binary("and", index(at) >= 0, index(at) < columns)
    clamped = dim_max(dim_min(at, columns - 1), 0)
    value = select(inside, load(1, F32, [V[0] * columns + clamped]), -1.5)
    width = columns + before + after
    kernel = kernel_over((3, width), V[0] * width + V[1], value, (F32, F32))
    check(kernel, data(F32, 3 * width), data(F32, 3 * columns))


def test_concatenation_in_the_loop() -> None:
    """Two operands chosen by a condition on the vector axis."""
    left, right = 5, 8
    a = load(1, F32, [V[0] * left + dim_min(V[1], left - 1)])
    b = load(2, F32, [V[0] * right + dim_max(V[1] - left, 0)])
    value = select(index(V[1]) < left, a, b)
    kernel = kernel_over((4, 13), V[0] * 13 + V[1], value, (F32,) * 3)
    check(kernel, data(F32, 52), data(F32, 20), data(F32, 32))


@pytest.mark.parametrize("kind", [I32, I64], ids=str)
def test_gather(kind: DType) -> None:
    """Rows by loaded indices (contiguous in the row), then single elements."""
    row = cast(load(2, kind, [V[0]]), INDEX)
    at = binary("add", binary("mul", row, index(6)), index(V[1]))
    picks = np.array([3, 0, 7, 7, 1], NUMPY[kind])
    kernel = kernel_over((5, 6), V[0] * 6 + V[1], load(1, F32, [at]), (F32, F32, kind))
    check(kernel, data(F32, 30), data(F32, 48), picks)
    one = load(1, F32, [binary("add", cast(load(2, kind, [V[0]]), INDEX), index(as_dim(2)))])
    check(kernel_over((5,), V[0], one, (F32, F32, kind)), data(F32, 5), data(F32, 10), picks)


def test_nearest_resize() -> None:
    """Integer scaling: the source index is a quotient of the vector variable."""
    at = (V[0] * 5 // 9) * 7 + dim_min(V[1] * 7 // 20, 6)
    kernel = kernel_over((9, 20), V[0] * 20 + V[1], load(1, F32, [at]), (F32, F32))
    check(kernel, data(F32, 180), data(F32, 35))


def test_mask_from_bytes() -> None:
    value = binary("and", load(1, BOOL, [V[0]]), load(2, F32, [V[0]]) < 0.5)
    check(kernel_over((37,), V[0], value, (BOOL, BOOL, F32)), data(BOOL, 37), data(BOOL, 37),
          data(F32, 37))  # fmt: skip


def test_iota_and_eye() -> None:
    check(kernel_over((23,), V[0], cast(index(V[0] * 3 + 2), F32), (F32,)), data(F32, 23))
    eye = select(binary("eq", index(V[0]), index(V[1])), const(1.0, F32), const(0.0, F32))
    check(kernel_over((7, 7), V[0] * 7 + V[1], eye, (F32,)), data(F32, 49))


def test_scalar_result() -> None:
    value = load(1, F32, [0]) + 1.0
    check(LoopKernel((), (F32, F32), as_dim(0), value), data(F32, 1), data(F32, 1))


def test_dependent_extents() -> None:
    """Blocks of a contraction: the inner extent depends on the outer reduction variable."""
    block, inner = symbol("_r0"), symbol("_r1")
    depth = 300
    at = block * 128 + inner
    product = load(1, F32, [V[0] * depth + at]) * load(2, F32, [at * 6 + V[1]])
    chain = reduce("chain", ["_r1"], [dim_min(depth - block * 128, 128)], product)
    value = reduce("chain", ["_r0"], [3], chain)
    kernel = kernel_over((5, 6), V[0] * 6 + V[1], value, (F32,) * 3)
    a, b = data(F32, 5 * depth), data(F32, depth * 6)
    generic, arguments = generalize(kernel)
    wasm = emit_module([generic], WasmTarget())
    actual = run_kernel(wasm, 0, (data(F32, 30), a, b), [dim.value for dim in arguments])
    expected = np.zeros((5, 6), np.float32)
    for start in range(0, depth, 128):
        total = np.zeros((5, 6), np.float32)
        for at_k in range(start, min(start + 128, depth)):
            total = total + a.reshape(5, depth)[:, at_k, None] * b.reshape(depth, 6)[at_k]
        expected = expected + total
    assert same_bits(actual, expected.ravel())


def test_deep_expression() -> None:
    """A long fused chain compiles without deep recursion."""
    x = load(1, F32, [V[0]])
    value: Expr = x
    for step in range(200):
        value = unary("abs", value * x) + float(step)
    check(kernel_over((9,), V[0], value, (F32, F32)), data(F32, 9), data(F32, 9))


def test_lanes_need_four() -> None:
    kernel = kernel_over((3, 5), V[0] * 5 + LANE, const(0.0, F32), (F32,), lanes=True)
    with pytest.raises(RlxError) as caught:
        emit_module([kernel], WasmTarget())
    assert caught.value.code == "kernel.lanes"
