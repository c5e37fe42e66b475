"""What is known about index expressions from loop ranges, and simplification by it.

Sizes are at least 1, a loop variable lies in ``0 … extent - 1``. Proofs are one-sided: a ``False``
answer only means that nothing was proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rlx_edge.ir.dims import ONE, ZERO, Atom, Dim, as_dim, dim_max, dim_min
from rlx_edge.ir.expression import (
    Expr,
    const,
    index,
    index_dim,
    reduce,
    reduce_parts,
    rewrite,
    substitute,
    walk,
)
from rlx_edge.ir.kernel import is_variable
from rlx_edge.ir.types import BOOL


@dataclass(frozen=True)
class Ranges:
    """``extents``: loop variable → extent. ``unbounded``: symbols of unknown sign."""

    extents: Mapping[str, Dim]
    unbounded: frozenset[str] = frozenset()
    least: int = 1
    """Sizes are at least this; 0 once they are written as one plus the rest."""
    proved: dict[Dim, bool] = field(default_factory=dict, compare=False, repr=False)
    """Answers of ``is_nonnegative``, which asks about the same dims again and again."""
    simplified: dict[Dim, Dim] = field(default_factory=dict, compare=False, repr=False)
    """Answers of ``simplify_dim``."""

    @cached_property
    def from_zero(self) -> Ranges:
        """The same with every size written as one plus a symbol that starts at 0."""
        if self.least == 0:
            return self
        extents = {name: self.lowered(extent) for name, extent in self.extents.items()}
        return Ranges(extents, self.unbounded, 0)

    def lowered(self, dim: Dim) -> Dim:
        """``dim`` in the symbols of ``from_zero``."""
        names = sorted(dim.symbol_set()) if self.least else ()
        sizes = [name for name in names if name not in self.unbounded and not is_variable(name)]
        return dim.substitute({name: as_dim(name) + 1 for name in sizes}) if sizes else dim

    def widened(self, expr: Expr) -> Ranges:
        """With the variables of every reduction inside ``expr``."""
        reductions = [node for node in walk(expr) if node.op == "reduce"]
        if not reductions:
            return self
        extents = dict(self.extents)
        for node in reductions:
            _, names, sizes, _ = reduce_parts(node)
            extents.update(zip(names, sizes, strict=True))
        return Ranges(extents, self.unbounded, self.least)


def is_nonnegative(dim: Dim, ranges: Ranges) -> bool:
    """Whether ``dim >= 0`` for every value of its variables and sizes."""
    if dim.is_constant:
        return dim.value >= 0
    found = ranges.proved.get(dim)
    if found is None:
        found = ranges.proved[dim] = _prove(dim, ranges)
    return found


def _prove(dim: Dim, ranges: Ranges) -> bool:
    low = _lowest(dim, ranges)
    if low is None:
        return False
    inner = ranges.from_zero
    return all(
        coef >= 0 and all(_atom_nonnegative(atom, inner) for atom in mono)
        for mono, coef in ranges.lowered(low).terms
    )


def _lowest(dim: Dim, ranges: Ranges) -> Dim | None:
    """A lower bound without loop variables outside function atoms; ``None`` when unknown."""
    total = ZERO
    for mono, coef in dim.terms:
        variables = [a for a in mono if a.op == "symbol" and is_variable(a.name)]
        if not variables:
            total = total + Dim.make({mono: coef})
            continue
        others = [a for a in mono if a not in variables]
        if len(variables) > 1 or not all(_atom_nonnegative(a, ranges) for a in others):
            return None
        if coef > 0:
            continue
        extent = ranges.extents.get(variables[0].name)
        if extent is None:
            return None
        total = total + Dim.make({tuple(others): coef}) * (extent - 1)
    if any(is_variable(name) and _outside_atoms(total, name) for name in total.symbol_set()):
        return _lowest(total, ranges)
    return total


def _outside_atoms(dim: Dim, name: str) -> bool:
    return any(a.op == "symbol" and a.name == name for mono, _ in dim.terms for a in mono)


def _atom_nonnegative(atom: Atom, ranges: Ranges) -> bool:
    if atom.op == "symbol":
        return atom.name not in ranges.unbounded
    a, b = atom.args
    if atom.op == "floordiv":
        return is_nonnegative(a, ranges) and is_nonnegative(b - 1, ranges)
    if atom.op == "mod":
        return is_nonnegative(b - 1, ranges)
    if atom.op == "max":
        return is_nonnegative(a, ranges) or is_nonnegative(b, ranges)
    return is_nonnegative(a, ranges) and is_nonnegative(b, ranges)


def simplify_dim(dim: Dim, ranges: Ranges) -> Dim:
    """Drop ``max``/``min``/``//``/``%`` that ranges decide."""
    if all(atom.op == "symbol" for mono, _ in dim.terms for atom in mono):
        return dim
    found = ranges.simplified.get(dim)
    if found is not None:
        return found
    total = ZERO
    for mono, coef in dim.terms:
        term = as_dim(coef)
        for atom in mono:
            term = term * _simplify_atom(atom, ranges)
        total = total + term
    ranges.simplified[dim] = total
    return total


def _simplify_atom(atom: Atom, ranges: Ranges) -> Dim:
    if atom.op == "symbol":
        return Dim.make({(atom,): 1})
    a, b = (simplify_dim(arg, ranges) for arg in atom.args)
    if atom.op in ("max", "min"):
        larger, smaller = (a, b) if atom.op == "max" else (b, a)
        if is_nonnegative(larger - smaller, ranges):
            return a
        if is_nonnegative(smaller - larger, ranges):
            return b
        return dim_max(a, b) if atom.op == "max" else dim_min(a, b)
    if is_nonnegative(a, ranges) and is_nonnegative(b - 1 - a, ranges):
        return ZERO if atom.op == "floordiv" else a
    return a // b if atom.op == "floordiv" else a % b


_COMPARE: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[Dim, Dim], Dim]]] = {
    # relation → (difference that must be >= 0 for true, … for false)
    "lt": (lambda a, b: b - a - 1, lambda a, b: a - b),
    "le": (lambda a, b: b - a, lambda a, b: a - b - 1),
    "gt": (lambda a, b: a - b - 1, lambda a, b: b - a),
    "ge": (lambda a, b: a - b, lambda a, b: b - a - 1),
}


def simplify_expression(expr: Expr, ranges: Ranges) -> Expr:
    """Simplify index arithmetic and fold conditions that ranges decide (value-preserving)."""
    known = ranges.widened(expr)
    return rewrite(expr, lambda node: _simplify_node(node, known))


def _simplify_node(node: Expr, ranges: Ranges) -> Expr | None:
    dim = index_dim(node)
    if dim is not None:
        return index(simplify_dim(dim, ranges))
    if node.op in _COMPARE:
        return _decided(node, ranges)
    if node.op in ("and", "or") and node.dtype is BOOL:
        return _fold_logic(node)
    if node.op == "select" and node.args[0].op == "const":
        return node.args[1] if node.args[0].attr else node.args[2]
    if node.op == "reduce":
        return _drop_unit_axes(node)
    return None


def _decided(node: Expr, ranges: Ranges) -> Expr | None:
    a, b = index_dim(node.args[0]), index_dim(node.args[1])
    if a is None or b is None:
        return None
    true_if, false_if = _COMPARE[node.op]
    if is_nonnegative(true_if(a, b), ranges):
        return const(True, BOOL)
    if is_nonnegative(false_if(a, b), ranges):
        return const(False, BOOL)
    return None


def _fold_logic(node: Expr) -> Expr | None:
    absorbing = node.op == "or"
    for first, other in (node.args, node.args[::-1]):
        if first.op == "const":
            return const(absorbing, BOOL) if bool(first.attr) == absorbing else other
    return node.args[0] if node.args[0] is node.args[1] else None


def _drop_unit_axes(node: Expr) -> Expr | None:
    """Reduction axes of extent 1 are substituted by 0; the order of the rest is unchanged."""
    kind, names, sizes, body = reduce_parts(node)
    unit = [name for name, size in zip(names, sizes, strict=True) if size is ONE]
    if not unit or len(unit) == len(names):
        return None
    kept = [(n, s) for n, s in zip(names, sizes, strict=True) if s is not ONE]
    return reduce(
        kind, [n for n, _ in kept], [s for _, s in kept], substitute(body, dict.fromkeys(unit, 0))
    )
