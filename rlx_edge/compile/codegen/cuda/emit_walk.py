"""Walks over loops, as C++: a counter, the loop variables that it stands for, the store."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.bounds import Ranges
from rlx_edge.compile.codegen.cuda.emit_expression import (
    Emission,
    Scope,
    bare,
    dim_text,
    variable,
)
from rlx_edge.compile.codegen.cuda.writer import Block
from rlx_edge.compile.workgroups import Spread
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.kernel import Loop, LoopKernel


def walk(
    em: Emission,
    form: Spread,
    loops: Sequence[Loop],
    value: Expr,
    scope: Scope,
    start: str,
    step: str,
    before: Sequence[str] = (),
) -> None:
    """A store for every item from ``start`` on; ``before`` are lines at the head of its body."""
    inside = Block()
    inside.lines += [*decode(loops, "item", em.ranges), *before]
    inner = Scope(inside, frozenset(loop.var for loop in loops), scope)
    store(em, form.kernel, value, inner)
    scope.block.line(f"const unsigned items = {count(loops, em.ranges)};")
    scope.block.nested(f"for (unsigned item = {start}; item < items; item += {step})", inside)


def count(loops: Sequence[Loop], ranges: Ranges) -> str:
    """How many steps there are; none if any extent is not positive."""
    factors = [
        dim_text(loop.extent, ranges)
        if loop.extent.is_constant
        else f"greater_integer<int>({bare(dim_text(loop.extent, ranges))}, 0)"
        for loop in loops
    ]
    return " * ".join(factors) or "1"


def decode(loops: Sequence[Loop], counter: str, ranges: Ranges) -> list[str]:
    """Loop variables from a row-major counter."""
    lines: list[str] = []
    rest = counter
    for position in range(len(loops) - 1, -1, -1):
        name = variable(loops[position].var)
        if position == 0:
            lines.append(f"const int {name} = {rest};")
            continue
        extent = f"(unsigned){dim_text(loops[position].extent, ranges)}"
        lines.append(f"const int {name} = {rest} % {extent};")
        outer = f"{counter}{position}"
        lines.append(f"const unsigned {outer} = {rest} / {extent};")
        rest = outer
    return lines


def store(em: Emission, kernel: LoopKernel, value: Expr, scope: Scope) -> None:
    offset = bare(dim_text(kernel.offset, em.ranges))
    scope.block.line(f"out[{offset}] = {em.value(value, scope)};")
