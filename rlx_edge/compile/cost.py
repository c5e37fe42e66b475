"""How long a launch takes, roughly: enough to cut a run into segments.

Figures are nanoseconds, from operation counts and the target's two rates; they choose where control
returns to the caller, never what is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from rlx_edge.compile.targets.target import Rates
from rlx_edge.compile.workgroups import free_variables
from rlx_edge.ir.dims import Dim, as_dim, ceildiv, product
from rlx_edge.ir.expression import Expr, reduce_parts
from rlx_edge.ir.kernel import LoopKernel

SEGMENT_NANOSECONDS = 16_000_000
"""A segment is meant to return within this time, so that progress and cancelling work."""


def template_time(flops: Dim, rates: Rates) -> Dim:
    """Nanoseconds of a contraction."""
    return ceildiv(flops, rates.template)


def loop_time(kernel: LoopKernel, rates: Rates) -> Dim:
    """Nanoseconds of a loop nest; a reduction is computed once for the loops that it depends on."""
    extents = [loop.extent for loop in kernel.loops]
    depths = {loop.var: depth for depth, loop in enumerate(kernel.loops, 1)}
    free = free_variables(kernel.value)
    reductions: dict[Expr, None] = {}
    total = product(extents) * (_operations(kernel.value, frozenset(), free, reductions) + 1)
    pending = list(reductions)
    while pending:
        node = pending.pop(0)
        depth = max((depths.get(name, 0) for name in free[node]), default=0)
        found: dict[Expr, None] = {}
        total = total + product(extents[:depth]) * _reduction(node, frozenset(), free, found)
        pending += [item for item in found if item not in reductions]
        reductions.update(found)
    return ceildiv(total, rates.loop)


Free: TypeAlias = Mapping[Expr, frozenset[str]]


def _operations(value: Expr, bound: frozenset[str], free: Free, once: dict[Expr, None]) -> Dim:
    """Operations for one element. Reductions that do not depend on ``bound``, the variables of
    those around, are not among them but noted in ``once``."""
    total = as_dim(0)
    seen: set[Expr] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if node in seen or node.op in ("index", "const"):
            continue
        seen.add(node)
        if node.op == "reduce" and bound.isdisjoint(free[node]):
            once[node] = None
        elif node.op == "reduce":
            total = total + _reduction(node, bound, free, once)
        else:
            total = total + 1
            stack.extend(node.args)
    return total


def _reduction(node: Expr, bound: frozenset[str], free: Free, once: dict[Expr, None]) -> Dim:
    """Operations of a reduction: its body's once an iteration."""
    _, names, extents, body = reduce_parts(node)
    return product(extents) * (_operations(body, bound.union(names), free, once) + 1)
