"""Reading many elements of an operand at once, in the fastest way their offsets allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Offsets of all lanes relative to the least one, and how to read them fastest."""

    __slots__ = ("base", "get", "kind", "last", "length")

    def __init__(self, offsets: int | list[int], count: int) -> None:
        self.length = count
        self.get: Callable[[Any], Any] | None = None
        if isinstance(offsets, int) or count == 1:
            self.kind = "same"
            self.base = offsets if isinstance(offsets, int) else offsets[0]
            self.last = 0
            return
        self.base = min(offsets)
        self.last = max(offsets) - self.base
        if self.last == 0:
            self.kind = "same"
        elif self.last == count - 1 and offsets == list(range(self.base, self.base + count)):
            self.kind = "run"
        else:
            self.kind = "any"
            base = self.base
            self.get = itemgetter(*(offset - base for offset in offsets))


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
        if pattern.kind == "same":
            return [self.view[first]] * pattern.length
        if pattern.get is not None:
            return pattern.get(self.view[first:])  # type: ignore[no-any-return]
        if self.as_bool:
            return self.view[first : first + pattern.length].tolist()
        return self.elements[first : first + pattern.length]


def outside(low: int, high: int, extent: int) -> RlxError:
    return RlxError(
        "interpreter.bounds",
        "an expression reads outside its operand",
        found=f"{low} to {high}",
        allowed=f"0 to {extent - 1}",
    )
