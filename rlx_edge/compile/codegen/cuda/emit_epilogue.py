"""Epilogues: what a template does to a finished chain before it stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.compile.bounds import Ranges
from rlx_edge.compile.codegen.cuda.emit_expression import Emission, Scope, callable_form
from rlx_edge.compile.codegen.cuda.writer import Block, Names
from rlx_edge.compile.templates.gpu import extra_slots
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, load, walk
from rlx_edge.ir.types import F32


def epilogue_lines(
    expression: Expr | None, kinds: Sequence[str], places: Mapping[str, str]
) -> tuple[list[str], str]:
    """Statements, and the result, for a chain called ``acc``.

    ``places`` says for each kind of extra operand which element is read, with ``{slot}`` for its
    name.
    """
    if expression is None:
        return [], "acc"
    block = Block()
    loads: dict[Expr, str] = {}
    for number, (slot, kind) in enumerate(zip(extra_slots(kinds), kinds, strict=True)):
        block.line(f"const float {slot}_value = {slot}[{places[kind].format(slot=slot)}];")
        loads[load(number, F32, ())] = f"{slot}_value"
    value = callable_form(expression)
    em = Emission(
        dict.fromkeys(walk(value), frozenset()),
        Ranges({}, frozenset()),
        _no_reduction,
        Names({"acc": 1}),
        loads,
        "acc",
    )
    result = em.value(value, Scope(block, frozenset(), None))
    return block.lines, result


def _no_reduction(em: Emission, node: Expr, scope: Scope) -> str:
    raise RlxError("codegen.epilogue", "an epilogue has no reductions", found=repr(node))
