"""Equalities between sizes that guards state, as rewrite rules.

A guard ``y == 2 * x`` (``x`` an atom that ``y`` does not contain) lets ``2 * k * x`` be read as
``k * y``, so that what follows from the guards is not asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx_edge.ir.dims import ZERO, Atom, Dim, Monomial, as_dim

_MAX_ROUNDS = 32


@dataclass(slots=True)
class Equalities:
    """Rules ``(atom, multiplier) → dim``: ``multiplier * atom`` equals the dim."""

    rules: dict[Atom, tuple[int, Dim]] = field(default_factory=dict)

    def learn(self, a: Dim, b: Dim) -> None:
        """From ``a == b``: replace the more involved side if it is a multiple of one atom."""
        for one, other in sorted(
            ((a, b), (b, a)), key=lambda pair: (-_depth(pair[0]), str(pair[0]))
        ):
            if len(one.terms) != 1 or len(one.terms[0][0]) != 1:
                continue
            (atom,), multiplier = one.terms[0]
            if multiplier > 0 and not contains(other, atom) and atom not in self.rules:
                self.rules[atom] = (multiplier, other)
                return

    def simplified(self, dim: Dim) -> Dim:
        """``dim`` with the rules applied to its terms until nothing changes."""
        for _ in range(_MAX_ROUNDS):
            changed = self._once(dim)
            if changed is dim:
                break
            dim = changed
        return dim

    def same(self, a: Dim, b: Dim) -> bool:
        """Whether the rules make both one expression."""
        return self.simplified(a) is self.simplified(b)

    def _once(self, dim: Dim) -> Dim:
        total = ZERO
        for atoms, coefficient in dim.terms:
            total = total + self._term(atoms, coefficient)
        return total

    def _term(self, atoms: Monomial, coefficient: int) -> Dim:
        for position, atom in enumerate(atoms):
            multiplier, other = self.rules.get(atom, (0, ZERO))
            if multiplier and coefficient % multiplier == 0:
                rest = Dim.make({atoms[:position] + atoms[position + 1 :]: 1})
                return rest * other * as_dim(coefficient // multiplier)
        return Dim.make({atoms: coefficient})


def contains(dim: Dim, atom: Atom) -> bool:
    """Whether ``atom`` occurs anywhere in ``dim``."""
    return any(
        found is atom or any(contains(arg, atom) for arg in found.args)
        for atoms, _ in dim.terms
        for found in atoms
    )


def _depth(dim: Dim) -> int:
    return max(
        (1 + max(map(_depth, atom.args), default=0) for atoms, _ in dim.terms for atom in atoms),
        default=0,
    )
