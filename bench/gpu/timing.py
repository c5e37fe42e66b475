"""Wall-clock times of work on a GPU: enqueued many times, waited for once, subjects in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.timing import Times

SHORTEST = 0.02
"""Seconds of work between two waits, about."""
MOST = 200
WARM_UP = 3
WAKE = 0.5
"""Seconds of work that bring an idle device to its full clock."""


@dataclass(frozen=True)
class Work:
    """``step`` enqueues one run, ``wait`` returns when everything enqueued is done."""

    step: Callable[[], object]
    wait: Callable[[], object]

    def seconds(self, count: int) -> float:
        """A run, averaged over ``count``."""
        self.wait()
        started = time.perf_counter()
        for _ in range(count):
            self.step()
        self.wait()
        return (time.perf_counter() - started) / count


def interleave(works: Sequence[Work], rounds: int) -> list[Times]:
    """One measurement of each work a round, after the device has been woken."""
    started = time.perf_counter()
    while time.perf_counter() < started + WAKE:
        for work in works:
            work.seconds(WARM_UP)
    counts = []
    for work in works:
        work.seconds(WARM_UP)
        counts.append(max(1, min(MOST, round(SHORTEST / work.seconds(WARM_UP)))))
    found: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, count, into in zip(works, counts, found, strict=True):
            into.append(work.seconds(count))
    return [Times(tuple(seconds)) for seconds in found]
