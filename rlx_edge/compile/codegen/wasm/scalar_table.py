"""Scalar instruction table: which WebAssembly code computes each operator on one element.

Storage to stack types: f32 and f64 are themselves; i64 and u64 are i64; every other integer, bool
(0 or 1) and index are i32. Integers narrower than 32 bits are kept sign- or zero-extended, so each
operator that can leave the range normalises its result.

Integer division never traps: ``x / 0``, ``x floordiv 0`` and ``x mod 0`` are 0, and the lowest
value divided by -1 wraps to itself (remainder 0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.encoder import Body
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType

Temp: TypeAlias = Callable[[int], int]
"""Gives a scratch local of a value type."""
Rule: TypeAlias = Callable[[Body, Temp], None]
"""Emits code that replaces the operands on the stack by the result."""

VALUE_TYPES: dict[DType, int] = {
    F32: encoder.F32,
    F64: encoder.F64,
    I64: encoder.I64,
    U64: encoder.I64,
    **dict.fromkeys((I8, I16, I32, U8, U16, U32, BOOL, INDEX), encoder.I32),
}
SIGNED = (I8, I16, I32, I64, INDEX)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64, INDEX)
FLOATS = (F32, F64)


def value_type(dtype: DType) -> int:
    """The stack type; ``RlxError`` code ``codegen.type`` for storage-only types."""
    found = VALUE_TYPES.get(dtype)
    if found is None:
        raise RlxError(
            "codegen.type",
            "WebAssembly kernels cannot compute with this element type",
            found=str(dtype),
            allowed=[str(known) for known in VALUE_TYPES if known is not INDEX],
        )
    return found


def prefix(dtype: DType) -> str:
    """``i32``, ``i64``, ``f32`` or ``f64``: the instruction family of a dtype."""
    return encoder.VALUE_TYPE_NAMES[value_type(dtype)]


def instruction(name: str) -> Rule:
    """The rule that is one instruction without immediates."""
    method = getattr(Body, name)

    def rule(body: Body, temp: Temp) -> None:
        method(body)

    return rule


# ---- memory and literals ---------------------------------------------------------------------

_LOADS = {
    F32: "f32_load", F64: "f64_load", I32: "i32_load", U32: "i32_load", I64: "i64_load",
    U64: "i64_load", I8: "i32_load8_s", I16: "i32_load16_s", U8: "i32_load8_u",
    U16: "i32_load16_u", BOOL: "i32_load8_u",
}  # fmt: skip
_STORES = {
    F32: "f32_store", F64: "f64_store", I32: "i32_store", U32: "i32_store", I64: "i64_store",
    U64: "i64_store", I8: "i32_store8", I16: "i32_store16", U8: "i32_store8",
    U16: "i32_store16", BOOL: "i32_store8",
}  # fmt: skip


def emit_load(body: Body, dtype: DType, offset: int) -> None:
    """Replace the address on the stack by the element at address + ``offset``."""
    value_type(dtype)
    getattr(body, _LOADS[dtype])(offset)


def emit_store(body: Body, dtype: DType, offset: int) -> None:
    """Store the element on the stack at the address below it + ``offset``."""
    value_type(dtype)
    getattr(body, _STORES[dtype])(offset)


def emit_const(body: Body, value: float | int, dtype: DType) -> None:
    """Push a literal."""
    getattr(body, f"{prefix(dtype)}_const")(value if dtype.is_float else int(value))


# ---- integer helpers -------------------------------------------------------------------------


def normalizer(dtype: DType) -> Rule | None:
    """Bring an i32 into the range of a narrow type by wrapping; ``None`` where it always is."""
    if dtype is I8:
        return instruction("i32_extend8_s")
    if dtype is I16:
        return instruction("i32_extend16_s")
    if dtype in (U8, U16):
        return _with_constant("i32_and", (1 << 8 * dtype.bytes) - 1)
    return None


def _with_constant(name: str, value: int) -> Rule:
    """An i32 instruction whose second operand is a constant."""
    method = getattr(Body, name)

    def rule(body: Body, temp: Temp) -> None:
        method(body.i32_const(value))

    return rule


def nothing(body: Body, temp: Temp) -> None:
    """The rule that leaves the operand as it is."""


def _wrapped(rule: Rule, dtype: DType) -> Rule:
    normalize = normalizer(dtype)
    if normalize is None:
        return rule

    def both(body: Body, temp: Temp) -> None:
        rule(body, temp)
        normalize(body, temp)

    return both


class _Integer:
    """Emits instructions of one integer family (``i32`` or ``i64``) by their short names."""

    def __init__(self, body: Body, temp: Temp, family: str) -> None:
        self.body, self.family = body, family
        self.temp = temp
        self.type = encoder.I32 if family == "i32" else encoder.I64

    def do(self, name: str) -> _Integer:
        getattr(self.body, f"{self.family}_{name}")()
        return self

    def const(self, value: int) -> _Integer:
        getattr(self.body, f"{self.family}_const")(value)
        return self

    def get(self, local: int) -> _Integer:
        self.body.local_get(local)
        return self

    def pop(self) -> int:
        local = self.temp(self.type)
        self.body.local_set(local)
        return local

    def keep(self) -> int:
        local = self.temp(self.type)
        self.body.local_tee(local)
        return local

    def select(self) -> _Integer:
        self.body.select()
        return self


def _extremum(family: str, compare: str) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        code = _Integer(body, temp, family)
        b = code.pop()
        a = code.keep()
        code.get(b).get(a).get(b).do(compare).select()

    return rule


def _negate(family: str) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        code = _Integer(body, temp, family)
        x = code.pop()
        code.const(0).get(x).do("sub")

    return rule


def _absolute(family: str) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        code = _Integer(body, temp, family)
        x = code.keep()
        code.get(x).const(31 if family == "i32" else 63).do("shr_s")
        sign = code.keep()
        code.do("xor").get(sign).do("sub")

    return rule


def _divide_signed(family: str, result: str) -> Rule:
    """``result``: ``div`` (towards zero), ``floordiv`` or ``mod`` (sign of the divisor).

    Divisors 0 and -1 are the two whose successor is below 2 as an unsigned number. For them the
    quotient is ``-a & b`` (0 and -a) and the remainder is 0; the instruction divides by 1.
    """

    def rule(body: Body, temp: Temp) -> None:
        code = _Integer(body, temp, family)
        b, a = code.pop(), code.pop()
        code.get(b).const(1).do("add").const(2).do("lt_u")
        special = temp(encoder.I32)
        body.local_set(special)
        code.get(a)
        code.const(1).get(b).get(special).select()
        divisor = code.keep()
        code.do("div_s")
        quotient = code.pop()
        if result != "div":
            code.get(a).get(quotient).get(divisor).do("mul").do("sub")
            remainder = code.pop()
            # The remainder has the dividend's sign: correct it where the divisor's differs.
            code.get(remainder).get(divisor).do("xor").const(0).do("lt_s")
            code.get(remainder).const(0).do("ne")
            body.i32_and()
            fix = temp(encoder.I32)
            body.local_set(fix)
        if result == "mod":
            code.get(remainder).get(divisor).const(0).get(fix).select().do("add")
            remainder = code.pop()
            code.const(0).get(remainder).get(special).select()
            return
        code.const(0).get(a).do("sub").get(b).do("and")
        code.get(quotient)
        if result == "floordiv":
            code.get(fix)
            if family == "i64":
                body.i64_extend_i32_u()
            code.do("sub")
        code.get(special).select()

    return rule


def _divide_unsigned(family: str, result: str) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        code = _Integer(body, temp, family)
        b, a = code.pop(), code.pop()
        code.const(0)
        code.get(a).const(1).get(b).get(b).do("eqz").select()
        code.do("div_u" if result != "mod" else "rem_u")
        code.get(b).do("eqz").select()

    return rule


def floor_division(divisor: int, remainder: bool) -> Rule:
    """``a // divisor`` or ``a % divisor`` of an i32 for a constant ``divisor > 0``."""
    shift = divisor.bit_length() - 1
    if divisor == 1 << shift:
        if remainder:
            return _with_constant("i32_and", divisor - 1)
        return _with_constant("i32_shr_s", shift)

    def rule(body: Body, temp: Temp) -> None:
        if remainder:
            rest = temp(encoder.I32)
            body.i32_const(divisor).i32_rem_s().local_tee(rest)
            body.local_get(rest).i32_const(31).i32_shr_s().i32_const(divisor).i32_and().i32_add()
            return
        # Truncation and flooring differ for negative a: (a - (divisor - 1)) / divisor there.
        a = temp(encoder.I32)
        body.local_tee(a).local_get(a).i32_const(31).i32_shr_s()
        body.i32_const(divisor - 1).i32_and().i32_sub().i32_const(divisor).i32_div_s()

    return rule


# ---- operators -------------------------------------------------------------------------------

_FLOAT_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "min": "min", "max": "max",
    "neg": "neg", "abs": "abs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "nearest": "nearest", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le",
    "gt": "gt", "ge": "ge",
}  # fmt: skip


def _integer_rules(dtype: DType) -> dict[str, Rule]:
    family = prefix(dtype)
    sign = "s" if dtype in SIGNED else "u"
    plain = {name: instruction(f"{family}_{name}") for name in ("and", "or", "xor", "eq", "ne")}
    ordered = {name: instruction(f"{family}_{name}_{sign}") for name in ("lt", "le", "gt", "ge")}
    wrapping: dict[str, Rule] = {
        name: instruction(f"{family}_{name}") for name in ("add", "sub", "mul", "shl")
    }
    wrapping["neg"] = _negate(family)
    wrapping["abs"] = _absolute(family) if dtype in SIGNED else nothing
    divide = _divide_signed if dtype in SIGNED else _divide_unsigned
    for name in ("div", "floordiv", "mod"):
        wrapping[name] = divide(family, name)
    return {
        **plain,
        **ordered,
        "min": _extremum(family, f"lt_{sign}"),
        "max": _extremum(family, f"gt_{sign}"),
        "shr": instruction(f"{family}_shr_{sign}"),
        **{name: _wrapped(rule, dtype) for name, rule in wrapping.items()},
    }


_BOOL_OPS = {
    "eq": "i32_eq", "ne": "i32_ne", "and": "i32_and", "or": "i32_or", "xor": "i32_xor",
    "not": "i32_eqz",
}  # fmt: skip

SCALAR_RULES: dict[tuple[str, DType], Rule] = {
    **{
        (op, dtype): instruction(f"{prefix(dtype)}_{name}")
        for dtype in FLOATS
        for op, name in _FLOAT_OPS.items()
    },
    **{(op, dtype): rule for dtype in INTEGERS for op, rule in _integer_rules(dtype).items()},
    **{(op, BOOL): instruction(name) for op, name in _BOOL_OPS.items()},
}
"""``(operator, operand dtype)`` → rule; operands are on the stack in order."""


def scalar_rule(op: str, dtype: DType) -> Rule:
    """The rule of a primitive operator; ``RlxError`` code ``codegen.op`` where there is none."""
    value_type(dtype)
    found = SCALAR_RULES.get((op, dtype))
    if found is None:
        raise RlxError(
            "codegen.op",
            "no WebAssembly code for this scalar operator",
            found=f"{op} on {dtype}",
            allowed=sorted(name for name, known in SCALAR_RULES if known is dtype),
        )
    return found


# ---- casts -----------------------------------------------------------------------------------


def _clamp_rule(low: int, high: int) -> Rule:
    smallest, largest = _extremum("i32", "lt_s"), _extremum("i32", "gt_s")

    def rule(body: Body, temp: Temp) -> None:
        body.i32_const(low)
        largest(body, temp)
        body.i32_const(high)
        smallest(body, temp)

    return rule


def _from_float(source: DType, target: DType) -> list[Rule]:
    name = prefix(source)
    if target.is_float and source is target:
        return []
    if target.is_float:
        return [instruction("f64_promote_f32" if target is F64 else "f32_demote_f64")]
    if target is BOOL:
        return [_not_zero(source)]
    sign = "s" if target in SIGNED or target.bytes < 4 else "u"
    rules = [instruction(f"{prefix(target)}_trunc_sat_{name}_{sign}")]
    if target.bytes < 4:
        low, high = integer_range(target)
        rules.append(_clamp_rule(low, high))
    return rules


def _from_integer(source: DType, target: DType) -> list[Rule]:
    wide = prefix(source) == "i64"
    sign = "s" if source in SIGNED else "u"
    if target.is_float:
        return [instruction(f"{prefix(target)}_convert_{prefix(source)}_{sign}")]
    if target is BOOL:
        return [] if source is BOOL else [_not_zero(source)]
    if prefix(target) == "i64":
        return [] if wide else [instruction(f"i64_extend_i32_{sign}")]
    rules = [instruction("i32_wrap_i64")] if wide else []
    normalize = normalizer(target)
    if normalize is not None and source is not BOOL:
        rules.append(normalize)
    return rules


def _not_zero(dtype: DType) -> Rule:
    unequal = getattr(Body, f"{prefix(dtype)}_ne")

    def rule(body: Body, temp: Temp) -> None:
        emit_const(body, 0, dtype)
        unequal(body)

    return rule


def integer_range(dtype: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer type."""
    bits = 8 * dtype.bytes
    if dtype in SIGNED:
        return -(1 << bits - 1), (1 << bits - 1) - 1
    return 0, (1 << bits) - 1


def cast_rule(source: DType, target: DType) -> Rule:
    """Convert as ONNX Cast: float to integer truncates and saturates (NaN gives 0), integers wrap
    to narrower integers, anything else than zero is true."""
    value_type(source)
    value_type(target)
    rules = _from_float(source, target) if source.is_float else _from_integer(source, target)

    def rule(body: Body, temp: Temp) -> None:
        for step in rules:
            step(body, temp)

    return rule


def bitcast_rule(source: DType, target: DType) -> Rule:
    """Reinterpret bits between types of one width."""
    here, there = prefix(source), prefix(target)
    if here == there:
        return nothing
    return instruction(f"{there}_reinterpret_{here}")
