"""Expressions that one or two vector instructions compute where their operators would take many.

``f32x4.min`` and ``f32x4.max`` order zeros and find NaN in both operands, about eight machine
instructions; ``f32x4.pmin`` and ``f32x4.pmax`` are one.
"""

from __future__ import annotations

from math import copysign, isnan

from rlx_edge.compile.codegen.wasm.encoder import Body
from rlx_edge.compile.codegen.wasm.vector_table import emit_splat_const
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.types import F32


def pseudo_extremum(node: Expr) -> tuple[str, Expr, Expr] | None:
    """``(pmax | pmin, a, b)`` if a select is one: pmax(a, b) = a < b ? b : a, pmin(a, b) =
    b < a ? b : a. ReLU ``select(x < 0, 0, x)`` is pmax(x, 0), which keeps NaN and -0."""
    condition, taken, other = node.args
    if node.dtype is not F32 or condition.op not in ("lt", "gt"):
        return None
    less, more = condition.args if condition.op == "lt" else condition.args[::-1]
    if less is other and more is taken:
        return "pmax", other, taken
    if less is taken and more is other:
        return "pmin", other, taken
    return None


def literal_bound(node: Expr) -> tuple[str, Expr, Expr] | None:
    """``(pmax | pmin, x, bound)`` for a minimum or maximum with a literal.

    With the literal as second operand NaN in x stays. max(-0, +0) would keep the wrong zero:
    ``finish_bound`` adds +0, which turns -0 into +0 and changes nothing else. min(+0, -0) has no
    such form.
    """
    if node.op not in ("max", "min") or node.dtype is not F32:
        return None
    x, bound = node.args if node.args[1].op == "const" else node.args[::-1]
    if bound.op != "const" or not isinstance(bound.attr, float) or isnan(bound.attr):
        return None
    if node.op == "min" and bound.attr == 0.0 and copysign(1.0, bound.attr) < 0:
        return None
    return f"p{node.op}", x, bound


def finish_bound(body: Body, bound: tuple[str, Expr, Expr]) -> None:
    """Emit the instructions of a ``literal_bound`` whose operands are on the stack."""
    name, _, literal = bound
    getattr(body, f"f32x4_{name}")()
    value = literal.attr
    assert isinstance(value, float)
    if name == "pmax" and value == 0.0 and copysign(1.0, value) > 0:
        emit_splat_const(body, 0.0, F32)
        body.f32x4_add()
