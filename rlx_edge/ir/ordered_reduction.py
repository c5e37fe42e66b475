"""Reductions in the order of the numerics contract.

Elements are counted from 0; element i goes to partial i mod 4, each partial ascending from the
identity; a chunk of ``CHUNK`` consecutive elements joins its partials (p0 op p2) op (p1 op p3);
the first chunk is the total and each later one is joined to it in order. Partials that no element
reaches keep the identity.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.scalar_arithmetic import Vector, limits, packed, scalar_binary
from rlx_edge.ir.types import DType

CHUNK = 4096
OPERATOR = {"chain": "add", "sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""Reduction kind → scalar operator."""


def identity(kind: str, dtype: DType) -> float | int:
    """What a reduction starts from."""
    if kind in ("sum", "prod"):
        number = 0 if kind == "sum" else 1
        return float(number) if dtype.is_float else number
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    low, high = limits(dtype) if dtype is not INDEX else (-(1 << 31), (1 << 31) - 1)
    return low if kind == "max" else high


def folded(name: str, dtype: DType, start: Any, values: Vector) -> Any:
    """``start op v0 op v1 …`` with one rounding (or wrap) a step."""
    function = scalar_binary(name, dtype)
    if dtype.name == "f32":
        cell = array("f", [start])
        for value in values:
            cell[0] = function(cell[0], value)
        return cell[0]
    if dtype.is_float:
        total = start
        for value in values:
            total = function(total, value)
        return total
    pack = packed(dtype)
    total = start
    for value in values:
        total = pack((function(total, value),))[0]
    return total


def joined_chunks(kind: str, dtype: DType, chunks: Iterator[Vector]) -> Any:
    """The contract's order over whole chunks of consecutive elements."""
    name = OPERATOR[kind]
    start = identity(kind, dtype)
    total: Any = None
    for chunk in chunks:
        p0, p1, p2, p3 = (folded(name, dtype, start, chunk[lane::4]) for lane in range(4))
        joined = folded(
            name, dtype, folded(name, dtype, p0, (p2,)), (folded(name, dtype, p1, (p3,)),)
        )
        total = joined if total is None else folded(name, dtype, total, (joined,))
    return start if total is None else total


def joined_stream(
    function: Callable[..., Vector], start: Vector, values: Iterator[Vector]
) -> Vector:
    """The contract's order, lane by lane, over a stream of elements."""
    total: Vector | None = None
    partials = [start] * 4
    position = 0

    def join() -> Vector:
        p0, p1, p2, p3 = partials
        chunk = function(function(p0, p2), function(p1, p3))
        return chunk if total is None else function(total, chunk)

    for value in values:
        if position == CHUNK:
            total = join()
            partials = [start] * 4
            position = 0
        lane = position & 3
        partials[lane] = function(partials[lane], value)
        position += 1
    return join() if position else start
