"""What a session wants done, in order: the adapter carries it out (``offload.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.ir.program import Program


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send the bytes as one binary message, an urgent one in front of what waits: heartbeats do not
    queue behind a large tensor."""

    data: bytes
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """Send the tensor of an edge in frames, each when the socket takes it; ``fetched`` is told
    when that is done or given up."""

    run: int
    edge: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HangUp:
    """Send what is waiting, then close with this code."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """One line: an event and its fields."""

    event: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Compile:
    """Verify and compile; answered by ``compiled`` or ``shard_failed``."""

    shard: int
    device: str
    text: bytes


@dataclass(frozen=True, slots=True)
class FindWeights:
    """Look for constants in the gateway's own models; answered by ``weights_found``."""

    shard: int
    model: str
    values: Mapping[str, tuple[int, ...]]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Load on the device; answered by ``loaded`` or ``shard_failed``. ``blobs`` are the client's
    own bytes, the other constants are the gateway's."""

    shard: int
    program: Program
    blobs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Start:
    """Begin a run; answered by ``emitted``, ``run_done`` or ``run_failed``."""

    run: int
    shard: int
    symbols: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Deliver:
    """The bytes of an edge for a run that was started."""

    run: int
    edge: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel a run; answered by ``run_failed`` or ``run_done``."""

    run: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Offer bytes for one GET under this id."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Free:
    """Give up a shard's device memory."""

    shard: int


Effect: TypeAlias = (
    Transmit
    | Stream
    | HangUp
    | Log
    | Compile
    | FindWeights
    | Load
    | Start
    | Deliver
    | Stop
    | Publish
    | Free
)
