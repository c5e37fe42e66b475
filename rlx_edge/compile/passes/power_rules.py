"""Powers with a constant exponent by multiplication and square root."""

from __future__ import annotations

from rlx_edge.compile.passes.constants import splat_value
from rlx_edge.compile.passes.rewrite import Rewriter, Rule
from rlx_edge.ir.core import Op, Value


def power_by_splat(op: Op, rewriter: Rewriter) -> Value | None:
    """``x ** 2`` is ``x * x``; the exponents 1, 3, -1, 0.5 and -0.5 alike.

    ``sqrt(x + 0)`` maps -0 to +0 as the power does. At x = -infinity the exponents 0.5 and -0.5
    give NaN, where the power gives infinity and 0.
    """
    if op.name != "rlxc::pow" or op.operands[0].type != op.result.type:
        return None
    exponent = splat_value(op.operands[1])
    build = None if exponent is None else _POWERS.get(float(exponent))
    return None if build is None else build(op, rewriter)


def _square(op: Op, rewriter: Rewriter) -> Value:
    x = op.operands[0]
    return rewriter.op("rlxc::mul", [x, x], hint=op.result.name)


def _cube(op: Op, rewriter: Rewriter) -> Value:
    return rewriter.op("rlxc::mul", [_square(op, rewriter), op.operands[0]], hint=op.result.name)


def _same(op: Op, rewriter: Rewriter) -> Value:
    return op.operands[0]


def _reciprocal(op: Op, rewriter: Rewriter) -> Value:
    return rewriter.op("rlxc::reciprocal", [op.operands[0]], hint=op.result.name)


def _root(op: Op, rewriter: Rewriter) -> Value:
    x = op.operands[0]
    zero = rewriter.splat(0.0, x.type.dtype, hint="zero")
    return rewriter.op("rlxc::sqrt", [rewriter.op("rlxc::add", [x, zero])], hint=op.result.name)


def _inverse_root(op: Op, rewriter: Rewriter) -> Value:
    return rewriter.op("rlxc::reciprocal", [_root(op, rewriter)], hint=op.result.name)


_POWERS = {
    1.0: _same,
    2.0: _square,
    3.0: _cube,
    -1.0: _reciprocal,
    0.5: _root,
    -0.5: _inverse_root,
}

RULES: tuple[Rule, ...] = (power_by_splat,)
