"""Epilogues: the expression that a template applies to a finished chain."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.kernel_form import primitive
from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars, convert, scalar_rule
from rlx_edge.ir.expression import Expr, walk


def emit_epilogue(code: Code, expression: Expr | None, acc: int, extras: Sequence[int]) -> int:
    """The value of ``expression`` for a chain ``acc``; ``extras[k]`` is extra operand ``k``."""
    if expression is None:
        return acc
    s = Scalars(code)
    known: dict[Expr, int] = {}
    for node in walk(primitive(expression)):
        args = [known[arg] for arg in node.args]
        if node.op == "acc":
            value = acc
        elif node.op == "const":
            value = s.const(node.attr, node.dtype)  # type: ignore[arg-type]
        elif node.op == "load":
            assert isinstance(node.attr, int)
            value = extras[node.attr]
        elif node.op == "select":
            value = s.select(node.dtype, *args)
        elif node.op == "cast":
            value = convert(s, args[0], node.args[0].dtype, node.dtype)
        elif node.op == "bitcast":
            source = node.args[0].dtype
            same = s.type(source) == s.type(node.dtype)
            value = args[0] if same else s.op("Bitcast", node.dtype, args[0])
        else:
            source = node.args[0].dtype
            value = scalar_rule(node.op, source)(s, source, args)
        known[node] = value
    return value
