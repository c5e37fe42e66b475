"""Loop kernels by rows as CUDA kernels: reductions of a row by several threads, then its elements.

What a row's reductions have in common with each other and with the result is computed anew in each
of them, from operands that are in a cache by then, unless the last walk has left it in shared
memory. The functions that are called are in ``rows_text.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlx_edge.compile.codegen.cuda.emit_expression import Emission, Scope, callable_form
from rlx_edge.compile.codegen.cuda.emit_walk import count, decode, store, walk
from rlx_edge.compile.codegen.cuda.rows_text import shared_arrays
from rlx_edge.compile.codegen.cuda.scalar_table import literal, operation, storage_type
from rlx_edge.compile.codegen.cuda.writer import INDENT, Block
from rlx_edge.compile.codegen.kernel_form import COMBINE, identity
from rlx_edge.compile.codegen.row_passes import Pass, row_passes
from rlx_edge.compile.workgroups import Spread, free_variables
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.expression import walk as nodes_of
from rlx_edge.ir.kernel import Loop
from rlx_edge.ir.types import DType

ROW = "row"
"""Stands for the loop over rows among the variables that a value depends on."""


def emit_rows(em: Emission, form: Spread, value: Expr, root: Scope) -> None:
    """The loop over rows. Every thread of a workgroup walks it as often, whatever its row is: there
    are barriers inside."""
    kernel = form.kernel
    outer, inner = kernel.loops[: form.outer], kernel.loops[form.outer :]
    own = str(form.several).lower()
    root.block.line(f"using Row = Rows<{own}, {form.teams}, {form.piece}>;")
    body = Block()
    row = Scope(body, frozenset([ROW, *(loop.var for loop in outer)]), root)
    together = [callable_form(node) for node in form.shared]
    passes, held = row_passes(form, together, value)
    for expr in (value, *(item.body for item in passes)):
        _belongs_to_rows(em, expr, together)
    if form.several:
        body.line("const bool present = first + Row::team() < rows;")
        body.line("const unsigned row = present ? first + Row::team() : rows - 1;")
    body.lines += decode(outer, "row", em.ranges)
    for item in passes:
        row.values[item.node] = _reduce(em, item, row, form)
    elements = Block()
    scope = Scope(elements, frozenset(), row)
    if inner:
        with _given(em, held):
            walk(em, form, inner, value, scope, "Row::place()", "Row::width", _held_lines(held))
        head = "if (present)"
    else:
        store(em, kernel, value, scope)
        head = f"if (Row::place() == 0{' && present' if form.several else ''})"
    if form.several or not inner:
        body.nested(head, elements)
    else:
        body.lines += elements.lines
    root.block.line(f"const unsigned rows = {count(outer, em.ranges)};")
    counter, together_text = ("first", f" * {form.teams}u") if form.several else ("row", "")
    start, step = (f"{name}{together_text}" for name in ("blockIdx.x", "gridDim.x"))
    head = f"for (unsigned {counter} = {start}; {counter} < rows; {counter} += {step})"
    root.block.nested(head, body)


def _belongs_to_rows(em: Emission, value: Expr, together: Sequence[Expr]) -> None:
    """What follows from reductions of a row is computed in the row, also where it is the same in
    all rows."""
    for node, names in free_variables(value).items():
        em.free.setdefault(node, names)
    for node in nodes_of(value):
        if node in together or any(ROW in em.free[arg] for arg in node.args):
            em.free[node] |= {ROW}


# ---- what is staged ----------------------------------------------------------------------------


def _held_lines(held: Sequence[Expr]) -> list[str]:
    return [
        f"const {storage_type(item.dtype)} held_{item.dtype.name} = "
        f"stage_{item.dtype.name}[Row::at(item)];"
        for item in held
    ]


@contextmanager
def _given(em: Emission, held: Sequence[Expr]) -> Iterator[None]:
    """Values that are read from where they are staged."""
    names = {item: f"held_{item.dtype.name}" for item in held}
    em.loads.update(names)
    yield
    for item in names:
        del em.loads[item]


# ---- reductions --------------------------------------------------------------------------------


def _reduce(em: Emission, item: Pass, row: Scope, form: Spread) -> str:
    """A reduction by the threads of a row, every one of which gets the value."""
    kind, dtype = item.kind, item.node.dtype
    loops = [Loop(name, extent) for name, extent in zip(item.names, item.extents, strict=True)]
    kept = storage_type(dtype)
    name = em.names.fresh(kind if kind not in ("max", "min") else f"{kind}imum")
    inside = Block()
    inside.lines += [*decode(loops, "item", em.ranges), *_held_lines(item.held)]
    with _given(em, item.held):
        element = em.value(item.body, Scope(inside, frozenset(item.names), row))
    inside.line(f"return {element};")
    way, staged = ("freely", "shares") if item.is_free else ("in_order", "stage")
    used = [staged, "parts", *(["stage"] if item.keeps else [])]
    arrays = _arrays(em, form, dtype, used)
    start = literal(identity(kind, dtype), dtype)
    joined = operation(COMBINE[kind], dtype, ["a", "b"])
    call = Block()
    call.line(f"{count(loops, em.ranges)}, {start}, {arrays[0]}, {arrays[1]},")
    call.nested(f"[&](unsigned item) -> {kept}", inside, "},")
    last = f", {arrays[2]}" if item.keeps else ""
    call.line(f"[]({kept} a, {kept} b) -> {kept} {{ return {joined}; }}{last});")
    row.block.line(f"const {kept} {name} = Row::{way}<{kept}>(")
    row.block.lines += [f"{INDENT}{line}" for line in call.lines]
    return name


def _arrays(em: Emission, form: Spread, dtype: DType, used: Sequence[str]) -> list[str]:
    """Names of shared arrays of an element type; reductions use them one after another."""
    lengths = shared_arrays(form)
    names = [f"{name}_{dtype.name}" for name in used]
    for name, array in zip(used, names, strict=True):
        em.stages[array] = (storage_type(dtype), lengths[name])
    return names
