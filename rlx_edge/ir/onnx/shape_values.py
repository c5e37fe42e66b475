"""Small tensors whose content is known at import, as symbolic integers and exact fractions.

This is the lattice of shape arithmetic: what ``Shape``, ``Gather``, ``Concat`` and their like
compute is followed element by element. An element is

* a ``Dim`` for integer types,
* a ``Ratio`` (a dim over a positive integer) or a plain ``float`` for f32 and f64,
* a ``bool`` or a ``Condition`` for bool,
* a ``Choice`` between two of these that depends on the value of an input.

A ``Ratio`` stands for a float that holds an exact value; sizes are taken to stay below 2**24,
where f32 still counts in ones. Where the exact value would need rounding the result is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.onnx import conditions
from rlx_edge.ir.onnx.conditions import Compare, Condition, Truth
from rlx_edge.ir.types import DType

MAX_ELEMENTS = 1024
"""Larger tensors are never followed."""

MAX_DENOMINATOR = 1 << 16
"""Of exact fractions; a power of two."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """``numerator / denominator`` exactly; the denominator is a positive power of two."""

    numerator: Dim
    denominator: int


@dataclass(frozen=True, slots=True)
class Choice:
    """``yes`` where ``condition`` holds, else ``no``: decided only when somebody needs to know."""

    condition: Condition
    yes: Item
    no: Item


Item: TypeAlias = Dim | Ratio | float | Truth | Choice


class Unknown(Exception):
    """The content cannot be followed any further; the tensor itself may still be computed."""


@dataclass(frozen=True, slots=True)
class ShapeValue:
    """Row-major ``items`` of a tensor with a constant ``shape``."""

    dtype: DType
    shape: tuple[int, ...]
    items: tuple[Item, ...]

    @property
    def size(self) -> int:
        return len(self.items)

    def dims(self) -> tuple[Dim, ...]:
        """The items of an integer tensor; ``Unknown`` for other types."""
        found = tuple(item for item in self.items if isinstance(item, Dim))
        if len(found) != len(self.items):
            raise Unknown
        return found

    def integers(self) -> tuple[int, ...]:
        """The items as plain integers; ``Unknown`` where one is symbolic."""
        if not all(dim.is_constant for dim in self.dims()):
            raise Unknown
        return tuple(dim.value for dim in self.dims())

    def numbers(self) -> tuple[float | int | bool, ...]:
        """The items as plain numbers; ``Unknown`` where one is symbolic."""
        return tuple(plain(item) for item in self.items)

    @property
    def is_constant(self) -> bool:
        try:
            self.numbers()
        except Unknown:
            return False
        return True

    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols in it, sorted."""
        names = {name for item in self.items for name in _item_symbols(item)}
        return tuple(sorted(names))

    def reshaped(self, shape: Sequence[int]) -> ShapeValue:
        return ShapeValue(self.dtype, tuple(shape), self.items)

    def at(self, indices: Sequence[int]) -> Item:
        return self.items[offset(self.shape, indices)]


def integers(values: Sequence[int | Dim], dtype: DType) -> ShapeValue:
    """A 1-D tensor of dims."""
    return ShapeValue(dtype, (len(values),), tuple(as_dim(value) for value in values))


def from_numbers(
    dtype: DType, shape: Sequence[int], numbers: Sequence[float | int | bool]
) -> ShapeValue:
    """Content of a constant tensor."""
    items: tuple[Item, ...]
    if dtype.kind == "bool":
        items = tuple(bool(number) for number in numbers)
    elif dtype.is_float:
        items = tuple(float(number) for number in numbers)
    else:
        items = tuple(as_dim(int(number)) for number in numbers)
    return ShapeValue(dtype, tuple(shape), items)


def plain(item: Item) -> float | int | bool:
    """The number behind an item; ``Unknown`` for symbolic ones."""
    if isinstance(item, (bool, float)):
        return item
    if isinstance(item, Dim) and item.is_constant:
        return item.value
    raise Unknown


def over_one_denominator(items: Sequence[Item]) -> tuple[tuple[Dim, ...], int] | None:
    """``(numerators, denominator)`` of integers and exact fractions, ``None`` for other items."""
    parts: list[tuple[Dim, int]] = []
    for item in items:
        match item:
            case Dim():
                parts.append((item, 1))
            case Ratio(numerator, denominator):
                parts.append((numerator, denominator))
            case float() if math.isfinite(item) and item.as_integer_ratio()[1] <= MAX_DENOMINATOR:
                top, bottom = item.as_integer_ratio()
                parts.append((as_dim(top), bottom))
            case _:
                return None
    common = max(bottom for _, bottom in parts)
    return tuple(top * (common // bottom) for top, bottom in parts), common


# ---- index arithmetic ------------------------------------------------------------------------


def indices_of(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All index tuples in row-major order; ``Unknown`` for shapes that are not followed."""
    if math.prod(shape) > MAX_ELEMENTS or any(extent < 0 for extent in shape):
        raise Unknown
    return product(*(range(extent) for extent in shape))


def offset(shape: Sequence[int], indices: Sequence[int]) -> int:
    position = 0
    for extent, at in zip(shape, indices, strict=True):
        position = position * extent + at
    return position


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy broadcasting; ``Unknown`` if the shapes do not fit (inference reports it)."""
    rank = max(map(len, shapes))
    out = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if extent != 1 and out[axis] not in (1, extent):
                raise Unknown
            out[axis] = extent if extent != 1 else out[axis]
    return tuple(out)


def broadcast_items(value: ShapeValue, shape: Sequence[int]) -> list[Item]:
    """The items of ``value`` broadcast to ``shape``."""
    lead = len(shape) - len(value.shape)
    return [
        value.at(
            [0 if extent == 1 else at for extent, at in zip(value.shape, index[lead:], strict=True)]
        )
        for index in indices_of(shape)
    ]


def _item_symbols(item: Item) -> tuple[str, ...]:
    match item:
        case Dim():
            return item.symbols()
        case Ratio(numerator, _):
            return numerator.symbols()
        case Choice(condition, yes, no):
            return (*conditions.symbols(condition), *_item_symbols(yes), *_item_symbols(no))
        case Compare() | conditions.Every() | conditions.Some():
            return conditions.symbols(item)
    return ()
