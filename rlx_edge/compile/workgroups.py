"""How a loop kernel is spread over workgroups: what GPU emitters and the plan must agree on.

*Flat*: every thread takes output elements, one after another. *Rows*: reductions that depend on the
outer loops only are computed by several threads together, once a row, and the inner loops are
spread over the same threads.

A workgroup of rows is ``TEAMS`` teams of ``TEAM`` threads. In one form the whole workgroup takes a
row, each team a chunk of it; in the other (``LoopKernel.several``) each team takes a row, which is
better for many short ones. Elements whose order counts pass through shared memory, ``PIECE`` of a
team at a time, whatever the length. The plan gives one of the two forms no workgroups.

All walk with a stride, so any number of workgroups is right; ``groups`` has the number that gives
each thread or team one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from rlx_edge.compile.codegen.kernel_form import PARTIALS, canonical
from rlx_edge.compile.loops import linear_coefficient
from rlx_edge.ir.dims import ONE, Dim, as_dim, ceildiv, dim_max, dim_min, product
from rlx_edge.ir.expression import Expr, index_dim, reduce_parts, walk
from rlx_edge.ir.kernel import LoopKernel, is_variable

FLAT_THREADS = 256
REDUCTIONS = 8
"""Reductions over a row that one kernel may take in: each is a walk over the row."""
TEAMS = 4
TEAM = 32
ROW_THREADS = TEAMS * TEAM
PIECE = 512
PITCH = PIECE + PARTIALS
"""Elements between the pieces of two teams: their partials are in different memory banks."""
SHORT = 64
"""A reduction of at most so many elements is left to each thread; a row of so few to a team."""
MANY_ROWS = 1024
"""From so many rows on, a team is enough for one that fits a piece."""


@dataclass(frozen=True, slots=True)
class Spread:
    """``form`` of a kernel in the emitters' form; ``outer``: loops that choose the row;
    ``shared``: reductions that a workgroup, or of ``several`` rows a team, computes together."""

    kernel: LoopKernel
    rows: bool
    outer: int
    threads: int
    shared: tuple[Expr, ...]

    @property
    def several(self) -> bool:
        return self.kernel.several


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


def groups(kernel: LoopKernel, arguments: Sequence[Dim]) -> list[tuple[LoopKernel, Dim]]:
    """The forms of a generic kernel whose parameters are ``arguments``, and their workgroups."""
    form = spread(kernel)
    sizes = {f"p{position}": argument for position, argument in enumerate(arguments)}
    extents = [loop.extent.substitute(sizes) for loop in form.kernel.loops]
    if not form.rows:
        return [(kernel, ceildiv(product(extents), form.threads))]
    rows = product(extents[: form.outer])
    lengths = [product(reduce_parts(node)[2]).substitute(sizes) for node in form.shared]
    several = _takes_several(rows, lengths)
    return [
        (kernel, rows - rows * several),
        (replace(kernel, several=True), ceildiv(rows, TEAMS) * several),
    ]


def _takes_several(rows: Dim, lengths: Sequence[Dim]) -> Dim:
    """1 where a team is enough for a row, else 0."""
    length = as_dim(1)
    for item in dict.fromkeys(lengths):
        length = dim_max(length, item)
    tiny, short = (dim_min(as_dim(limit) // length, 1) for limit in (SHORT, PIECE))
    many = dim_min(rows // MANY_ROWS, 1)
    return tiny + (short - tiny) * many


def _worth_sharing(form: LoopKernel, node: Expr, depth: int) -> bool:
    """Long reductions, except contractions (one chain each) and columns that threads read side by
    side."""
    kind, names, extents, body = reduce_parts(node)
    if kind == "chain" or any(is_variable(name) for dim in extents for name in dim.symbols()):
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
