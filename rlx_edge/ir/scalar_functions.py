"""Derived scalar functions in primitive f32 operators, so that every device computes the same bits.

No function calls a mathematical library and none needs a fused multiply-add: the interpreter and
every emitter expand them to the same additions, multiplications, selects and bit operations.
Errors are in units in the last place (ulp) of the exact result, measured over dense sweeps in
``tests/ir/test_scalar_functions.py``; -0, NaN and overflow behave as stated at each function.
Which NaN comes out is not part of a meaning. Denormal arguments and results are exact to the
stated error plus half a denormal step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, binary, bitcast, cast, const, rewrite, select, unary
from rlx_edge.ir.inverse_functions import INVERSE_FUNCTIONS
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.types import F32, I32

INFINITY = float("inf")
NAN = float("nan")

ROUNDER = 12582912.0
"""1.5 * 2**23: adding it leaves the nearest integer in the low bits of the significand."""
ROUNDER_BITS = 0x4B400000
SIGN_BIT = -(1 << 31)
SPLITTER = 4097.0
"""2**12 + 1: splits a 24-bit significand into two halves (Dekker)."""

LOG2_E = 1.4426950408889634
LN2_HIGH = 0.693359375  # 10 bits: exact when multiplied by an exponent
LN2_LOW = -2.12194440e-4
MOST_EXPONENT = 89.0  # exp overflows above 88.73
LEAST_EXPONENT = -104.0  # exp is below half the least denormal

EXP = (0.49999994, 0.1666652, 0.041668404, 0.0083688991, 0.0013814222)
"""(exp(r) - 1 - r) / r**2 on |r| <= 0.3475, minimax, 3.1e-9 relative to exp."""
LOG = (
    0.33333313,
    -0.25000009,
    0.20002119,
    -0.16667996,
    0.14219552,
    -0.12405589,
    0.11888162,
    -0.11675652,
    0.067466415,
)
"""(log(1 + f) - f + f**2 / 2) / f**3 for 1 + f in [sqrt(1/2), sqrt(2)], 7.5e-10."""
ATANH_TAIL = (0.4, 0.28571427, 0.22222507, 0.18154973, 0.16410653)
"""2 * (atanh(s) - s - s**3 / 3) / s**5 in s**2 <= 0.02945, 6.2e-12."""
SIN = (-0.16666667, 0.0083333291, -0.00019839109, 2.7159188e-06)
"""(sin(r) - r) / r**3 in r**2 for |r| <= 0.8, 9.6e-12."""
COS = (0.041666668, -0.0013888886, 2.4799785e-05, -2.7225221e-07)
"""(cos(r) - 1 + r**2 / 2) / r**4 in r**2 for |r| <= 0.8, 3.5e-13."""
TANH = (-0.33333281, 0.13331383, -0.053734005, 0.020618131, -0.0056793126)
"""(tanh(x) - x) / x**3 in x**2 for |x| <= 0.63, 4.5e-9."""
TANH_SMALL = 0.625

ERF_SMALL = 0.927734375
ERF_NEAR = (0.128379166, -0.376125336, 0.112819925, -0.0267681349, 0.00499119423, -0.000596761703)
"""erf(x) / x - 1 in x**2 for |x| <= ERF_SMALL."""
ERF_FAR = (
    -0.128717512,
    -0.634846687,
    -0.106777877,
    0.0242546219,
    -0.00388396438,
    0.000383197126,
    -1.72853470e-05,
)
"""log(1 - erf(t)) / t + 1 in t for t > ERF_SMALL."""

HALF_PI = (1.5703125, 0.0004837512969970703, 7.549533620476723e-08, 2.5633440682570896e-12)
"""pi / 2 in parts of 8, 11, 11 and 24 bits: the first three stay exact times 11-bit integers."""
TURNS = 2048.0
TWO_THIRDS_HIGH = 0.6666666865348816
TWO_THIRDS_LOW = -1.9868215e-08
MOST_POWER = 8589934592.0
"""2**33: with any larger exponent every base but 1 overflows or vanishes just the same."""
MOST_ANGLE = 4194304.0
LEAST_NORMAL = 1.1754943508222875e-38


def _f(value: float) -> Expr:
    return const(value, F32)


def _i(value: int) -> Expr:
    return const(value, I32)


def _polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """Horner's rule, lowest coefficient first in the tuple."""
    result = _f(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result


def _abs(x: Expr) -> Expr:
    return unary("abs", x)


def _both(a: Expr, b: Expr) -> Expr:
    return binary("and", a, b)


def _either(a: Expr, b: Expr) -> Expr:
    return binary("or", a, b)


def _with_sign(magnitude: Expr, sign: Expr) -> Expr:
    """``magnitude`` (not negative) with the sign bit of ``sign``."""
    bit = binary("and", bitcast(sign, I32), _i(SIGN_BIT))
    return bitcast(binary("or", bitcast(magnitude, I32), bit), F32)


def _power_of_two(exponent: Expr) -> Expr:
    """2**exponent as f32 for an i32 exponent in -126 … 127."""
    return bitcast(binary("shl", exponent + 127, _i(23)), F32)


def _scale(x: Expr, exponent: Expr) -> Expr:
    """x * 2**exponent in two exact steps, so that only a denormal result rounds."""
    half = binary("shr", exponent, _i(1))
    return x * _power_of_two(half) * _power_of_two(exponent - half)


def _exponent(x: Expr) -> tuple[Expr, Expr, Expr]:
    """``(clamped x, n as f32, n as i32)`` with n the integer nearest to x / log(2)."""
    inside = binary("min", binary("max", x, LEAST_EXPONENT), MOST_EXPONENT)
    shifted = inside * LOG2_E + ROUNDER
    return inside, shifted - ROUNDER, bitcast(shifted, I32) - ROUNDER_BITS


def exp(x: Expr) -> Expr:
    """1.0 ulp. NaN stays; above 88.73 infinity, below -103.98 zero; denormal results kept."""
    inside, n, exponent = _exponent(x)
    r = inside - n * LN2_HIGH - n * LN2_LOW
    return _scale(r * r * _polynomial(EXP, r) + r + 1, exponent)


def _split_exponent(x: Expr) -> tuple[Expr, Expr]:
    """``(m - 1, e as f32)`` with x = m * 2**e and m in [sqrt(1/2), sqrt(2)), for 0 < x < inf."""
    tiny = x < LEAST_NORMAL
    bits = bitcast(select(tiny, x * 8388608.0, x), I32)
    exponent = binary("shr", bits - 0x3F3504F3, _i(23))
    fraction = bitcast(bits - binary("shl", exponent, _i(23)), F32) - 1
    return fraction, cast(exponent - select(tiny, _i(23), _i(0)), F32)


def log(x: Expr) -> Expr:
    """0.9 ulp. NaN stays, below zero NaN, ±0 gives -infinity, infinity stays."""
    f, e = _split_exponent(x)
    square = f * f
    tail = f * square * _polynomial(LOG, f) + e * LN2_LOW - square * 0.5
    value = tail + f + e * LN2_HIGH
    special = select(x < 0, _f(NAN), select(binary("eq", x, 0.0), _f(-INFINITY), x))
    return select(_both(x > 0, x < INFINITY), value, special)


def sigmoid(x: Expr) -> Expr:
    """2.3 ulp. NaN stays; -infinity gives 0 through denormals, infinity gives 1."""
    small = exp(unary("neg", _abs(x)))
    return select(x < 0, small, _f(1)) / (small + 1)


def tanh(x: Expr) -> Expr:
    """1.4 ulp. NaN and -0 stay; ±infinity gives ±1."""
    t = _abs(x)
    square = t * t
    near = t * square * _polynomial(TANH, square) + t
    far = 1 - 2 / (exp(t + t) + 1)
    return _with_sign(select(t < TANH_SMALL, near, far), x)


def erf(x: Expr) -> Expr:
    """1.2 ulp. NaN and -0 stay; ±infinity gives ±1."""
    t = _abs(x)
    square = x * x
    near = x * _polynomial(ERF_NEAR, square) + x
    bounded = binary("min", t, 8.0)
    far = 1 - exp(bounded * _polynomial(ERF_FAR, bounded) - bounded)
    return select(t > ERF_SMALL, _with_sign(far, x), near)


def softplus(x: Expr) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)), 1.9 ulp. NaN stays; infinity stays; -infinity gives 0."""
    small = exp(unary("neg", _abs(x)))
    total = small + 1
    # log(total) misses what rounding total lost; the quotient adds it back to first order.
    tail = log(total) + (small - (total - 1)) / total
    return binary("max", x, 0.0) + tail


def sign(x: Expr) -> Expr:
    """-1, 0 or 1 exactly; NaN, -0 and +0 are returned as they are."""
    negative = const(0, x.dtype) if x.dtype.kind == "uint" else select(x < 0, const(-1, x.dtype), x)
    return select(x > 0, const(1, x.dtype), negative)


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """``(r, j)``: x = r + (2048 * k + j) * pi / 2 with |r| <= 0.79 and k, j integers.

    Products with the first three parts of pi / 2 are exact, and the order of the subtractions
    keeps every difference but the last few exact (Cody and Waite, in two levels).
    """
    angle = binary("max", binary("min", x, MOST_ANGLE), -MOST_ANGLE)
    far = angle * (2 / 3.141592653589793 / TURNS) + ROUNDER - ROUNDER
    first, second, third, fourth = HALF_PI
    start = angle - far * (first * TURNS)
    rest = start - far * (second * TURNS) - far * (third * TURNS)
    shifted = rest * (2 / 3.141592653589793) + ROUNDER
    near = shifted - ROUNDER
    r = start - near * first
    r = r - far * (second * TURNS) - near * second
    r = r - far * (third * TURNS) - near * third
    r = r - far * (fourth * TURNS) - near * fourth
    return r, bitcast(shifted, I32)


def _sine_or_cosine(x: Expr, shift: int) -> Expr:
    r, bits = _quadrant(x)
    square = r * r
    sine = r * square * _polynomial(SIN, square) + r
    cosine = square * square * _polynomial(COS, square) - square * 0.5 + 1
    quadrant = bits + shift if shift else bits
    odd = binary("ne", binary("and", quadrant, _i(1)), _i(0))
    flip = binary("shl", binary("and", quadrant, _i(2)), _i(30))
    value = bitcast(binary("xor", bitcast(select(odd, cosine, sine), I32), flip), F32)
    return select(_abs(x) < INFINITY, value, _f(NAN))


def sin(x: Expr) -> Expr:
    """2.5 ulp for |x| <= 2**22, also next to multiples of pi / 2.

    NaN and ±infinity give NaN, -0 stays. Beyond 2**22, where neighbouring f32 are 0.5 and more
    apart, the value is that at ±2**22.
    """
    return select(binary("eq", x, 0.0), x, _sine_or_cosine(x, 0))


def cos(x: Expr) -> Expr:
    """As ``sin``; cos(±0) is 1."""
    return _sine_or_cosine(x, 1)


# ---- pow: two f32 as one number of about 48 bits -------------------------------------------------

Pair = tuple[Expr, Expr]


def _two_sum(a: Expr, b: Expr) -> Pair:
    """a + b exactly, as rounded sum and error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _quick_two_sum(a: Expr, b: Expr) -> Pair:
    """As ``_two_sum`` for |a| >= |b| or a = 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)


def _split(a: Expr) -> Pair:
    scaled = a * SPLITTER
    high = scaled - (scaled - a)
    return high, a - high


def _two_product(a: Expr, b: Expr) -> Pair:
    """a * b exactly, as rounded product and error (Dekker), for moderate magnitudes."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    error = a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low
    return product, error


def _log_pair(x: Expr) -> Pair:
    """log(x) for 0 < x < infinity with relative error below 2**-33, as 2 * atanh(f / (f + 2))."""
    f, e = _split_exponent(x)
    denominator, denominator_low = _quick_two_sum(_f(2), f)
    s = f / denominator
    product, product_low = _two_product(s, denominator)
    s_low = (f - product - product_low - s * denominator_low) / denominator
    # s**3 * 2/3 as a pair; the rest of the series is small enough for one f32.
    square, square_low = _two_product(s, s)
    square_low = square_low + (s + s) * s_low
    third, third_low = _two_product(square, _f(TWO_THIRDS_HIGH))
    third_low = third_low + (square_low * TWO_THIRDS_HIGH + square * TWO_THIRDS_LOW)
    cube, cube_low = _two_product(third, s)
    cube_low = cube_low + (third_low * s + third * s_low)
    tail = square * square * s * _polynomial(ATANH_TAIL, square)
    high, low = _quick_two_sum(s + s, cube)
    low = low + (s_low + s_low + cube_low + tail)
    total, total_low = _two_sum(e * LN2_HIGH, high)
    return _quick_two_sum(total, total_low + (low + e * LN2_LOW))


def _exp_pair(x: Expr, low: Expr) -> Expr:
    """exp(x + low) within 0.6 ulp, for |low| far below 1."""
    inside, n, exponent = _exponent(x)
    r, r_low = _two_sum(inside - n * LN2_HIGH, n * -LN2_LOW)
    r, r_low = _two_sum(r, r_low + low)
    value, value_low = _quick_two_sum(_f(1), r)
    rest = r_low * r + r_low + r * r * _polynomial(EXP, r)
    return _scale(value + (value_low + rest), exponent)


def pow(x: Expr, y: Expr) -> Expr:
    """0.8 ulp, so results that f32 holds exactly (3**5, 9**0.5) are exact.

    Special values are those of IEEE 754 pow: x**0 = 1**y = 1 also for NaN, a negative base needs
    an integer exponent (else NaN), zeros and infinities keep their sign under odd integers.
    """
    base = _abs(x)
    exponent = binary("max", binary("min", y, MOST_POWER), -MOST_POWER)
    high, low = _log_pair(base)
    product, product_low = _two_product(high, exponent)
    product_low = product_low + low * exponent
    value = _exp_pair(product, select(_abs(product) < 128, product_low, _f(0)))

    end = _either(binary("eq", base, 0.0), binary("eq", base, INFINITY))
    grows = binary("eq", base < 1, y < 0)
    value = select(end, select(grows, _f(INFINITY), _f(0)), value)

    half = y * 0.5
    whole = binary("eq", unary("trunc", y), y)
    odd = _both(whole, binary("ne", unary("trunc", half), half))
    negative = bitcast(x, I32) < 0
    value = select(_both(negative, odd), unary("neg", value), value)
    undefined = _both(_both(x < 0, x > -INFINITY), unary("not", whole))
    unknown = _either(binary("ne", x, x), binary("ne", y, y))
    value = select(_either(undefined, unknown), _f(NAN), value)
    return select(_either(binary("eq", y, 0.0), binary("eq", x, 1.0)), _f(1), value)


def _in_primitives(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """A function that is defined with derived operators."""
    return lambda *args: expand(function(*args))


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": exp,
    "log": log,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "erf": erf,
    "softplus": softplus,
    "sign": sign,
    "pow": pow,
    **{name: _in_primitives(function) for name, function in INVERSE_FUNCTIONS.items()},
}
"""Derived operator of ``SCALAR_OPS`` → its definition in primitive ones."""


def expand(expr: Expr) -> Expr:
    """``expr`` with every derived operator replaced by its definition.

    Code ``expression.derived`` for a derived operator of another type than f32.
    """

    def rule(node: Expr) -> Expr | None:
        op = SCALAR_OPS.get(node.op)
        if op is None or op.primitive:
            return None
        if node.dtype is not F32 and node.op != "sign":
            raise RlxError(
                "expression.derived",
                f"scalar function {node.op} is not defined for this type",
                found=node.dtype,
                allowed=F32,
            )
        return FUNCTIONS[node.op](*node.args)

    return rewrite(expr, rule)
