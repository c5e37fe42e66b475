"""Epilogues: the expression that a template applies to a vector of finished chains.

The expression is over ``acc`` and loads ``load(k, f32, ())`` of extra operand ``k`` at the output's
position; everything in it is four f32 lanes (or masks and integers of 32 bits derived from them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlx_edge.compile.codegen.kernel_form import primitive
from rlx_edge.compile.codegen.wasm.encoder import V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder
from rlx_edge.compile.codegen.wasm.scalar_table import emit_const
from rlx_edge.compile.codegen.wasm.vector_patterns import (
    finish_bound,
    literal_bound,
    pseudo_extremum,
)
from rlx_edge.compile.codegen.wasm.vector_table import (
    LANE_TYPES,
    VECTOR_RULES,
    emit_splat_const,
    vector_cast,
)
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, walk
from rlx_edge.ir.scalar_ops import SHIFTS

Push = Callable[[], None]
EmitEpilogue = Callable[[FunctionBuilder, int, Sequence[Push]], None]


def is_vector_epilogue(expression: Expr) -> bool:
    """Whether ``epilogue`` can emit the expression: no loops, no indices, four-lane types only."""
    return all(
        node.dtype in LANE_TYPES
        and (
            node.op in ("const", "acc", "select", "bitcast")
            or (node.op == "load" and not node.args)
            or (node.op == "cast" and vector_cast(node.args[0].dtype, node.dtype) is not None)
            or (bool(node.args) and (node.op, node.args[0].dtype) in VECTOR_RULES)
        )
        for node in walk(primitive(expression))
    )


def epilogue(expression: Expr) -> EmitEpilogue:
    """``emit(body, acc, loads)``: push the v128 of ``expression`` for the chains in local ``acc``.

    ``loads[k]()`` pushes the four values of extra operand ``k``. Locals that the caller has are
    left unchanged. ``RlxError`` code ``codegen.epilogue`` if it has no vector form.
    """
    if not is_vector_epilogue(expression):
        raise RlxError(
            "codegen.epilogue", "an epilogue needs a vector form", found=repr(expression)
        )
    plain = primitive(expression)

    def emit(body: FunctionBuilder, acc: int, loads: Sequence[Push]) -> None:
        _Epilogue(body, acc, loads, _operand_counts(plain)).push(plain)

    return emit


def _operand_counts(expression: Expr) -> dict[Expr, int]:
    counts: dict[Expr, int] = {}
    for node in walk(expression):
        for arg in node.args:
            counts[arg] = counts.get(arg, 0) + 1
    return counts


@dataclass(slots=True)
class _Epilogue:
    body: FunctionBuilder
    acc: int
    loads: Sequence[Push]
    counts: dict[Expr, int]
    memo: dict[Expr, int] = field(default_factory=dict)

    def push(self, node: Expr) -> None:
        body = self.body
        if node.op == "acc":
            body.local_get(self.acc)
        elif node.op == "const":
            emit_splat_const(body, node.attr, node.dtype)  # type: ignore[arg-type]
        elif node in self.memo:
            body.local_get(self.memo[node])
        else:
            self.compute(node)
            if self.counts.get(node, 0) > 1:
                self.memo[node] = body.local(V128, f"e{len(self.memo)}")
                body.local_tee(self.memo[node])

    def compute(self, node: Expr) -> None:
        body = self.body
        pseudo = pseudo_extremum(node) if node.op == "select" else None
        if node.op == "load":
            assert isinstance(node.attr, int)
            self.loads[node.attr]()
        elif pseudo is not None:
            self.push(pseudo[1])
            self.push(pseudo[2])
            getattr(body, f"f32x4_{pseudo[0]}")()
        elif (bound := literal_bound(node)) is not None:
            self.push(bound[1])
            self.push(bound[2])
            finish_bound(body, bound)
        elif node.op == "select":
            for arg in (*node.args[1:], node.args[0]):
                self.push(arg)
            body.v128_bitselect()
        elif node.op in ("cast", "bitcast"):
            self.push(node.args[0])
            rule = vector_cast(node.args[0].dtype, node.dtype) if node.op == "cast" else None
            if rule is not None:
                rule(body, body.local)
        else:
            self.push(node.args[0])
            for arg in node.args[1:]:
                if node.op in SHIFTS:
                    emit_const(body, arg.attr, arg.dtype)  # type: ignore[arg-type]
                else:
                    self.push(arg)
            VECTOR_RULES[(node.op, node.args[0].dtype)](body, body.local)
