"""Frames: golden bytes that JavaScript reads too, and bytes that are no frames."""

# covers R35

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.gateway.protocol import (
    FIELDS,
    HEADER,
    MAX_CONTROL,
    MAX_PAYLOAD,
    PAYLOADS,
    Frame,
    Kind,
    Pieces,
    blob_frames,
    decode,
    encode,
    error_frame,
    frame,
    tensor_frames,
)
from rlx_edge.ir.errors import LimitError, PeerError, RlxError
from tests.conftest import Golden

DIGEST = "sha256:" + "0" * 64
EXAMPLES: Mapping[Kind, Mapping[str, object]] = {
    Kind.HELLO: {"versions": [1], "client": "page", "capabilities": ["websocket", "http"]},
    Kind.WELCOME: {
        "version": 1,
        "session": "client-1",
        "ticket": "t",
        "devices": ["cpu:0@gateway"],
        "models": [DIGEST],
        "limits": {"runs": 4},
        "heartbeat_ms": 2000,
    },
    Kind.SHARD: {
        "shard": 0,
        "device": "cpu:0@gateway",
        "ir": DIGEST,
        "graph": DIGEST,
        "model": "",
        "values": {"sr": [16000]},
    },
    Kind.NEED: {"shard": 0, "digests": [DIGEST]},
    Kind.BLOB: {"digest": DIGEST, "offset": 0, "total": 5},
    Kind.READY: {"shard": 0, "ir": DIGEST, "graph": DIGEST, "kernels": DIGEST, "resident": 4096},
    Kind.RUN: {"run": 0, "shard": 0, "graph": DIGEST, "symbols": {"batch": 4, "größe": -1}},
    Kind.TENSOR: {"run": 0, "edge": 1, "offset": 65536, "total": 65541},
    Kind.TENSOR_AT: {"run": 0, "edge": 1, "id": "0-1", "total": 1 << 24},
    Kind.DONE: {
        "run": 0,
        "device": "cpu:0@gateway",
        "events": [["run", "cpu:0@gateway", "execute", (1 << 53) - 1, 5, "", 0, 3, -1, 0]],
    },
    Kind.CANCEL: {"run": 0},
    Kind.CANCELLED: {"run": 0},
    Kind.ERROR: {
        "code": "peer.id",
        "what": 'no such "run"',
        "found": "7",
        "allowed": "",
        "where": "",
        "run": 7,
        "shard": -1,
        "fatal": 0,
    },
    Kind.PING: {"sent": 1},
    Kind.PONG: {"sent": 1, "received": 2, "replied": 3},
    Kind.RELEASE: {"shard": 0},
    Kind.BYE: {"reason": "done"},
}
PAYLOAD = b"\x00\x01\x02\xfe\xff"


def example(kind: Kind) -> Frame:
    return frame(kind, PAYLOAD if kind in PAYLOADS else b"", **EXAMPLES[kind])


def test_golden_frames(golden: Golden) -> None:
    assert set(EXAMPLES) == set(Kind) == set(FIELDS)
    rows = [
        {
            "kind": kind.name,
            "number": int(kind),
            "control": example(kind).control,
            "payload": bytes(example(kind).payload).hex(),
            "frame": encode(example(kind)).hex(),
        }
        for kind in Kind
    ]
    golden.check("protocol/frames.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("kind", Kind)
def test_frames_read_back(kind: Kind) -> None:
    data = encode(example(kind))
    again = decode(data)
    assert (again.kind, again.control) == (kind, EXAMPLES[kind])
    assert bytes(again.payload) == bytes(example(kind).payload)
    assert encode(again) == data
    assert (len(data) - len(again.payload)) % 8 == 0


def _header(
    magic: bytes = b"RLX1", version: int = 1, kind: int = 14, zero: int = 0, c: int = 0, p: int = 0
) -> bytes:
    return HEADER.pack(magic, version, kind, zero, c, p)


def _control(text: str, kind: Kind = Kind.PING) -> bytes:
    data = text.encode()
    data += b" " * (-len(data) % 8)
    return _header(kind=kind, c=len(data)) + data


BAD: Mapping[str, tuple[bytes, str]] = {
    "nothing": (b"", "frame.magic"),
    "short": (b"RLX1\x01", "frame.magic"),
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", "frame.magic"),
    "another version": (_header(version=2), "frame.version"),
    "an unknown kind": (_header(kind=99), "frame.kind"),
    "reserved bits": (_header(zero=1), "frame.kind"),
    "2 GB of control": (_header(c=1 << 31), "frame.limit"),
    "2 GB of payload": (_header(kind=8, p=1 << 31), "frame.limit"),
    "less than stated": (_header(c=64) + b"{}", "frame.length"),
    "more than stated": (encode(example(Kind.PING)) + b"x", "frame.length"),
    "unaligned control": (_header(c=2) + b"{}", "frame.length"),
    "a payload where none is": (_header(p=1) + b"x", "frame.length"),
    "no JSON": (_control('{"sent"'), "frame.control"),
    "no UTF-8": (_header(c=8) + b"\xff" * 8, "frame.control"),
    "not an object": (_control("[1]"), "frame.control"),
    "a missing field": (_control("{}"), "frame.control"),
    "a further field": (_control('{"sent":1,"more":1}'), "frame.control"),
    "a float": (_control('{"sent":1.5}'), "frame.control"),
    "a boolean": (_control('{"sent":true}'), "frame.control"),
    "infinity": (_control('{"sent":Infinity}'), "frame.control"),
    "too large a number": (_control('{"sent":9007199254740992}'), "frame.control"),
    "deep nesting": (_control("[" * 20000), "frame.control"),
    "a list of other things": (_control('{"shard":0,"digests":[1]}', Kind.NEED), "frame.control"),
    "too long a text": (_control('{"reason":"' + "x" * 5000 + '"}', Kind.BYE), "frame.control"),
}


def test_golden_bad_frames(golden: Golden) -> None:
    rows = [
        {"name": name, "frame": data.hex(), "code": code}
        for name, (data, code) in BAD.items()
        if len(data) < 200
    ]
    golden.check("protocol/bad_frames.json", json.dumps(rows, indent=1) + "\n")


@pytest.mark.parametrize("name", BAD)
def test_other_bytes_are_refused(name: str) -> None:
    data, code = BAD[name]
    with pytest.raises(RlxError) as error:
        decode(data)
    assert error.value.code == code
    assert isinstance(error.value, LimitError if code == "frame.limit" else PeerError)


@given(st.binary(max_size=80), st.sampled_from(list(Kind)), st.booleans())
def test_damaged_frames_never_do_worse(noise: bytes, kind: Kind, at_front: bool) -> None:
    data = bytearray(encode(example(kind)))
    mixed = bytes(a ^ b for a, b in zip(noise, data, strict=False))
    data[: len(noise)] = noise if at_front else mixed
    try:
        again = decode(bytes(data))
    except RlxError as error:
        assert error.code.startswith("frame.")
    else:
        assert again.control.keys() == FIELDS[again.kind].keys()


@given(st.binary(max_size=3 * MAX_PAYLOAD // 2))
def test_pieces_make_the_whole(data: bytes) -> None:
    for made in (blob_frames(DIGEST, data), tensor_frames(1, 2, data)):
        frames = list(made)
        pieces = Pieces("x", len(data), 1 << 20)
        found = [
            pieces.add(item.integer("offset"), item.integer("total"), item.payload)
            for item in map(decode, map(encode, frames))
        ]
        assert found[:-1] == [None] * (len(found) - 1) and found[-1] == data


def test_pieces_in_another_order_are_refused() -> None:
    pieces = Pieces("edge 1", 10, 100)
    assert pieces.add(0, 10, b"12345") is None
    for offset, total, data in ((0, 10, b"1"), (5, 11, b"1"), (5, 10, b"123456"), (5, 10, b"")):
        with pytest.raises(PeerError) as error:
            pieces.add(offset, total, data)
        assert error.value.code == "upload.order"
    with pytest.raises(LimitError):
        Pieces("edge 1", 101, 100)


def test_frames_that_are_too_long_are_not_made() -> None:
    with pytest.raises(LimitError):
        encode(frame(Kind.BLOB, bytes(MAX_PAYLOAD + 1), digest=DIGEST, offset=0, total=1))
    with pytest.raises(LimitError):
        encode(frame(Kind.NEED, shard=0, digests=[DIGEST] * (MAX_CONTROL // 70)))


def test_errors_are_cut_to_a_frame() -> None:
    error = RlxError("x.y", "w" * 9999, found=["f"] * 9999, allowed=None, where="here")
    again = decode(encode(error_frame(error, run=3, fatal=True)))
    assert again.text("code") == "x.y" and again.integer("fatal") == 1
    assert again.text("allowed") == "" and len(again.text("found")) <= 4096
