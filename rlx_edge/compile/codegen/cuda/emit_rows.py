"""Loop kernels by rows as CUDA kernels: reductions of a row by several threads, then its elements.

What a row's reductions have in common with each other and with the result is computed anew in each
of them, from operands that are in a cache by then. Only the order of sums needs shared memory
(``rows_text.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.cuda.emit_expression import Emission, Scope, callable_form
from rlx_edge.compile.codegen.cuda.emit_walk import count, decode, store, walk
from rlx_edge.compile.codegen.cuda.rows_text import PARTS, STAGE
from rlx_edge.compile.codegen.cuda.scalar_table import literal, operation, storage_type
from rlx_edge.compile.codegen.cuda.writer import INDENT, Block
from rlx_edge.compile.codegen.kernel_form import COMBINE, identity, is_order_free
from rlx_edge.compile.workgroups import TEAM, TEAMS, Spread
from rlx_edge.ir.expression import Expr, reduce_parts
from rlx_edge.ir.expression import walk as walk_expression
from rlx_edge.ir.kernel import Loop

ROW = "row"
"""Stands for the loop over rows among the variables that a value depends on."""


def emit_rows(em: Emission, form: Spread, value: Expr, root: Scope) -> None:
    """The loop over rows. Every thread of a workgroup walks it as often, whatever its row is: there
    are barriers inside."""
    kernel = form.kernel
    outer, inner = kernel.loops[: form.outer], kernel.loops[form.outer :]
    body = Block()
    row = Scope(body, frozenset([ROW, *(loop.var for loop in outer)]), root)
    together = [callable_form(node) for node in form.shared]
    _belong_to_rows(em, value, together)
    if form.several:
        body.line("const bool present = first + own_team() < rows;")
        body.line("const unsigned row = present ? first + own_team() : rows - 1;")
    body.lines += decode(outer, "row", em.ranges)
    for node in together:
        row.values[node] = _reduce(em, node, row, form.several)
    elements = Block()
    scope = Scope(elements, frozenset(), row)
    place, width = ("own_place()", TEAM) if form.several else ("threadIdx.x", form.threads)
    if inner:
        walk(em, form, inner, value, scope, place, f"{width}u")
        head = "if (present)"
    else:
        store(em, kernel, value, scope)
        head = f"if ({place} == 0{' && present' if form.several else ''})"
    if form.several or not inner:
        body.nested(head, elements)
    else:
        body.lines += elements.lines
    root.block.line(f"const unsigned rows = {count(outer, em.ranges)};")
    counter, step = ("first", f"{TEAMS}u") if form.several else ("row", "")
    start, stride = ((f"{name} * {step}" if step else name) for name in ("blockIdx.x", "gridDim.x"))
    head = f"for (unsigned {counter} = {start}; {counter} < rows; {counter} += {stride})"
    root.block.nested(head, body)


def _belong_to_rows(em: Emission, value: Expr, together: Sequence[Expr]) -> None:
    """What follows from reductions of a row is computed in the row, also where it is the same in
    all rows."""
    for node in walk_expression(value):
        if node in together or any(ROW in em.free[arg] for arg in node.args):
            em.free[node] |= {ROW}


def _reduce(em: Emission, node: Expr, row: Scope, several: bool) -> str:
    """A reduction by the threads of a row, every one of which gets the value."""
    kind, names, extents, body = reduce_parts(node)
    loops = [Loop(name, extent) for name, extent in zip(names, extents, strict=True)]
    dtype, kept = node.dtype, storage_type(node.dtype)
    name = em.names.fresh(kind if kind not in ("max", "min") else f"{kind}imum")
    inside = Block()
    inside.lines += decode(loops, "item", em.ranges)
    element = em.value(body, Scope(inside, frozenset(names), row))
    inside.line(f"return {element};")
    way = "reduce_freely" if is_order_free(kind, dtype) else "reduce_in_order"
    stage, parts = f"stage_{dtype.name}", f"parts_{dtype.name}"
    em.stages[stage], em.stages[parts] = (kept, STAGE), (kept, PARTS)
    start = literal(identity(kind, dtype), dtype)
    joined = operation(COMBINE[kind], dtype, ["a", "b"])
    call = Block()
    call.line(f"{count(loops, em.ranges)}, {start}, {stage}, {parts},")
    call.nested(f"[&](unsigned item) -> {kept}", inside, "},")
    call.line(f"[]({kept} a, {kept} b) -> {kept} {{ return {joined}; }});")
    row.block.line(f"const {kept} {name} = {way}<{str(several).lower()}, {kept}>(")
    row.block.lines += [f"{INDENT}{line}" for line in call.lines]
    return name
