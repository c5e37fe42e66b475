"""Offloading over sockets: carries out what sessions decide.

One WebSocket a client at ``/offload``; large tensors go by HTTP (``tensors.py``). The adapter has
no opinions: limits and refusals are in ``session.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rlx_edge.gateway.access import Access, chosen_subprotocol
from rlx_edge.gateway.compiling import Compiler
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
from rlx_edge.gateway.engines.engine import Engine
from rlx_edge.gateway.engines.faults import told
from rlx_edge.gateway.engines.in_process import InProcessEngine
from rlx_edge.gateway.limits import Limits
from rlx_edge.gateway.metrics import MEDIA_TYPE, Metrics
from rlx_edge.gateway.protocol import encode, tensor_frames
from rlx_edge.gateway.registry import Registry
from rlx_edge.gateway.session import ServerSession
from rlx_edge.gateway.tensors import NO_STORE, Tensors, refusal
from rlx_edge.gateway.workers import Workers
from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.types import U8, tensor_type
from rlx_edge.runtime.trace import Trace, TraceEvent

TICK_SECONDS = 0.25
CLOSE_SECONDS = 2.0
"""How long a client has to read its last frames."""

log = logging.getLogger("rlx_edge.gateway")


class Offload:
    """What offloading adds to the gateway: its routes, and what lives while it serves."""

    def __init__(
        self, access: Access, limits: Limits, registry: Registry, workers: Workers
    ) -> None:
        self.access = access
        self.limits = limits
        self.registry = registry
        self.connections: dict[str, Connection] = {}
        """By ticket."""
        self.workers = workers
        self._metrics = Metrics()
        self._closing = False
        self._count = 0
        self._models: tuple[str, ...] = ()

    def routes(self) -> list[BaseRoute]:
        """For the gateway's application, in front of the site."""
        return [
            WebSocketRoute("/offload", self.socket),
            *Tensors(self).routes(),
            Route("/metrics", self.tell_metrics),
        ]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The engine runs and clients are served; at the end each is told and freed."""
        loop = asyncio.get_running_loop()
        self.compiler = Compiler(self.limits)
        self.engine: Engine = InProcessEngine(
            self.workers.roles,
            self.workers.unit,
            lambda call: _post(loop, call),
            memory_limit=self.limits.memory_bytes,
            capacity=self.limits.jobs,
        )
        self._models = await self.registry.digests()
        log.addHandler(self._metrics)
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self._closing = True
            ticker.cancel()
            closing = [item.end() for item in list(self.connections.values())]
            await asyncio.gather(*closing)
            try:
                await asyncio.to_thread(self.engine.close)
            except DeviceError as error:  # what was still held, by name
                log.error("leak", extra={"code": error.code, "reason": str(error)})
            log.removeHandler(self._metrics)

    async def _tick(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            late = now - before - TICK_SECONDS
            before = now
            for connection in list(self.connections.values()):
                if late > TICK_SECONDS:
                    connection.excuse(late)
                connection.tick(now)

    async def tell_metrics(self, request: Request) -> Response:
        """Counts and what clients hold, for who shows the token."""
        try:
            self.access.check_handshake(request.headers)
        except RlxError as error:
            return refusal(error)
        sessions = [item.session.holding() for item in self.connections.values()]
        names = ("shards", "runs", "tensor_bytes", "upload_bytes")
        gauges = {f"rlx_edge_{name}": sum(item[name] for item in sessions) for name in names}
        text = self._metrics.text({"rlx_edge_clients": len(sessions), **gauges})
        return PlainTextResponse(text, media_type=MEDIA_TYPE, headers=NO_STORE)

    # ---- WebSocket ---------------------------------------------------------------------------

    async def socket(self, websocket: WebSocket) -> None:
        """One client."""
        headers = websocket.headers
        try:
            if self._closing:
                raise failure("peer.closing")
            self.access.check_handshake(headers)
            if len(self.connections) >= self.limits.clients:
                raise failure("peer.clients", found="a further one", allowed=self.limits.clients)
        except RlxError as error:
            await websocket.send_denial_response(refusal(error))
            return
        await websocket.accept(subprotocol=chosen_subprotocol(headers))
        self._count += 1
        session = ServerSession(
            f"client-{self._count}",
            secrets.token_urlsafe(24),
            self.engine.devices,
            self._models,
            self.limits,
            time.monotonic(),
            Trace.now,
        )
        connection = Connection(self, websocket, session)
        self.connections[session.ticket] = connection
        log.info("connected", extra={"session": session.name, "clients": len(self.connections)})
        try:
            await connection.serve()
        finally:
            del self.connections[session.ticket]


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(call)


class Connection:
    """One socket, its session, and the shards and runs that the engine has for it."""

    def __init__(self, offload: Offload, websocket: WebSocket, session: ServerSession) -> None:
        self.session = session
        self.published: dict[str, bytes] = {}
        self._offload = offload
        self._websocket = websocket
        self._waiting: deque[bytes | Stream] = deque()
        self._urgent: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sending_since = 0.0
        self._hang_up: HangUp | None = None
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._found: dict[int, Mapping[str, Constant]] = {}

    async def serve(self) -> None:
        """Until either side ends it; afterwards nothing of the client is left."""
        writer = asyncio.create_task(self._write())
        reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            code = 1006
            if reader.done() and not reader.cancelled() and reader.exception() is None:
                code = reader.result()
            self.apply(self.session.gone(f"the socket was closed ({code})", code))
            for task in (writer, reader, *self._tasks):
                task.cancel()
            await asyncio.gather(writer, reader, *self._tasks, return_exceptions=True)
            self.published.clear()

    async def end(self) -> None:
        """Tell the client that the gateway is being stopped, and close."""
        self.apply(self.session.ending())
        while self._offload.connections.get(self.session.ticket) is self:
            await asyncio.sleep(0.01)

    async def _read(self) -> int:
        """The code with which the socket closes."""
        try:
            while True:
                message = await self._websocket.receive()
                if message["type"] == "websocket.disconnect":
                    return int(message.get("code") or 1006)
                data = message.get("bytes")
                if data is None:
                    data = (message.get("text") or "").encode("utf-8", "replace")
                self.apply(self.session.received(data, time.monotonic()))
        except (WebSocketDisconnect, RuntimeError):
            return 1006

    async def _write(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            while True:
                await self._send_urgent()
                while self._waiting:
                    item = self._waiting[0]
                    if isinstance(item, Stream):
                        for part in tensor_frames(item.run, item.edge, item.data):
                            await self._send_urgent()
                            await self._send(encode(part))
                            self.session.heard(time.monotonic())
                        self.session.fetched(len(item.data))
                    else:
                        await self._send(item)
                        self._waiting_bytes -= len(item)
                    if self._waiting and self._waiting[0] is item:
                        self._waiting.popleft()
                if self._hang_up is not None:
                    if self._websocket.application_state is WebSocketState.CONNECTED:
                        async with asyncio.timeout(CLOSE_SECONDS):
                            await self._websocket.close(self._hang_up.code, self._hang_up.reason)
                    return
                self._wake.clear()
                await self._wake.wait()

    async def _send_urgent(self) -> None:
        while self._urgent:
            data = self._urgent.popleft()
            self._waiting_bytes -= len(data)
            await self._send(data)

    async def _send(self, data: bytes) -> None:
        """One message, when the socket takes it."""
        self._sending_since = time.monotonic()
        if self._hang_up is None:
            await self._websocket.send_bytes(data)
        else:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._websocket.send_bytes(data)
        self._sending_since = 0.0

    def excuse(self, seconds: float) -> None:
        """The gateway was late: nobody is blamed for that time."""
        self.session.excuse(seconds)
        if self._sending_since:
            self._sending_since += seconds

    def tick(self, now: float) -> None:
        """Time has passed: the session's heartbeats, and a socket that takes nothing."""
        self.apply(self.session.tick(now))
        stuck = self._sending_since and now - self._sending_since
        if stuck > self._offload.limits.silence_seconds and self._hang_up is None:
            self._overflow()

    # ---- effects -----------------------------------------------------------------------------

    def apply(self, effects: list[Effect]) -> None:
        """Carry out, in order."""
        for effect in effects:
            _APPLY[type(effect)](self, effect)

    def _transmit(self, effect: Transmit) -> None:
        (self._urgent if effect.urgent else self._waiting).append(effect.data)
        self._waiting_bytes += len(effect.data)
        self._wake.set()
        if self._waiting_bytes > self._offload.limits.outgoing_bytes and self._hang_up is None:
            self._overflow()

    def _overflow(self) -> None:
        waiting = self._waiting_bytes
        waiting += sum(len(item.data) for item in self._waiting if isinstance(item, Stream))
        self._waiting.clear()
        self._urgent.clear()
        self._waiting_bytes = 0
        self.apply(self.session.overflowed(waiting))

    def _stream(self, effect: Stream) -> None:
        self._waiting.append(effect)
        self._wake.set()

    def _close(self, effect: HangUp) -> None:
        if self._hang_up is None:
            self._hang_up = effect
            self._wake.set()

    def _log(self, effect: Log) -> None:
        log.info(effect.event, extra=dict(effect.fields))

    def _compile(self, effect: Compile) -> None:
        async def work() -> None:
            try:
                # Opening a device takes its time, and happens when one is first asked for.
                target = await asyncio.to_thread(self._offload.workers.target, effect.device)
                program, graph = await self._offload.compiler.compile(
                    effect.text, effect.device, target
                )
            except Exception as error:  # whatever a driver does: its client is told
                self.apply(self.session.shard_failed(effect.shard, told(error)))
            else:
                self.apply(self.session.compiled(effect.shard, program, graph))

        self._spawn(work())

    def _find_weights(self, effect: FindWeights) -> None:
        async def work() -> None:
            found = await self._offload.registry.find(effect.model, effect.values, effect.digests)
            self._found[effect.shard] = found
            self.apply(self.session.weights_found(effect.shard, frozenset(found)))

        self._spawn(work())

    def _load(self, effect: Load) -> None:
        constants = dict(self._found.pop(effect.shard, {}))
        for digest, data in effect.blobs.items():
            type = tensor_type(U8, len(data))
            constants[digest] = Constant(digest, type, MemorySource(data), 0, len(data))
        try:
            self._offload.engine.load(
                self.session.name, effect.shard, effect.program, constants, self
            )
        except RlxError as error:
            self.apply(self.session.shard_failed(effect.shard, error))

    def _start(self, effect: Start) -> None:
        try:
            self._offload.engine.start(self.session.name, effect.shard, effect.run, effect.symbols)
        except RlxError as error:
            self.apply(self.session.run_failed(effect.run, error))

    def _deliver(self, effect: Deliver) -> None:
        self._offload.engine.deliver(self.session.name, effect.run, effect.edge, effect.data)

    def _stop(self, effect: Stop) -> None:
        self._offload.engine.stop(self.session.name, effect.run)

    def _publish(self, effect: Publish) -> None:
        self.published[effect.id] = effect.data

    def _free(self, effect: Free) -> None:
        self._found.pop(effect.shard, None)
        self._offload.engine.free(self.session.name, effect.shard)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- the engine's answers ----------------------------------------------------------------

    def loaded(self, shard: int) -> None:
        self.apply(self.session.loaded(shard))

    def load_failed(self, shard: int, error: RlxError) -> None:
        self.apply(self.session.shard_failed(shard, error))

    def emitted(self, run: int, edge: int, data: bytes) -> None:
        self.apply(self.session.emitted(run, edge, data))

    def run_done(self, run: int, events: tuple[TraceEvent, ...]) -> None:
        self.apply(self.session.run_done(run, [list(event) for event in events]))

    def run_failed(self, run: int, error: RlxError) -> None:
        self.apply(self.session.run_failed(run, error))


_APPLY: Mapping[type, Callable[[Connection, Any], None]] = {
    Transmit: Connection._transmit,
    Stream: Connection._stream,
    HangUp: Connection._close,
    Log: Connection._log,
    Compile: Connection._compile,
    FindWeights: Connection._find_weights,
    Load: Connection._load,
    Start: Connection._start,
    Deliver: Connection._deliver,
    Stop: Connection._stop,
    Publish: Connection._publish,
    Free: Connection._free,
}
