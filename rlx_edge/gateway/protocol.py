"""Frames: what a page or a command line and a gateway say to each other.

A frame is one binary WebSocket message::

    offset  bytes
         0      4  magic "RLX1"
         4      1  version of the frames
         5      1  kind
         6      2  0
         8      4  length of the control part, a multiple of 8
        12      4  length of the payload
        16         control: a JSON object in UTF-8, padded with spaces
                   payload: raw bytes

Numbers are little-endian; control and payload begin at multiples of 8, so a payload can be viewed
in place. Control parts hold strings, integers below 2**53, and flat lists and maps of those.
``FIELDS`` says which; every field is always there and there are no others. This module has no I/O
and no state; ``docs/reference/protocol.md`` says what is said when.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure

MAGIC = b"RLX1"
VERSION = 1
HEADER = struct.Struct("<4sBBHII")
MAX_CONTROL = 64 << 10
MAX_PAYLOAD = 64 << 10
MAX_FRAME = HEADER.size + MAX_CONTROL + MAX_PAYLOAD
MAX_INTEGER = (1 << 53) - 1
MAX_STRING = 4096
SUBPROTOCOL = "rlx.1"
"""Offered and chosen in the WebSocket handshake."""
TOKEN_PREFIX = "rlx.token."
"""A page cannot set headers: it offers the token as a second subprotocol, base64url behind this."""

Control: TypeAlias = dict[str, object]


class Kind(IntEnum):
    """Kinds of frames."""

    HELLO = 1
    WELCOME = 2
    SHARD = 3
    NEED = 4
    BLOB = 5
    READY = 6
    RUN = 7
    TENSOR = 8
    TENSOR_AT = 9
    DONE = 10
    CANCEL = 11
    CANCELLED = 12
    ERROR = 13
    PING = 14
    PONG = 15
    RELEASE = 16
    BYE = 17


FIELDS: Mapping[Kind, Mapping[str, str]] = {
    Kind.HELLO: {"versions": "ints", "client": "string", "capabilities": "strings"},
    Kind.WELCOME: {
        "version": "int",
        "session": "string",
        "ticket": "string",
        "devices": "strings",
        "models": "strings",
        "limits": "sizes",
        "heartbeat_ms": "int",
    },
    Kind.SHARD: {
        "shard": "int",
        "device": "string",
        "ir": "string",
        "graph": "string",
        "model": "string",
        "values": "lists",
    },
    Kind.NEED: {"shard": "int", "digests": "strings"},
    Kind.BLOB: {"digest": "string", "offset": "int", "total": "int"},
    Kind.READY: {
        "shard": "int",
        "ir": "string",
        "graph": "string",
        "kernels": "string",
        "resident": "int",
    },
    Kind.RUN: {"run": "int", "shard": "int", "graph": "string", "symbols": "sizes"},
    Kind.TENSOR: {"run": "int", "edge": "int", "offset": "int", "total": "int"},
    Kind.TENSOR_AT: {"run": "int", "edge": "int", "id": "string", "total": "int"},
    Kind.DONE: {"run": "int", "device": "string", "events": "rows"},
    Kind.CANCEL: {"run": "int"},
    Kind.CANCELLED: {"run": "int"},
    Kind.ERROR: {
        "code": "string",
        "what": "string",
        "found": "string",
        "allowed": "string",
        "where": "string",
        "run": "int",
        "shard": "int",
        "fatal": "int",
    },
    Kind.PING: {"sent": "int"},
    Kind.PONG: {"sent": "int", "received": "int", "replied": "int"},
    Kind.RELEASE: {"shard": "int"},
    Kind.BYE: {"reason": "string"},
}
"""Kind → field → form: ``int`` (also negative), ``string``, ``ints``, ``strings``, ``sizes`` (a map
of names to integers), ``lists`` (a map of names to lists of integers), ``rows`` (lists of strings
and integers)."""
PAYLOADS = (Kind.BLOB, Kind.TENSOR)
"""Kinds that have a payload."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; ``control`` has the fields of ``FIELDS``."""

    kind: Kind
    control: Control
    payload: bytes | memoryview = field(default=b"", repr=False)

    def integer(self, name: str) -> int:
        """A field of form ``int``."""
        value = self.control[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        """A field of form ``string``."""
        value = self.control[name]
        assert isinstance(value, str)
        return value

    def texts(self, name: str) -> list[str]:
        """A field of form ``strings``."""
        value = self.control[name]
        assert isinstance(value, list)
        return value

    def sizes(self, name: str) -> dict[str, int]:
        """A field of form ``sizes``."""
        value = self.control[name]
        assert isinstance(value, dict)
        return value

    def lists(self, name: str) -> dict[str, list[int]]:
        """A field of form ``lists``."""
        value = self.control[name]
        assert isinstance(value, dict)
        return value

    def rows(self, name: str) -> list[list[str | int]]:
        """A field of form ``rows``."""
        value = self.control[name]
        assert isinstance(value, list)
        return value


def frame(kind: Kind, payload: bytes | memoryview = b"", /, **control: object) -> Frame:
    """A frame of its fields, in the declared order; ``AssertionError`` if they are not its own."""
    assert control.keys() == FIELDS[kind].keys(), (kind, sorted(control))
    return Frame(kind, {name: control[name] for name in FIELDS[kind]}, payload)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame, the same every time."""
    text = json.dumps(frame.control, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    control = text + b" " * (-len(text) % 8)
    if len(control) > MAX_CONTROL:
        raise failure("frame.limit", found=len(control), allowed=MAX_CONTROL)
    if len(frame.payload) > MAX_PAYLOAD:
        raise failure("frame.limit", found=len(frame.payload), allowed=MAX_PAYLOAD)
    head = HEADER.pack(MAGIC, VERSION, frame.kind, 0, len(control), len(frame.payload))
    return b"".join((head, control, frame.payload))


def decode(data: bytes) -> Frame:
    """The frame of one message. ``PeerError``: ``frame.magic``, ``frame.version``, ``frame.kind``,
    ``frame.length``, ``frame.control``; ``LimitError`` ``frame.limit``. Nothing is reserved before
    the lengths are known to be those of ``data``."""
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise failure("frame.magic", found=f"{len(data)} bytes, {data[:8].hex() or 'nothing'}")
    _, version, number, zero, control_size, payload_size = HEADER.unpack_from(data)
    if version != VERSION:
        raise failure("frame.version", found=version, allowed=VERSION)
    if number not in KINDS or zero:
        raise failure("frame.kind", found=(number, zero), allowed=[kind.name for kind in Kind])
    kind = Kind(number)
    if control_size > MAX_CONTROL or payload_size > MAX_PAYLOAD:
        raise failure("frame.limit", found=max(control_size, payload_size), allowed=MAX_PAYLOAD)
    total = HEADER.size + control_size + payload_size
    if len(data) != total or control_size % 8 or (payload_size and kind not in PAYLOADS):
        raise failure("frame.length", found=f"{len(data)} bytes", allowed=f"{total} bytes")
    start = HEADER.size + control_size
    control = _control(kind, data[HEADER.size : start])
    return Frame(kind, control, memoryview(data)[start:])


KINDS = frozenset(int(kind) for kind in Kind)


def _control(kind: Kind, data: bytes) -> Control:
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise failure(
            "frame.control", kind=kind.name, found=str(error)[:120], allowed="JSON"
        ) from (None)
    fields = FIELDS[kind]
    if not isinstance(value, dict) or value.keys() != fields.keys():
        found = sorted(value)[:20] if isinstance(value, dict) else type(value).__name__
        raise failure("frame.control", kind=kind.name, found=found, allowed=list(fields))
    for name, form in fields.items():
        if not FORMS[form](value[name]):
            raise failure(
                "frame.control",
                kind=kind.name,
                found=f"{name} = {json.dumps(value[name])[:80]}",
                allowed=f"{name} of form {form}",
            )
    return value


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a number here")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INTEGER


def _is_string(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_STRING


def _list_of(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _map_of(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, dict) and all(map(_is_string, value)) and all(map(test, value.values()))
    )


FORMS: Mapping[str, Callable[[object], bool]] = {
    "int": _is_int,
    "string": _is_string,
    "ints": _list_of(_is_int),
    "strings": _list_of(_is_string),
    "sizes": _map_of(_is_int),
    "lists": _map_of(_list_of(_is_int)),
    "rows": _list_of(_list_of(lambda item: _is_int(item) or _is_string(item))),
}


# ---- larger things in pieces -----------------------------------------------------------------


def blob_frames(digest: str, data: bytes | memoryview) -> Iterator[Frame]:
    """Bytes known by their digest, in pieces that follow each other; one piece where empty."""
    for offset, part in _pieces(data):
        yield frame(Kind.BLOB, part, digest=digest, offset=offset, total=len(data))


def tensor_frames(run: int, edge: int, data: bytes | memoryview) -> Iterator[Frame]:
    """The tensor of an edge in pieces that follow each other."""
    for offset, part in _pieces(data):
        yield frame(Kind.TENSOR, part, run=run, edge=edge, offset=offset, total=len(data))


def _pieces(data: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    view = memoryview(data)
    for offset in range(0, max(len(view), 1), MAX_PAYLOAD):
        yield offset, view[offset : offset + MAX_PAYLOAD]


class Pieces:
    """Collects the pieces of one thing; memory grows with what came, not with what was stated."""

    __slots__ = ("_data", "_what", "total")

    def __init__(self, what: str, total: int, limit: int) -> None:
        if not 0 <= total <= limit:
            raise failure("upload.limit", found=f"{total} bytes", allowed=f"{limit} bytes")
        self.total = total
        self._what = what
        self._data = bytearray()

    def add(self, offset: int, total: int, piece: bytes | memoryview) -> bytes | None:
        """All bytes once they are complete; ``PeerError`` ``upload.order``."""
        known = len(self._data)
        if offset != known or total != self.total or known + len(piece) > total:
            raise failure(
                "upload.order",
                what=self._what,
                found=f"{len(piece)} bytes at {offset} of {total}",
                allowed=f"at {known} of {self.total}",
            )
        self._data += piece
        if len(self._data) < total:
            if not piece:
                raise failure(
                    "upload.order", what=self._what, found="an empty piece", allowed="some bytes"
                )
            return None
        return bytes(self._data)


def error_frame(error: RlxError, *, run: int = -1, shard: int = -1, fatal: bool = False) -> Frame:
    """An error as the other side reads it; texts are cut to what a frame takes."""

    def cut(value: object) -> str:
        items = value if isinstance(value, list | tuple) else [value]
        return "" if value is None else ", ".join(map(str, items))[: MAX_STRING // 4]

    return frame(
        Kind.ERROR,
        code=error.code,
        what=cut(error.what),
        found=cut(error.found),
        allowed=cut(error.allowed),
        where=cut(error.where),
        run=run,
        shard=shard,
        fatal=int(fatal),
    )
