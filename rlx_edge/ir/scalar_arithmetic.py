"""Primitive scalar operators on vectors of Python numbers, with the exact result of one operation.

f32: Python computes in f64 and the ``array`` rounds once to f32. For +, -, *, / and the square
root that is the correctly rounded f32 result, because f64 has more than twice its precision.
Integers wrap to their width. Vectors are arrays, lists or tuples of one length; ``index`` values
are plain integers. Nothing here calls a mathematical library.
"""

from __future__ import annotations

import math
import operator
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.tensor import ARRAY_CODE, bfloat16_bits, half_bytes
from rlx_edge.ir.types import BF16, BOOL, F16, F64, DType

Vector: TypeAlias = Sequence[Any]
Scalar: TypeAlias = Any
VectorFunction: TypeAlias = Callable[..., Vector]

INFINITY = float("inf")
NAN = float("nan")
WHOLE = 4503599627370496.0
"""2**52: f64 at or beyond it are integers."""


# ---- one element -----------------------------------------------------------------------------


def divide(a: float, b: float) -> float:
    """IEEE 754 division."""
    if b == 0:
        if a == 0 or a != a:
            return NAN
        return math.copysign(INFINITY, a) * math.copysign(1.0, b)
    return a / b


def square_root(x: float) -> float:
    """IEEE 754 square root: NaN below zero."""
    return NAN if x < 0 else math.sqrt(x)


def minimum(a: float, b: float) -> float:
    """Lesser, NaN if either is, -0 below +0."""
    if a < b:
        return a
    if b < a:
        return b
    if a == b:
        return a if math.copysign(1.0, a) < 0 else b
    return NAN


def maximum(a: float, b: float) -> float:
    """Greater, NaN if either is, +0 above -0."""
    if a > b:
        return a
    if b > a:
        return b
    if a == b:
        return b if math.copysign(1.0, a) < 0 else a
    return NAN


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    def apply(x: float) -> float:
        if -WHOLE < x < WHOLE:
            return math.copysign(float(function(x)), x)
        return x

    return apply


def truncated_quotient(a: int, b: int) -> int:
    """Integer division towards zero."""
    _check_divisor(b)
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient


def _floor_quotient(a: int, b: int) -> int:
    _check_divisor(b)
    return a // b


def _remainder(a: int, b: int) -> int:
    _check_divisor(b)
    return a % b


def _check_divisor(b: int) -> None:
    if b == 0:
        raise RlxError(
            "value.division",
            "an expression divides integers by zero",
            found=0,
            allowed="a divisor that a select keeps from zero",
        )


def truncated(x: float, low: int, high: int) -> int:
    """Float to integer: truncate and saturate, NaN gives 0."""
    if x != x:
        return 0
    if x >= high:
        return high
    return low if x <= low else int(x)


def exact_to_single(x: int) -> float:
    """An f64 that rounds to the same f32 as the integer ``x`` of up to 64 bits.

    Bits that f64 cannot hold are collected in one sticky bit far below the f32 significand.
    """
    if -(1 << 53) <= x <= 1 << 53:
        return float(x)
    magnitude = abs(x)
    magnitude = magnitude & ~0xFFF | (0x800 if magnitude & 0xFFF else 0)
    return float(magnitude if x > 0 else -magnitude)


# ---- vectors ---------------------------------------------------------------------------------


def limits(dtype: DType) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    bits = 8 * dtype.bytes
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)


def packed(dtype: DType) -> Callable[[Any], Vector]:
    """Collects values into a vector of ``dtype``: floats round, integers wrap, others stay."""
    if dtype is INDEX or dtype is BOOL:
        return list
    if dtype is F16:
        return lambda values: [struct.unpack("<e", half_bytes(value))[0] for value in values]
    if dtype is BF16:
        return _packed_bfloat16
    code = ARRAY_CODE[dtype.name]
    if dtype.is_float:
        return lambda values: array(code, values)
    low, _ = limits(dtype)
    mask = (1 << 8 * dtype.bytes) - 1

    def pack(values: Any) -> Vector:
        found = list(values)
        try:
            return array(code, found)
        except OverflowError:
            return array(code, [(value - low & mask) + low for value in found])

    return pack


def _packed_bfloat16(values: Any) -> Vector:
    bits = array("I", array("f", values).tobytes())
    return array("f", array("I", (bfloat16_bits(value) << 16 for value in bits)).tobytes())


_BINARY: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _floor_quotient,
    "mod": _remainder,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
_FLOAT_BINARY = {"div": divide, "min": minimum, "max": maximum}
_INTEGER_BINARY: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "div": truncated_quotient,
    "min": min,
    "max": max,
}
_UNARY: dict[str, Callable[[Scalar], Scalar]] = {
    "neg": operator.neg,
    "abs": operator.abs,
    "not": operator.not_,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "nearest": _whole(round),
}


def scalar_binary(name: str, dtype: DType) -> Callable[[Scalar, Scalar], Scalar]:
    """The operator on two elements of ``dtype``, before rounding or wrapping."""
    special = _FLOAT_BINARY if dtype.is_float else _INTEGER_BINARY
    return special[name] if name in special else _BINARY[name]


def vector_function(name: str, operand: DType, result: DType) -> VectorFunction:
    """The primitive operator ``name`` from vectors of ``operand`` to a vector of ``result``."""
    pack = packed(result)
    if name == "select":
        return lambda condition, a, b: [
            x if chosen else y for chosen, x, y in zip(condition, a, b, strict=True)
        ]
    if name == "cast":
        return _conversion(operand, result)
    if name == "bitcast":
        source, target = ARRAY_CODE[operand.name], ARRAY_CODE[result.name]
        return lambda x: array(target, array(source, x).tobytes())
    if name == "div" and operand.is_float:
        return lambda a, b: _divided(pack, a, b)
    if name == "sqrt":
        return lambda x: _rooted(pack, x)
    if name in _UNARY:
        unary = _UNARY[name]
        return lambda x: pack(map(unary, x))
    binary = scalar_binary(name, operand)
    return lambda a, b: pack(map(binary, a, b))


def _divided(pack: Callable[[Any], Vector], a: Vector, b: Vector) -> Vector:
    try:
        return pack(map(operator.truediv, a, b))
    except ZeroDivisionError:
        return pack(map(divide, a, b))


def _rooted(pack: Callable[[Any], Vector], x: Vector) -> Vector:
    try:
        return pack(map(math.sqrt, x))
    except ValueError:
        return pack(map(square_root, x))


def _conversion(source: DType, target: DType) -> VectorFunction:
    """ONNX Cast: floats truncate and saturate, NaN gives 0, integers wrap, non-zero is true."""
    pack = packed(target)
    if target is BOOL:
        return lambda x: [value != 0 for value in x]
    if target.is_float:
        if source.is_integer and source.bytes == 8 and target is not F64:
            return lambda x: pack(map(exact_to_single, x))
        return lambda x: pack(map(float, x))
    if source.is_float:
        low, high = limits(target)
        return lambda x: pack([truncated(value, low, high) for value in x])
    if target is INDEX:
        return lambda x: [(int(value) + 0x80000000 & 0xFFFFFFFF) - 0x80000000 for value in x]
    return lambda x: pack(map(int, x))
