"""Every operator and cast, scalar and vector, on the values where they differ most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rlx_edge.compile.codegen.wasm.dump import dump
from rlx_edge.compile.codegen.wasm.emit import emit_module
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    INDEX,
    Expr,
    binary,
    bitcast,
    cast,
    const,
    load,
    replace_loads,
    select,
    unary,
)
from rlx_edge.ir.kernel import Loop, LoopKernel, generalize
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U32, DType
from tests.kernel_oracle import NUMPY, evaluate_kernel, same_bits
from tests.kernel_strategies import ALL_TYPES
from tests.wasm_runner import run_kernel

FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 1e-40, -1e-40, 1.1754944e-38,
    8388607.5, 16777216.0, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 4294967040.0,
    4294967296.0, 9.2233715e18, 9.223372e18, -9.223372e18, 1.8446742e19, 1.8446744e19, 127.5,
    -128.9, 255.9, 256.0, 32767.9, 65535.9, 3.4e38, np.inf, -np.inf, np.nan,
)  # fmt: skip
PRIMITIVE = [op for op in SCALAR_OPS.values() if op.primitive and op.name not in ("shl", "shr")]


def specials(dtype: DType) -> np.ndarray:
    kind = NUMPY[dtype]
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_float:
        return np.array(FLOATS).astype(kind)
    limits = np.iinfo(kind)
    low, high = int(limits.min), int(limits.max)
    numbers = {low, low + 1, high, high - 1, high // 2, low // 2, 0, 1, 2, 3, 7, 100}
    numbers |= {-1, -2, -7} if low < 0 else set()
    return np.array(sorted(numbers), kind)


def run_both(value: Expr, result: DType, inputs: list[np.ndarray], types: list[DType]) -> None:
    """Compare with the oracle, as one long row (vectors) and as rows of three (scalars)."""
    count = len(inputs[0]) // 3 * 3
    at = symbol("_v0")
    out = np.zeros(count, NUMPY[result])
    buffers = [out, *(array[:count] for array in inputs)]
    flat = LoopKernel((Loop("_v0", as_dim(count)),), (result, *types), at, value)
    rows = symbol("_v1") * 3 + at
    short = LoopKernel(
        (Loop("_v1", as_dim(count // 3)), Loop("_v0", as_dim(3))),
        (result, *types),
        rows,
        replace_loads(value, lambda slot, _, dtype: load(slot, dtype, [rows])),
    )
    for kernel in (flat, short):
        generic, arguments = generalize(kernel)
        wasm = emit_module([generic], WasmTarget())
        actual = run_kernel(wasm, 0, buffers, [dim.value for dim in arguments])
        expected = evaluate_kernel(kernel, buffers)
        different = np.flatnonzero(actual.view(np.uint8) != expected.view(np.uint8))
        assert same_bits(actual, expected), [
            tuple(array[item // out.itemsize] for array in (*buffers[1:], actual, expected))
            for item in different[:4]
        ]


def pairs(dtype: DType) -> list[np.ndarray]:
    values = specials(dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(values, values))
    fill = -len(a) % 3
    return [np.concatenate([a, a[:fill]]), np.concatenate([b, b[:fill]])]


def repeated(dtype: DType) -> np.ndarray:
    return np.resize(specials(dtype), 60)


def legal(name: str) -> list[DType]:
    kinds = SCALAR_OPS[name].kinds
    return [dtype for dtype in ALL_TYPES if dtype.kind in kinds]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(op.name, dtype) for op in PRIMITIVE if op.arity == 2 for dtype in legal(op.name)],
    ids=str,
)
def test_binary(name: str, dtype: DType) -> None:
    value = binary(name, load(1, dtype, ["_v0"]), load(2, dtype, ["_v0"]))
    run_both(value, value.dtype, pairs(dtype), [dtype, dtype])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(op.name, dtype) for op in PRIMITIVE if op.arity == 1 for dtype in legal(op.name)],
    ids=str,
)
def test_unary(name: str, dtype: DType) -> None:
    value = unary(name, load(1, dtype, ["_v0"]))
    run_both(value, value.dtype, [repeated(dtype)], [dtype])


@pytest.mark.parametrize("name", ["shl", "shr"])
@pytest.mark.parametrize("dtype", legal("shl"), ids=str)
def test_shift(name: str, dtype: DType) -> None:
    for count in (0, 1, 8 * dtype.bytes - 1):
        value = binary(name, load(1, dtype, ["_v0"]), const(count, dtype))
        run_both(value, dtype, [repeated(dtype)], [dtype])


@pytest.mark.parametrize("source", ALL_TYPES, ids=str)
@pytest.mark.parametrize("target", ALL_TYPES, ids=str)
def test_cast(source: DType, target: DType) -> None:
    run_both(cast(load(1, source, ["_v0"]), target), target, [repeated(source)], [source])


@pytest.mark.parametrize(
    ("source", "target"), [(F32, I32), (I32, F32), (F32, U32), (F64, I64), (I64, F64)], ids=str
)
def test_bitcast(source: DType, target: DType) -> None:
    value = bitcast(load(1, source, ["_v0"]), target)
    run_both(value, target, [repeated(source)], [source])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "floordiv", "mod", "div", "lt", "eq"])
def test_index_arithmetic(name: str) -> None:
    """Data-dependent indices are 32-bit integers."""
    a, b = (cast(load(slot, I32, ["_v0"]), INDEX) for slot in (1, 2))
    run_both(cast(binary(name, a, b), I32), I32, pairs(I32), [I32, I32])


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_select(dtype: DType) -> None:
    value = select(load(1, BOOL, ["_v0"]), load(2, dtype, ["_v0"]), load(3, dtype, ["_v0"]))
    a, b = pairs(dtype)
    mask = np.random.default_rng(0).integers(0, 2, len(a)).astype(np.bool_)
    run_both(value, dtype, [mask, a, b], [BOOL, dtype, dtype])


CLAMPED: dict[str, Callable[[Expr], Expr]] = {
    f"{name} {bound} {side}": (
        lambda x, name=name, bound=bound, side=side: binary(
            name, *((x, const(bound, F32)) if side == "right" else (const(bound, F32), x))
        )
    )
    for name in ("min", "max")
    for bound in (0.0, -0.0, 1.0, -2.5, float("inf"), float("nan"), 1e-40)
    for side in ("left", "right")
}  # type: ignore[misc]


@pytest.mark.parametrize("form", CLAMPED)
def test_bound_by_literal(form: str) -> None:
    """A literal bound may use the pseudo-minimum; zeros and NaN must still come out right."""
    run_both(CLAMPED[form](load(1, F32, ["_v0"])), F32, [repeated(F32)], [F32])


@pytest.mark.parametrize("name", ["lt", "gt", "le", "ge"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_select_of_compared(name: str, order: str) -> None:
    """Selects that look like a minimum or maximum, in every operand order."""
    a, b = load(1, F32, ["_v0"]), load(2, F32, ["_v0"])
    value = select(binary(name, a, b), *((a, b) if order == "ab" else (b, a)))
    run_both(value, F32, pairs(F32), [F32, F32])


@pytest.mark.parametrize("operands", [2, 3, 4, 5, 9])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extremum_of_many(name: str, operands: int) -> None:
    random = np.random.default_rng(operands)
    choices = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 2.0], np.float32)
    rows = [random.choice(choices[: 2 + item % 7], 240) for item in range(operands)]
    value = load(1, F32, ["_v0"])
    for slot in range(2, operands + 1):
        value = binary(name, value, load(slot, F32, ["_v0"]))
    run_both(value, F32, rows, [F32] * operands)
    zeros = [random.choice(choices[:2], 240) for _ in range(operands)]
    run_both(value, F32, zeros, [F32] * operands)


def test_relu_is_one_instruction() -> None:
    x = load(1, F32, ["_v0"])
    value = select(x < 0.0, 0.0, x)
    run_both(value, F32, [repeated(F32)], [F32])
    kernel = LoopKernel((Loop("_v0", symbol("p0")),), (F32, F32), symbol("_v0"), value, 1)
    text = dump(emit_module([kernel], WasmTarget()))
    assert "f32x4.pmax" in text and "f32x4.lt" not in text


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_storage_only_type(dtype: DType) -> None:
    kernel = LoopKernel((), (dtype, dtype), as_dim(0), load(1, dtype, [0]))
    with pytest.raises(RlxError) as caught:
        emit_module([kernel], WasmTarget())
    assert caught.value.code == "codegen.type"
    assert str(dtype) in str(caught.value)


def test_missing_operator() -> None:
    value = Expr.make("frobnicate", I8, (load(1, I8, [0]),))
    with pytest.raises(RlxError) as caught:
        emit_module([LoopKernel((), (I8, I8), as_dim(0), value)], WasmTarget())
    assert caught.value.code == "codegen.op"
