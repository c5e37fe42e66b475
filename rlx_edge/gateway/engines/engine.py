"""What the gateway asks of whoever runs shards. An engine holds no policy: no retries, no limits
that a caller did not name, no choice of device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.program import Program
from rlx_edge.runtime.trace import TraceEvent


class Listener(Protocol):
    """Told what becomes of a shard and its runs, in the event loop's thread, in order."""

    def loaded(self, shard: int) -> None:
        """The shard is ready."""

    def load_failed(self, shard: int, error: RlxError) -> None:
        """It is not, and nothing of it is left."""

    def emitted(self, run: int, edge: int, data: bytes) -> None:
        """The tensor of an edge, row-major, little-endian."""

    def run_done(self, run: int, events: tuple[TraceEvent, ...]) -> None:
        """The run has ended and every edge has been emitted."""

    def run_failed(self, run: int, error: RlxError) -> None:
        """The run has ended otherwise, a stopped one with code ``run.cancelled``."""


class Engine(Protocol):
    """Runs shards on its devices. ``owner`` is a client's name: numbers of shards and runs are its
    own. Calls return at once; a ``Listener`` is told the rest."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Roles that this engine plays, such as ``cpu:0@gateway``."""
        ...

    def load(
        self,
        owner: str,
        shard: int,
        program: Program,
        constants: Mapping[str, Constant],
        listener: Listener,
    ) -> None:
        """Have the shard ready on the device of ``program``; ``LimitError`` ``queue.full``."""
        ...

    def start(self, owner: str, shard: int, run: int, symbols: Mapping[str, int]) -> None:
        """Begin a run, or queue it behind those of the same shard."""
        ...

    def deliver(self, owner: str, run: int, edge: int, data: bytes) -> None:
        """The bytes of an edge that the run receives."""
        ...

    def stop(self, owner: str, run: int) -> None:
        """End a run before its next step."""
        ...

    def free(self, owner: str, shard: int) -> None:
        """Give up the shard's memory, its runs with it."""
        ...

    def close(self) -> None:
        """End everything; returns when no kernel runs any more. ``DeviceError`` ``device.leak``
        names what was still held, which is released all the same."""
        ...
