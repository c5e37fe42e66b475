"""Scalar instruction table: which SPIR-V computes each operator on one element.

Storage to value types: f32 and f64 are themselves, bool is a boolean, i64 and u64 are 64-bit words,
every other integer and index are 32-bit words. Words have no sign, instructions do. Integers
narrower than 32 bits are kept sign- or zero-extended, so each operator that can leave the range
normalises its result. Integer division by 0 gives 0, the lowest value by -1 wraps to itself.

Float results are decorated ``NoContraction``; minimum and maximum are built of comparisons,
because ``FMin`` and ``FMax`` leave NaN and signed zeros open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.compile.codegen.spirv import word_order
from rlx_edge.compile.codegen.spirv.assembler import Code, Module
from rlx_edge.compile.codegen.spirv.opcodes import ENUMS
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

FLOATS = (F32, F64)
SIGNED = (I8, I16, I32, I64, INDEX)
UNSIGNED = (U8, U16, U32, U64)
KNOWN = (*FLOATS, BOOL, *SIGNED, *UNSIGNED)
WIDE = (I64, U64)


@dataclass(frozen=True, slots=True)
class Scalars:
    """Value types and small steps in one piece of code."""

    code: Code

    @property
    def module(self) -> Module:
        return self.code.module

    def type(self, dtype: DType) -> int:
        """The value type of a dtype."""
        if dtype is BOOL:
            return self.module.bool_type()
        if dtype.is_float:
            return self.module.float_type(8 * dtype.bytes)
        return self.module.int_type(64 if dtype in WIDE else 32, signed=False)

    def const(self, value: float | int, dtype: DType) -> int:
        """A literal, integers wrapped to the width of their value type."""
        if dtype is BOOL:
            return self.module.boolean(bool(value))
        if dtype.is_float:
            return self.module.real(float(value), 8 * dtype.bytes)
        return self.module.integer(int(value), 64 if dtype in WIDE else 32, signed=False)

    def op(self, name: str, dtype: DType, *operands: int) -> int:
        """An instruction with a result of the value type of ``dtype``."""
        return self.code.op(name, self.type(dtype), *operands)

    def rounded(self, name: str, dtype: DType, *operands: int) -> int:
        """A float operation that the driver must not contract or reassociate."""
        result = self.op(name, dtype, *operands)
        self.module.decorate(result, "NoContraction")
        return result

    def glsl(self, name: str, dtype: DType, operand: int) -> int:
        """An instruction of the extended set."""
        number = ENUMS["GLSL"][name]
        return self.op("ExtInst", dtype, self.module.import_set(), number, operand)

    def multiplied(self, a: int, b: int, c: int) -> int:
        """c + a * b in f32 with two roundings."""
        return self.rounded("FAdd", F32, c, self.rounded("FMul", F32, a, b))

    def fused(self, a: int, b: int, c: int) -> int:
        """a * b + c in f32 with one rounding, where the device fuses."""
        number = ENUMS["GLSL"]["Fma"]
        result = self.op("ExtInst", F32, self.module.import_set(), number, a, b, c)
        self.module.decorate(result, "NoContraction")
        return result

    def test(self, name: str, *operands: int) -> int:
        """A comparison."""
        return self.op(name, BOOL, *operands)

    def select(self, dtype: DType, condition: int, a: int, b: int) -> int:
        return self.op("Select", dtype, condition, a, b)


Rule: TypeAlias = Callable[[Scalars, DType, Sequence[int]], int]
"""``rule(scalars, operand dtype, operands)``: the result's id."""


def check_type(dtype: DType) -> None:
    """``RlxError`` code ``codegen.type`` for a type that kernels cannot compute with."""
    if dtype not in KNOWN:
        raise RlxError(
            "codegen.type",
            "Vulkan kernels cannot compute with this element type",
            found=str(dtype),
            allowed=[str(known) for known in KNOWN if known is not INDEX],
        )


# ---- floats ----------------------------------------------------------------------------------


def _rounded(name: str) -> Rule:
    return lambda s, dtype, args: s.rounded(name, dtype, *args)


def _plain(name: str) -> Rule:
    return lambda s, dtype, args: s.op(name, dtype, *args)


def _glsl(name: str) -> Rule:
    return lambda s, dtype, args: s.glsl(name, dtype, args[0])


def _test(name: str) -> Rule:
    return lambda s, dtype, args: s.test(name, *args)


def _float_test(name: str) -> Rule:
    """A comparison by the driver, or of words where that takes denormals for zeros."""

    def rule(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
        if dtype is F32 and s.module.compare_words:
            return word_order.compare(s, name, *args)
        return s.test(name, *args)

    return rule


def _float_extremum(compare: str, join: str) -> Rule:
    """NaN if either is; of two zeros the one that ``join`` of the bits gives."""

    def rule(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
        a, b = args
        if dtype is F32 and s.module.compare_words:
            return word_order.extremum(s, compare == "FOrdGreaterThan", a, b)
        bits = U32 if dtype is F32 else U64
        chosen = s.select(dtype, s.test(compare, a, b), a, b)
        chosen = s.select(dtype, s.test("FUnordNotEqual", a, a), a, chosen)
        joined = s.op(join, bits, s.op("Bitcast", bits, a), s.op("Bitcast", bits, b))
        equal = s.test("FOrdEqual", a, b)
        return s.select(dtype, equal, s.op("Bitcast", dtype, joined), chosen)

    return rule


def _float_absolute(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
    """Without the sign bit: ``FAbs`` flushes denormals on some devices."""
    bits = U32 if dtype is F32 else U64
    mask = s.const((1 << 8 * dtype.bytes - 1) - 1, bits)
    masked = s.op("BitwiseAnd", bits, s.op("Bitcast", bits, args[0]), mask)
    return s.op("Bitcast", dtype, masked)


def _square_root(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
    """The instruction, or that and a step of Markstein's: root + (x - root²) / (2 root).

    Small values are scaled, so that the residual is exact; zero, infinity and NaN need no step.
    """
    (x,) = args
    if dtype is not F32 or not s.module.refine_roots:
        return s.glsl("Sqrt", dtype, x)
    small = s.test("FOrdLessThan", x, s.const(2.0**-64, F32))
    scaled = s.select(F32, small, s.rounded("FMul", F32, x, s.const(2.0**64, F32)), x)
    root = s.glsl("Sqrt", F32, scaled)
    residual = s.fused(s.op("FNegate", F32, root), root, scaled)
    half = s.rounded("FDiv", F32, s.const(0.5, F32), root)
    refined = s.fused(residual, half, root)
    whole = s.test("FOrdGreaterThan", scaled, s.const(0.0, F32))
    finite = s.test("FOrdLessThan", scaled, s.const(float("inf"), F32))
    root = s.select(F32, s.test("LogicalAnd", whole, finite), refined, root)
    shrunk = s.rounded("FMul", F32, root, s.const(2.0**-32, F32))
    return s.select(F32, small, shrunk, root)


_FLOAT_RULES: dict[str, Rule] = {
    "add": _rounded("FAdd"),
    "sub": _rounded("FSub"),
    "mul": _rounded("FMul"),
    "div": _rounded("FDiv"),
    "neg": _plain("FNegate"),
    "abs": _float_absolute,
    "sqrt": _square_root,
    "floor": _glsl("Floor"),
    "ceil": _glsl("Ceil"),
    "trunc": _glsl("Trunc"),
    "nearest": _glsl("RoundEven"),
    "min": _float_extremum("FOrdLessThan", "BitwiseOr"),
    "max": _float_extremum("FOrdGreaterThan", "BitwiseAnd"),
    "eq": _float_test("FOrdEqual"),
    "ne": _float_test("FUnordNotEqual"),
    "lt": _float_test("FOrdLessThan"),
    "le": _float_test("FOrdLessThanEqual"),
    "gt": _float_test("FOrdGreaterThan"),
    "ge": _float_test("FOrdGreaterThanEqual"),
}

# ---- integers --------------------------------------------------------------------------------


def normalize(s: Scalars, dtype: DType, value: int) -> int:
    """Bring a word into the range of a narrow type by wrapping."""
    if dtype in (U8, U16):
        return s.op("BitwiseAnd", dtype, value, s.const((1 << 8 * dtype.bytes) - 1, U32))
    if dtype in (I8, I16):
        shift = s.const(32 - 8 * dtype.bytes, U32)
        return s.op("ShiftRightArithmetic", dtype, s.op("ShiftLeftLogical", dtype, value, shift),
                    shift)  # fmt: skip
    return value


def _wrapping(name: str) -> Rule:
    return lambda s, dtype, args: normalize(s, dtype, s.op(name, dtype, *args))


def _negate(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
    return normalize(s, dtype, s.op("ISub", dtype, s.const(0, dtype), args[0]))


def _absolute(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
    if dtype in UNSIGNED:
        return args[0]
    negative = s.test("SLessThan", args[0], s.const(0, dtype))
    return s.select(dtype, negative, _negate(s, dtype, args), args[0])


def _integer_extremum(name: str) -> Rule:
    def rule(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
        sign = "U" if dtype in UNSIGNED else "S"
        return s.select(dtype, s.test(f"{sign}{name}", *args), *args)

    return rule


def _ordered(name: str) -> Rule:
    def rule(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
        return s.test(("U" if dtype in UNSIGNED else "S") + name, *args)

    return rule


def _shift_right(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
    name = "ShiftRightLogical" if dtype in UNSIGNED else "ShiftRightArithmetic"
    return s.op(name, dtype, *args)


def _divide(result: str) -> Rule:
    """``result``: ``div`` (towards zero), ``floordiv`` or ``mod`` (sign of the divisor).

    Divisors 0 and -1 are the two whose successor is below 2 as an unsigned number; the instruction
    divides by 1 for them. Their quotient is ``-a & b``, their remainder 0.
    """

    def unsigned(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
        a, b = args
        zero = s.test("IEqual", b, s.const(0, dtype))
        divisor = s.select(dtype, zero, s.const(1, dtype), b)
        value = s.op("UMod" if result == "mod" else "UDiv", dtype, a, divisor)
        return s.select(dtype, zero, s.const(0, dtype), value)

    def rule(s: Scalars, dtype: DType, args: Sequence[int]) -> int:
        if dtype in UNSIGNED:
            return unsigned(s, dtype, args)
        a, b = args
        above = s.op("IAdd", dtype, b, s.const(1, dtype))
        special = s.test("ULessThan", above, s.const(2, dtype))
        divisor = s.select(dtype, special, s.const(1, dtype), b)
        quotient = s.op("SDiv", dtype, a, divisor)
        negated = s.op("ISub", dtype, s.const(0, dtype), a)
        by_special = s.op("BitwiseAnd", dtype, negated, b)
        if result == "div":
            return normalize(s, dtype, s.select(dtype, special, by_special, quotient))
        floored, remainder = _floor(s, dtype, a, divisor, quotient)
        if result == "mod":
            return s.select(dtype, special, s.const(0, dtype), remainder)
        return normalize(s, dtype, s.select(dtype, special, by_special, floored))

    return rule


def _floor(s: Scalars, dtype: DType, a: int, divisor: int, quotient: int) -> tuple[int, int]:
    """Quotient and remainder rounded to minus infinity, from those rounded to zero."""
    zero = s.const(0, dtype)
    product = s.op("IMul", dtype, quotient, divisor)
    remainder = s.op("ISub", dtype, a, product)
    opposite = s.test("SLessThan", s.op("BitwiseXor", dtype, remainder, divisor), zero)
    fix = s.op("LogicalAnd", BOOL, s.test("INotEqual", remainder, zero), opposite)
    lower = s.op("ISub", dtype, quotient, s.const(1, dtype))
    upper = s.op("IAdd", dtype, remainder, divisor)
    return s.select(dtype, fix, lower, quotient), s.select(dtype, fix, upper, remainder)


_INTEGER_RULES: dict[str, Rule] = {
    "add": _wrapping("IAdd"),
    "sub": _wrapping("ISub"),
    "mul": _wrapping("IMul"),
    "shl": _wrapping("ShiftLeftLogical"),
    "shr": _shift_right,
    "neg": _negate,
    "abs": _absolute,
    "div": _divide("div"),
    "floordiv": _divide("floordiv"),
    "mod": _divide("mod"),
    "min": _integer_extremum("LessThan"),
    "max": _integer_extremum("GreaterThan"),
    "and": _plain("BitwiseAnd"),
    "or": _plain("BitwiseOr"),
    "xor": _plain("BitwiseXor"),
    "eq": _test("IEqual"),
    "ne": _test("INotEqual"),
    "lt": _ordered("LessThan"),
    "le": _ordered("LessThanEqual"),
    "gt": _ordered("GreaterThan"),
    "ge": _ordered("GreaterThanEqual"),
}
_BOOL_RULES: dict[str, Rule] = {
    "eq": _test("LogicalEqual"),
    "ne": _test("LogicalNotEqual"),
    "and": _test("LogicalAnd"),
    "or": _test("LogicalOr"),
    "xor": _test("LogicalNotEqual"),
    "not": _test("LogicalNot"),
}

SCALAR_RULES: dict[tuple[str, DType], Rule] = {
    **{(op, dtype): rule for dtype in FLOATS for op, rule in _FLOAT_RULES.items()},
    **{(op, dtype): rule for dtype in (*SIGNED, *UNSIGNED) for op, rule in _INTEGER_RULES.items()},
    **{(op, BOOL): rule for op, rule in _BOOL_RULES.items()},
}
"""``(operator, operand dtype)`` → rule."""


def scalar_rule(op: str, dtype: DType) -> Rule:
    """The rule of a primitive operator; ``RlxError`` code ``codegen.op`` where there is none."""
    check_type(dtype)
    found = SCALAR_RULES.get((op, dtype))
    if found is None:
        raise RlxError(
            "codegen.op",
            "no SPIR-V for this scalar operator",
            found=f"{op} on {dtype}",
            allowed=sorted(name for name, known in SCALAR_RULES if known is dtype),
        )
    return found


# ---- casts -----------------------------------------------------------------------------------


def convert(s: Scalars, value: int, source: DType, target: DType) -> int:
    """Convert as ONNX Cast: float to integer truncates and saturates (NaN gives 0), integers wrap
    to narrower integers, anything else than zero is true."""
    check_type(source)
    check_type(target)
    if source is target:
        return value
    if target is BOOL:
        return scalar_rule("ne", source)(s, source, (value, s.const(0, source)))
    if source is BOOL:
        return s.select(target, value, s.const(1, target), s.const(0, target))
    if source.is_float:
        if target.is_float:
            if target is F64 and s.module.compare_words:
                return word_order.widen(s, value)
            return s.op("FConvert", target, value)
        return _truncate(s, value, source, target)
    if target.is_float:
        return s.op("ConvertUToF" if source in UNSIGNED else "ConvertSToF", target, value)
    if (source in WIDE) == (target in WIDE):
        return normalize(s, target, value)
    widening = target in WIDE and source not in UNSIGNED
    return normalize(s, target, s.op("SConvert" if widening else "UConvert", target, value))


def _truncate(s: Scalars, value: int, source: DType, target: DType) -> int:
    """The conversion of a value inside the range; outside, the nearest limit."""
    low, high = integer_range(target)
    # Exact in both float types: the lowest value, and the first beyond the highest.
    below = s.test("FOrdLessThanEqual", value, s.const(float(low), source))
    above = s.test("FOrdGreaterThanEqual", value, s.const(float(high + 1), source))
    outside = s.test("LogicalOr", s.test("FUnordNotEqual", value, value),
                     s.test("LogicalOr", below, above))  # fmt: skip
    inside = s.select(source, outside, s.const(0, source), value)
    name = "ConvertFToU" if target in (U32, U64) else "ConvertFToS"
    result = s.op(name, target, inside)
    result = s.select(target, above, s.const(high, target), result)
    return s.select(target, below, s.const(low, target), result)


def integer_range(dtype: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer type."""
    bits = 8 * dtype.bytes
    if dtype in SIGNED:
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1
