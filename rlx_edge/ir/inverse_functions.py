"""Inverse circular, hyperbolic and inverse hyperbolic functions in primitive f32 operators.

As ``scalar_functions``, whose table has them. Polynomials after Cephes (Moshier, single precision).
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.expression import Expr, binary, const, select, unary
from rlx_edge.ir.types import F32

HALF_PI = 1.5707963267948966
QUARTER_PI = 0.7853981633974483
LN2 = 0.6931471805599453
TAN_3_PI_8 = 2.414213562373095
TAN_PI_8 = 0.4142135623730950
SQRT_LARGE = 16777216.0
"""Beyond it x * x + 1 and x * x - 1 are x * x in f32."""

ASIN = (0.16666752, 0.074953003, 0.045470026, 0.024181311, 0.042163199)
"""(asin(x) - x) / x**3 in x**2 for |x| <= 0.5."""
ATAN = (-0.33332950, 0.19977711, -0.13877685, 0.080537446)
"""(atan(x) - x) / x**3 in x**2 for |x| <= tan(pi / 8)."""
SINH = (0.16666716, 0.0083302838, 0.00020372191)
"""(sinh(x) - x) / x**3 in x**2 for |x| <= 1."""
ASINH = (-0.16666288, 0.074847586, -0.042699341, 0.020122003)
"""(asinh(x) - x) / x**3 in x**2 for |x| <= 0.5."""
ACOSH = (1.4142135, -0.11784742, 0.026454905, -0.0075272887, 0.0017596881)
"""acosh(1 + z) / sqrt(z) in z for z <= 0.5."""
ATANH = (0.33333737, 0.19978216, 0.14669143, 0.08243703, 0.18174079)
"""(atanh(x) - x) / x**3 in x**2 for |x| <= 0.5."""


def _f(value: float) -> Expr:
    return const(value, F32)


def _polynomial(coefficients: tuple[float, ...], x: Expr) -> Expr:
    result = _f(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result


def _odd(coefficients: tuple[float, ...], x: Expr) -> Expr:
    square = x * x
    return x * square * _polynomial(coefficients, square) + x


def _signed(magnitude: Expr, x: Expr) -> Expr:
    """``magnitude`` (not negative) with the sign of x; -0 stays."""
    return select(x < 0, unary("neg", magnitude), select(binary("eq", x, 0.0), x, magnitude))


def asin(x: Expr) -> Expr:
    """2.5 ulp. NaN outside [-1, 1]; NaN and -0 stay."""
    t = unary("abs", x)
    near = _odd(ASIN, t)
    far = HALF_PI - 2 * _odd(ASIN, unary("sqrt", (1 - t) * 0.5))
    return _signed(select(t > 0.5, far, near), x)


def acos(x: Expr) -> Expr:
    """2.5 ulp. NaN outside [-1, 1]; NaN stays."""
    t = unary("abs", x)
    outer = 2 * _odd(ASIN, unary("sqrt", (1 - t) * 0.5))
    far = select(x < 0, 2 * HALF_PI - outer, outer)
    return select(t > 0.5, far, HALF_PI - _odd(ASIN, x))


def atan(x: Expr) -> Expr:
    """2.8 ulp. NaN and -0 stay; ±infinity gives ±pi / 2."""
    t = unary("abs", x)
    steep, middle = t > TAN_3_PI_8, t > TAN_PI_8
    reduced = select(steep, -1 / t, select(middle, (t - 1) / (t + 1), t))
    base = select(steep, _f(HALF_PI), select(middle, _f(QUARTER_PI), _f(0)))
    return _signed(base + _odd(ATAN, reduced), x)


def sinh(x: Expr) -> Expr:
    """3 ulp. NaN and -0 stay; overflows to ±infinity beyond 89.41."""
    t = unary("abs", x)
    # exp(t / 2) squared: exp(t) alone overflows before its half does.
    root = unary("exp", t * 0.5)
    far = root * 0.5 * root - 0.5 / root / root
    return select(t > 1, _signed(far, x), _odd(SINH, x))


def cosh(x: Expr) -> Expr:
    """3 ulp. NaN stays; overflows to infinity beyond ±89.41."""
    root = unary("exp", unary("abs", x) * 0.5)
    return root * 0.5 * root + 0.5 / root / root


def asinh(x: Expr) -> Expr:
    """3.8 ulp. NaN, -0 and ±infinity stay."""
    t = unary("abs", x)
    large = unary("log", t) + LN2
    middle = unary("log", t + unary("sqrt", t * t + 1))
    far = select(t > SQRT_LARGE, large, middle)
    return _signed(select(t > 0.5, far, _odd(ASINH, t)), x)


def acosh(x: Expr) -> Expr:
    """3 ulp. NaN below 1; NaN and infinity stay."""
    z = x - 1
    near = unary("sqrt", z) * _polynomial(ACOSH, z)
    middle = unary("log", x + unary("sqrt", z * (x + 1)))
    far = select(x > SQRT_LARGE, unary("log", x) + LN2, middle)
    return select(z < 0.5, near, far)


def atanh(x: Expr) -> Expr:
    """3 ulp. NaN outside [-1, 1], ±1 gives ±infinity; NaN and -0 stay."""
    t = unary("abs", x)
    far = unary("log", (1 + t) / (1 - t)) * 0.5
    return select(t > 0.5, _signed(far, x), _odd(ATANH, x))


INVERSE_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
