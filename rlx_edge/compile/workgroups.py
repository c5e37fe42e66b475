"""How a loop kernel is spread over workgroups: what GPU emitters and the plan must agree on.

*Flat*: every thread takes output elements, one after another. *Rows*: reductions that depend on the
outer loops only are computed by several threads together, once a row, and the inner loops are
spread over the same threads.

A workgroup of rows is made of teams of ``TEAM`` threads, which take a row together, each team a
chunk of it. Elements whose order counts pass through shared memory, a piece of each team's chunk at
a time, so a row may have any length. ``LoopKernel.walk`` names the form: few teams (``""``), many
for ``LONG`` rows, or a row to each team (``SEVERAL``; ``ALIGNED`` where all walks over a row have
the same items), for many rows that fit a piece. The plan gives workgroups to one form.

All walk with a stride, so any number of workgroups is right; ``groups`` has the number that gives
each thread, team or workgroup one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from rlx_edge.compile.codegen.kernel_form import CHUNK, PARTIALS, canonical
from rlx_edge.compile.loops import linear_coefficient
from rlx_edge.ir.dims import ONE, Dim, as_dim, ceildiv, dim_max, dim_min, product
from rlx_edge.ir.expression import Expr, index_dim, reduce_parts, walk
from rlx_edge.ir.kernel import LoopKernel, is_variable

FLAT_THREADS = 256
REDUCTIONS = 8
"""Reductions over a row that one kernel may take in: each is a walk over the row."""
TEAM = 32
SEVERAL, ALIGNED, LONG = "several", "aligned", "long"
TEAMS = {"": 4, SEVERAL: 4, ALIGNED: 4, LONG: 32}
"""Teams of a workgroup by form."""
PIECES = {"": 512, SEVERAL: 512, ALIGNED: 512, LONG: 128}
"""Elements of a team in shared memory at a time."""
SHARES = TEAM + PARTIALS
"""Elements between the shares of two teams where the order is free."""
MEMORY = 48 << 10
"""Bytes of shared memory that a workgroup has on every CUDA device."""
SHORT = 64
"""A reduction of at most so many elements is left to each thread; a row of so few to a team."""
MANY_ROWS = 1024
"""From so many rows on, a team is enough for one that fits a piece."""
MOST_CHUNKS = TEAMS[""] * CHUNK
"""Elements of a row for few teams."""


@dataclass(frozen=True, slots=True)
class Spread:
    """``kernel`` in the emitters' form; ``outer``: loops that choose the row; ``shared``:
    reductions that the threads of a row compute together; ``teams`` of a workgroup, 0 if flat."""

    kernel: LoopKernel
    outer: int
    shared: tuple[Expr, ...] = ()
    teams: int = 0

    @property
    def rows(self) -> bool:
        return self.teams > 0

    @property
    def several(self) -> bool:
        """Whether each team has a row of its own, which fits a piece."""
        return self.kernel.walk in (SEVERAL, ALIGNED)

    @property
    def threads(self) -> int:
        return self.teams * TEAM if self.rows else FLAT_THREADS

    @property
    def piece(self) -> int:
        return PIECES[self.kernel.walk]

    @property
    def pitch(self) -> int:
        """Elements between the pieces of two teams: partials are in different memory banks."""
        return self.piece + PARTIALS

    @property
    def team_bytes(self) -> int:
        """Shared memory of a team: a piece, shares and partials of each element type."""
        types = dict.fromkeys(node.dtype for node in self.shared)
        return sum(max(dtype.bytes, 4) for dtype in types) * (self.pitch + SHARES + PARTIALS)


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
        return Spread(form, len(form.loops))
    found = Spread(form, outer, tuple(shared), TEAMS[kernel.walk])
    return replace(found, teams=min(found.teams, MEMORY // found.team_bytes))


def groups(kernel: LoopKernel, arguments: Sequence[Dim]) -> list[tuple[LoopKernel, Dim]]:
    """The forms of a generic kernel whose parameters are ``arguments``, and their workgroups."""
    form = spread(kernel)
    sizes = {f"p{position}": argument for position, argument in enumerate(arguments)}
    extents = [loop.extent.substitute(sizes) for loop in form.kernel.loops]
    if not form.rows:
        return [(kernel, ceildiv(product(extents), form.threads))]
    rows = product(extents[: form.outer])
    walks = [
        tuple(extent.substitute(sizes) for extent in reduce_parts(node)[2]) for node in form.shared
    ]
    inner = tuple(extents[form.outer :])
    aligned = len({*walks, inner} - {()}) == 1
    forms = _workgroups(rows, [product(walk) for walk in walks], ALIGNED if aligned else SEVERAL)
    return [(replace(kernel, walk=walk), count) for walk, count in forms.items()]


def _workgroups(rows: Dim, lengths: Sequence[Dim], several: str) -> dict[str, Dim]:
    """Workgroups of each form for rows of these lengths; all but one are 0."""
    length = as_dim(1)
    for item in dict.fromkeys(lengths):
        length = dim_max(length, item)

    def at_most(limit: int) -> Dim:
        return dim_min(as_dim(limit) // length, 1)

    many = dim_min(rows // MANY_ROWS, 1)
    tiny, fits = at_most(SHORT), at_most(MOST_CHUNKS)
    own = tiny + (at_most(PIECES[several]) - tiny) * many
    return {
        "": rows * (fits - own),
        several: ceildiv(rows, TEAMS[several]) * own,
        LONG: rows * (1 - fits),
    }


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
