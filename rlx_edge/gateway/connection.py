"""A client's connection to a gateway: one WebSocket, HTTP for large tensors. Blocking.

The machine is ``client.py``; this opens sockets. A thread reads frames, so that heartbeats are
answered while the caller computes.
"""

from __future__ import annotations

import http.client
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from rlx_edge.gateway.client import (
    Arrived,
    ClientSession,
    ClockRead,
    Ended,
    Event,
    Needed,
    Offered,
    Ready,
    Refused,
    Welcomed,
)
from rlx_edge.gateway.protocol import MAX_FRAME, SUBPROTOCOL
from rlx_edge.ir.errors import DeviceError, InputError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.runtime.trace import Trace

OPEN_SECONDS = 10.0
BODY_SECONDS = 60.0
"""How long the body of a tensor may stand still."""
WATCH_SECONDS = 1.0
PING_ROUNDS = 5
CHUNK = 256 << 10

Bytes = Callable[[str], bytes]
E = TypeVar("E")


class GatewayConnection:
    """Used by one thread at a time, except for ``cancel``.

    ``url`` is the gateway's, ``http://`` or ``https://``. ``DeviceError`` ``gateway.unreachable``
    and ``gateway.refused`` with the status and the reason that it gives.
    """

    def __init__(self, url: str, token: str, *, client: str = "rlx") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                "gateway.url", "not a gateway's URL", found=repr(url), allowed="http://HOST:PORT"
            )
        self._parts = parts
        self._session = ClientSession(client, Trace.now)
        self._events: queue.SimpleQueue[Event | RlxError] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._http: http.client.HTTPConnection | None = None
        self._socket = self._connect(token)
        # Small frames follow each other: none may wait for the acknowledgement of the one before.
        self._socket.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = threading.Thread(target=self._read, name="rlx-gateway", daemon=True)
        self._reader.start()
        self._flush()
        self.clock_offset = 0
        """The gateway's clock minus ours, nanoseconds."""
        self.clock_uncertainty = 0
        self.welcome = self._wait(Welcomed)
        self._sync_clocks()

    def _connect(self, token: str) -> ClientConnection:
        parts = self._parts
        scheme = "wss" if parts.scheme == "https" else "ws"
        url = f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/offload"
        try:
            return self._stack.enter_context(
                connect(
                    url,
                    additional_headers={"Authorization": f"Bearer {token}"},
                    subprotocols=[Subprotocol(SUBPROTOCOL)],
                    compression=None,
                    max_size=MAX_FRAME,
                    open_timeout=OPEN_SECONDS,
                    ping_interval=None,  # the protocol has heartbeats of its own
                    proxy=None,
                )
            )
        except InvalidStatus as refused:
            body = (refused.response.body or b"")[:300].decode("utf-8", "replace")
            raise DeviceError(
                "gateway.refused",
                "the gateway refuses the connection",
                found=f"HTTP {refused.response.status_code} {body}",
                where=parts.netloc,
            ) from None
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise DeviceError(
                "gateway.unreachable",
                "no gateway answers there",
                found=str(error) or type(error).__name__,
                where=parts.netloc,
                hint="start one with `rlx serve`",
            ) from None

    @property
    def is_lost(self) -> bool:
        """Whether the socket has closed, for whatever reason."""
        return not self._reader.is_alive()

    # ---- shards ------------------------------------------------------------------------------

    def load(
        self,
        shard: int,
        device: str,
        ir: str,
        graph: str,
        read: Bytes,
        *,
        model: str = "",
        values: Mapping[str, Sequence[int]] | None = None,
    ) -> Ready:
        """Have a shard ready. ``read`` gives the bytes of a digest: the text's, or a constant's."""
        with self._lock:
            self._session.ask_shard(shard, device, ir, graph, model=model, values=values)
        self._flush()
        while True:
            event = self._next()
            if isinstance(event, Needed):
                for digest in event.digests:
                    with self._lock:
                        self._session.upload(digest, read(digest))
                    self._flush()
            elif isinstance(event, Ready):
                return event

    # ---- runs --------------------------------------------------------------------------------

    def start(self, shard: int, symbols: Mapping[str, int]) -> int:
        """Begin a run; its number."""
        with self._lock:
            run = self._session.run(shard, symbols)
        self._flush()
        return run

    def send(self, run: int, edge: int, data: bytes | memoryview, protocol: str) -> None:
        """The bytes of an edge by the protocol that the task graph picks."""
        if protocol == "http":
            id = f"{run}-{edge}"
            self._request("PUT", id, data)
            with self._lock:
                self._session.send_tensor_at(run, edge, id, len(data))
        else:
            with self._lock:
                self._session.send_tensor(run, edge, data)
        self._flush()

    def next(self) -> Event:
        """The next event of a run, with offered tensors already fetched. Refusals are raised, and
        ``PeerError`` ``peer.silent`` where the gateway is not heard of any more."""
        event = self._next()
        if isinstance(event, Offered):
            return Arrived(event.run, event.edge, self._request("GET", event.id, None))
        return event

    def cancel(self, run: int) -> None:
        """Ask for a run to be stopped; from any thread."""
        with self._lock:
            self._session.cancel(run)
        self._flush()

    def close(self) -> None:
        """Say goodbye and close; calling it again does nothing."""
        with self._lock:
            self._session.bye()
        self._flush()
        self._stack.close()
        self._reader.join()
        if self._http is not None:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- frames ------------------------------------------------------------------------------

    def _sync_clocks(self) -> None:
        best: ClockRead | None = None
        for _ in range(PING_ROUNDS):
            with self._lock:
                self._session.ping()
            self._flush()
            read = self._wait(ClockRead)
            if best is None or read.uncertainty < best.uncertainty:
                best = read
        assert best is not None
        self.clock_offset, self.clock_uncertainty = best.offset, best.uncertainty

    def _wait(self, kind: type[E]) -> E:
        while True:
            event = self._next()
            if isinstance(event, kind):
                return event

    def _next(self) -> Event:
        event: Event | RlxError | None = None
        while event is None:
            before = Trace.now()
            try:
                event = self._events.get(timeout=WATCH_SECONDS)
            except queue.Empty:
                late = Trace.now() - before - round(2e9 * WATCH_SECONDS)
                with self._lock:
                    self._session.tick(max(0, late))
        if isinstance(event, RlxError):
            self._events.put(event)
            raise event
        if isinstance(event, Refused):
            raise event.error
        if isinstance(event, Ended):
            raise failure("peer.lost", reason=event.reason)
        return event

    def _read(self) -> None:
        """The reading thread: frames become events, heartbeats are answered at once."""
        try:
            while True:
                data = self._socket.recv()
                with self._lock:
                    events = self._session.received(
                        data.encode() if isinstance(data, str) else data
                    )
                self._flush()
                for event in events:
                    self._events.put(event)
        except ConnectionClosed as closed:
            self._events.put(failure("peer.lost", reason=str(closed)))
        except RlxError as error:
            self._events.put(error)
            self._socket.close()

    def _flush(self) -> None:
        with self._lock:
            frames = self._session.take()
            try:
                for data in frames:
                    self._socket.send(data)
            except ConnectionClosed:
                pass  # the reading thread says why

    # ---- HTTP --------------------------------------------------------------------------------

    @contextmanager
    def _body(self) -> Iterator[None]:
        with self._lock:
            self._session.body_begins()
        try:
            yield
        finally:
            with self._lock:
                self._session.body_ends()

    def _read_body(self, response: http.client.HTTPResponse) -> bytes:
        data = bytearray()
        while piece := response.read(CHUNK):
            data += piece
            with self._lock:
                self._session.heard()
        if response.length:
            raise http.client.IncompleteRead(bytes(data[:0]), response.length)
        return bytes(data)

    def _request(self, method: str, id: str, body: bytes | memoryview | None) -> bytes:
        headers = {"Authorization": f"Bearer {self.welcome.ticket}"}
        if body is not None:
            headers["Content-Length"] = str(len(body))
        for attempt in range(2):
            if self._http is None:
                secure = self._parts.scheme == "https"
                make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
                assert self._parts.hostname is not None
                self._http = make(self._parts.hostname, self._parts.port, timeout=BODY_SECONDS)
            try:
                path = f"{self._parts.path.rstrip('/')}/tensors/{id}"
                with self._body():
                    self._http.request(method, path, body, headers)
                    response = self._http.getresponse()
                    data = self._read_body(response)
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                self._http = None
                if attempt or method == "GET":
                    raise failure("peer.lost", reason=str(error) or type(error).__name__) from None
                continue
            if response.status >= 300:
                raise DeviceError(
                    "gateway.refused",
                    "the gateway refuses a tensor",
                    found=f"HTTP {response.status} {data[:300].decode('utf-8', 'replace')}",
                )
            return data
        raise AssertionError("unreachable")
