"""Reading many elements of an operand at once, in the fastest way their offsets allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.scalar_arithmetic import Vector
from rlx_edge.ir.tensor import Elements


def row_major_strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each axis."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


class Pattern:
    """Offsets of all lanes relative to the least one, and how to read them fastest.

    ``pieces`` are runs of neighbours or of one element: ``(offset, length, step)`` with step 1 or
    0. Where there would be many short ones, ``get`` picks single elements instead.
    """

    __slots__ = ("base", "get", "last", "length", "pieces")

    def __init__(self, offsets: int | list[int], count: int) -> None:
        self.length = count
        self.get: Callable[[Any], Any] | None = None
        if isinstance(offsets, int) or count == 1:
            self.base = offsets if isinstance(offsets, int) else offsets[0]
            self.last = 0
            self.pieces = [(0, count, 0)]
            return
        self.base = base = min(offsets)
        self.last = max(offsets) - base
        self.pieces = _pieces(offsets, base, count // LEAST_PIECE + 1)
        if not self.pieces:
            self.get = itemgetter(*(offset - base for offset in offsets))


LEAST_PIECE = 6
"""Elements a piece that make pieces faster than single elements."""


def _pieces(offsets: list[int], base: int, most: int) -> list[tuple[int, int, int]]:
    """Runs with step 0 or 1 that make up ``offsets``; empty when there are more than ``most``."""
    pieces: list[tuple[int, int, int]] = []
    first, length, step = offsets[0], 1, -1
    for offset in islice(offsets, 1, None):
        if offset == first + length and step != 0:
            step = 1
            length += 1
        elif offset == first and step != 1:
            step = 0
            length += 1
        else:
            pieces.append((first - base, length, max(step, 0)))
            if len(pieces) >= most:
                return []
            first, length, step = offset, 1, -1
    pieces.append((first - base, length, max(step, 0)))
    return pieces


class Gather:
    """Reads elements by pattern and shift; nothing outside the operand is ever read."""

    def __init__(self, elements: Elements, as_bool: bool) -> None:
        self.elements = elements
        self.view = memoryview(elements).cast("B").cast("?") if as_bool else memoryview(elements)
        self.as_bool = as_bool
        self.size = len(elements)

    def __call__(self, pattern: Pattern, shift: int) -> Vector:
        first = pattern.base + shift
        if first < 0 or first + pattern.last >= self.size:
            raise outside(first, first + pattern.last, self.size)
        if pattern.get is not None:
            return pattern.get(self.view[first:])  # type: ignore[no-any-return]
        if len(pattern.pieces) == 1:
            return self.piece(first, pattern.length, pattern.pieces[0][2])
        values: list[Any] = []
        for offset, length, step in pattern.pieces:
            values += self.piece(first + offset, length, step)
        return values

    def piece(self, first: int, length: int, step: int) -> Vector:
        if step == 0:
            return [self.view[first]] * length
        if self.as_bool:
            return self.view[first : first + length].tolist()
        return self.elements[first : first + length]


def outside(low: int, high: int, extent: int) -> RlxError:
    return RlxError(
        "interpreter.bounds",
        "an expression reads outside its operand",
        found=f"{low} to {high}",
        allowed=f"0 to {extent - 1}",
    )
