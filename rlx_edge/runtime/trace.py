"""What happened, when, on which device: one record for tasks, edges, copies and allocations.

Profiles, timelines, metrics and cost calibration read this one stream. JavaScript emits the same
fields under the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter_ns
from typing import NamedTuple

KINDS = (
    "compile",
    "load",
    "allocate",
    "upload",
    "plan",
    "input",
    "run",
    "send",
    "receive",
    "wait",
    "free",
    "output",
)
PHASES = ("compile", "dispatch", "execute", "sync")


class TraceEvent(NamedTuple):
    """One thing that took time or bytes.

    ``start`` and ``duration`` are nanoseconds of the emitting device's monotonic clock. ``begin``
    and ``end`` are the launches of a ``run`` (0 and 0 otherwise), ``edge`` is -1 where there is
    none. ``name`` is for people: the operator, the constant or the input.
    """

    kind: str
    device: str
    phase: str
    start: int
    duration: int
    name: str = ""
    begin: int = 0
    end: int = 0
    edge: int = -1
    nbytes: int = 0

    def as_dict(self) -> dict[str, str | int]:
        """The fields in order, for JSON."""
        return self._asdict()


class Trace:
    """Collects events of one device, the last ``capacity`` of them."""

    def __init__(self, device: str, capacity: int = 1 << 16) -> None:
        self.device = device
        self.capacity = capacity
        self.dropped = 0
        """Events that were given up for newer ones."""
        self._events: list[TraceEvent] = []

    def __iter__(self) -> Iterator[TraceEvent]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    @staticmethod
    def now() -> int:
        """Nanoseconds of the monotonic clock that ``start`` counts in."""
        return perf_counter_ns()

    def record(
        self,
        kind: str,
        phase: str,
        start: int,
        *,
        name: str = "",
        begin: int = 0,
        end: int = 0,
        edge: int = -1,
        nbytes: int = 0,
    ) -> None:
        """Add an event that began at ``start`` and ends now."""
        if len(self._events) >= self.capacity:
            half = self.capacity // 2
            del self._events[: self.capacity - half]
            self.dropped += self.capacity - half
        self._events.append(
            TraceEvent(
                kind,
                self.device,
                phase,
                start,
                perf_counter_ns() - start,
                name,
                begin,
                end,
                edge,
                nbytes,
            )
        )

    def take(self) -> tuple[TraceEvent, ...]:
        """The events so far, oldest first; the trace is empty afterwards."""
        events = tuple(self._events)
        self._events.clear()
        return events
