"""How long a launch takes, roughly: enough to cut a run into segments.

Figures are nanoseconds, from operation counts and the target's two rates; they choose where control
returns to the caller, never what is computed.
"""

from __future__ import annotations

from rlx_edge.compile.targets.target import Rates
from rlx_edge.ir.dims import Dim, as_dim, ceildiv, product
from rlx_edge.ir.expression import Expr, reduce_parts
from rlx_edge.ir.kernel import LoopKernel

SEGMENT_NANOSECONDS = 16_000_000
"""A segment is meant to return within this time, so that progress and cancelling work."""


def template_time(flops: Dim, rates: Rates) -> Dim:
    """Nanoseconds of a contraction."""
    return ceildiv(flops, rates.template)


def loop_time(kernel: LoopKernel, rates: Rates) -> Dim:
    """Nanoseconds of a loop nest."""
    count = product(loop.extent for loop in kernel.loops)
    return ceildiv(count * (_operations(kernel.value) + 1), rates.loop)


def _operations(value: Expr) -> Dim:
    """Operations for one element; a reduction's body counts once an iteration."""
    total = as_dim(0)
    seen: set[Expr] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if node in seen or node.op in ("index", "const"):
            continue
        seen.add(node)
        if node.op == "reduce":
            _, _, extents, body = reduce_parts(node)
            total = total + product(extents) * (_operations(body) + 1)
            continue
        total = total + 1
        stack.extend(node.args)
    return total
