"""Command lists: what an executor does, in order, with integer operands only.

``run begin end`` executes launches ``begin`` … ``end - 1`` of the parameter block; ``send``,
``receive``, ``wait`` and ``free`` name edges and buffers of the task graph. No policy lives in an
executor: it interprets these records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Run:
    """Launches ``begin`` to ``end`` (exclusive) on this device."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Send:
    edge: int


@dataclass(frozen=True, slots=True)
class Receive:
    edge: int


@dataclass(frozen=True, slots=True)
class Wait:
    edge: int


@dataclass(frozen=True, slots=True)
class Free:
    buffer: int


Command: TypeAlias = Run | Send | Receive | Wait | Free
