"""Which loop becomes lanes: instruction counts of the alternatives, for four iterations.

Weights are relative only: a node inside a reduction counts as if the reduction had sixteen steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlx_edge.compile.codegen.wasm.emit_expression import is_native
from rlx_edge.compile.codegen.wasm.emit_region import Emission
from rlx_edge.compile.codegen.wasm.emit_tile import is_transposed
from rlx_edge.compile.codegen.wasm.vector_table import LANE_TYPES, LANES
from rlx_edge.ir.expression import Expr, reduce_parts, walk

STEPS = 16
GATHER = 9
"""Four addresses, four lane loads, one vector."""
TRANSPOSED = 3
"""A quarter of four vector loads and eight shuffles."""


def vector_cost(em: Emission, roots: Iterable[Expr], variable: str, tile: str = "") -> float | None:
    """Cost of four iterations as lanes of ``variable``; ``None`` if that is impossible.

    With four steps of the outer variable ``tile`` at once, a step's share of the cost.
    """
    total = 0.0
    scalar: set[Expr] = set()
    nodes = _nodes(roots)
    inside = _repeated(em, nodes, variable)
    for node in nodes:
        if node.op in ("const", "index"):
            continue
        weight = _weight(em, node)
        if variable not in em.free(node):
            total += 2 * weight if node in inside else 0
        elif node.dtype not in LANE_TYPES:
            scalar.add(node)
            total += LANES * weight
        elif is_native(em, node, variable):
            total += weight
        elif tile and is_transposed(node, variable, tile):
            total += TRANSPOSED * weight
        elif node.op == "load" and node.dtype.bytes == 4:
            total += GATHER * weight
        else:
            total += 2 * LANES * weight
    if any(root in scalar for root in roots):
        return None
    return total


def scalar_cost(em: Emission, roots: Iterable[Expr], variable: str) -> float:
    """Cost of four iterations one at a time; reductions along a row may still be vectors."""
    total = 0.0
    nodes = _nodes(roots)
    rows = {reduce_parts(node)[1][-1] for node in nodes if node.op == "reduce" and is_row(em, node)}
    inside = _repeated(em, nodes, variable)
    for node in nodes:
        if node.op in ("const", "index"):
            continue
        names = em.free(node)
        if variable in names or node in inside:
            total += LANES * _weight(em, node) / (LANES if names & rows else 1)
    return total


def _repeated(em: Emission, nodes: Iterable[Expr], variable: str) -> set[Expr]:
    """Nodes inside the reductions that depend on the variable."""
    return {
        part
        for node in nodes
        if node.op == "reduce" and variable in em.free(node)
        for part in walk(node.args[0])
        if em.free(part) & frozenset(reduce_parts(node)[1])
    }


def is_row(em: Emission, node: Expr) -> bool:
    """Whether a reduction runs along its last variable in vectors of four."""
    kind, names, _, body = reduce_parts(node)
    if kind == "chain" or body.dtype not in LANE_TYPES:
        return False
    vector = vector_cost(em, [body], names[-1])
    return vector is not None and vector + 1 < _plain_cost(em, body, names[-1])


def _plain_cost(em: Emission, body: Expr, variable: str) -> float:
    moving = [
        node
        for node in walk(body)
        if node.op not in ("const", "index") and variable in em.free(node)
    ]
    return sum((LANES * _weight(em, node) for node in moving), 0.0) + LANES


def _nodes(roots: Iterable[Expr]) -> list[Expr]:
    seen: dict[Expr, None] = {}
    for root in roots:
        seen.update(dict.fromkeys(walk(root)))
    return list(seen)


def _weight(em: Emission, node: Expr) -> float:
    reductions = sum(1 for name in em.free(node) if name.startswith("_h"))
    return float(STEPS ** min(reductions, 3))


def moving_size(em: Emission, roots: Iterable[Expr], variable: str) -> int:
    """Operators that a vector body computes for each vector."""
    return sum(
        1
        for node in _nodes(roots)
        if node.op not in ("const", "index") and variable in em.free(node)
    )
