"""Activation functions: one operand, element by element."""

from __future__ import annotations

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr, select
from rlx_edge.ir.opdef import Expression, ExpressionContext, OpDef
from rlx_edge.ir.ops.signature import ELEMENTWISE, SIGNED, example, operand, same_as_first


def _relu(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    x = ctx.load("x", at)
    return select(x < 0, 0, x)


OPS = (
    OpDef(
        "rlxc::relu",
        (operand("x", SIGNED),),
        (),
        same_as_first,
        Expression(_relu),
        ELEMENTWISE,
        doc="x where x >= 0, NaN or -0, else 0 (ONNX Relu).",
        examples=(example("matrix", "f32[2, n]"),),
    ),
)
