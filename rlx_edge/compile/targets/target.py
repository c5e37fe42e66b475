"""What a target says of itself: limits and rates as data, read by the shared compiler.

A target names its row in ``backends.py`` (``kind``), which has the code that goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Memory:
    """How kernels address memory.

    A plan places every buffer at a byte address below ``limit``. The parameter block has it as a
    32-bit word in units of ``unit`` bytes (a divisor of the planner's alignment). No buffer that a
    kernel indexes has more than ``elements`` elements, or any number where that is ``None``.
    """

    limit: int
    unit: int = 1
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """Rough speeds: where a run is cut into segments, never what is computed.

    Floating-point operations a nanosecond of a contraction template, scalar operations a
    nanosecond of a loop nest.
    """

    template: int
    loop: int


class Target(Protocol):
    """One record of limits and features that kernels are made for."""

    @property
    def kind(self) -> str:
        """The row of ``backends.BACKENDS``."""
        ...

    @property
    def name(self) -> str:
        """The record's text, part of a program."""
        ...

    @property
    def memory(self) -> Memory: ...

    @property
    def rates(self) -> Rates: ...
