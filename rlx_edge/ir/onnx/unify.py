"""Sizes that a model needs to be equal although they are not the same expression.

``x: [n, seq] + w: [512]`` only works where ``seq`` is 512. Where inference finds two sizes that do
not agree there are two ways out:

* one of them is the bare name of an input's dim: the import starts again with the name replaced
  (``Unify``), so that the parameter's type itself states the requirement;
* otherwise the simpler size is used for both, through a reshape (a view) of one operand, and a
  guard says that they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.dims import ONE, Dim
from rlx_edge.ir.types import TensorType

Place = tuple[int, int]
"""An operand's position and one of its axes."""


class Unify(Exception):
    """``symbol`` must be ``dim``."""

    def __init__(self, symbol: str, dim: Dim) -> None:
        super().__init__(symbol, dim)
        self.symbol = symbol
        self.dim = dim


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Sizes that must be equal: ``a`` at place ``left``, ``b`` at place ``right`` (or nowhere, when
    it follows from an attribute). ``stretches``: a size of 1 would do as well."""

    left: Place
    a: Dim
    right: Place | None
    b: Dim
    stretches: bool = False

    def unified(self, value_of: Callable[[Dim], int | None]) -> Unify | None:
        """The replacement of a bare name that makes them equal, or makes one of them 1 where the
        caller gave sizes and a 1 among them has to stretch."""
        for one, other in ((self.b, self.a), (self.a, self.b)):
            name = bare_symbol(one)
            if self.stretches and name and value_of(one) == 1 and (value_of(other) or 0) > 1:
                return Unify(name, ONE)
        for one, other in ((self.b, self.a), (self.a, self.b)):
            name = bare_symbol(one)
            if name is not None and (other.is_constant or bare_symbol(other) is not None):
                return Unify(name, other)
        return None


def bare_symbol(dim: Dim) -> str | None:
    """The name if ``dim`` is nothing but a symbol."""
    names = dim.symbols()
    return names[0] if len(names) == 1 and str(dim) == names[0] else None


def mismatches(
    name: str, types: Sequence[TensorType], attrs: Mapping[str, Attribute], elementwise: bool
) -> list[Mismatch]:
    """Pairs of different sizes that some symbol values make equal."""
    shapes = [item.shape for item in types]
    found: Iterator[Mismatch]
    if elementwise:
        found = _broadcast(shapes, [len(shape) for shape in shapes])
    elif name == "rlxc::matmul" and min(map(len, shapes)) > 0:
        found = _matmul(shapes)
    elif name in ("rlxc::conv2d", "rlxc::conv_transpose2d"):
        found = _channels(name, shapes, attrs)
    elif name == "rlxc::concat":
        found = _concat(shapes, attrs)
    elif name in ("rlxc::batch_norm", "rlxc::layer_norm"):
        axis = 1 if name == "rlxc::batch_norm" else len(shapes[0]) - 1
        found = (
            Mismatch((0, axis), shapes[0][axis], (at, len(shape) - 1), shape[-1])
            for at, shape in enumerate(shapes[1:], 1)
            if shape
        )
    else:
        found = iter(())
    return [item for item in found if not (item.a - item.b).is_constant]


def _broadcast(shapes: Sequence[tuple[Dim, ...]], used: Sequence[int]) -> Iterator[Mismatch]:
    """Axes aligned at the end of the first ``used`` axes of each operand."""
    for i, first in enumerate(shapes):
        for j, second in enumerate(shapes[i + 1 :], i + 1):
            for back in range(1, min(used[i], used[j]) + 1):
                p, q = used[i] - back, used[j] - back
                if first[p] is not ONE and second[q] is not ONE:
                    yield Mismatch((i, p), first[p], (j, q), second[q], stretches=True)


def _matmul(shapes: Sequence[tuple[Dim, ...]]) -> Iterator[Mismatch]:
    a, b = shapes
    at = max(0, len(b) - 2)
    yield Mismatch((0, len(a) - 1), a[-1], (1, at), b[at])
    yield from _broadcast(shapes, [max(0, len(shape) - 2) for shape in shapes])


def _channels(
    name: str, shapes: Sequence[tuple[Dim, ...]], attrs: Mapping[str, Attribute]
) -> Iterator[Mismatch]:
    groups = attrs.get("groups")
    count = groups if isinstance(groups, int) else 1
    wanted = shapes[1][0] if name == "rlxc::conv_transpose2d" else shapes[1][1] * count
    yield Mismatch((0, 1), shapes[0][1], None, wanted)


def _concat(
    shapes: Sequence[tuple[Dim, ...]], attrs: Mapping[str, Attribute]
) -> Iterator[Mismatch]:
    for position, shape in enumerate(shapes[1:], 1):
        for axis, (a, b) in enumerate(zip(shapes[0], shape, strict=False)):
            if axis != attrs.get("axis"):
                yield Mismatch((0, axis), a, (position, axis), b)
