"""Epilogues: what a template does to a finished chain before it stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.compile.bounds import Ranges
from rlx_edge.compile.codegen.cuda.emit_expression import Emission, Scope, callable_form
from rlx_edge.compile.codegen.cuda.writer import Block, Names
from rlx_edge.compile.epilogue_access import FULL
from rlx_edge.compile.templates.gpu import extra_slots
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, load, walk
from rlx_edge.ir.types import F32


def epilogue_lines(
    expression: Expr | None,
    kinds: Sequence[str],
    places: Mapping[str, str],
    *,
    fours: str = "",
) -> tuple[list[str], str]:
    """Statements, and the result, for a chain called ``acc``.

    ``places`` says for each kind of extra operand which element is read, with ``{slot}`` for its
    name. ``fours``: four elements of each operand of the output's shape are in an array already,
    and this is the place there of the ``j``-th: ``[j]`` after ``fours_of``.
    """
    if expression is None:
        return [], "acc"
    block = Block()
    loads: dict[Expr, str] = {}
    for number, (slot, kind) in enumerate(zip(extra_slots(kinds), kinds, strict=True)):
        if fours and kind == FULL:
            block.line(f"const float {slot}_value = {slot}_fours{fours};")
        else:
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


def fours_of(kinds: Sequence[str], place: str) -> list[str]:
    """Statements that load four elements of each operand of the output's shape at ``place``, which
    is a multiple of four, with ``{slot}`` for its name."""
    lines: list[str] = []
    for slot in full_slots(kinds):
        value = f"{slot}_four"
        lines += [
            f"const float4 {value} = *(const float4*)({slot} + {place.format(slot=slot)});",
            f"const float {value}s[4] = {{{value}.x, {value}.y, {value}.z, {value}.w}};",
        ]
    return lines


def full_slots(kinds: Sequence[str]) -> list[str]:
    """The extra operands that have the output's shape."""
    return [slot for slot, kind in zip(extra_slots(kinds), kinds, strict=True) if kind == FULL]


def _no_reduction(em: Emission, node: Expr, scope: Scope) -> str:
    raise RlxError("codegen.epilogue", "an epilogue has no reductions", found=repr(node))
