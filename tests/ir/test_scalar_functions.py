"""Derived scalar functions: error over dense sweeps, special values, primitives only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, binary, load, select, unary, walk
from rlx_edge.ir.scalar_functions import FUNCTIONS, expand
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.types import F32, F64, I32, U8
from tests.numpy_expressions import evaluate

Array = np.ndarray[Any, Any]
X, Y = load(0, F32, ()), load(1, F32, ())
LARGEST = float(np.finfo(np.float32).max)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype=np.float32)


def every_magnitude(low: float, high: float, count: int) -> Array:
    """Floats of both signs, evenly spaced over the bit patterns between two magnitudes."""
    bits = np.array([low, high], dtype=np.float32).view(np.int32).astype(np.int64)
    positive = np.linspace(bits[0], bits[1], count).astype(np.int32).view(np.float32)
    return np.concatenate([-positive[::-1], positive])


def evenly(low: float, high: float, count: int) -> Array:
    return np.linspace(low, high, count).astype(np.float32)


def ulps(found: Array, expected: Array) -> Array:
    """Distance in units of the last place that ``expected`` has as f32."""
    magnitude = np.abs(expected).astype(np.float64)
    exponent = np.floor(np.log2(np.where(magnitude > 0, magnitude, 1.0)))
    unit = np.exp2(np.maximum(exponent, -126) - 23)
    return np.abs(found.astype(np.longdouble) - expected) / unit


def apply(name: str, *arguments: Array) -> Array:
    operands = (X, Y)[: len(arguments)]
    node = binary(name, *operands) if len(arguments) == 2 else unary(name, X)
    return evaluate(expand(node), dict(enumerate(arguments)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _erf(x: Array) -> Array:
    return np.array([math.erf(float(value)) for value in x])


REFERENCES: dict[str, tuple[Callable[[Array], Array], float, list[Array]]] = {
    "exp": (np.exp, 1.0, [every_magnitude(1e-45, LARGEST, 200_000), evenly(-105, 89, 400_000)]),
    "log": (np.log, 0.9, [every_magnitude(1e-45, LARGEST, 200_000), evenly(0.4, 3, 400_000)]),
    "sigmoid": (
        _sigmoid,
        2.3,
        [every_magnitude(1e-45, LARGEST, 200_000), evenly(-30, 30, 400_000)],
    ),
    "tanh": (np.tanh, 1.4, [every_magnitude(1e-45, LARGEST, 200_000), evenly(-5, 5, 400_000)]),
    "softplus": (
        _softplus,
        1.9,
        [every_magnitude(1e-45, LARGEST, 200_000), evenly(-30, 30, 400_000)],
    ),
    "erf": (_erf, 1.2, [every_magnitude(1e-38, LARGEST, 50_000), evenly(-4.5, 4.5, 200_000)]),
    "sin": (
        np.sin,
        2.5,
        [
            every_magnitude(1e-45, 1e4, 200_000),
            evenly(-1e4, 1e4, 400_000),
            evenly(1e4, 2**22, 200_000),
        ],
    ),
    "cos": (
        np.cos,
        2.5,
        [
            every_magnitude(1e-45, 1e4, 200_000),
            evenly(-1e4, 1e4, 400_000),
            evenly(1e4, 2**22, 200_000),
        ],
    ),
    "asin": (np.arcsin, 2.5, [every_magnitude(1e-38, 1, 200_000), evenly(-1, 1, 400_000)]),
    "acos": (np.arccos, 2.5, [every_magnitude(1e-38, 1, 200_000), evenly(-1, 1, 400_000)]),
    "atan": (np.arctan, 2.8, [every_magnitude(1e-38, LARGEST, 200_000), evenly(-5, 5, 400_000)]),
    "sinh": (np.sinh, 3.0, [every_magnitude(1e-38, LARGEST, 200_000), evenly(-90, 90, 400_000)]),
    "cosh": (np.cosh, 3.0, [every_magnitude(1e-38, LARGEST, 200_000), evenly(-90, 90, 400_000)]),
    "asinh": (np.arcsinh, 3.8, [every_magnitude(1e-38, LARGEST, 200_000), evenly(-9, 9, 400_000)]),
    "acosh": (
        np.arccosh,
        3.0,
        [evenly(1, 2, 400_000), every_magnitude(1, LARGEST, 200_000)[200_000:]],
    ),
    "atanh": (
        np.arctanh,
        3.0,
        [every_magnitude(1e-38, 0.999, 200_000), evenly(-0.99, 0.99, 400_000)],
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_error_stays_within_the_documented_ulps(name: str) -> None:
    reference, bound, sweeps = REFERENCES[name]
    for x in sweeps:
        with np.errstate(all="ignore"):
            expected = reference(x.astype(np.longdouble))
        found = apply(name, x)
        finite = np.isfinite(expected) & (np.abs(expected) <= LARGEST)
        error = ulps(found[finite], expected[finite])
        worst = int(np.argmax(error))
        assert error[worst] <= bound, (x[finite][worst], found[finite][worst])
        with np.errstate(over="ignore"):
            limits = expected[~finite].astype(np.float32)
        np.testing.assert_array_equal(found[~finite], limits)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_next_to_multiples_of_half_a_pi(name: str) -> None:
    multiples = np.arange(1, 20_000, dtype=np.longdouble) * np.longdouble("1.57079632679489661923")
    x = multiples.astype(np.float32)
    expected = (np.sin if name == "sin" else np.cos)(x.astype(np.longdouble))
    assert ulps(apply(name, x), expected).max() <= 2.5


POWERS = {
    "any base": lambda rng, n: np.exp(rng.uniform(-80, 80, n)),
    "near one": lambda rng, n: 1 + rng.uniform(-0.3, 0.4, n),
    "next to one": lambda rng, n: 1 + rng.uniform(-1, 1, n) * 10.0 ** rng.uniform(-7, -1, n),
}


@pytest.mark.parametrize("kind", POWERS)
def test_pow_error(kind: str) -> None:
    rng = np.random.default_rng(20)
    base = POWERS[kind](rng, 200_000).astype(np.float32)
    base = base[base != 1]
    logarithm = np.log(base.astype(np.float64))
    exponent = (rng.uniform(-103, 88, len(base)) / logarithm).astype(np.float32)
    expected = np.power(base.astype(np.longdouble), exponent.astype(np.longdouble))
    inside = expected <= LARGEST
    assert ulps(apply("pow", base, exponent)[inside], expected[inside]).max() <= 0.8


def test_pow_is_exact_where_the_result_is_a_f32() -> None:
    base, exponent = (
        grid.ravel().astype(np.float32) for grid in np.meshgrid(np.arange(-40, 41), np.arange(0, 8))
    )
    exact = base.astype(np.float64) ** exponent.astype(np.float64)
    fits = exact == exact.astype(np.float32)
    assert fits.sum() > 350
    np.testing.assert_array_equal(apply("pow", base, exponent)[fits], exact[fits])
    squares = np.arange(0, 4097, dtype=np.float32)
    halves = np.full_like(squares, 0.5)
    np.testing.assert_array_equal(apply("pow", squares * squares, halves), squares)


def test_pow_special_values_are_those_of_ieee_754() -> None:
    values = np.array(
        [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38,
         -3e38, 2.5, -2.5, 16777217, 33554432, 8388609, 1e30, -1e30],
        dtype=np.float32,
    )  # fmt: skip
    base, exponent = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        exact = np.power(base.astype(np.float64), exponent.astype(np.float64)).astype(np.float32)
    found = apply("pow", base, exponent)
    np.testing.assert_array_equal(found, exact)
    ordered = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(found[ordered]), np.signbit(exact[ordered]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", [1, 1, np.inf, 0, np.nan]),
        ("log", [-np.inf, -np.inf, np.inf, np.nan, np.nan]),
        ("sigmoid", [0.5, 0.5, 1, 0, np.nan]),
        ("tanh", [0.0, -0.0, 1, -1, np.nan]),
        ("erf", [0.0, -0.0, 1, -1, np.nan]),
        ("softplus", [0.6931472, 0.6931472, np.inf, 0, np.nan]),
        ("sin", [0.0, -0.0, np.nan, np.nan, np.nan]),
        ("cos", [1, 1, np.nan, np.nan, np.nan]),
        ("sign", [0.0, -0.0, 1, -1, np.nan]),
    ],
)
def test_special_values(name: str, expected: list[float]) -> None:
    found, wanted = apply(name, SPECIAL), np.array(expected, dtype=np.float32)
    np.testing.assert_array_equal(found, wanted)
    ordered = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[ordered]), np.signbit(wanted[ordered]))


def test_exp_meets_its_limits() -> None:
    x = np.array(
        [88.72283, 88.72284, -103.97207, -103.97209, -87.33655, 200, -200], dtype=np.float32
    )
    found = apply("exp", x)
    assert found[0] > 3.4e38 and np.isfinite(found[0])
    assert np.isinf(found[1]) and np.isinf(found[5])
    assert found[2] == np.float32(1e-45) and found[3] == 0 and found[6] == 0
    assert 1.17e-38 < found[4] < 1.18e-38


def test_angles_beyond_the_range_stay_bounded() -> None:
    x = np.array([1e7, -1e7, 3e38], dtype=np.float32)
    edge = np.array([2**22, -(2**22), 2**22], dtype=np.float32)
    np.testing.assert_array_equal(apply("sin", x), apply("sin", edge))
    np.testing.assert_array_equal(apply("cos", x), apply("cos", edge))


def test_sign_of_integers() -> None:
    signed = load(0, I32, ())
    found = evaluate(expand(unary("sign", signed)), {0: np.array([-7, 0, 9], dtype=np.int32)})
    np.testing.assert_array_equal(found, [-1, 0, 1])
    unsigned = load(0, U8, ())
    found = evaluate(expand(unary("sign", unsigned)), {0: np.array([0, 200], dtype=np.uint8)})
    np.testing.assert_array_equal(found, [0, 1])


def test_every_derived_operator_expands_to_primitives() -> None:
    derived = {name for name, op in SCALAR_OPS.items() if not op.primitive}
    assert derived == set(FUNCTIONS)
    for name in derived:
        node = binary(name, X, Y) if SCALAR_OPS[name].arity == 2 else unary(name, X)
        for part in walk(expand(node)):
            assert part.op not in derived


def test_expand_reaches_nested_uses_and_shares_them() -> None:
    shared = unary("exp", X)
    expr = select(X < 0, shared * shared, unary("tanh", shared))
    expanded = expand(expr)
    assert all(node.op not in FUNCTIONS for node in walk(expanded))
    once = expand(shared)
    assert any(node is once for node in walk(expanded))
    plain: Expr = X * 2 + 1
    assert expand(plain) is plain


def test_other_types_are_refused() -> None:
    with pytest.raises(RlxError, match=r"exp is not defined for this type; found f64") as failure:
        expand(unary("exp", load(0, F64, ())))
    assert failure.value.code == "expression.derived"
