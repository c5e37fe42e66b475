"""Arithmetic on the elements of known tensors, with ONNX's meaning."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx_edge.ir.dims import Dim, as_dim, ceildiv
from rlx_edge.ir.expression import round_f32
from rlx_edge.ir.onnx import conditions
from rlx_edge.ir.onnx.assumptions import Assumptions
from rlx_edge.ir.onnx.conditions import Compare, Truth
from rlx_edge.ir.onnx.shape_values import MAX_DENOMINATOR, Choice, Item, Ratio, Unknown, plain
from rlx_edge.ir.types import F32, F64, DType

_TRUTHS = (bool, Compare, conditions.Every, conditions.Some)
_MAX_SIDES = 16
"""Sides of choices that are followed in one operation."""


class Arithmetic:
    """Element arithmetic with ONNX's meaning for one element type.

    Operations on a ``Choice`` are done on both of its sides.
    """

    def __init__(self, dtype: DType, assume: Assumptions, where: str) -> None:
        self.dtype = dtype
        self.assume = assume
        self.where = where

    def choose(self, truth: Truth, yes: Item, no: Item) -> Item:
        """``yes`` or ``no``. Conditions on sizes are decided, those on values of inputs wait."""
        if isinstance(truth, bool):
            return yes if truth else no
        if repr(yes) == repr(no):
            return yes
        if isinstance(yes, _TRUTHS) and isinstance(no, _TRUTHS):
            otherwise = conditions.both(conditions.negate(truth), no)
            return conditions.either(conditions.both(truth, yes), otherwise)
        if any(name in self.assume.bindings for name in conditions.symbols(truth)):
            return Choice(truth, yes, no)
        return yes if self.assume.decide(truth, "Where in shape arithmetic", self.where) else no

    def spread(self, function: Callable[..., Item], *items: Item) -> Item:
        """``function`` of the items, of every side of those that are choices."""
        count = sum(map(_sides, items))
        if count > len(items) + _MAX_SIDES:
            raise Unknown
        for position, item in enumerate(items):
            if isinstance(item, Choice):
                before, after = items[:position], items[position + 1 :]
                yes = self.spread(function, *before, item.yes, *after)
                no = self.spread(function, *before, item.no, *after)
                return self.choose(item.condition, yes, no)
        return function(*items)

    def binary(self, name: str, a: Item, b: Item) -> Item:
        if isinstance(a, Dim) and isinstance(b, Dim):
            return self._integer(name, a, b)
        if isinstance(a, _TRUTHS):
            if name in _LOGIC:
                return _LOGIC[name](a, _truth(b))
            raise Unknown
        return self._float(name, a, b)

    def compare(self, relation: str, a: Item, b: Item) -> Truth:
        if isinstance(a, Dim) and isinstance(b, Dim):
            return self.assume.compare(a, relation, b)
        if isinstance(a, bool) and isinstance(b, bool):
            return (a == b) == (relation == "==")
        if isinstance(a, float) and isinstance(b, float):
            return _FLOAT_COMPARE[relation](a, b)
        x, y = _ratio(a), _ratio(b)
        return self.assume.compare(
            x.numerator * y.denominator, relation, y.numerator * x.denominator
        )

    def cast(self, item: Item, to: DType) -> Item:
        """ONNX Cast; float to integer truncates."""
        if isinstance(item, _TRUTHS):
            if to.kind == "bool":
                return item
            one, zero = (self.cast(as_dim(number), to) for number in (1, 0))
            return self.choose(item, one, zero)
        if to.kind == "bool":
            return self.compare("!=", item, _zero(item))
        if isinstance(item, Dim):
            if to.is_float and to not in (F32, F64):
                raise Unknown
            return self.rounded(fraction(item, 1), to) if to.is_float else _wrapped(item, to)
        if to.is_float:
            return self.rounded(item, to)
        if isinstance(item, float):
            return as_dim(int(_finite(item)))
        exact = _ratio(item)
        return self.truncated(exact.numerator, as_dim(exact.denominator))

    def rounded(self, item: Item, to: DType) -> Item:
        if to not in (F32, F64):
            raise Unknown
        return round_f32(item) if isinstance(item, float) and to is F32 else item

    def truncated(self, a: Dim, b: Dim) -> Dim:
        """``a / b`` towards zero."""
        if b.is_constant and b.value == 0:
            raise Unknown
        if self.assume.not_negative(a) and self.assume.not_negative(b):
            return a // b
        if a.is_constant and b.is_constant:
            quotient = abs(a.value) // abs(b.value)
            return as_dim(quotient if (a.value < 0) == (b.value < 0) else -quotient)
        exact = a // b
        if exact * b is a:
            return exact
        raise Unknown

    def floor(self, item: Item) -> Item:
        if isinstance(item, Ratio):
            return fraction(item.numerator // as_dim(item.denominator), 1)
        return _whole(math.floor, item)

    def ceil(self, item: Item) -> Item:
        if isinstance(item, Ratio):
            return fraction(ceildiv(item.numerator, item.denominator), 1)
        return _whole(math.ceil, item)

    def round(self, item: Item) -> Item:
        if isinstance(item, Ratio) and item.denominator == 1:
            return item  # already whole
        return _whole(round, item)

    def negated(self, item: Item) -> Item:
        match item:
            case Dim():
                return -item
            case Ratio(numerator, denominator):
                return Ratio(-numerator, denominator)
        return -_finite(item)

    def absolute(self, item: Item) -> Item:
        if isinstance(item, Dim):
            return item if self.assume.not_negative(item) else self.assume.largest(item, -item)
        if isinstance(item, Ratio):
            size = self.assume.largest(item.numerator, -item.numerator)
            return _reduced(size, item.denominator)
        return abs(_finite(item))

    def square_root(self, item: Item) -> Item:
        """Exact rounding of the real root, as IEEE 754 asks for."""
        value = float(plain(item))
        if not value >= 0.0 or not self.dtype.is_float:
            raise Unknown
        return self.rounded(math.sqrt(value), self.dtype)

    def _integer(self, name: str, a: Dim, b: Dim) -> Dim:
        match name:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "div":
                return self.truncated(a, b)
            case "mod":
                if not (b.is_constant and b.value == 0):
                    return a % b
            case "max":
                return self.assume.largest(a, b)
            case "min":
                return self.assume.smallest(a, b)
            case "pow" if b.is_constant and 0 <= b.value <= 8:
                return math.prod([a] * b.value, start=as_dim(1))
        raise Unknown

    def _float(self, name: str, a: Item, b: Item) -> Item:
        if isinstance(a, float) and isinstance(b, float):
            if name not in _FLOAT_BINARY or (name == "div" and b == 0.0):
                raise Unknown
            return self.rounded(_FLOAT_BINARY[name](a, b), self.dtype)
        x, y = _ratio(a), _ratio(b)
        match name:
            case "add" | "sub":
                right = y.numerator if name == "add" else -y.numerator
                return _reduced(
                    x.numerator * y.denominator + right * x.denominator,
                    x.denominator * y.denominator,
                )
            case "mul":
                return _reduced(x.numerator * y.numerator, x.denominator * y.denominator)
            case "div":
                return _quotient(x, y)
            case "min" | "max":
                left, right = x.numerator * y.denominator, y.numerator * x.denominator
                pick = self.assume.largest if name == "max" else self.assume.smallest
                return _reduced(pick(left, right), x.denominator * y.denominator)
        raise Unknown


_LOGIC: dict[str, Callable[[Truth, Truth], Truth]] = {
    "and": conditions.both,
    "or": conditions.either,
    "xor": lambda a, b: conditions.either(
        conditions.both(a, conditions.negate(b)), conditions.both(conditions.negate(a), b)
    ),
}
_FLOAT_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
_FLOAT_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _sides(item: Item) -> int:
    return _sides(item.yes) + _sides(item.no) if isinstance(item, Choice) else 1


def _truth(item: Item) -> Truth:
    if isinstance(item, _TRUTHS):
        return item
    raise Unknown


def fraction(numerator: Dim, denominator: int) -> Ratio | float:
    """``numerator / denominator``; constants become plain floats."""
    if numerator.is_constant:
        return numerator.value / denominator
    return Ratio(numerator, denominator)


def _zero(item: Item) -> Item:
    match item:
        case Dim():
            return as_dim(0)
        case Ratio():
            return Ratio(as_dim(0), 1)
    return 0.0


def _wrapped(item: Dim, to: DType) -> Dim:
    """A constant in the range of an integer type (two's complement); symbols stay as they are."""
    if not item.is_constant:
        return item
    bits = to.bytes * 8
    value = item.value & ((1 << bits) - 1)
    return as_dim(value - (1 << bits) if to.kind == "int" and value >> (bits - 1) else value)


def _whole(function: Callable[[float], int], item: Item) -> float:
    """A rounding to integers that keeps the sign of zero."""
    value = _finite(item)
    return math.copysign(float(function(value)), value)


def _finite(item: Item) -> float:
    if isinstance(item, float) and math.isfinite(item):
        return item
    raise Unknown


_MAX_NUMERATOR = 1 << 24


def _ratio(item: Item) -> Ratio:
    """A float as an exact fraction, if it is a short one."""
    if isinstance(item, Ratio):
        return item
    if not isinstance(item, float) or not math.isfinite(item):
        raise Unknown
    numerator, denominator = item.as_integer_ratio()
    if denominator > MAX_DENOMINATOR or abs(numerator) > _MAX_NUMERATOR:
        raise Unknown
    return Ratio(as_dim(numerator), denominator)


def _reduced(numerator: Dim, denominator: int) -> Ratio | float:
    """Lowest terms with respect to the coefficients; ``Unknown`` beyond what f32 holds."""
    factor = math.gcd(denominator, *(coefficient for _, coefficient in numerator.terms))
    denominator //= factor
    if denominator > MAX_DENOMINATOR or denominator & (denominator - 1):
        raise Unknown
    return fraction(
        Dim.make({atoms: coef // factor for atoms, coef in numerator.terms}), denominator
    )


def _quotient(x: Ratio, y: Ratio) -> Ratio | float:
    """``x / y`` where it is a dim over a power of two."""
    numerator = x.numerator * y.denominator
    divisor = y.numerator * x.denominator
    if divisor.is_constant:
        value = divisor.value
        if value == 0:
            raise Unknown
        return _reduced(numerator if value > 0 else -numerator, abs(value))
    exact = numerator // divisor
    if exact * divisor is numerator:
        return fraction(exact, 1)
    # d / (k * d) with a power of two k.
    inverse = divisor // numerator if numerator.terms else as_dim(0)
    if inverse.is_constant and inverse.value > 0 and numerator * inverse is divisor:
        return _reduced(as_dim(1), inverse.value)
    raise Unknown
