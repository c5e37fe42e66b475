"""Conditions on sizes and value symbols, as they arise from shape arithmetic.

A condition that nothing decides yet is a tree of comparisons. Negation is pushed to the leaves,
so ``Compare``, ``Every`` and ``Some`` are all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.ir.core import Guard
from rlx_edge.ir.dims import Dim

NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


@dataclass(frozen=True, slots=True)
class Compare:
    """``left relation right``; relations are those of ``plan.RELATIONS``."""

    left: Dim
    relation: str
    right: Dim

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True, slots=True)
class Every:
    """All of ``items`` hold."""

    items: tuple[Condition, ...]

    def __str__(self) -> str:
        return " and ".join(f"({item})" for item in self.items)


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of ``items`` holds."""

    items: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(f"({item})" for item in self.items)


Condition: TypeAlias = Compare | Every | Some
Truth: TypeAlias = bool | Condition


def negate(truth: Truth) -> Truth:
    match truth:
        case bool():
            return not truth
        case Compare(left, relation, right):
            return Compare(left, NEGATED[relation], right)
        case Every(items):
            return Some(tuple(_as_condition(negate(item)) for item in items))
        case Some(items):
            return Every(tuple(_as_condition(negate(item)) for item in items))


def both(a: Truth, b: Truth) -> Truth:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return a if a == b else Every((a, b))


def either(a: Truth, b: Truth) -> Truth:
    return negate(both(negate(a), negate(b)))


def comparisons(condition: Condition) -> tuple[Compare, ...]:
    """The leaves, in order."""
    if isinstance(condition, Compare):
        return (condition,)
    return tuple(leaf for item in condition.items for leaf in comparisons(item))


def symbols(condition: Condition) -> tuple[str, ...]:
    """Names of the symbols in it, sorted."""
    names = {
        name
        for leaf in comparisons(condition)
        for dim in (leaf.left, leaf.right)
        for name in dim.symbols()
    }
    return tuple(sorted(names))


def holds(condition: Condition, env: Mapping[str, int]) -> bool:
    """Whether it is true for these symbol values; ``KeyError`` where one is missing."""
    match condition:
        case Compare(left, relation, right):
            return Guard(left, relation, right).holds(dict(env))
        case Every(items):
            return all(holds(item, env) for item in items)
        case Some(items):
            return any(holds(item, env) for item in items)


def guards(condition: Condition, env: Mapping[str, int], reason: str) -> list[Guard]:
    """Guards that hold for ``env`` and imply ``condition``, which must hold for ``env``."""
    match condition:
        case Compare(left, relation, right):
            return [Guard(left, relation, right, reason)]
        case Every(items):
            return [guard for item in items for guard in guards(item, env, reason)]
        case Some(items):
            true = next(item for item in items if holds(item, env))
            return guards(true, env, reason)


def _as_condition(truth: Truth) -> Condition:
    assert not isinstance(truth, bool)  # the negation of a condition is a condition
    return truth
