"""One log line a request: method, path, status, bytes, time. WebSockets have lines of their own."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("rlx_edge.gateway.requests")


class RequestLog:
    """Writes the event `request` when a response has ended, `request_failed` when it broke.

    Queries are left out: they may hold what is nobody's business.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        status, nbytes = 0, 0

        async def counted(message: Message) -> None:
            nonlocal status, nbytes
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                nbytes += len(message.get("body", b""))
            await send(message)

        event, level = "request_failed", logging.WARNING
        try:
            await self.app(scope, receive, counted)
            event, level = "request", logging.INFO
        finally:
            client = scope.get("client")
            log.log(
                level,
                event,
                extra={
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "bytes": nbytes,
                    "ms": round((time.perf_counter() - start) * 1e3, 1),
                    "client": client[0] if client else None,
                },
            )
