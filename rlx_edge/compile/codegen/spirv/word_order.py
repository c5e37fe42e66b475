"""Comparisons of f32 by their bits, for drivers that compare denormals as zeros.

The bits of floats are ordered as sign and magnitude, so two's complement orders them once the
magnitude of negative ones is negated: both zeros become 0. NaN has no place in that order and is
looked for by the driver's own comparison, which denormals do not disturb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_edge.ir.types import BOOL, F32, F64, U32

if TYPE_CHECKING:
    from rlx_edge.compile.codegen.spirv.scalar_table import Scalars

SIGN = 1 << 31
LEAST_NORMAL = 2.0**-126
LEAST = 2.0**-149
COMPARISONS = {
    "FOrdEqual": "IEqual",
    "FUnordNotEqual": "IEqual",
    "FOrdLessThan": "SLessThan",
    "FOrdLessThanEqual": "SLessThanEqual",
    "FOrdGreaterThan": "SGreaterThan",
    "FOrdGreaterThanEqual": "SGreaterThanEqual",
}
"""The comparison of words that a comparison of floats becomes."""


def compare(s: Scalars, name: str, a: int, b: int) -> int:
    """``name`` of two f32. A denormal beside a normal literal compares as a zero would."""
    if _is_normal(s, a) or _is_normal(s, b):
        return s.test(name, a, b)
    compared = s.test(COMPARISONS[name], _rank(s, a), _rank(s, b))
    found = s.test("LogicalAnd", _ordered(s, a, b), compared)
    return s.test("LogicalNot", found) if name == "FUnordNotEqual" else found


def extremum(s: Scalars, greater: bool, a: int, b: int) -> int:
    """Minimum or maximum: NaN if either is, -0 below +0."""
    ranks = (_strict_rank(s, a), _strict_rank(s, b))
    chosen = s.select(F32, s.test("SGreaterThan" if greater else "SLessThan", *ranks), a, b)
    chosen = s.select(F32, s.test("FUnordNotEqual", b, b), b, chosen)
    return s.select(F32, s.test("FUnordNotEqual", a, a), a, chosen)


def widen(s: Scalars, value: int) -> int:
    """An f32 as f64: the conversion, and for denormals their digits times the least number."""
    bits = s.op("Bitcast", U32, value)
    magnitude = s.op("BitwiseAnd", U32, bits, s.const(SIGN - 1, U32))
    digits = s.op("ConvertUToF", F64, magnitude)
    negative = s.test("SLessThan", bits, s.const(0, U32))
    unit = s.select(F64, negative, s.const(-LEAST, F64), s.const(LEAST, F64))
    small = s.test("ULessThan", magnitude, s.const(1 << 23, U32))
    exact = s.rounded("FMul", F64, digits, unit)
    return s.select(F64, small, exact, s.op("FConvert", F64, value))


def _rank(s: Scalars, value: int) -> int:
    """A word that signed comparison orders as the floats, zeros alike."""
    bits = s.op("Bitcast", U32, value)
    negative = s.test("SLessThan", bits, s.const(0, U32))
    return s.select(U32, negative, s.op("ISub", U32, s.const(SIGN, U32), bits), bits)


def _strict_rank(s: Scalars, value: int) -> int:
    """As ``_rank``, with -0 below +0."""
    bits = s.op("Bitcast", U32, value)
    fill = s.op("ShiftRightArithmetic", U32, bits, s.const(31, U32))
    return s.op("BitwiseXor", U32, bits, s.op("BitwiseAnd", U32, fill, s.const(SIGN - 1, U32)))


def _ordered(s: Scalars, a: int, b: int) -> int:
    """Whether neither is NaN; literals are compared where it matters only."""
    tests = [s.test("FOrdEqual", x, x) for x in dict.fromkeys((a, b)) if not _is_number(s, x)]
    if not tests:
        return s.const(True, BOOL)
    return tests[0] if len(tests) == 1 else s.test("LogicalAnd", *tests)


def _is_number(s: Scalars, value: int) -> bool:
    literal = s.module.literals.get(value)
    return literal is not None and literal == literal


def _is_normal(s: Scalars, value: int) -> bool:
    return _is_number(s, value) and abs(s.module.literals[value]) >= LEAST_NORMAL
