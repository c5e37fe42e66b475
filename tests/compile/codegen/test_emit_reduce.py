"""Reductions around the chunk length, in every form, and the shapes of real row kernels."""

from __future__ import annotations

from functools import reduce as reduce_list

import numpy as np
import pytest

from rlx_edge.compile.codegen.wasm.emit import emit_module
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.expression import binary, cast, index, load, reduce, select, unary
from rlx_edge.ir.kernel import Loop, LoopKernel, generalize
from rlx_edge.ir.types import F32, F64, I32, DType
from tests.kernel_oracle import NUMPY, evaluate_kernel, same_bits
from tests.wasm_runner import run_kernel

LENGTHS = (0, 1, 3, 4, 5, 4095, 4096, 4097, 4098, 4099, 4100, 8192, 9000)
KINDS = ("chain", "sum", "prod", "max", "min")
ROW, COLUMN, R, S = (symbol(name) for name in ("_v0", "_v1", "_r0", "_r1"))


def values(dtype: DType, count: int, seed: int = 3) -> np.ndarray:
    random = np.random.default_rng(seed)
    if not dtype.is_float:
        return random.integers(-1000, 1000, count).astype(NUMPY[dtype])
    # Near 1, so that long products stay finite and rounding still depends on the order.
    return (1 + 0.01 * random.standard_normal(count)).astype(NUMPY[dtype])


def check(kernel: LoopKernel, *buffers: np.ndarray) -> None:
    generic, arguments = generalize(kernel)
    wasm = emit_module([generic], WasmTarget())
    actual = run_kernel(wasm, 0, buffers, [dim.value for dim in arguments])
    expected = evaluate_kernel(kernel, buffers)
    assert same_bits(actual, expected), (actual.ravel()[:4], expected.ravel()[:4])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [F32, F64, I32], ids=str)
def test_row(kind: str, length: int, dtype: DType) -> None:
    """Contiguous along the reduction: one vector holds the partials (scalar for f64)."""
    value = reduce(kind, ["_r0"], [length], load(1, dtype, [ROW * length + R]))
    kernel = LoopKernel((Loop("_v0", as_dim(3)),), (dtype, dtype), ROW, value)
    check(kernel, values(dtype, 3), values(dtype, 3 * length))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_columns(kind: str, length: int) -> None:
    """Contiguous along the output: four outputs are the lanes."""
    value = reduce(kind, ["_r0"], [length], load(1, F32, [R * 7 + ROW]))
    kernel = LoopKernel((Loop("_v0", as_dim(7)),), (F32, F32), ROW, value)
    check(kernel, values(F32, 7), values(F32, 7 * length))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "extents",
    [
        (3, 1400),
        (1400, 3),
        (65, 64),
        (2, 4096),
        (2, 4097),
        (91, 91),
        (5, 3, 275),
        (1, 5000),
        (0, 9),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["row", "columns"])
def test_axes(kind: str, extents: tuple[int, ...], form: str) -> None:
    """Several axes that do not merge: rows rotate the partials and straddle chunks."""
    names = [f"_r{axis}" for axis in range(len(extents))]
    element, outer = (1, int(np.prod(extents)) + 77) if form == "row" else (5, 1)
    stride, offset = element, ROW * outer
    for name, extent in reversed(list(zip(names, extents, strict=True))):
        offset = offset + symbol(name) * stride
        stride = stride * extent + 2 * element
    value = reduce(kind, names, extents, load(1, F32, [offset]))
    kernel = LoopKernel((Loop("_v0", as_dim(5)),), (F32, F32), ROW, value)
    check(kernel, values(F32, 5), values(F32, 6 * (stride + outer)))


@pytest.mark.parametrize("columns", [1, 2, 4, 6, 33, 5000])
def test_softmax(columns: int) -> None:
    """Two reductions, the second over an expression of the first, and both used per element."""
    row = load(1, F32, [ROW * columns + R])
    top = reduce("max", ["_r0"], [columns], row)
    total = reduce("sum", ["_r0"], [columns], unary("exp", row - top))
    value = unary("exp", load(1, F32, [ROW * columns + COLUMN]) - top) / total
    loops = (Loop("_v0", as_dim(3)), Loop("_v1", as_dim(columns)))
    kernel = LoopKernel(loops, (F32, F32), ROW * columns + COLUMN, value)
    data = np.random.default_rng(1).standard_normal(3 * columns).astype(np.float32) * 9
    check(kernel, values(F32, 3 * columns), data)


@pytest.mark.parametrize("columns", [4, 50, 4500])
def test_variance(columns: int) -> None:
    """A reduction over elements that contain a finished reduction."""
    row = load(1, F32, [ROW * columns + R])
    mean = reduce("sum", ["_r0"], [columns], row) / cast(index(as_dim(columns)), F32)
    centred = row - mean
    variance = reduce("sum", ["_r0"], [columns], centred * centred)
    kernel = LoopKernel((Loop("_v0", as_dim(5)),), (F32, F32), ROW, unary("sqrt", variance))
    check(kernel, values(F32, 5), values(F32, 5 * columns))


def test_nested_with_shadowed_variable() -> None:
    """An inner reduction may use its own variable of the outer one's name."""
    inner = reduce("sum", ["_r0"], [50], load(2, F32, [R]))
    value = reduce("sum", ["_r0"], [70], load(1, F32, [ROW * 70 + R]) * inner)
    kernel = LoopKernel((Loop("_v0", as_dim(2)),), (F32, F32, F32), ROW, value)
    check(kernel, values(F32, 2), values(F32, 140), values(F32, 50))


@pytest.mark.parametrize("special", [np.nan, -0.0, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_special_values(kind: str, special: float) -> None:
    """NaN, -0 and infinities, in every position of a short row."""
    length = 9
    rows = np.zeros((length, length), np.float32)
    rows[np.arange(length), np.arange(length)] = special
    value = reduce(kind, ["_r0"], [as_dim(length)], load(1, F32, [ROW * length + R]))
    kernel = LoopKernel((Loop("_v0", as_dim(length)),), (F32, F32), ROW, value)
    check(kernel, values(F32, length), rows.ravel())
    check(kernel, values(F32, length), np.where(rows == 0, np.float32(-0.0), rows).ravel())


def pool(kind: str, channels: int, size: int, lanes: bool) -> tuple[LoopKernel, int]:
    """A 3x3 window with a border of one pixel, stride 2, in NCHW4c or NCHW."""
    names = ("_v0", "_v1", "_v2") + (("_l",) if lanes else ())
    lane = 4 if lanes else 1
    y, x = symbol("_v1") * 2 + R - 1, symbol("_v2") * 2 + S - 1
    out = (size + 1) // 2

    def clamp(at: Dim) -> Dim:
        return dim_max(dim_min(at, size - 1), 0)

    at = (symbol("_v0") * size * size + clamp(y) * size + clamp(x)) * lane
    offset = (symbol("_v0") * out * out + symbol("_v1") * out + symbol("_v2")) * lane
    if lanes:
        at, offset = at + symbol("_l"), offset + symbol("_l")
    inside = reduce_list(
        lambda a, b: binary("and", a, b),
        [index(y) >= 0, index(y) < size, index(x) >= 0, index(x) < size],
    )
    fill = float("-inf") if kind == "max" else 0.0
    value = reduce(kind, ["_r0", "_r1"], [3, 3], select(inside, load(1, F32, [at]), fill))
    extents = (channels, out, out, *([4] if lanes else []))
    loops = tuple(Loop(n, as_dim(e)) for n, e in zip(names, extents, strict=True))
    return LoopKernel(loops, (F32, F32), offset, value, lanes=lanes), out


@pytest.mark.parametrize("lanes", [True, False], ids=["blocked", "plain"])
@pytest.mark.parametrize("kind", ["max", "sum"])
@pytest.mark.parametrize("size", [3, 8, 13])
def test_pool(kind: str, size: int, lanes: bool) -> None:
    kernel, out = pool(kind, 2, size, lanes)
    lane = 4 if lanes else 1
    check(kernel, values(F32, 2 * out * out * lane), values(F32, 2 * size * size * lane))
