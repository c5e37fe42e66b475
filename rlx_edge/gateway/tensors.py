"""Large tensors over HTTP: ``PUT`` takes one that a frame will speak of, ``GET`` gives one once.

Who may ask shows the ticket of a session. Pages of the origins on the allow-list are told so (CORS,
Fetch standard), also before they ask. A body that stands still is given up, on either side.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from rlx_edge.gateway.access import bearer, status_of
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure

if TYPE_CHECKING:
    from rlx_edge.gateway.offload import Connection, Offload

CHUNK = 256 << 10
NO_STORE = {"cache-control": "no-store"}
PREFLIGHT = {
    "access-control-allow-methods": "GET, PUT",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}

log = logging.getLogger("rlx_edge.gateway")


def refusal(error: RlxError) -> Response:
    """The error as JSON, logged."""
    log.info("refused", extra={"code": error.code, "reason": str(error)})
    body = {"code": error.code, "message": str(error)}
    return JSONResponse(body, status_code=status_of(error), headers=NO_STORE)


class Tensors:
    """The routes at ``/tensors/ID``."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload

    def routes(self) -> list[BaseRoute]:
        """For the gateway's application."""
        path = "/tensors/{id}"
        return [
            Route(path, self._put, methods=["PUT"]),
            Route(path, self._get, methods=["GET"]),
            Route(path, self._preflight, methods=["OPTIONS"]),
        ]

    async def _preflight(self, request: Request) -> Response:
        try:
            self._offload.access.check_origin(request.headers)
        except RlxError as error:
            return refusal(error)
        return self._answer(request, Response(status_code=204, headers=PREFLIGHT))

    async def _put(self, request: Request) -> Response:
        try:
            connection = self._connection(request)
            length = request.headers.get("content-length", "")
            if not length.isdigit():
                raise failure("frame.length", found="no length", allowed="Content-Length")
            with body(connection, int(length)):
                data = await self._read(connection, request, int(length))
            connection.apply(connection.session.stored(request.path_params["id"], data))
        except RlxError as error:
            return self._answer(request, refusal(error))
        return self._answer(request, Response(status_code=204, headers=NO_STORE))

    async def _read(self, connection: Connection, request: Request, length: int) -> bytes:
        data = bytearray()
        seconds = self._offload.limits.body_seconds
        chunks = aiter(request.stream())
        try:
            while True:
                async with asyncio.timeout(seconds):
                    data += await anext(chunks)
                connection.session.heard(time.monotonic())
                if len(data) > length:
                    break
        except TimeoutError:
            raise failure("peer.silent", seconds=f"{seconds:.1f}", allowed=f"{seconds:g}") from None
        except (StopAsyncIteration, ClientDisconnect):
            pass
        if len(data) != length:
            raise failure("frame.length", found=f"{len(data)} bytes", allowed=f"{length} bytes")
        return bytes(data)

    async def _get(self, request: Request) -> Response:
        try:
            connection = self._connection(request)
            id = request.path_params["id"]
            data = connection.published.pop(id, None)
            if data is None:
                raise failure("tensor.missing", found=id[:80])
        except RlxError as error:
            return self._answer(request, refusal(error))
        response = TensorResponse(connection, data, self._offload.limits.body_seconds)
        return self._answer(request, response)

    def _connection(self, request: Request) -> Connection:
        self._offload.access.check_origin(request.headers)
        connection = self._offload.connections.get(bearer(request.headers))
        if connection is None:
            raise failure("peer.token")
        return connection

    def _answer(self, request: Request, response: Response) -> Response:
        response.headers.update(self._offload.access.shared_with(request.headers))
        return response


@contextlib.contextmanager
def body(connection: Connection, nbytes: int = 0) -> Iterator[None]:
    """A body is under way while the block lasts; ``nbytes`` come in by it."""
    session = connection.session
    session.body_begins(time.monotonic(), nbytes)
    try:
        yield
    finally:
        session.body_ends(time.monotonic(), nbytes)


class TensorResponse(Response):
    """The bytes of a tensor at the pace of its reader, who is left when nothing moves for
    ``seconds`` or the session has ended."""

    media_type = "application/octet-stream"

    def __init__(self, connection: Connection, data: bytes, seconds: float) -> None:
        super().__init__(headers={**NO_STORE, "content-length": str(len(data))})
        self._connection = connection
        self._data = data
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session, data = self._connection.session, memoryview(self._data)
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            with body(self._connection):
                await send(start)
                for at in range(0, len(data), CHUNK):
                    if session.state == "closed":
                        return
                    part = {"type": "http.response.body", "body": bytes(data[at : at + CHUNK])}
                    async with asyncio.timeout(self._seconds):
                        await send({**part, "more_body": True})
                    session.heard(time.monotonic())
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            error = failure("peer.slow", found=len(data), allowed=f"{self._seconds:g} seconds")
            log.info(
                "refused",
                extra={"session": session.name, "code": error.code, "reason": str(error)},
            )
        finally:
            session.fetched(len(self._data))
