"""Canonical forms of arithmetic and constants that keep every bit."""

from __future__ import annotations

import math

from rlx_edge.compile.passes.constants import (
    Number,
    constant_of,
    element_count,
    splat_value,
    unpack,
)
from rlx_edge.compile.passes.rewrite import Rewriter, Rule
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.expression import round_f32
from rlx_edge.ir.types import F32, F64, DType

COMMUTATIVE = (
    "rlxc::add",
    "rlxc::mul",
    "rlxc::min",
    "rlxc::max",
    "rlxc::equal",
    "rlxc::and",
    "rlxc::or",
    "rlxc::xor",
)
UNIFORM_LIMIT = 4096
"""Elements up to which a constant's bytes are read to see whether all are equal."""


def constant_second(op: Op, rewriter: Rewriter) -> Value | None:
    """Commutative operators have their constant operand last."""
    if op.name not in COMMUTATIVE:
        return None
    first, second = op.operands
    if not rewriter.is_constant(first) or rewriter.is_constant(second):
        return None
    return rewriter.again(op, [second, first])


def division_by_power_of_two(op: Op, rewriter: Rewriter) -> Value | None:
    """``x / 2**k`` is ``x * 2**-k`` exactly."""
    dtype = op.result.type.dtype
    if op.name != "rlxc::div" or dtype not in (F32, F64):
        return None
    divisor = op.operands[1]
    number = splat_value(divisor)
    if number is None or not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    inverse = 1.0 / number
    if not math.isfinite(inverse) or (dtype is F32 and round_f32(inverse) != inverse):
        return None
    factor = rewriter.op(
        "tensor::splat", [], {"value": inverse}, hint=divisor.name, type=divisor.type
    )
    return rewriter.op("rlxc::mul", [op.operands[0], factor], hint=op.result.name)


def neutral_operand(op: Op, rewriter: Rewriter) -> Value | None:
    """``x * 1``, ``x / 1``, ``x - 0`` and the sum with the neutral zero are x."""
    if op.name not in _NEUTRAL or op.operands[0].type != op.result.type:
        return None
    number = splat_value(op.operands[1])
    if number is None or not _NEUTRAL[op.name](number, op.result.type.dtype):
        return None
    return op.operands[0]


def _is_one(number: Number, dtype: DType) -> bool:
    return number == 1


def _is_plus_zero(number: Number, dtype: DType) -> bool:
    return number == 0 and (not dtype.is_float or math.copysign(1.0, number) > 0)


def _is_minus_zero(number: Number, dtype: DType) -> bool:
    # -0 + +0 is +0, so only -0 leaves every float alone.
    return number == 0 and (not dtype.is_float or math.copysign(1.0, number) < 0)


_NEUTRAL = {
    "rlxc::mul": _is_one,
    "rlxc::div": _is_one,
    "rlxc::sub": _is_plus_zero,
    "rlxc::add": _is_minus_zero,
}


def involution(op: Op, rewriter: Rewriter) -> Value | None:
    """``-(-x)`` and ``not not x`` are x."""
    if op.name not in ("rlxc::neg", "rlxc::not"):
        return None
    inner = op.operands[0].producer
    return inner.operands[0] if inner is not None and inner.name == op.name else None


def clip_without_bounds(op: Op, rewriter: Rewriter) -> Value | None:
    """``clip(x)`` is x."""
    return op.operands[0] if op.name == "rlxc::clip" and len(op.operands) == 1 else None


def known_condition(op: Op, rewriter: Rewriter) -> Value | None:
    """``where`` with a known condition is one of its operands, broadcast."""
    condition = splat_value(op.operands[0]) if op.name == "rlxc::where" else None
    if condition is None:
        return None
    chosen = op.operands[1 if condition else 2]
    if chosen.type == op.result.type:
        return chosen
    return rewriter.op(
        "rlxc::expand", [chosen], {"shape": op.result.type.shape}, hint=op.result.name
    )


def uniform_constant(op: Op, rewriter: Rewriter) -> Value | None:
    """A small constant whose elements are all equal is a splat."""
    constant = constant_of(rewriter.module, op.result) if op.name == "tensor::const" else None
    type = op.result.type
    count = element_count(type)
    if constant is None or not count or count > UNIFORM_LIMIT or not type.dtype.struct:
        return None
    data = constant.read()
    first = data[: type.dtype.bytes]
    if data != first * count:
        return None
    number = unpack(type, first)[0]
    if number != number:
        return None
    return rewriter.op("tensor::splat", [], {"value": number}, hint=op.result.name, type=type)


def bias_as_sum(op: Op, rewriter: Rewriter) -> Value | None:
    """A convolution's bias is a sum after it, where fusion finds it like any other."""
    if op.name not in ("rlxc::conv2d", "rlxc::conv_transpose2d") or len(op.operands) != 3:
        return None
    x, weight, bias = op.operands
    raw = rewriter.op(op.name, [x, weight], op.attrs, hint=op.result.name)
    shape = (bias.type.shape[0], as_dim(1), as_dim(1))
    column = rewriter.op("rlxc::reshape", [bias], {"shape": shape}, hint=bias.name)
    return rewriter.op("rlxc::add", [raw, column], hint=op.result.name)


RULES: tuple[Rule, ...] = (
    constant_second,
    division_by_power_of_two,
    neutral_operand,
    involution,
    clip_without_bounds,
    known_condition,
    uniform_constant,
    bias_as_sum,
)
