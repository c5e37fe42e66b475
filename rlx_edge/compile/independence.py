"""Which launches may run beside those before them, so that small ones fill a large device.

A launch runs beside others where no buffer that one of them writes is touched by the other. Those
that run side by side keep their buffers until the last of them has ended, so that none is given
memory that another still uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rlx_edge.compile.launches import BORDER, Buffer, Launch


def waiting(launches: Sequence[Launch], buffers: Sequence[Buffer], boundary: int) -> list[bool]:
    """Of each launch, whether it waits for all before it, as launch ``boundary`` does; those of
    targets without workgroups run one after another.

    Kernels of one claim, of which the plan starts one, do not wait for each other, nor does a
    result for its border.
    """
    found: list[bool] = []
    beside: list[Launch] = []
    for number, launch in enumerate(launches):
        waits = (
            number in (0, boundary)
            or launch.groups is None
            or any(_depend(launch, other, buffers) for other in beside)
        )
        if waits:
            beside = []
        beside.append(launch)
        found.append(waits)
    return found


def side_by_side(waits: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First and last launch of each stretch that runs together."""
    starts = [number for number, waiting in enumerate(waits) if waiting]
    for start, end in pairwise([*starts, len(waits)]):
        yield start, end - 1


def _depend(a: Launch, b: Launch, buffers: Sequence[Buffer]) -> bool:
    if a.value == b.value and (BORDER in (a.op, b.op) or _exclude(a, b, buffers)):
        return False
    return any(
        not set(_written(one, buffers)).isdisjoint(other.buffers) for one, other in ((a, b), (b, a))
    )


def _exclude(a: Launch, b: Launch, buffers: Sequence[Buffer]) -> bool:
    """Whether the plan starts one of two kernels of a claim; those with scratch memory may be steps
    of one way, which leave something there for the next."""
    return (
        a.buffers == b.buffers
        and a.arguments == b.arguments
        and all(buffers[number].kind != "scratch" for number in a.buffers)
    )


def _written(launch: Launch, buffers: Sequence[Buffer]) -> Iterator[int]:
    for slot, number in enumerate(launch.buffers):
        if slot == 0 or buffers[number].kind == "scratch":
            yield number
