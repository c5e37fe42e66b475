"""Running a gateway: one uvicorn server, stopped by SIGINT and SIGTERM, one log line an event."""

from __future__ import annotations

import errno
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn

from rlx_edge.gateway.app import create_app
from rlx_edge.gateway.offload import Offload
from rlx_edge.gateway.protocol import MAX_FRAME
from rlx_edge.gateway.settings import Settings
from rlx_edge.ir.errors import DeviceError

GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 30

_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, event, and what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _FIELDS}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = repr(record.exc_info[1])
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def serve(
    settings: Settings, announce: Callable[[str], None], offload: Offload | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; open requests get `GRACE_SECONDS` to end.

    `announce` is told the URL once the port is open. DeviceError `gateway.bind` where that
    cannot be.
    """
    listener = bind(settings.host, settings.port, settings.any_port)
    try:
        log_to_stderr()
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(settings, offload),
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                ws="none" if offload is None else "websockets-sansio",
                ws_max_size=MAX_FRAME,
                ws_per_message_deflate=False,
                ws_ping_interval=None,  # the protocol has heartbeats of its own
                timeout_graceful_shutdown=GRACE_SECONDS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        announce(url_of(settings.host, listener.getsockname()[1]))
        # uvicorn raises the signal again once all is closed; it has done its work by then.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        listener.close()


def bind(host: str, port: int, any_port: bool = False) -> socket.socket:
    """A socket that listens on the address; with `any_port` on a free one if `port` is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is stated because asyncio sets TCP_NODELAY on such sockets only, and small
    # frames must not wait for acknowledgements.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        busy = error.errno == errno.EADDRINUSE
        if busy and any_port:
            return bind(host, 0)
        raise DeviceError(
            "gateway.bind",
            f"cannot listen on {host} port {port}",
            found="another program listens there" if busy else str(error.strerror or error),
            hint="choose another with --port, 0 for any" if busy else None,
        ) from error
    return listener


def url_of(host: str, port: int) -> str:
    """The URL to open: an unspecified address is reached through the loopback."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name and not name.startswith('[') else name}:{port}/"


_NO_NEWS = (
    "ASGI callable returned without completing handshake.",
    "ASGI callable returned without completing response.",
)


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn complains of every handshake that is answered with a refusal, and of every body that
    is given up, which are lines of their own already."""
    return record.getMessage() not in _NO_NEWS


def log_to_stderr() -> None:
    """Events of the gateway, and what uvicorn warns of, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(_is_news)
    for name, level in (("rlx_edge.gateway", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
