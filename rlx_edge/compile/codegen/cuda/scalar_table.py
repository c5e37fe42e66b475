"""Scalar operators as C++: the table of what this backend can compute.

Value types: f32 and f64 are themselves, bool is ``bool`` (stored as a byte), integers have their
width, index is ``int``. Integers wrap. Integer division by zero gives 0, as on WebAssembly.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX, round_f32
from rlx_edge.ir.scalar_arithmetic import limits
from rlx_edge.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

TYPES: dict[DType, str] = {
    F32: "float",
    F64: "double",
    I8: "signed char",
    I16: "short",
    I32: "int",
    I64: "long long",
    U8: "unsigned char",
    U16: "unsigned short",
    U32: "unsigned",
    U64: "unsigned long long",
    BOOL: "bool",
    INDEX: "int",
}
WIDE = (I32, I64, U32, U64)
"""Integers that C++ does not promote: signed ones would overflow where they must wrap."""

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
FLOAT_CALLS = {
    "min": "lesser",
    "max": "greater",
    "abs": "magnitude",
    "sqrt": "square_root",
    "floor": "round_down",
    "ceil": "round_up",
    "trunc": "round_to_zero",
    "nearest": "round_to_even",
}
INTEGER_CALLS = {
    "div": "quotient",
    "floordiv": "floor_quotient",
    "mod": "floor_remainder",
    "min": "lesser_integer",
    "max": "greater_integer",
    "abs": "magnitude_integer",
}


def value_type(dtype: DType) -> str:
    """The C++ type of a value; ``RlxError`` ``codegen.type`` for storage-only types."""
    found = TYPES.get(dtype)
    if found is None:
        raise RlxError(
            "codegen.type",
            "CUDA kernels cannot compute with this element type",
            found=str(dtype),
            allowed=[str(known) for known in TYPES if known is not INDEX],
        )
    return found


def storage_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    return "unsigned char" if dtype is BOOL else value_type(dtype)


def literal(value: float | int | bool, dtype: DType) -> str:
    """A constant that reads back as the same bits."""
    if dtype is BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    number = int(value)
    if dtype in (I64, U64):
        low = limits(I64)[0]
        text = f"{low + 1}ll - 1" if number == low and dtype is I64 else f"{number}"
        suffix = "ull" if dtype is U64 else "ll"
        return f"({text})" if "-" in text[1:] else f"{text}{suffix}"
    if dtype is U32:
        return f"{number}u"
    return "(-2147483647 - 1)" if number == -(1 << 31) else str(number)


def _float_literal(value: float, dtype: DType) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        name = "nan" if value != value else "infinity"
        call = f"{name}_{dtype.name}()"
        return f"-{call}" if value < 0 else call
    if dtype is F64:
        return _pointed(repr(value))
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if round_f32(float(text)) == value:
            return f"{_pointed(text)}f"
    raise AssertionError(f"no literal for {value!r}")


def _pointed(text: str) -> str:
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def operation(op: str, operand: DType, args: list[str]) -> str:
    """The C++ expression of a primitive operator on operands of one type.

    ``RlxError`` ``codegen.op`` where there is none.
    """
    if op == "neg":
        return f"-({args[0]})" if operand.is_float else _wrapped("-", operand, ["0", *args])
    if op == "not":
        return f"!{args[0]}"
    if op in ("shl", "shr"):
        return _shift(op, operand, args)
    if op in BITWISE:
        joined = f"{args[0]} {BITWISE[op]} {args[1]}"
        return joined if operand in WIDE else f"({value_type(operand)})({joined})"
    if operand.is_float and op in FLOAT_CALLS:
        return f"{FLOAT_CALLS[op]}({', '.join(args)})"
    if operand.is_integer and op in INTEGER_CALLS:
        return f"{INTEGER_CALLS[op]}<{value_type(operand)}>({', '.join(args)})"
    if op in INFIX:
        if operand.is_integer and op in ("add", "sub", "mul"):
            return _wrapped(INFIX[op], operand, args)
        return f"{args[0]} {INFIX[op]} {args[1]}"
    raise RlxError("codegen.op", "no CUDA code for this operator", found=f"{op} of {operand}")


def _wrapped(sign: str, dtype: DType, args: list[str]) -> str:
    """Integer arithmetic that wraps to its width; sizes never leave theirs."""
    plain = f"{args[0]} {sign} {args[1]}"
    if dtype is INDEX or dtype in (U32, U64):
        return plain
    if dtype in (I32, I64):
        bits = value_type(U32 if dtype is I32 else U64)
        a, b = (f"({bits}){arg}" for arg in args)
        return f"({value_type(dtype)})({a} {sign} {b})"
    return f"({value_type(dtype)})({plain})"


def _shift(op: str, dtype: DType, args: list[str]) -> str:
    if op == "shr":
        return f"({value_type(dtype)})({args[0]} >> {args[1]})"
    bits = "unsigned long long" if dtype.bytes == 8 else "unsigned"
    return f"({value_type(dtype)})(({bits}){args[0]} << {args[1]})"


def conversion(source: DType, target: DType, value: str) -> str:
    """ONNX Cast: floats truncate and saturate, NaN gives 0, integers wrap, non-zero is true."""
    name = value_type(target)
    if target is BOOL:
        return f"{value} != 0"
    if source.is_float and not target.is_float:
        low, high = limits(target)
        wide = I32 if target is INDEX else target
        return f"saturated<{name}>({value}, {literal(low, wide)}, {literal(high, wide)})"
    return f"({name}){value}"


BITCASTS: dict[tuple[DType, DType], Callable[[str], str]] = {
    (F32, I32): lambda x: f"__float_as_int({x})",
    (I32, F32): lambda x: f"__int_as_float({x})",
    (F32, U32): lambda x: f"__float_as_uint({x})",
    (U32, F32): lambda x: f"__uint_as_float({x})",
    (F64, I64): lambda x: f"__double_as_longlong({x})",
    (I64, F64): lambda x: f"__longlong_as_double({x})",
    (I32, U32): lambda x: f"(unsigned){x}",
    (U32, I32): lambda x: f"(int){x}",
}
