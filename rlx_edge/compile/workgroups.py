"""How a loop kernel is spread over workgroups: what GPU emitters and the plan must agree on.

*Flat*: every thread takes output elements, one after another. *Rows*: a workgroup takes one
combination of the outer loops; reductions that depend on those only are computed by all its threads
together, once, and the inner loops are spread over the threads. Both walk with a stride, so any
number of workgroups is right; ``groups`` is the number that gives each thread one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from rlx_edge.compile.codegen.kernel_form import canonical
from rlx_edge.compile.loops import linear_coefficient
from rlx_edge.ir.dims import ONE, Dim, ceildiv, product
from rlx_edge.ir.expression import Expr, index_dim, reduce_parts, walk
from rlx_edge.ir.kernel import LoopKernel, is_variable

FLAT_THREADS = 256
ROW_THREADS = 128
REDUCTIONS = 8
"""Reductions over a row that one kernel may take in: each is a walk over the row."""
SHORT = 64
"""A reduction of at most so many elements is left to each thread."""


@dataclass(frozen=True, slots=True)
class Spread:
    """``form`` of a kernel in the emitters' form; ``outer``: loops that choose the row;
    ``shared``: reductions that a workgroup computes together."""

    kernel: LoopKernel
    rows: bool
    outer: int
    threads: int
    shared: tuple[Expr, ...]


@cache
def spread(kernel: LoopKernel) -> Spread:
    """The form of a generic kernel."""
    form = canonical(kernel, expanded=False)
    depths = {loop.var: depth for depth, loop in enumerate(form.loops, 1)}
    free = free_variables(form.value)
    shared: list[Expr] = []
    outer = 0
    for node in walk(form.value):
        # Outside all loops of other reductions, whose variables begin with _h.
        if node.op != "reduce" or any(name.startswith("_h") for name in free[node]):
            continue
        depth = max((depths[name] for name in free[node]), default=0)
        if _worth_sharing(form, node, depth):
            shared.append(node)
            outer = max(outer, depth)
    if not shared:
        return Spread(form, False, len(form.loops), FLAT_THREADS, ())
    return Spread(form, True, outer, ROW_THREADS, tuple(shared))


def groups(kernel: LoopKernel, extents: Sequence[Dim]) -> Dim:
    """Workgroups of a generic kernel whose loops have ``extents``."""
    form = spread(kernel)
    kept = [
        extent
        for loop, extent in zip(kernel.loops, extents, strict=True)
        if not (loop.extent.is_constant and loop.extent.value == 1)
    ]
    if form.rows:
        return product(kept[: form.outer])
    return ceildiv(product(kept), form.threads)


def _worth_sharing(form: LoopKernel, node: Expr, depth: int) -> bool:
    """Long reductions, except contractions (one chain each) and columns that threads read side by
    side."""
    kind, names, extents, body = reduce_parts(node)
    if kind == "chain":
        return False
    constant = all(extent.is_constant for extent in extents)
    if constant and prod(extent.value for extent in extents) <= SHORT:
        return False
    if depth < len(form.loops) or not form.loops or form.lanes:
        return True
    return not _walks(body, form.loops[-1].var) or _walks(body, names[-1])


def _walks(body: Expr, variable: str) -> bool:
    """Whether some load steps through memory element by element with ``variable``."""
    for node in walk(body):
        if node.op == "load" and node.args:
            dim = index_dim(node.args[0])
            if dim is not None and linear_coefficient(dim, variable) is ONE:
                return True
    return False


def free_variables(expr: Expr) -> dict[Expr, frozenset[str]]:
    """For every node the loop and reduction variables that its value depends on."""
    known: dict[Expr, frozenset[str]] = {}
    for node in walk(expr):
        dim = index_dim(node)
        if dim is not None:
            names = frozenset(name for name in dim.symbols() if is_variable(name))
        else:
            names = frozenset[str]().union(*(known[arg] for arg in node.args))
        if node.op == "reduce":
            names -= frozenset(reduce_parts(node)[1])
        known[node] = names
    return known
