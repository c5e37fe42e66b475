"""Static memory planning with symbolic sizes.

Buffers that are alive at the same time must not overlap, for every size the model may run at. The
planner lays the buffers out once for representative sizes (largest first, lowest free offset:
Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020), keeps only
*which buffer lies above which*, and emits that order as plan instructions: a buffer starts at the
largest end of the conflicting buffers below it. The order is total on every conflicting pair, so
the layout is valid for all sizes; only its tightness depends on the representative ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.plan_builder import PlanBuilder

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer alive from launch ``first`` to ``last`` (both inclusive).

    ``size`` is its plan value in bytes (aligned), ``hint`` its bytes at representative sizes.
    """

    first: int
    last: int
    size: int
    hint: int

    def conflicts(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def assign_offsets(builder: PlanBuilder, buffers: Sequence[Lifetime]) -> tuple[list[int], int]:
    """``(offset value of each buffer, value of the peak)``, relative to the arena's start."""
    hints = hint_offsets(buffers)
    order = sorted(
        range(len(buffers)), key=lambda index: (hints[index], buffers[index].hint, index)
    )
    rank = {index: position for position, index in enumerate(order)}
    below: dict[int, list[int]] = {
        index: [other for other in order[: rank[index]] if buffers[index].conflicts(buffers[other])]
        for index in order
    }
    offsets: dict[int, int] = {}
    ends: dict[int, int] = {}
    for index in order:
        supports = _direct(below, index)
        offsets[index] = (
            builder.maximum(ends[other] for other in supports) if supports else builder.const(0)
        )
        ends[index] = builder.apply("add", offsets[index], buffers[index].size)
    covered = {other for index in order for other in below[index]}
    tops = [ends[index] for index in order if index not in covered]
    peak = builder.maximum(tops) if tops else builder.const(0)
    return [offsets[index] for index in range(len(buffers))], peak


def hint_offsets(buffers: Sequence[Lifetime]) -> list[int]:
    """Offsets at representative sizes, greedy by size."""
    offsets: dict[int, int] = {}
    by_size = sorted(range(len(buffers)), key=lambda index: (-buffers[index].hint, index))
    for index in by_size:
        taken = sorted(
            (offsets[other], offsets[other] + buffers[other].hint)
            for other in offsets
            if buffers[index].conflicts(buffers[other])
        )
        offset = 0
        for start, end in taken:
            if offset + buffers[index].hint <= start:
                break
            offset = max(offset, end)
        offsets[index] = offset
    return [offsets[index] for index in range(len(buffers))]


def _direct(below: dict[int, list[int]], index: int) -> list[int]:
    """Supports that no other support already lies above: ends of the rest are implied."""
    supports = below[index]
    implied = {under for other in supports for under in below[other]}
    return [other for other in supports if other not in implied]
