"""Structural comparison: the path of the first mismatch.

Two modules are equal when their canonical texts are: names count, places in files do not, and
constants count by the digests that the operations name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.printer import (
    attribute_order,
    attribute_value,
    binding_text,
    guard_text,
    value_text,
)


def first_difference(a: Module, b: Module) -> str | None:
    """``"operation 3 (%conv), attribute stride: [1, 1] and [2, 2]"``; ``None`` when equal."""
    return next(differences(a, b), None)


def structurally_equal(a: Module, b: Module) -> bool:
    """Whether there is no difference."""
    return first_difference(a, b) is None


def differences(a: Module, b: Module) -> Iterator[str]:
    """Mismatches in the order of the text; past one in structure they may follow from it."""
    yield from _same("version", a.version, b.version)
    yield from _same("name", a.function.name, b.function.name)
    yield from _function(a.function, b.function)


def _function(a: Function, b: Function) -> Iterator[str]:
    yield from _sequence(
        "parameter", [_typed(param) for param in a.params], [_typed(param) for param in b.params]
    )
    yield from _sequence(
        "binding",
        [binding_text(item) for item in a.bindings],
        [binding_text(item) for item in b.bindings],
    )
    yield from _sequence(
        "guard", [guard_text(item) for item in a.guards], [guard_text(item) for item in b.guards]
    )
    for position, (left, right) in enumerate(zip(a.ops, b.ops, strict=False)):
        names = ", ".join(value_text(value) for value in left.results)
        place = f"operation {position}" + (f" ({names})" if names else "")
        for mismatch in _operation(left, right):
            yield f"{place}, {mismatch}"
    shorter = min(len(a.ops), len(b.ops))
    for extra in (*a.ops[shorter:], *b.ops[shorter:]):
        side = "the second" if len(a.ops) > shorter else "the first"
        yield f"operation {shorter}: {extra} is missing in {side}"
        break
    yield from _sequence(
        "output", [_typed(value) for value in a.returns], [_typed(value) for value in b.returns]
    )
    yield from _sequence("output name", a.output_names, b.output_names)


def _operation(a: Op, b: Op) -> Iterator[str]:
    yield from _same("operator", a.name, b.name)
    yield from _sequence(
        "operand", [value_text(item) for item in a.operands], [value_text(i) for i in b.operands]
    )
    order = [*attribute_order(a), *(name for name in attribute_order(b) if name not in a.attrs)]
    for name in order:
        if name not in a.attrs or name not in b.attrs:
            side = "first" if name not in a.attrs else "second"
            yield f"attribute {name}: missing in the {side}"
        elif not _same_value(a, b, name):
            yield f"attribute {name}: {attribute_value(a, name)} and {attribute_value(b, name)}"
    yield from _sequence(
        "result", [_typed(value) for value in a.results], [_typed(value) for value in b.results]
    )


def _same_value(a: Op, b: Op, name: str) -> bool:
    """Values with one text: 4 and the dim 4 are the same, 4 and 4.0 are not, nan is nan."""
    left, right = a.attrs[name], b.attrs[name]
    if isinstance(left, Expr) or isinstance(right, Expr):
        return left is right
    return attribute_value(a, name) == attribute_value(b, name)


def _typed(value: Value) -> str:
    return f"{value_text(value)}: {value.type}"


def _same(what: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{what}: {a} and {b}"


def _sequence(what: str, a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    for position, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            yield f"{what} {position}: {left} and {right}"
    if len(a) != len(b):
        yield f"number of {what}s: {len(a)} and {len(b)}"
