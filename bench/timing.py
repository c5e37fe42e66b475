"""Interleaved timing: every subject once a round, so that a disturbed moment hits all of them.

What is measured runs on one thread and waits for nothing, so its time is the processor time of the
calling thread: on a quiet machine that is the time on the clock, and on a shared one it leaves out
the time in which somebody else ran.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHORTEST = 0.01
"""Seconds that one measurement lasts at least; short calls are repeated."""

WARM_UP = 3
"""Calls before anything is measured."""


@dataclass(frozen=True)
class Times:
    """Seconds of processor time a call, one measurement a round."""

    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The range between the quartiles, relative to the median."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / self.median


def interleave(calls: Sequence[Callable[[], object]], rounds: int) -> list[Times]:
    """Times of each call over `rounds` rounds, after a warm-up."""
    repeats = []
    for call in calls:
        measure(call, WARM_UP)
        repeats.append(_repeats(call))
    measured: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, count, into in zip(calls, repeats, measured, strict=True):
            into.append(measure(call, count))
    return [Times(tuple(seconds)) for seconds in measured]


def _repeats(call: Callable[[], object]) -> int:
    """How many calls in a row last for `SHORTEST`."""
    count = 1
    while (seconds := measure(call, count)) * count < SHORTEST / 4:
        count *= 2
    return max(1, round(SHORTEST / seconds))


def measure(call: Callable[[], object], count: int) -> float:
    """Seconds a call, averaged over `count` calls in a row."""
    started = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - started) / count
