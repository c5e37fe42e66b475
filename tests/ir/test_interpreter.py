"""The reference interpreter: the contract's bits, element types, inputs and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Binding, Constant, Function, Guard, Module, Value
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import GuardError, InputError, LimitError, RlxError
from rlx_edge.ir.evaluator import BLOCK, FEW, evaluate
from rlx_edge.ir.expression import (
    Expr,
    acc,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    reduce,
    select,
    unary,
    walk,
)
from rlx_edge.ir.interpreter import concrete_shape, evaluate_op, interpret
from rlx_edge.ir.ops import OPS, definition_expression
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.tensor import Tensor, from_values
from rlx_edge.ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U64,
    DType,
    tensor_type,
)
from tests import numpy_expressions
from tests.ir.op_cases import Array, build, run, sample, to_array, to_tensor
from tests.numpy_expressions import NUMPY

ZERO = np.float32(0)


def bits(array: Array) -> Array:
    """Bit patterns, so that -0 and +0 differ; NaNs are made one."""
    canonical = np.where(np.isnan(array), np.float32(np.nan), array)
    return canonical.astype(np.float32).view(np.uint32)


def assert_same_bits(found: Array, expected: Array) -> None:
    np.testing.assert_array_equal(bits(found), bits(np.asarray(expected, np.float32)))


# ---- the numerics contract, as plain f32 loops -----------------------------------------------


def contract_reduction(
    values: Array, function: Callable[[Any, Any], Any], start: np.float32
) -> Any:
    """Four partials, chunks of 4096, joined (p0 op p2) op (p1 op p3), chunks in order."""
    total = None
    with np.errstate(all="ignore"):
        for begin in range(0, len(values), 4096):
            partials = [start] * 4
            for position, value in enumerate(values[begin : begin + 4096]):
                partials[position % 4] = function(partials[position % 4], value)
            p0, p1, p2, p3 = partials
            chunk = function(function(p0, p2), function(p1, p3))
            total = chunk if total is None else function(total, chunk)
    return total


def contract_chain(activations: Array, weights: Array) -> np.float32:
    total = ZERO
    with np.errstate(all="ignore"):
        for a, w in zip(activations.ravel(), weights.ravel(), strict=True):
            total = total + a * w
    return total


def wild(rng: np.random.Generator, *shape: int) -> Array:
    """f32 of many magnitudes, so that the order of a sum shows in its bits."""
    return (rng.normal(0, 1, shape) * 10.0 ** rng.uniform(-4, 4, shape)).astype(np.float32)


REDUCTIONS: dict[str, tuple[Callable[[Any, Any], Any], np.float32]] = {
    "sum": (np.add, ZERO),
    "prod": (np.multiply, np.float32(1)),
    "max": (np.maximum, np.float32(-np.inf)),
    "min": (np.minimum, np.float32(np.inf)),
}


def test_integer_maxima_and_minima() -> None:
    x = np.array([[3, -7, 2, 9, -9], [-1, -2, -3, -4, -5]], np.int8)
    attrs: dict[str, Attribute] = {"axes": (1,), "keepdims": False}
    np.testing.assert_array_equal(run("rlxc::reduce_max", [x], attrs), x.max(1))
    np.testing.assert_array_equal(run("rlxc::reduce_min", [x], attrs), x.min(1))
    assert run("rlxc::reduce_max", [x.view(np.uint8)], attrs).tolist() == [249, 255]
    window: dict[str, Attribute] = {
        "kernel": (1, 2), "stride": (1, 1), "padding": (0, 1, 0, 0), "dilation": (1, 1),
        "ceil_mode": False,
    }  # fmt: skip
    pooled = run("rlxc::max_pool2d", [x[None, None]], window)
    np.testing.assert_array_equal(
        pooled[0, 0], np.maximum(x, np.pad(x, [(0, 0), (1, 0)], constant_values=-128)[:, :-1])
    )
    pooled = run("rlxc::max_pool2d", [x.view(np.uint8)[None, None]], window)
    assert pooled[0, 0, 0].tolist() == [3, 249, 249, 9, 247]


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(REDUCTIONS)),
    st.sampled_from([(1, 1), (1, 3), (3, 4), (2, 7), (80, 5), (1, 300), (100, 9)]),
    st.integers(0, 99),
)
def test_reductions_have_the_contracts_bits(kind: str, shape: tuple[int, int], seed: int) -> None:
    x = wild(np.random.default_rng(seed), *shape)
    if kind == "prod":
        x = np.sign(x) * np.abs(x) ** np.float32(0.05)
    found = run(f"rlxc::reduce_{kind}", [x], {"axes": (1,), "keepdims": False})
    function, start = REDUCTIONS[kind]
    assert_same_bits(found, np.array([contract_reduction(row, function, start) for row in x]))


@pytest.mark.parametrize("rows", [1, 2, FEW, FEW + 6])
def test_long_sums_go_by_chunks(rows: int) -> None:
    x = wild(np.random.default_rng(5), rows, 4096 + 1001)
    found = run("rlxc::reduce_sum", [x], {"axes": (1,), "keepdims": False})
    expected = [contract_reduction(row, np.add, ZERO) for row in x]
    assert_same_bits(found, np.array(expected))
    assert not np.array_equal(found, np.array([np.add.accumulate(row)[-1] for row in x]))


def test_reduced_axes_count_row_major() -> None:
    x = wild(np.random.default_rng(6), 3, 5, 2, 7)
    found = run("rlxc::reduce_sum", [x], {"axes": (1, 3), "keepdims": True})
    assert found.shape == (3, 1, 2, 1)
    for i in range(3):
        for j in range(2):
            expected = contract_reduction(x[i, :, j, :].ravel(), np.add, ZERO)
            assert_same_bits(found[i, 0, j, 0], expected)


@pytest.mark.parametrize("columns", [1, 3, 80])
def test_matmul_is_one_chain(columns: int) -> None:
    rng = np.random.default_rng(7)
    a, b = wild(rng, 4, 123), wild(rng, 123, columns)
    found = run("rlxc::matmul", [a, b])
    for row in range(4):
        for column in range(columns):
            assert_same_bits(found[row, column], contract_chain(a[row], b[:, column]))


@pytest.mark.parametrize(("groups", "inner"), [(1, 8), (1, 6), (1, 3), (2, 5), (3, 1)])
def test_conv2d_is_one_chain_in_blocked_order(groups: int, inner: int) -> None:
    rng = np.random.default_rng(8)
    x, w, b = (
        wild(rng, 1, groups * inner, 5, 4),
        wild(rng, groups * 2, inner, 3, 2),
        wild(rng, groups * 2),
    )
    attrs: dict[str, Attribute] = {
        "stride": (1, 2), "padding": (1, 1, 0, 1), "dilation": (1, 2), "groups": groups,
    }  # fmt: skip
    found = run("rlxc::conv2d", [x, w, b], attrs)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (1, 1)])
    for o in range(groups * 2):
        image = padded[0, o // 2 * inner :][:inner]
        for i in range(found.shape[2]):
            for j in range(found.shape[3]):
                total = ZERO
                for block in range(0, inner, 4):
                    for row in range(3):
                        for column in range(2):
                            for c in range(block, min(block + 4, inner)):
                                tap = image[c, i + row, j * 2 + column * 2]
                                total = total + tap * w[o, c, row, column]
                assert_same_bits(found[0, o, i, j], total + b[o])


def test_border_taps_multiply_zero_by_the_weight() -> None:
    x = np.ones((1, 1, 1, 1), np.float32)
    w = np.array([[[[np.inf, 1.0]]]], np.float32)
    attrs: dict[str, Attribute] = {
        "stride": (1, 1), "padding": (0, 1, 0, 0), "dilation": (1, 1), "groups": 1,
    }  # fmt: skip
    assert np.isnan(run("rlxc::conv2d", [x, w], attrs)).all()


def test_batch_norm_is_two_roundings_of_a_folded_scale() -> None:
    rng = np.random.default_rng(9)
    x, scale, shift, mean = (wild(rng, *shape) for shape in ((2, 3, 4), (3,), (3,), (3,)))
    var = np.abs(wild(rng, 3))
    found = run("rlxc::batch_norm", [x, scale, shift, mean, var], {"epsilon": 1e-5})
    k = scale / np.sqrt(var + np.float32(1e-5))
    assert_same_bits(found, x * k[:, None] + (shift - mean * k)[:, None])


SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)


def test_relu_keeps_nan_and_negative_zero() -> None:
    assert_same_bits(run("rlxc::relu", [SPECIAL]), np.where(SPECIAL < 0, ZERO, SPECIAL))


def test_minimum_and_maximum_are_those_of_webassembly() -> None:
    a, b = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    for name, function in (
        ("min", numpy_expressions.OPERATORS["min"]),
        ("max", numpy_expressions.OPERATORS["max"]),
    ):
        assert_same_bits(run(f"rlxc::{name}", [a, b]), function(a, b))
    nan_first = np.array([np.nan, 1, 2, 3, 4, 5], np.float32)
    assert np.isnan(run("rlxc::reduce_max", [nan_first], {"axes": (0,), "keepdims": False}))


def test_rounding_keeps_the_sign_of_zero_and_goes_to_even() -> None:
    x = np.array([0.5, -0.5, 1.5, 2.5, -0.2, 8388609.0, 1e30, np.inf, np.nan], np.float32)
    for name, function in (("round", np.rint), ("floor", np.floor), ("ceil", np.ceil)):
        assert_same_bits(run(f"rlxc::{name}", [x]), function(x))


# ---- every primitive operator against numpy --------------------------------------------------


def evaluate_pair(expr: Expr, a: Array, b: Array) -> Array:
    """``expr`` over loads 0 and 1 at ``_i0``, by the evaluator."""
    sources = [(to_tensor(item).elements(), item.shape, to_tensor(item).dtype) for item in (a, b)]
    found = evaluate(expr, [("_i0", len(a))], sources)
    return np.array(found).astype(NUMPY[expr.dtype.name])


def operand_values(dtype: DType) -> Array:
    if dtype is BOOL:
        return np.array([True, False])
    if dtype.is_float:
        special = SPECIAL.astype(NUMPY[dtype.name])
        return np.concatenate([special, np.array([0.1, -7.25, 2.5, 1e-20], special.dtype)])
    limits = np.iinfo(NUMPY[dtype.name])
    return np.array([limits.min, limits.max, 0, 1, 3, limits.max // 3], NUMPY[dtype.name])


PRIMITIVES = [
    (op.name, dtype)
    for op in SCALAR_OPS.values()
    for dtype in DTYPES.values()
    if op.primitive and dtype.kind in op.kinds and dtype not in (F16, BF16)
    and not (op.name in ("neg", "abs") and dtype.kind == "uint")
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), PRIMITIVES, ids=str)
def test_primitive_operator(name: str, dtype: DType) -> None:
    a, b = (grid.ravel() for grid in np.meshgrid(operand_values(dtype), operand_values(dtype)))
    if dtype.is_integer and name in ("div", "floordiv", "mod"):
        b = np.where(b == 0, b.dtype.type(2), b)
    x, y = (load(slot, dtype, (symbol("_i0"),)) for slot in range(2))
    if name in ("shl", "shr"):
        expr = binary(name, x, const(3, dtype))
    else:
        expr = binary(name, x, y) if SCALAR_OPS[name].arity == 2 else unary(name, x)
    found = evaluate_pair(expr, a, b)
    if dtype.is_integer and name == "div":
        quotients = [_truncate(int(p), int(q), dtype) for p, q in zip(a, b, strict=True)]
        expected = np.array(quotients, a.dtype)
    elif dtype.is_integer and name in ("floordiv", "mod"):
        with np.errstate(over="ignore"):
            expected = (np.floor_divide if name == "floordiv" else np.mod)(a, b)
    else:
        with np.errstate(all="ignore"):
            expected = numpy_expressions.evaluate(expr, {0: a, 1: b})
    np.testing.assert_array_equal(found, expected)
    if expected.dtype.kind == "f":
        ordered = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[ordered]), np.signbit(expected[ordered]))


def _truncate(a: int, b: int, dtype: DType) -> int:
    """a / b towards zero, wrapped to the type."""
    quotient = abs(a) // abs(b)
    low = np.iinfo(NUMPY[dtype.name]).min
    value = quotient if (a < 0) == (b < 0) else -quotient
    return (value - int(low)) % 2 ** (8 * dtype.bytes) + int(low)


def test_integer_division_by_zero_is_an_error_in_a_bare_expression() -> None:
    expr = binary("div", load(0, I32, (symbol("_i0"),)), const(0, I32))
    with pytest.raises(RlxError, match="divides integers by zero"):
        evaluate_pair(expr, np.array([1], np.int32), np.array([1], np.int32))


def test_div_and_mod_never_trap() -> None:
    a = np.array([7, -7, 7, -(2**31), 5], np.int32)
    b = np.array([2, 2, 0, -1, -3], np.int32)
    np.testing.assert_array_equal(run("rlxc::div", [a, b]), [3, -3, 0, -(2**31), -1])
    np.testing.assert_array_equal(run("rlxc::mod", [a, b]), [1, 1, 0, 0, -1])
    a8, b8 = np.array([200, 7], np.uint8), np.array([0, 2], np.uint8)
    np.testing.assert_array_equal(run("rlxc::div", [a8, b8]), [0, 3])


def test_integers_wrap() -> None:
    a = np.array([2**31 - 1, -(2**31)], np.int32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run("rlxc::add", [a, a]), a + a)
        np.testing.assert_array_equal(run("rlxc::mul", [a, a]), a * a)
        np.testing.assert_array_equal(run("rlxc::neg", [a]), -a)
    total = run(
        "rlxc::reduce_sum", [np.full(300, 2**62, np.int64)], {"axes": (0,), "keepdims": False}
    )
    assert total == (300 * 2**62 + 2**63) % 2**64 - 2**63
    product = run("rlxc::reduce_prod", [np.full(9, 3, np.int8)], {"axes": (0,), "keepdims": False})
    assert product == (3**9 + 128) % 256 - 128


# ---- casts and storage types -----------------------------------------------------------------


@pytest.mark.parametrize("target", [I8, U8, I32, I64, U64], ids=str)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_floats_truncate_and_saturate(source: type, target: DType) -> None:
    x = np.array(
        [0.9, -0.9, 1.5, -1.5, 300.0, -300.0, 1e30, -1e30, np.inf, -np.inf, np.nan], source
    )
    limits = np.iinfo(NUMPY[target.name])
    expected = [
        0
        if math.isnan(v)
        else int(limits.max)
        if v >= limits.max
        else int(limits.min)
        if v <= limits.min
        else int(v)
        for v in x.tolist()
    ]
    assert run("rlxc::cast", [x], {"dtype": target}).tolist() == expected


def test_integers_round_once_to_f32() -> None:
    x = np.array(
        [2**53 + 2**29 + 1, -(2**53) - 2**29 - 1, 2**62 + 2**38 + 1, 2**63 - 1, 2**24 + 1, -5],
        np.int64,
    )
    np.testing.assert_array_equal(run("rlxc::cast", [x], {"dtype": F32}), x.astype(np.float32))
    wide = np.array([2**64 - 1, 2**63 + 2**39 + 1], np.uint64)
    np.testing.assert_array_equal(
        run("rlxc::cast", [wide], {"dtype": F32}), wide.astype(np.float32)
    )


def test_integers_narrow_by_wrapping_and_bools_are_zero_or_one() -> None:
    x = np.array([300, -1, 128], np.int64)
    np.testing.assert_array_equal(run("rlxc::cast", [x], {"dtype": I8}), x.astype(np.int8))
    truth = run("rlxc::cast", [np.array([0.0, -0.0, np.nan, 0.5], np.float32)], {"dtype": BOOL})
    assert truth.tolist() == [False, False, True, True]
    np.testing.assert_array_equal(run("rlxc::cast", [truth], {"dtype": I32}), [0, 0, 1, 1])
    np.testing.assert_array_equal(run("rlxc::cast", [truth], {"dtype": F32}), [0, 0, 1, 1])


def test_half_precision_is_stored_and_moved() -> None:
    x = np.array([[1.0, 1e-8, 65504, 65520], [-2.5, np.inf, np.nan, 1 / 3]], np.float32)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    found = run("rlxc::cast", [x], {"dtype": F16})
    np.testing.assert_array_equal(found, half)
    np.testing.assert_array_equal(run("rlxc::transpose", [half], {"perm": (1, 0)}), half.T)
    np.testing.assert_array_equal(
        run("rlxc::cast", [half], {"dtype": F32}), half.astype(np.float32)
    )


def test_bfloat16_rounds_to_even_and_comes_back() -> None:
    x = from_values(F32, (6,), [1.0, 1.00390625, 1.01171875, 3.4e38, float("nan"), -0.0])
    op = build("rlxc::cast", [tensor_type(F32, 6)], {"dtype": BF16})
    narrow = evaluate_op(op, [x], {})
    assert np.frombuffer(narrow.tobytes(), np.uint16).tolist() == [
        0x3F80, 0x3F80, 0x3F82, 0x7F80, 0x7FC0, 0x8000,
    ]  # fmt: skip
    back = evaluate_op(build("rlxc::cast", [tensor_type(BF16, 6)], {"dtype": F32}), [narrow], {})
    assert back.values()[:4] == [1.0, 1.0, 1.015625, float("inf")]
    moved = evaluate_op(build("rlxc::copy", [tensor_type(BF16, 6)], {}), [narrow], {})
    assert moved.tobytes() == narrow.tobytes()


def test_tensors_know_their_size() -> None:
    with pytest.raises(
        RlxError, match=r"do not fill f32\[2, 3\]; found 20 bytes; allowed: 24"
    ) as failure:
        Tensor(F32, (2, 3), bytes(20))
    assert failure.value.code == "tensor.size"
    flags = from_values(BOOL, (3,), [True, False, True])
    assert flags.values() == [True, False, True] and flags.tobytes() == b"\1\0\1"


# ---- expressions -----------------------------------------------------------------------------


def test_bitcasts_keep_bits() -> None:
    x = load(0, F32, (symbol("_i0"),))
    expr = bitcast(bitcast(x, I32) + const(1, I32), F32)
    found = evaluate_pair(expr, SPECIAL[:4], SPECIAL[:4])
    assert_same_bits(found, (SPECIAL[:4].view(np.int32) + 1).view(np.float32))


def test_f64_is_not_rounded_to_f32() -> None:
    x = np.array([0.1, 1e300, -1.0, 0.0])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run("rlxc::mul", [x, x]), x * x)
        np.testing.assert_array_equal(run("rlxc::div", [x, x[::-1].copy()]), x / x[::-1])
        np.testing.assert_array_equal(run("rlxc::sqrt", [x]), np.sqrt(x))
    total = run("rlxc::reduce_sum", [x[:1].repeat(9)], {"axes": (0,), "keepdims": False})
    lanes = [0.1 + 0.1 + 0.1, 0.1 + 0.1, 0.1 + 0.1, 0.1 + 0.1]
    assert total == (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


def test_reads_outside_an_operand_are_refused() -> None:
    for place in ("_i0 + 1", "_i0 - 1", "2 * _i0", "5"):
        expr = load(0, F32, (as_dim(place),))
        with pytest.raises(RlxError, match="reads outside its operand") as failure:
            evaluate_pair(expr, SPECIAL[:4], SPECIAL[:4])
        assert failure.value.code == "interpreter.bounds"
    position = cast(load(1, I32, (symbol("_i0"),)), index(0).dtype)
    with pytest.raises(RlxError, match="found -1 to 2; allowed: 0 to 3"):
        evaluate_pair(load(0, F32, (position,)), SPECIAL[:4], np.array([0, 2, -1, 1], np.int32))


def test_unknown_sizes_and_moving_extents_are_refused() -> None:
    with pytest.raises(RlxError, match="mentions unknown sizes; found k"):
        evaluate_pair(load(0, F32, (as_dim("_i0 * k"),)), SPECIAL[:4], SPECIAL[:4])
    body = load(0, F32, (symbol("_r0"),))
    with pytest.raises(RlxError, match="extent changes between elements"):
        evaluate_pair(reduce("sum", ["_r0"], [symbol("_i0")], body), SPECIAL[:4], SPECIAL[:4])


def nested_reduction(inner: int, outer: int) -> Expr:
    """sum over r0 of max over r1 of x[i] * y[r0] - x[r1] * r0, with parts of every dependence."""
    i, r0, r1 = symbol("_i0"), symbol("_r0"), symbol("_r1")
    at_inner = load(0, F32, (r1,)) * cast(index(r0), F32)
    largest = reduce("max", ["_r1"], [inner], load(0, F32, (i,)) * load(1, F32, (r0,)) - at_inner)
    alone = reduce("chain", ["_r1"], [inner], load(0, F32, (r1,)) * load(1, F32, (r1,)))
    return reduce("sum", ["_r0"], [outer], largest + alone)


@pytest.mark.parametrize("count", [3, 70])
def test_nested_reductions(count: int) -> None:
    rng = np.random.default_rng(11)
    x, y = wild(rng, count), wild(rng, count)
    found = evaluate_pair(nested_reduction(count, 3), x, y)
    alone = contract_chain(x, y)
    for i in range(count):
        terms = [np.max(x[i] * y[r0] - x * np.float32(r0)) + alone for r0 in range(3)]
        assert_same_bits(found[i], contract_reduction(np.array(terms), np.add, ZERO))


def test_parts_of_a_reduction_are_remembered_by_the_variables_they_use() -> None:
    """sqrt(y[r1]) in a sum over (r0, r1, r2) also depends on an outer variable through x."""
    i, a, b, c = (symbol(name) for name in ("_i0", "_r0", "_r1", "_r2"))
    part = unary("sqrt", unary("abs", load(1, F32, (b,)) * load(0, F32, (i,))))
    part = select(load(1, F32, (b,)) < 0, part, unary("neg", part))
    expr = reduce("sum", ["_r0", "_r1", "_r2"], [2, 3, 2], part * load(0, F32, (a + b + c,)))
    rng = np.random.default_rng(12)
    x, y = wild(rng, 90), wild(rng, 90)
    found = evaluate_pair(expr, x, y)
    for i_ in range(90):
        terms = []
        for a_ in range(2):
            for b_ in range(3):
                root = np.sqrt(np.abs(y[b_] * x[i_]))
                root = root if y[b_] < 0 else -root
                terms.extend(root * x[a_ + b_ + c_] for c_ in range(2))
        assert_same_bits(found[i_], contract_reduction(np.array(terms), np.add, ZERO))


def test_more_parts_than_are_remembered() -> None:
    """150 values of r1, each used with both r0: more than the cache of a part keeps."""
    a, b = symbol("_r0"), symbol("_r1")
    part = unary("sqrt", unary("abs", load(0, F32, (symbol("_i0"),)) * load(1, F32, (b,))))
    expr = reduce("chain", ["_r0", "_r1"], [2, 150], part * load(1, F32, (a,)))
    rng = np.random.default_rng(16)
    x, y = wild(rng, 160), wild(rng, 160)
    found = evaluate_pair(expr, x, y)
    for i in (0, 77, 159):
        parts = np.sqrt(np.abs(x[i] * y[:150]))
        expected = contract_chain(np.concatenate([parts, parts]), np.repeat(y[:2], 150))
        assert_same_bits(found[i], expected)


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_of_lanes_do_not_show(count: int) -> None:
    x = wild(np.random.default_rng(13), count)
    assert_same_bits(run("rlxc::mul", [x, x]), x * x)
    flipped = run("rlxc::slice", [x], {
        "axes": (0,), "starts": (as_dim(0),), "ends": (as_dim(count),), "steps": (-1,),
    })  # fmt: skip
    assert_same_bits(flipped, x[::-1])


def test_a_reshape_to_the_same_shape_reads_in_place() -> None:
    op = build("rlxc::reshape", [tensor_type(F32, "n", 3)], {"shape": (as_dim("n"), as_dim(3))})
    assert definition_expression(op)[1] is load(0, F32, (symbol("_i0"), symbol("_i1")))


def test_views_equal_their_expression() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    op = build("rlxc::reshape", [tensor_type(F32, 2, 3, 4)], {"shape": (as_dim(4), as_dim(6))})
    _, expr = definition_expression(op)
    tensor = to_tensor(x)
    by_definition = evaluate(expr, [("_i0", 4), ("_i1", 6)], [(tensor.elements(), x.shape, F32)])
    alias = evaluate_op(op, [tensor], {})
    assert alias.data is tensor.data
    assert list(by_definition) == alias.values()


def test_fused_ops_equal_their_parts() -> None:
    rng = np.random.default_rng(14)
    x, w, b = wild(rng, 1, 5, 4, 4), wild(rng, 3, 5, 1, 1), wild(rng, 3)
    conv: dict[str, Attribute] = {
        "stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1,
    }  # fmt: skip
    bias = load(2, F32, (symbol("_i1"),))
    value = unary("sigmoid", acc() + bias)
    fused = run("rlxc::fused_conv2d_sigmoid", [x, w, b], {**conv, "epilogue": value})
    parts = run("rlxc::sigmoid", [run("rlxc::conv2d", [x, w, b], conv)])
    assert_same_bits(fused, parts)


def test_placement_attributes_do_not_change_values() -> None:
    x = np.arange(10, dtype=np.float32).reshape(1, 5, 2, 1)
    placed = {"memory_layout": "NCHW4c", "border": (1, 1, 1, 1), "sync_mode": "none"}
    assert_same_bits(run("rlxc::convert_layout", [x], placed), x)  # type: ignore[arg-type]


def test_every_example_gives_the_same_bits_twice() -> None:
    """Evaluation has no state: a second run of any operator repeats the first."""
    for name in ("rlxc::softmax", "rlxc::conv2d", "rlxc::pow", "rlxc::layer_norm"):
        example = OPS[name].examples[0]
        arrays = sample(name, example, 4)
        op = build(name, example.operands, example.attrs)
        runs = [
            evaluate_op(op, [to_tensor(item) for item in arrays], {"n": 5}).tobytes()
            for _ in range(2)
        ]
        assert runs[0] == runs[1]


# ---- modules ---------------------------------------------------------------------------------


class Bytes:
    """A source of constant data."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def sample_module() -> Module:
    """y = softmax(x @ w + k), with k a value symbol and n a size; guarded by n <= 8."""
    x, k = Value("x", tensor_type(F32, "n", 3)), Value("k", tensor_type(I64, 2))
    function = Function("sample", [x, k], [], [], [Binding("value", "k", 1)])
    builder = Builder(function)
    w = builder.op("tensor::const", [], {"digest": "sha256:w"}, type=tensor_type(F32, 3, 4))
    shift = builder.op("tensor::from_dims", [], {"values": (as_dim("value + n"),)})
    shift = builder.op("rlxc::cast", [shift], {"dtype": F32})
    product = builder.op("rlxc::matmul", [x, w])
    y = builder.op(
        "rlxc::softmax", [builder.op("rlxc::mul", [product, shift])], {"axis": 1}, hint="y"
    )
    function.returns = [y, product]
    function.output_names = ["probabilities", "scores"]
    function.guards = [Guard(as_dim("n"), "<=", as_dim(8), "the kernel covers 8 rows")]
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
    constant = Constant(
        "sha256:w", tensor_type(F32, 3, 4), Bytes(b"pad!" + weights.tobytes()), 4, 48
    )
    return Module("sample", function, {"sha256:w": constant})


def sample_feeds(rows: int = 2) -> dict[str, Tensor]:
    x = np.linspace(-1, 1, rows * 3).reshape(rows, 3).astype(np.float32)
    return {"x": to_tensor(x), "k": to_tensor(np.array([9, -1], np.int64))}


def test_a_module_runs_from_inputs_to_named_outputs() -> None:
    found = interpret(sample_module(), sample_feeds())
    assert list(found) == ["probabilities", "scores"]
    x = to_array(sample_feeds()["x"])
    scores = x @ (np.arange(12, dtype=np.float32).reshape(3, 4) / 10)
    np.testing.assert_allclose(to_array(found["scores"]), scores, rtol=0, atol=1e-6)
    powers = np.exp(scores * (2 - 1))
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(to_array(found["probabilities"]), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "code", "message"),
    [
        ({"z": 1}, InputError, "input.name", "unknown input; found z; allowed: x, k"),
        ({"x": None}, InputError, "input.missing", "input x is missing; allowed: x, k"),
        ({"x": np.zeros((2, 3))}, InputError, "input.dtype", "found f64; allowed: f32"),
        (
            {"x": np.zeros((2, 4), np.float32)},
            InputError,
            "input.shape",
            "found 2, 4; allowed: f32[n, 3]",
        ),
        ({"x": np.zeros(3, np.float32)}, InputError, "input.shape", "found 3; allowed: f32[n, 3]"),
        ({"x": np.zeros((0, 3), np.float32)}, InputError, "input.shape", "found 0, 3"),
        ({"x": np.zeros((9, 3), np.float32)}, GuardError, "guard", "n <= 8 does not hold"),
    ],
)
def test_wrong_inputs(
    change: dict[str, Any], error: type[RlxError], code: str, message: str
) -> None:
    feeds = sample_feeds()
    for name, value in change.items():
        if value is None:
            del feeds[name]
        else:
            feeds[name] = to_tensor(np.asarray(value))
    with pytest.raises(error) as failure:
        interpret(sample_module(), feeds)
    assert failure.value.code == code
    assert message in str(failure.value)


def test_a_missing_constant_is_named() -> None:
    module = sample_module()
    module.constants.clear()
    with pytest.raises(RlxError, match=r"no such constant; found sha256:w"):
        interpret(module, sample_feeds())


def test_sizes_that_no_input_gives() -> None:
    x = Value("x", tensor_type(F32, "2 * n"))
    function = Function("f", [x], [], [x])
    with pytest.raises(InputError, match="no input gives n"):
        interpret(Module("f", function), {"x": from_values(F32, (4,), [0] * 4)})
    op = build("rlxc::slice", [tensor_type(F32, "n")], {
        "axes": (0,), "starts": (as_dim("m"),), "ends": (as_dim("n"),), "steps": (1,),
    })  # fmt: skip
    with pytest.raises(InputError, match="no input gives m"):
        evaluate_op(op, [from_values(F32, (2,), [1, 2])], {"n": 2})


def test_sizes_that_break_an_operator_are_named() -> None:
    op = build("rlxc::slice", [tensor_type(F32, "n")], {
        "axes": (0,), "starts": (as_dim("m"),), "ends": (as_dim("n"),), "steps": (1,),
    })  # fmt: skip
    x = from_values(F32, (2,), [1, 2])
    assert evaluate_op(op, [x], {"n": 2, "m": 1}).values() == [2]
    with pytest.raises(
        GuardError, match=r"m <= n does not hold; found 5 and 2; a slice stays"
    ) as failure:
        evaluate_op(op, [x], {"n": 2, "m": 5})
    assert failure.value.code == "guard"
    op = build("rlxc::reshape", [tensor_type(F32, "n")], {"shape": (as_dim("m"), as_dim(2))})
    with pytest.raises(GuardError, match=r"n == 2 \* m does not hold; found 2 and 10"):
        evaluate_op(op, [x], {"n": 2, "m": 5})
    with pytest.raises(InputError, match=r"the size n - 3 is negative; found -1"):
        concrete_shape(tensor_type(F32, "n - 3"), {"n": 2})


def test_absurd_sizes_are_refused() -> None:
    op = build("rlxc::expand", [tensor_type(F32, 1)], {"shape": (as_dim("n"), as_dim("n"))})
    with pytest.raises(LimitError, match="too large for the interpreter") as failure:
        evaluate_op(op, [from_values(F32, (1,), [1])], {"n": 100_000})
    assert failure.value.code == "interpreter.elements"
    product = build("rlxc::matmul", [tensor_type(F32, "n", 1), tensor_type(F32, 1, "n")], {})
    expr = reduce("sum", ["_r0", "_r1"], [1 << 16, 1 << 16], load(0, F32, (as_dim(0),)))
    with pytest.raises(LimitError, match="takes too long") as failure:
        evaluate_pair(expr, SPECIAL[:3], SPECIAL[:3])
    assert failure.value.code == "interpreter.work"
    assert str(product.result.type) == "f32[n, n]"


def test_storage_and_splats() -> None:
    alloc = build("tensor::alloc", [], {"shape": (as_dim("n"),), "dtype": I32, "device": "wasm:0"})
    assert evaluate_op(alloc, [], {"n": 3}).values() == [0, 0, 0]
    for value, dtype in ((1.5, F32), (7, I64), (True, BOOL), (2.5, F64)):
        splat = build("tensor::splat", [], {"value": value}, tensor_type(dtype, 2, "n"))
        assert evaluate_op(splat, [], {"n": 3}).values() == [value] * 6
    scalar = build("tensor::from_dims", [], {"values": (as_dim("n * 2"),)}, tensor_type(I64))
    assert evaluate_op(scalar, [], {"n": 3}).values() == [6]


def test_expanded_functions_have_numpys_f32_bits() -> None:
    """The interpreter and an independent evaluation of the same expression agree bit by bit."""
    from rlx_edge.ir.scalar_functions import expand

    x = np.concatenate([SPECIAL, wild(np.random.default_rng(15), 200)])
    for name in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "softplus"):
        leaf = load(0, F32, ())
        expected = numpy_expressions.evaluate(expand(unary(name, leaf)), {0: x})
        assert_same_bits(run(f"rlxc::{name}", [x]), expected)
        assert all(node.op != name for node in walk(expand(unary(name, leaf))))
