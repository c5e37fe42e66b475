"""Vector instruction table: which WebAssembly code computes each operator on four lanes.

A v128 holds four f32, or four i32 for every integer of up to 32 bits (narrow ones extended, as in
the scalar table), or four masks (all ones or zero) for bool. Types of 64 bits have no vector form.
"""

from __future__ import annotations

import struct

from rlx_edge.compile.codegen.wasm.encoder import Body
from rlx_edge.compile.codegen.wasm.scalar_table import (
    SIGNED,
    Rule,
    Temp,
    instruction,
    integer_range,
    nothing,
)
from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.types import BOOL, F32, I8, I16, I32, U8, U16, U32, DType

LANES = 4
LANE_INTEGERS = (I32, U32, INDEX, I8, I16, U8, U16)
LANE_TYPES = (F32, *LANE_INTEGERS, BOOL)
"""Element types that have a vector form."""


def lane_bytes(value: float | int | bool, dtype: DType) -> bytes:
    """One lane holding a literal."""
    if dtype is F32:
        return struct.pack("<f", value)
    if dtype is BOOL:
        return b"\xff" * 4 if value else bytes(4)
    return struct.pack("<I", int(value) & 0xFFFFFFFF)


def emit_splat_const(body: Body, value: float | int | bool, dtype: DType) -> None:
    """Push four lanes holding a literal."""
    body.v128_const(lane_bytes(value, dtype) * LANES)


def emit_splat(body: Body, dtype: DType) -> None:
    """Replace a scalar by four equal lanes."""
    if dtype is F32:
        body.f32x4_splat()
        return
    body.i32x4_splat()
    if dtype is BOOL:
        body.i32x4_neg()


def emit_replace_lane(body: Body, dtype: DType, lane: int) -> None:
    """Put the scalar on the stack into one lane of the vector below it; bool lanes hold 0 or 1."""
    (body.f32x4_replace_lane if dtype is F32 else body.i32x4_replace_lane)(lane)


def emit_extract_lane(body: Body, dtype: DType, lane: int) -> None:
    """Replace a vector by one of its lanes; a mask becomes 0 or 1."""
    (body.f32x4_extract_lane if dtype is F32 else body.i32x4_extract_lane)(lane)
    if dtype is BOOL:
        body.i32_const(1).i32_and()


# ---- memory ----------------------------------------------------------------------------------


def emit_vector_load(body: Body, dtype: DType, offset: int) -> None:
    """Replace the address on the stack by four consecutive elements."""
    if dtype.bytes == 4:
        body.v128_load(offset, 2)
        return
    sign = "s" if dtype in SIGNED else "u"
    if dtype.bytes == 1:
        body.v128_load32_zero(offset, 0)
        getattr(body, f"i16x8_extend_low_i8x16_{sign}")()
    else:
        body.v128_load64_zero(offset, 1)
    getattr(body, f"i32x4_extend_low_i16x8_{sign}")()
    if dtype is BOOL:
        body.i32x4_neg()


def emit_vector_store(body: Body, dtype: DType, offset: int) -> None:
    """Store the four lanes on the stack at the address below them."""
    if dtype.bytes == 4:
        body.v128_store(offset, 2)
        return
    if dtype.bytes == 2:
        # The low half of each lane.
        pairs = [lane * 4 + byte for lane in range(LANES) for byte in range(2)]
        _shuffle_low(body, pairs)
        body.v128_store64_lane(0, offset, 1)
        return
    if dtype is BOOL:
        emit_splat_const(body, 1, U32)
        body.v128_and()
    _shuffle_low(body, [lane * 4 for lane in range(LANES)])
    body.v128_store32_lane(0, offset, 0)


def _shuffle_low(body: Body, selected: list[int]) -> None:
    """Move the selected bytes of the vector to the front; the second operand is not used."""
    body.v128_const(bytes(16))
    body.i8x16_shuffle([*selected, *([16] * (16 - len(selected)))])


# ---- operators -------------------------------------------------------------------------------

_FLOAT_OPS = (
    "add", "sub", "mul", "div", "min", "max", "neg", "abs", "sqrt", "floor", "ceil", "trunc",
    "nearest", "eq", "ne", "lt", "le", "gt", "ge",
)  # fmt: skip
_SIGN_FREE = ("add", "sub", "mul", "neg", "eq", "ne", "shl")
_SIGNED_OPS = ("lt", "le", "gt", "ge", "min", "max", "shr")
_BITS = ("and", "or", "xor")
_WRAPPING = ("add", "sub", "mul", "neg", "shl", "abs")


def _lane_normalizer(dtype: DType) -> Rule | None:
    if dtype in (U8, U16):
        mask = (1 << 8 * dtype.bytes) - 1

        def keep(body: Body, temp: Temp) -> None:
            emit_splat_const(body, mask, U32)
            body.v128_and()

        return keep
    if dtype in (I8, I16):
        shift = 32 - 8 * dtype.bytes

        def extend(body: Body, temp: Temp) -> None:
            body.i32_const(shift).i32x4_shl().i32_const(shift).i32x4_shr_s()

        return extend
    return None


def _integer_rules(dtype: DType) -> dict[str, Rule]:
    sign = "s" if dtype in SIGNED else "u"
    rules = {name: instruction(f"i32x4_{name}") for name in _SIGN_FREE}
    rules |= {name: instruction(f"i32x4_{name}_{sign}") for name in _SIGNED_OPS}
    rules |= {name: instruction(f"v128_{name}") for name in _BITS}
    rules["abs"] = instruction("i32x4_abs") if sign == "s" else nothing
    normalize = _lane_normalizer(dtype)
    if normalize is not None:
        for name in _WRAPPING:
            rules[name] = _then(rules[name], normalize)
    return rules


def _then(first: Rule, second: Rule) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        first(body, temp)
        second(body, temp)

    return rule


def _equal_masks(body: Body, temp: Temp) -> None:
    body.v128_xor().v128_not()


_BOOL_RULES: dict[str, Rule] = {
    "and": instruction("v128_and"),
    "or": instruction("v128_or"),
    "xor": instruction("v128_xor"),
    "ne": instruction("v128_xor"),
    "eq": _equal_masks,
    "not": instruction("v128_not"),
}

VECTOR_RULES: dict[tuple[str, DType], Rule] = {
    **{(op, F32): instruction(f"f32x4_{op}") for op in _FLOAT_OPS},
    **{(op, dtype): rule for dtype in LANE_INTEGERS for op, rule in _integer_rules(dtype).items()},
    **{(op, BOOL): rule for op, rule in _BOOL_RULES.items()},
}
"""``(operator, operand dtype)`` → rule. The count of ``shl`` and ``shr`` is a scalar i32."""


# ---- casts -----------------------------------------------------------------------------------


def _lane_clamp(dtype: DType) -> Rule:
    low, high = integer_range(dtype)

    def rule(body: Body, temp: Temp) -> None:
        emit_splat_const(body, low, I32)
        body.i32x4_max_s()
        emit_splat_const(body, high, I32)
        body.i32x4_min_s()

    return rule


def _lane_not_zero(dtype: DType) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        emit_splat_const(body, 0, dtype)
        (body.f32x4_ne if dtype is F32 else body.i32x4_ne)()

    return rule


def _mask_to(dtype: DType) -> Rule:
    def rule(body: Body, temp: Temp) -> None:
        emit_splat_const(body, 1, dtype)
        body.v128_and()

    return rule


def vector_cast(source: DType, target: DType) -> Rule | None:
    """The cast of four lanes; ``None`` where one of the types has no vector form."""
    if source not in LANE_TYPES or target not in LANE_TYPES:
        return None
    if source is BOOL:
        return nothing if target is BOOL else _mask_to(target)
    if target is BOOL:
        return _lane_not_zero(source)
    if source is F32:
        if target is F32:
            return nothing
        unsigned = target is U32
        rule = instruction(f"i32x4_trunc_sat_f32x4_{'u' if unsigned else 's'}")
        return rule if target.bytes == 4 else _then(rule, _lane_clamp(target))
    if target is F32:
        return instruction(f"f32x4_convert_i32x4_{'u' if source is U32 else 's'}")
    return _lane_normalizer(target) or nothing


def emit_rotate(body: Body, local: int) -> None:
    """Rotate the lanes of a local by one: lane 1 becomes lane 0."""
    body.local_get(local).local_get(local).i32x4_shuffle((1, 2, 3, 0)).local_set(local)
