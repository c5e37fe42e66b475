"""Arithmetic of several operands with ONNX multidirectional broadcasting."""

from __future__ import annotations

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.opdef import Expression, ExpressionContext, OpDef
from rlx_edge.ir.ops.signature import ELEMENTWISE, NUMBER, broadcast_all, example, operand


def _add(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return ctx.broadcast("a", at) + ctx.broadcast("b", at)


OPS = (
    OpDef(
        "rlxc::add",
        (operand("a", NUMBER), operand("b", NUMBER)),
        (),
        broadcast_all,
        Expression(_add),
        ELEMENTWISE,
        doc="a + b; integers wrap (ONNX Add).",
        examples=(example("broadcast", "f32[2, n]", "f32[n]"), example("integers", "i64[3]", "i64[]")),
    ),
)
