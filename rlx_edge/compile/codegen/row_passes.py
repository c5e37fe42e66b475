"""The walks over a row that a kernel makes: its reductions in order, then its elements.

Where all walks have the same items (``workgroups.ALIGNED``) their bodies are written over the same
variables, and what one of them has left in shared memory serves the next: the elements of a sum, or
what a maximum was taken of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.kernel_form import is_order_free
from rlx_edge.compile.workgroups import ALIGNED, Spread
from rlx_edge.ir.dims import Dim, symbol
from rlx_edge.ir.expression import Expr, reduce_parts, substitute, walk


@dataclass(frozen=True, slots=True)
class Pass:
    """One reduction: ``node`` is its value, ``body`` its elements over ``names``. ``held`` are
    values of an item that are staged when it begins; ``keeps``: it stages its elements although
    their order is free."""

    node: Expr
    names: tuple[str, ...]
    extents: tuple[Dim, ...]
    body: Expr
    held: tuple[Expr, ...]
    keeps: bool

    @property
    def kind(self) -> str:
        return reduce_parts(self.node)[0]

    @property
    def is_free(self) -> bool:
        return is_order_free(self.kind, self.node.dtype)


def row_passes(
    form: Spread, shared: Sequence[Expr], value: Expr
) -> tuple[list[Pass], tuple[Expr, ...]]:
    """The passes of ``shared``, and what is held when the elements of ``value`` are computed."""
    aligned = form.kernel.walk == ALIGNED
    inner = tuple(loop.var for loop in form.kernel.loops[form.outer :])
    common = inner or reduce_parts(shared[0])[1]
    bodies: list[Expr] = []
    for node in shared:
        _, names, _, body = reduce_parts(node)
        moves = dict(zip(names, map(symbol, common), strict=True)) if aligned else {}
        bodies.append(substitute(body, moves))
    held: dict[str, Expr] = {}
    passes: list[Pass] = []
    for place, (node, body) in enumerate(zip(shared, bodies, strict=True)):
        _, names, extents, _ = reduce_parts(node)
        following = bodies[place + 1] if place + 1 < len(bodies) else value
        is_sum = not is_order_free(reduce_parts(node)[0], node.dtype)
        keeps = aligned and not is_sum and _is_worth(body) and body in walk(following)
        known = tuple(item for item in held.values() if item in walk(body))
        passes.append(Pass(node, common if aligned else names, extents, body, known, keeps))
        if aligned and (is_sum or keeps):
            held[node.dtype.name] = body
    return passes, tuple(item for item in held.values() if inner and item in walk(value))


def _is_worth(body: Expr) -> bool:
    """More than a load, which costs as much from a cache."""
    return body.op not in ("load", "const", "index")
