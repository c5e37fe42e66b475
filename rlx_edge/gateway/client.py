"""The client's side of the protocol as a state machine without I/O.

Calls and frames go in, events come out; ``take`` gives the frames to send. JavaScript has the same
machine. A run's tensors are named by edges; which protocol carries one is the task graph's word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.gateway.liveness import Liveness
from rlx_edge.gateway.protocol import (
    VERSION,
    Frame,
    Kind,
    Pieces,
    blob_frames,
    decode,
    encode,
    frame,
    tensor_frames,
)
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure

MAX_TENSOR = 1 << 32
CAPABILITIES = ("websocket", "http")
SECOND = 1_000_000_000
WELCOME_WITHIN = 10 * SECOND
MISSED = 10
"""How many heartbeats may be missed."""
SILENT_IN_BODY = 60 * SECOND
"""How long the gateway may say nothing while a body of HTTP is under way."""


# ---- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The session is open; ``ticket`` is for tensors over HTTP."""

    session: str
    ticket: str
    devices: tuple[str, ...]
    models: tuple[str, ...]
    limits: Mapping[str, int]
    heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class Needed:
    """The gateway asks for these bytes: answer with ``upload``."""

    shard: int
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """A shard can run; both digests are those that were asked for."""

    shard: int
    kernels: str
    resident: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """All bytes of an edge."""

    run: int
    edge: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Offered:
    """The bytes of an edge wait for one GET under ``id``."""

    run: int
    edge: int
    id: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """The gateway's part of a run has ended; ``events`` are rows of its trace."""

    run: int
    device: str
    events: tuple[tuple[str | int, ...], ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A run was cancelled and holds nothing any more."""

    run: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway refuses a run, a shard, or all (``fatal``, the socket closes)."""

    error: RlxError
    run: int
    shard: int
    fatal: bool


@dataclass(frozen=True, slots=True)
class ClockRead:
    """The gateway's clock minus ours in nanoseconds, give or take ``uncertainty``."""

    offset: int
    uncertainty: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The gateway says goodbye."""

    reason: str


Event = (
    Welcomed | Needed | Ready | Arrived | Offered | Done | Cancelled | Refused | ClockRead | Ended
)


class ClientSession:
    """``clock`` gives nanoseconds of the clock that traces count in."""

    def __init__(self, client: str, clock: Callable[[], int]) -> None:
        self.state = "new"
        self._clock = clock
        self._out: list[bytes] = []
        self._shards: dict[int, tuple[str, str]] = {}
        self._runs: dict[int, dict[int, Pieces]] = {}
        self._last_run = -1
        self._liveness = Liveness(clock(), WELCOME_WITHIN, SILENT_IN_BODY)
        self._send(
            frame(Kind.HELLO, versions=[VERSION], client=client, capabilities=list(CAPABILITIES))
        )

    def take(self) -> list[bytes]:
        """Frames to send, in order."""
        out, self._out = self._out, []
        return out

    # ---- calls -------------------------------------------------------------------------------

    def ask_shard(
        self,
        shard: int,
        device: str,
        ir: str,
        graph: str,
        *,
        model: str = "",
        values: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Ask for a shard of the IR and the task graph with these digests. ``model`` is the digest
        of a model file and ``values`` what was imported with, where the gateway may have it."""
        self._open()
        self._shards[shard] = (ir, graph)
        lists = {name: list(items) for name, items in (values or {}).items()}
        self._send(
            frame(
                Kind.SHARD,
                shard=shard,
                device=device,
                ir=ir,
                graph=graph,
                model=model,
                values=lists,
            )
        )

    def upload(self, digest: str, data: bytes | memoryview) -> None:
        """Bytes that the gateway asked for."""
        self._open()
        for part in blob_frames(digest, data):
            self._send(part)

    def run(self, shard: int, symbols: Mapping[str, int]) -> int:
        """Begin a run; its number."""
        self._open()
        self._last_run += 1
        number = self._last_run
        self._runs[number] = {}
        graph = self._shards[shard][1]
        self._send(frame(Kind.RUN, run=number, shard=shard, graph=graph, symbols=dict(symbols)))
        return number

    def send_tensor(self, run: int, edge: int, data: bytes | memoryview) -> None:
        """The bytes of an edge, in pieces."""
        self._open()
        for part in tensor_frames(run, edge, data):
            self._send(part)

    def send_tensor_at(self, run: int, edge: int, id: str, nbytes: int) -> None:
        """The bytes of an edge were stored over HTTP under ``id``."""
        self._open()
        self._send(frame(Kind.TENSOR_AT, run=run, edge=edge, id=id, total=nbytes))

    def cancel(self, run: int) -> None:
        """Stop a run; answered by ``Cancelled`` or what came before."""
        if self.state == "open" and run in self._runs:
            self._send(frame(Kind.CANCEL, run=run))

    def release(self, shard: int) -> None:
        """Free a shard."""
        self._open()
        self._shards.pop(shard, None)
        self._send(frame(Kind.RELEASE, shard=shard))

    def ping(self) -> None:
        """Ask for the gateway's clock; answered by ``ClockRead``."""
        self._open()
        self._send(frame(Kind.PING, sent=self._clock()))

    def bye(self) -> None:
        """Say goodbye; the gateway closes."""
        if self.state == "open":
            self._send(frame(Kind.BYE, reason="done"))
            self.state = "closed"

    # ---- whether the gateway is there --------------------------------------------------------

    def heard(self) -> None:
        """The gateway gave or took a piece of a body."""
        self._liveness.heard(self._clock())

    def body_begins(self) -> None:
        """A body of HTTP is under way, in either direction."""
        self._liveness.body_begins(self._clock())

    def body_ends(self) -> None:
        """That body is through, or given up."""
        self._liveness.body_ends(self._clock())

    def tick(self, late: int = 0) -> None:
        """Time has passed, ``late`` nanoseconds of it without this side doing anything.
        ``PeerError`` ``peer.silent`` where nothing was heard for too long."""
        self._liveness.excuse(late)
        silent = self._liveness.silence(self._clock())
        if silent is not None and self.state != "closed":
            allowed = self._liveness.limit() / SECOND
            raise failure("peer.silent", seconds=f"{silent / SECOND:.1f}", allowed=f"{allowed:g}")

    # ---- frames ------------------------------------------------------------------------------

    def received(self, data: bytes) -> list[Event]:
        """The events of one message. ``PeerError`` where the gateway breaks the protocol."""
        self._liveness.heard(self._clock())
        message = decode(data)
        handle = _HANDLERS.get(message.kind)
        first = (Kind.WELCOME, Kind.ERROR)
        if handle is None or (self.state == "new" and message.kind not in first):
            raise failure("peer.state", found=message.kind.name, allowed="what a gateway sends")
        event = handle(self, message)
        return [] if event is None else [event]

    def _welcome(self, message: Frame) -> Event:
        if message.integer("version") != VERSION:
            raise failure("peer.version", found=message.integer("version"), allowed=VERSION)
        self.state = "open"
        self._liveness.allowed = MISSED * message.integer("heartbeat_ms") * SECOND // 1000
        return Welcomed(
            message.text("session"),
            message.text("ticket"),
            tuple(message.texts("devices")),
            tuple(message.texts("models")),
            message.sizes("limits"),
            message.integer("heartbeat_ms"),
        )

    def _need(self, message: Frame) -> Event:
        return Needed(message.integer("shard"), tuple(message.texts("digests")))

    def _ready(self, message: Frame) -> Event:
        number = message.integer("shard")
        asked = self._shards.get(number, ("", ""))
        for what, found, expected in (
            ("the gateway's shard and its IR", message.text("ir"), asked[0]),
            ("the gateway's shard and its task graph", message.text("graph"), asked[1]),
        ):
            if found != expected:
                raise failure("digest.mismatch", what=what, found=found, expected=expected)
        return Ready(number, message.text("kernels"), message.integer("resident"))

    def _tensor(self, message: Frame) -> Event | None:
        run, edge = message.integer("run"), message.integer("edge")
        incoming = self._runs.get(run)
        if incoming is None:
            return None
        pieces = incoming.get(edge)
        if pieces is None:
            pieces = Pieces(f"edge {edge}", message.integer("total"), MAX_TENSOR)
            incoming[edge] = pieces
        data = pieces.add(message.integer("offset"), message.integer("total"), message.payload)
        return None if data is None else Arrived(run, edge, data)

    def _tensor_at(self, message: Frame) -> Event | None:
        run = message.integer("run")
        if run not in self._runs:
            return None
        return Offered(run, message.integer("edge"), message.text("id"), message.integer("total"))

    def _done(self, message: Frame) -> Event:
        self._runs.pop(message.integer("run"), None)
        events = tuple(tuple(row) for row in message.rows("events"))
        return Done(message.integer("run"), message.text("device"), events)

    def _cancelled(self, message: Frame) -> Event:
        self._runs.pop(message.integer("run"), None)
        return Cancelled(message.integer("run"))

    def _error(self, message: Frame) -> Event:
        error = RlxError(
            message.text("code"),
            message.text("what"),
            found=message.text("found") or None,
            allowed=message.text("allowed") or None,
            where=message.text("where") or "gateway",
        )
        run, fatal = message.integer("run"), bool(message.integer("fatal"))
        self._runs.pop(run, None)
        if fatal:
            self.state = "closed"
        return Refused(error, run, message.integer("shard"), fatal)

    def _ping(self, message: Frame) -> None:
        received = self._clock()
        self._send(
            frame(Kind.PONG, sent=message.integer("sent"), received=received, replied=self._clock())
        )

    def _pong(self, message: Frame) -> Event:
        now = self._clock()
        sent, received = message.integer("sent"), message.integer("received")
        replied = message.integer("replied")
        trip = (now - sent) - (replied - received)
        return ClockRead(((received - sent) + (replied - now)) // 2, max(0, trip) // 2)

    def _bye(self, message: Frame) -> Event:
        self.state = "closed"
        return Ended(message.text("reason"))

    def _send(self, message: Frame) -> None:
        self._out.append(encode(message))

    def _open(self) -> None:
        if self.state != "open":
            raise failure("peer.state", found=f"a call while {self.state}", allowed="once welcomed")


_HANDLERS: Mapping[Kind, Callable[[ClientSession, Frame], Event | None]] = {
    Kind.WELCOME: ClientSession._welcome,
    Kind.NEED: ClientSession._need,
    Kind.READY: ClientSession._ready,
    Kind.TENSOR: ClientSession._tensor,
    Kind.TENSOR_AT: ClientSession._tensor_at,
    Kind.DONE: ClientSession._done,
    Kind.CANCELLED: ClientSession._cancelled,
    Kind.ERROR: ClientSession._error,
    Kind.PING: ClientSession._ping,
    Kind.PONG: ClientSession._pong,
    Kind.BYE: ClientSession._bye,
}
