"""How bytes get from one unit's memory to another's in the same process.

A unit may reach into another's memory: a GPU into a host arena that is registered with its driver,
or into memory that another driver exports. Where neither side can, bytes are copied through an
array of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rlx_edge.ir.types import U8
from rlx_edge.runtime.units import ExecutionUnit

COPY = "copy"
SHARED_ARENA = "shared_arena"
EXTERNAL_MEMORY = "external_memory"


class Reach(Protocol):
    """A unit's way into the memory of another one, whose work has ended."""

    @property
    def name(self) -> str:
        """``shared_arena`` or ``external_memory``."""
        ...

    def pull(self, other: int, own: int, nbytes: int) -> None:
        """Copy from address ``other`` there to address ``own`` here; returns when it is done."""
        ...

    def push(self, own: int, other: int, nbytes: int) -> None:
        """The other way."""
        ...

    def close(self) -> None:
        """Give up what was mapped or registered."""
        ...


@runtime_checkable
class Reaching(Protocol):
    """A unit that may reach into others."""

    def reach(self, other: ExecutionUnit) -> Reach | None:
        """The way into ``other``'s memory, ``None`` where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Carrier:
    """The way from ``source`` to ``target``; ``pulls`` says which of them reaches."""

    source: ExecutionUnit
    target: ExecutionUnit
    reach: Reach | None = None
    pulls: bool = True

    @property
    def name(self) -> str:
        """``copy``, ``shared_arena`` or ``external_memory``."""
        return COPY if self.reach is None else self.reach.name

    def move(self, source: int, target: int, nbytes: int) -> None:
        """Copy from one address to the other, behind all that both units were asked for."""
        if self.reach is None:
            self.target.upload(target, self.source.download(source, U8, (nbytes,)))
            return
        self.source.synchronize()
        self.target.synchronize()
        if self.pulls:
            self.reach.pull(source, target, nbytes)
        else:
            self.reach.push(source, target, nbytes)

    def close(self) -> None:
        if self.reach is not None:
            self.reach.close()


def carrier(source: ExecutionUnit, target: ExecutionUnit) -> Carrier:
    """The best way there is between two loaded units."""
    for unit, other, pulls in ((target, source, True), (source, target, False)):
        reach = unit.reach(other) if isinstance(unit, Reaching) else None
        if reach is not None:
            return Carrier(source, target, reach, pulls)
    return Carrier(source, target)
