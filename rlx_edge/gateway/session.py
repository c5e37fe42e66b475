"""One client of the gateway as a state machine without I/O.

::

            hello, of a known version
    new ───────────────────────────────▶ open ──▶ closed
     └── anything else, or too late ─────────────▲   (fatal error, silence, the socket goes)

    a shard:  asked ─▶ text here ─▶ compiled ─▶ weights here ─▶ loaded
    a run:    begun or queued ─▶ done, cancelled or failed

Frames, answers of the engine and the clock go in; effects come out, for the adapter to carry out in
order. A fatal error tells the client why and closes the socket; an error about one shard or run
ends that alone. Whatever was done or refused is logged once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rlx_edge.gateway.effects import (
    Compile,
    Deliver,
    Effect,
    FindWeights,
    Free,
    HangUp,
    Load,
    Log,
    Publish,
    Start,
    Stop,
    Stream,
    Transmit,
)
from rlx_edge.gateway.limits import Limits
from rlx_edge.gateway.liveness import Liveness
from rlx_edge.gateway.protocol import (
    MAX_FRAME,
    VERSION,
    Frame,
    Kind,
    Pieces,
    decode,
    encode,
    error_frame,
    frame,
)
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.errors import LimitError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program
from rlx_edge.ir.task_graph import TaskGraph

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
TENSOR_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_NEED = 400
"""Digests in one frame."""
MAX_EVENTS = 200
"""Trace events of a run that are told."""

PROTOCOL_ERROR, INVALID_DATA, TOO_BIG, GOING_AWAY = 1002, 1007, 1009, 1001
"""Close codes of WebSocket (RFC 6455, section 7.4.1)."""


# ---- records ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Shard:
    device: str
    ir: str
    graph: str
    model: str
    values: Mapping[str, tuple[int, ...]]
    stage: str = "text"
    program: Program | None = None
    task_graph: TaskGraph | None = None
    missing: dict[str, None] = field(default_factory=dict)
    known: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Run:
    shard: int
    cancelled: bool = False
    incoming: dict[int, Pieces] = field(default_factory=dict)


class ServerSession:
    """See the module. ``name`` and ``ticket`` are what the client is told; ``now`` is seconds of
    any monotonic clock, in ``tick`` too, ``clock`` nanoseconds of the one that traces count in."""

    def __init__(
        self,
        name: str,
        ticket: str,
        devices: tuple[str, ...],
        models: tuple[str, ...],
        limits: Limits,
        now: float,
        clock: Callable[[], int],
    ) -> None:
        self.name = name
        self.ticket = ticket
        self.state = "new"
        self._devices = devices
        self._models = models
        self._limits = limits
        self._since = self._pinged = now
        self._liveness = Liveness(now, limits.silence_seconds, limits.body_seconds)
        self._clock = clock
        self._shards: dict[int, _Shard] = {}
        self._runs: dict[int, _Run] = {}
        self._last_run = -1
        self._uploads: dict[str, Pieces] = {}
        self._blobs: dict[str, bytes] = {}
        self._stored: dict[str, bytes] = {}
        self._published = self._receiving = 0
        self._effects: list[Effect] = []

    # ---- what comes from outside -------------------------------------------------------------

    def received(self, data: bytes, now: float) -> list[Effect]:
        """A binary message of the client."""
        if self.state == "closed":
            return []
        self._liveness.heard(now)
        try:
            message = decode(data)
        except RlxError as error:
            return self._fatal(error)
        self._frame(message)
        return self._take()

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: heartbeats, and clients that say nothing."""
        if self.state == "new" and now - self._since > self._limits.hello_seconds:
            return self._fatal(self._silent(now - self._since, self._limits.hello_seconds))
        if self.state == "open":
            silent = self._liveness.silence(now)
            if silent is not None:
                return self._fatal(self._silent(silent, self._liveness.limit()))
            if now - self._pinged >= self._limits.heartbeat_seconds:
                self._pinged = now
                self._send(frame(Kind.PING, sent=self._clock()))
        return self._take()

    def heard(self, now: float) -> None:
        """The client took or gave some bytes of a tensor: it is there, though it says nothing."""
        self._liveness.heard(now)

    def body_begins(self, now: float, nbytes: int = 0) -> None:
        """A body of HTTP is under way; ``nbytes`` of room are kept for one that comes in.
        ``LimitError`` ``upload.limit`` where they are not accepted."""
        self._expect(nbytes)
        self._receiving += nbytes
        self._liveness.body_begins(now)

    def body_ends(self, now: float, nbytes: int = 0) -> None:
        """That body is through, or given up."""
        self._receiving -= nbytes
        self._liveness.body_ends(now)

    def excuse(self, seconds: float) -> None:
        """The gateway itself was late by this much: what the client said meanwhile may wait."""
        self._liveness.excuse(seconds)
        self._since += seconds

    def gone(self, reason: str, code: int = 1000) -> list[Effect]:
        """The socket has closed; every run is stopped and every shard freed. ``code`` tells of a
        client that broke WebSocket itself, which the socket has refused already."""
        error = _broken(code)
        if error is not None and self.state != "closed":
            self._log("refused", code=error.code, reason=str(error))
        self._shut(reason)
        return self._take()

    def overflowed(self, waiting: int) -> list[Effect]:
        """The client does not read, or not fast enough for what it asks."""
        return self._fatal(
            failure("peer.slow", found=waiting, allowed=f"{self._limits.outgoing_bytes} bytes")
        )

    def ending(self) -> list[Effect]:
        """The gateway is being stopped: the client is told, and the socket closes."""
        if self.state == "open":
            self._send(frame(Kind.BYE, reason="the gateway is being stopped"))
        self._effects.append(HangUp(GOING_AWAY, "stopping"))
        self._shut("stopping")
        return self._take()

    def stored(self, id: str, data: bytes) -> list[Effect]:
        """A tensor came by HTTP; ``LimitError`` or ``PeerError`` where it is not accepted."""
        if self.state != "open":
            raise failure("peer.state", found="a tensor", allowed="hello first")
        if not TENSOR_ID.fullmatch(id) or id in self._stored:
            raise failure("peer.id", what="tensor id", found=id[:80])
        self._expect(len(data))
        self._stored[id] = data
        return self._take()

    def fetched(self, nbytes: int) -> None:
        """A published or streamed tensor has been taken, or given up."""
        self._published -= nbytes

    def holding(self) -> dict[str, int]:
        """What the client has of the gateway now."""
        return {
            "shards": len(self._shards),
            "runs": len(self._runs),
            "tensor_bytes": self._under_way(),
            "upload_bytes": self._uploaded(),
        }

    # ---- what the engine answers -------------------------------------------------------------

    def compiled(self, number: int, program: Program, graph: TaskGraph) -> list[Effect]:
        """The shard's text is a program with this task graph."""
        shard = self._shards.get(number)
        if shard is None:
            return self._take()
        if program.ir_digest != shard.ir or graph.digest != shard.graph:
            what, pair = "the shard and its IR", (program.ir_digest, shard.ir)
            if program.ir_digest == shard.ir:
                what, pair = "the shard and its task graph", (graph.digest, shard.graph)
            error = failure("digest.mismatch", what=what, found=pair[1], expected=pair[0])
            return self.shard_failed(number, error)
        shard.program, shard.task_graph, shard.stage = program, graph, "weights"
        digests = tuple(dict.fromkeys(upload.digest for upload in program.uploads))
        self._log("compiled", shard=number, kernels=program.kernels_digest, weights=len(digests))
        wanted = tuple(digest for digest in digests if digest not in self._blobs)
        if not wanted:
            return self.weights_found(number, frozenset())
        self._effects.append(FindWeights(number, shard.model, shard.values, wanted))
        return self._take()

    def weights_found(self, number: int, known: frozenset[str]) -> list[Effect]:
        """The gateway has the constants of these digests itself."""
        shard = self._shards.get(number)
        if shard is None or shard.program is None:
            return self._take()
        shard.known = known
        total = 0
        for upload in shard.program.uploads:
            if upload.digest in known or upload.digest in self._blobs:
                continue
            if upload.digest not in shard.missing:
                total += upload.nbytes
            shard.missing[upload.digest] = None
        if self._uploaded() + total > self._limits.upload_bytes:
            return self.shard_failed(number, self._too_much(self._uploaded() + total))
        self._need(number, list(shard.missing))
        self._load_if_complete(number)
        return self._take()

    def loaded(self, number: int) -> list[Effect]:
        """The shard is ready to run."""
        shard = self._shards.get(number)
        if shard is None or shard.program is None:
            self._effects.append(Free(number))
            return self._take()
        shard.stage = "ready"
        self._log("ready", shard=number, device=shard.device, ir=shard.ir, graph=shard.graph)
        self._send(
            frame(
                Kind.READY,
                shard=number,
                ir=shard.ir,
                graph=shard.graph,
                kernels=shard.program.kernels_digest,
                resident=shard.program.resident,
            )
        )
        return self._take()

    def shard_failed(self, number: int, error: RlxError) -> list[Effect]:
        """The shard cannot be compiled or loaded."""
        if number in self._shards:
            self._drop_shard(number, error)
        return self._take()

    def emitted(self, number: int, edge: int, data: bytes) -> list[Effect]:
        """A run sends the tensor of an edge."""
        run = self._runs.get(number)
        if run is None or self.state != "open":
            return self._take()
        graph = self._shards[run.shard].task_graph
        assert graph is not None
        carried = next(item for item in graph.edges if item.edge == edge)
        try:
            self._account(len(data))
        except LimitError as error:
            self._end(number, error)
            self._effects.append(Stop(number))
            return self._take()
        self._published += len(data)
        if carried.protocol_for(len(data)) != "http":
            self._effects.append(Stream(number, edge, data))
            return self._take()
        id = f"{number}-{edge}"
        self._effects.append(Publish(id, data))
        self._send(frame(Kind.TENSOR_AT, run=number, edge=edge, id=id, total=len(data)))
        return self._take()

    def run_done(self, number: int, events: list[list[str | int]]) -> list[Effect]:
        """A run has ended well; ``events`` are its trace."""
        run = self._runs.pop(number, None)
        if run is not None and self.state == "open":
            device = self._shards[run.shard].device
            self._log("done", run=number, device=device)
            self._send(frame(Kind.DONE, run=number, device=device, events=events[-MAX_EVENTS:]))
        return self._take()

    def run_failed(self, number: int, error: RlxError) -> list[Effect]:
        """A run has failed or was stopped."""
        run = self._runs.get(number)
        if run is None:
            return self._take()
        if run.cancelled:
            del self._runs[number]
            self._log("cancelled", run=number)
            self._send(frame(Kind.CANCELLED, run=number))
            return self._take()
        self._end(number, error)
        return self._take()

    # ---- frames ------------------------------------------------------------------------------

    def _frame(self, message: Frame) -> None:
        if self.state == "new" and message.kind is not Kind.HELLO:
            self._fatal_error(failure("peer.state", found=message.kind.name, allowed="HELLO"))
            return
        handle = _HANDLERS.get(message.kind)
        if handle is None or (self.state == "open" and message.kind is Kind.HELLO):
            allowed = [kind.name for kind in _HANDLERS if kind is not Kind.HELLO]
            self._fatal_error(failure("peer.state", found=message.kind.name, allowed=allowed))
            return
        handle(self, message)

    def _hello(self, message: Frame) -> None:
        versions = message.control["versions"]
        assert isinstance(versions, list)
        if VERSION not in versions:
            self._fatal_error(
                failure("peer.version", found=versions[:20] or "none", allowed=VERSION)
            )
            return
        self.state = "open"
        self._log("hello", client=message.text("client")[:80])
        self._send(
            frame(
                Kind.WELCOME,
                version=VERSION,
                session=self.name,
                ticket=self.ticket,
                devices=list(self._devices),
                models=list(self._models),
                limits=self._limits.told(),
                heartbeat_ms=round(1000 * self._limits.heartbeat_seconds),
            )
        )

    def _ask_shard(self, message: Frame) -> None:
        number, device = message.integer("shard"), message.text("device")
        ir, graph = message.text("ir"), message.text("graph")
        error: RlxError | None = None
        if number < 0 or number in self._shards:
            error = failure("peer.id", what="shard", found=number)
        elif len(self._shards) >= self._limits.shards:
            error = failure("queue.full", found="a further shard", allowed=self._limits.shards)
        elif device not in self._devices:
            error = failure("peer.device", found=device, allowed=self._devices)
        elif not (DIGEST.fullmatch(ir) and DIGEST.fullmatch(graph)):
            error = failure("peer.digest", found=[ir[:80], graph[:80]])
        if error is not None:
            self._refuse(error, shard=number)
            return
        values = {name: tuple(items) for name, items in message.lists("values").items()}
        shard = _Shard(device, ir, graph, message.text("model"), values)
        self._shards[number] = shard
        if ir in self._blobs:
            self._compile(number)
            return
        shard.missing[ir] = None
        self._need(number, [ir])

    def _blob(self, message: Frame) -> None:
        digest = message.text("digest")
        total = message.integer("total")
        asking = [shard for shard in self._shards.values() if digest in shard.missing]
        if not asking:
            self._refuse(failure("upload.unasked", found=digest[:80]))
            return
        is_text = all(shard.stage == "text" for shard in asking)
        limit = self._limits.ir_bytes if is_text else self._limits.upload_bytes
        try:
            pieces = self._uploads.get(digest)
            if pieces is None:
                if self._uploaded() + max(total, 0) > self._limits.upload_bytes:
                    raise self._too_much(self._uploaded() + total)
                pieces = self._uploads[digest] = Pieces(digest, total, limit)
            data = pieces.add(message.integer("offset"), total, message.payload)
            if data is None:
                return
            del self._uploads[digest]
            found = bytes_digest(data)
            if found != digest:
                raise failure(
                    "digest.mismatch", what="the bytes and the digest", found=found, expected=digest
                )
        except RlxError as error:
            self._uploads.pop(digest, None)
            for number, shard in list(self._shards.items()):
                if digest in shard.missing:
                    self._drop_shard(number, error)
            return
        self._blobs[digest] = data
        for number, shard in list(self._shards.items()):
            if digest in shard.missing:
                del shard.missing[digest]
                if shard.stage == "text":
                    self._compile(number)
                else:
                    self._load_if_complete(number)

    def _run(self, message: Frame) -> None:
        number, name = message.integer("run"), message.integer("shard")
        shard = self._shards.get(name)
        error: RlxError | None = None
        if number <= self._last_run:
            error = failure("peer.id", what="run", found=number)
        elif shard is None or shard.stage != "ready":
            error = failure("peer.id", what="ready shard", found=name)
        elif len(self._runs) >= self._limits.runs:
            error = failure("queue.full", found="a further run", allowed=self._limits.runs)
        elif message.text("graph") != shard.graph:
            error = failure(
                "digest.mismatch",
                what="the run and the shard's task graph",
                found=message.text("graph")[:80],
                expected=shard.graph,
            )
        if error is not None:
            self._refuse(error, run=number)
            return
        self._last_run = number
        self._runs[number] = _Run(name)
        self._effects.append(Start(number, name, message.sizes("symbols")))

    def _tensor(self, message: Frame) -> None:
        number, edge = message.integer("run"), message.integer("edge")
        run = self._runs.get(number)
        if run is None:
            return  # of a run that has ended meanwhile
        total = message.integer("total")
        try:
            pieces = run.incoming.get(edge)
            if pieces is None:
                self._account(max(total, 0))
                pieces = run.incoming[edge] = Pieces(
                    f"edge {edge}", total, self._limits.tensor_bytes
                )
            data = pieces.add(message.integer("offset"), total, message.payload)
        except RlxError as error:
            self._end(number, error)
            self._effects.append(Stop(number))
            return
        if data is not None:
            del run.incoming[edge]
            self._effects.append(Deliver(number, edge, data))

    def _tensor_at(self, message: Frame) -> None:
        number = message.integer("run")
        data = self._stored.pop(message.text("id"), None)
        if number not in self._runs:
            return
        if data is None or len(data) != message.integer("total"):
            self._end(number, failure("tensor.missing", found=message.text("id")[:80]))
            self._effects.append(Stop(number))
            return
        self._effects.append(Deliver(number, message.integer("edge"), data))

    def _cancel(self, message: Frame) -> None:
        number = message.integer("run")
        run = self._runs.get(number)
        if run is None or run.cancelled:
            return
        run.cancelled = True
        self._effects.append(Stop(number))

    def _ping(self, message: Frame) -> None:
        received = self._clock()
        self._send(
            frame(Kind.PONG, sent=message.integer("sent"), received=received, replied=self._clock())
        )

    def _pong(self, message: Frame) -> None:
        """Having heard something is all that counts."""

    def _release(self, message: Frame) -> None:
        number = message.integer("shard")
        if number not in self._shards:
            self._refuse(failure("peer.id", what="shard", found=number), shard=number)
            return
        for run, entry in list(self._runs.items()):
            if entry.shard == number:
                self._effects.append(Stop(run))
                del self._runs[run]
        del self._shards[number]
        self._effects.append(Free(number))
        self._log("released", shard=number)
        self._forget_blobs()

    def _bye(self, message: Frame) -> None:
        self._effects.append(HangUp(1000, "bye"))
        self._shut(message.text("reason")[:80])

    # ---- parts -------------------------------------------------------------------------------

    def _compile(self, number: int) -> None:
        shard = self._shards[number]
        shard.stage = "compile"
        self._effects.append(Compile(number, shard.device, self._blobs[shard.ir]))

    def _load_if_complete(self, number: int) -> None:
        shard = self._shards[number]
        if shard.missing or shard.program is None or shard.stage != "weights":
            return
        shard.stage = "load"
        digests = {upload.digest for upload in shard.program.uploads}
        blobs = {digest: data for digest, data in self._blobs.items() if digest in digests}
        self._effects.append(Load(number, shard.program, blobs))

    def _drop_shard(self, number: int, error: RlxError) -> None:
        del self._shards[number]
        self._refuse(error, shard=number)
        self._forget_blobs()

    def _need(self, number: int, digests: list[str]) -> None:
        for start in range(0, len(digests), MAX_NEED):
            part = digests[start : start + MAX_NEED]
            self._send(frame(Kind.NEED, shard=number, digests=part))

    def _forget_blobs(self) -> None:
        """Keep only the bytes that a shard still names."""
        needed = {shard.ir for shard in self._shards.values()}
        for shard in self._shards.values():
            if shard.program is not None:
                needed.update(upload.digest for upload in shard.program.uploads)
        self._blobs = {name: data for name, data in self._blobs.items() if name in needed}

    def _uploaded(self) -> int:
        return sum(map(len, self._blobs.values())) + sum(p.total for p in self._uploads.values())

    def _expect(self, nbytes: int) -> None:
        """``LimitError`` ``upload.limit`` where a tensor of that many bytes is not accepted."""
        if nbytes > self._limits.tensor_bytes:
            raise failure(
                "upload.limit", found=f"{nbytes} bytes", allowed=self._limits.tensor_bytes
            )
        self._account(nbytes)

    def _under_way(self) -> int:
        waiting = sum(map(len, self._stored.values())) + self._published + self._receiving
        return waiting + sum(
            pieces.total for run in self._runs.values() for pieces in run.incoming.values()
        )

    def _account(self, nbytes: int) -> None:
        waiting = self._under_way()
        if waiting + nbytes > self._limits.stored_bytes:
            raise failure(
                "upload.limit", found=f"{waiting + nbytes} bytes", allowed=self._limits.stored_bytes
            )

    def _too_much(self, nbytes: int) -> RlxError:
        return failure(
            "upload.limit", found=f"{nbytes} bytes", allowed=f"{self._limits.upload_bytes} bytes"
        )

    def _silent(self, seconds: float, allowed: float) -> RlxError:
        return failure("peer.silent", seconds=f"{seconds:.1f}", allowed=f"{allowed:g}")

    # ---- answers -----------------------------------------------------------------------------

    def _send(self, message: Frame) -> None:
        urgent = message.kind in (Kind.PING, Kind.PONG)
        self._effects.append(Transmit(encode(message), urgent))

    def _log(self, event: str, **fields: object) -> None:
        self._effects.append(Log(event, {"session": self.name, **fields}))

    def _refuse(self, error: RlxError, *, run: int = -1, shard: int = -1) -> None:
        fields = {"run": run} if run >= 0 else {"shard": shard} if shard >= 0 else {}
        self._log("refused", code=error.code, reason=str(error)[:400], **fields)
        self._send(error_frame(error, run=run, shard=shard))

    def _end(self, number: int, error: RlxError) -> None:
        del self._runs[number]
        self._refuse(error, run=number)

    def _fatal(self, error: RlxError) -> list[Effect]:
        self._fatal_error(error)
        return self._take()

    def _fatal_error(self, error: RlxError) -> None:
        if self.state == "closed":
            return
        self._log("refused", code=error.code, reason=str(error)[:400])
        self._send(error_frame(error, fatal=True))
        code = TOO_BIG if isinstance(error, LimitError) else PROTOCOL_ERROR
        self._effects.append(HangUp(code, error.code))
        self._release_all()

    def _shut(self, reason: str) -> None:
        if self.state != "closed":
            self._log("closed", reason=reason)
            self._release_all()

    def _release_all(self) -> None:
        self.state = "closed"
        self._effects += [Stop(run) for run in self._runs]
        self._effects += [Free(shard) for shard in self._shards]
        for table in (self._runs, self._shards, self._uploads, self._blobs, self._stored):
            table.clear()

    def _take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _broken(code: int) -> RlxError | None:
    """What a client did whom the socket refused with this close code."""
    if code == TOO_BIG:
        return failure("frame.limit", found="more", allowed=MAX_FRAME)
    if code in (PROTOCOL_ERROR, INVALID_DATA):
        return failure("frame.websocket", found=f"close code {code}")
    return None


_HANDLERS: Mapping[Kind, Callable[[ServerSession, Frame], None]] = {
    Kind.HELLO: ServerSession._hello,
    Kind.SHARD: ServerSession._ask_shard,
    Kind.BLOB: ServerSession._blob,
    Kind.RUN: ServerSession._run,
    Kind.TENSOR: ServerSession._tensor,
    Kind.TENSOR_AT: ServerSession._tensor_at,
    Kind.CANCEL: ServerSession._cancel,
    Kind.PING: ServerSession._ping,
    Kind.PONG: ServerSession._pong,
    Kind.RELEASE: ServerSession._release,
    Kind.BYE: ServerSession._bye,
}
