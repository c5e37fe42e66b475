"""Peers that do what they must not, against a live gateway: each is refused with the right code,
logged once, memory stays bounded, and another client notices nothing."""

# covers R35

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from rlx_edge import InferenceSession
from rlx_edge.compile import place_module
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.schedule import schedule
from rlx_edge.gateway.access import token_subprotocol
from rlx_edge.gateway.client import Offered
from rlx_edge.gateway.connection import GatewayConnection
from rlx_edge.gateway.protocol import (
    HEADER,
    MAX_FRAME,
    SUBPROTOCOL,
    Frame,
    Kind,
    blob_frames,
    decode,
    encode,
    frame,
)
from rlx_edge.ir.core import Module
from rlx_edge.ir.digest import bytes_digest, module_digest
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.offload import OffloadSession
from tests import sample_inputs
from tests.gateway.live import ORIGIN, TOKEN, LiveGateway, live_gateway
from tests.oracles import same_bits

DEVICE = "cpu:0@gateway"
MEMORY_GROWTH = 160 << 20
"""What the gateway's process may grow by, whatever its peers do; its limits add up to less."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[LiveGateway]:
    with live_gateway(
        hello_seconds=3.0,
        heartbeat_seconds=0.5,
        silence_seconds=5.0,
        body_seconds=3.0,
        compile_seconds=5.0,
        compile_bytes=1 << 30,
        outgoing_bytes=4 << 20,
        stored_bytes=16 << 20,
        tensor_bytes=8 << 20,
        memory_bytes=64 << 20,
        upload_bytes=8 << 20,
        clients=6,
    ) as live:
        yield live


@pytest.fixture(scope="module")
def bystander(gateway: LiveGateway, model_file: Any) -> Iterator[OffloadSession]:
    with OffloadSession(str(model_file("digits")), gateway.url, TOKEN, mode="remote") as session:
        yield session


@pytest.fixture(autouse=True)
def unharmed(
    gateway: LiveGateway, bystander: OffloadSession, model_file: Any, record_property: Any
) -> Iterator[None]:
    """Around every test: the other client's run has the right bits, and memory is bounded."""
    feeds = sample_inputs.digits(5, batch=2)
    with InferenceSession(str(model_file("digits"))) as whole:
        expected = whole.run(None, feeds)
    assert same_bits(bystander.run(None, feeds), expected)
    before, refused = gateway.from_here(), len(gateway.refused())
    yield
    assert gateway.process.poll() is None
    assert same_bits(bystander.run(None, feeds), expected)
    growth = gateway.peak_bytes() - before
    record_property("growth", growth)
    record_property("codes", " ".join(gateway.refused()[refused:]))
    assert growth < MEMORY_GROWTH
    assert not [line for line in gateway.lines if line["event"] == "unstructured"]
    assert not [line for line in gateway.lines if line["level"] == "error"]


@contextmanager
def one_refusal(gateway: LiveGateway, *codes: str) -> Iterator[None]:
    """Exactly these refusals are logged inside the block, each once."""
    before = len(gateway.refused())
    yield
    settle(gateway, before + len(codes))
    assert gateway.refused()[before:] == list(codes)


def settle(gateway: LiveGateway, count: int) -> None:
    """Wait until so many refusals are logged, and a moment longer for one too many."""
    end = time.monotonic() + 20
    while len(gateway.refused()) < count and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.1)


@contextmanager
def dial(gateway: LiveGateway, token: str = TOKEN, origin: str | None = None, **words: Any) -> Any:
    url = f"ws://127.0.0.1:{gateway.port}/offload"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with connect(
        url,
        additional_headers=headers,
        origin=None if origin is None else Origin(origin),
        compression=None,
        max_size=MAX_FRAME,
        proxy=None,
        **words,
    ) as peer:
        yield peer


def say(peer: ClientConnection, kind: Kind, payload: bytes = b"", **control: object) -> None:
    peer.send(encode(frame(kind, payload, **control)))


def hear(peer: ClientConnection, kind: Kind) -> Frame:
    """The next frame of this kind; heartbeats are answered meanwhile."""
    while True:
        data = peer.recv(timeout=20)
        assert isinstance(data, bytes)
        message = decode(data)
        if message.kind is Kind.PING:
            say(peer, Kind.PONG, sent=message.integer("sent"), received=1, replied=2)
        elif message.kind is kind:
            return message
        else:
            assert message.kind is not Kind.ERROR, message.control


def hello(peer: ClientConnection) -> Frame:
    say(peer, Kind.HELLO, versions=[1], client="bad peer", capabilities=[])
    return hear(peer, Kind.WELCOME)


def closed(peer: ClientConnection) -> int:
    """The code with which the gateway closes."""
    try:
        while True:
            peer.recv(timeout=20)
    except ConnectionClosed:
        assert peer.close_code is not None
        return peer.close_code


def ask(peer: ClientConnection, text: bytes, ir: str = "", graph: str = "") -> Frame:
    """Ask for a shard of a text; the refusal."""
    ir = ir or bytes_digest(text)
    graph = graph or bytes_digest(b"a graph")
    say(peer, Kind.SHARD, shard=0, device=DEVICE, ir=ir, graph=graph, model="", values={})
    assert hear(peer, Kind.NEED).texts("digests") == [ir]
    for part in blob_frames(ir, text):
        peer.send(encode(part))
    return hear(peer, Kind.ERROR)


# ---- handshake -------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_wrong_origin(gateway: LiveGateway, origin: str) -> None:
    with (
        one_refusal(gateway, "peer.origin"),
        pytest.raises(InvalidStatus) as refused,
        dial(gateway, origin=origin),
    ):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("token", ["", "another", TOKEN + "x"])
def test_wrong_token(gateway: LiveGateway, token: str) -> None:
    with (
        one_refusal(gateway, "peer.token"),
        pytest.raises(InvalidStatus) as refused,
        dial(gateway, token=token),
    ):
        pass
    assert refused.value.response.status_code == 401
    assert not any(token and token in json.dumps(line) for line in gateway.lines)


def test_pages_that_may_ask(gateway: LiveGateway) -> None:
    for origin in (ORIGIN, gateway.url.rstrip("/")):
        words = [Subprotocol(SUBPROTOCOL), Subprotocol(token_subprotocol(TOKEN))]
        with dial(gateway, token="", origin=origin, subprotocols=words) as peer:
            assert peer.subprotocol == SUBPROTOCOL
            hello(peer)


def test_too_many_clients(gateway: LiveGateway) -> None:
    time.sleep(0.5)  # those of other tests have gone
    peers = []
    try:
        with one_refusal(gateway, "peer.clients"), pytest.raises(InvalidStatus) as refused:
            for _ in range(7):
                context = dial(gateway)
                peers.append((context, context.__enter__()))
                hello(peers[-1][1])
        assert refused.value.response.status_code == 503
        assert len(peers) == 5
    finally:
        for context, _ in peers:
            context.__exit__(None, None, None)


# ---- frames ----------------------------------------------------------------------------------


def test_garbage(gateway: LiveGateway) -> None:
    with one_refusal(gateway, "frame.magic"), dial(gateway) as peer:
        peer.send(os.urandom(1000))
        assert hear(peer, Kind.ERROR).text("code") == "frame.magic"
        assert closed(peer) == 1002
    with one_refusal(gateway, "frame.magic"), dial(gateway) as peer:
        hello(peer)
        peer.send("a text message")
        assert closed(peer) == 1002


def test_a_header_that_states_2_gigabytes(gateway: LiveGateway) -> None:
    with one_refusal(gateway, "frame.limit"), dial(gateway) as peer:
        hello(peer)
        peer.send(HEADER.pack(b"RLX1", 1, Kind.TENSOR, 0, 1 << 31, 1 << 31))
        assert hear(peer, Kind.ERROR).text("code") == "frame.limit"
        assert closed(peer) == 1009


def test_a_websocket_frame_that_states_2_gigabytes(gateway: LiveGateway) -> None:
    with one_refusal(gateway, "frame.limit"), dial(gateway) as peer:
        hello(peer)
        raw = peer.socket
        raw.sendall(b"\x82\xff" + struct.pack(">Q", 1 << 31) + b"mask" + b"x" * 1000)
        assert closed(peer) == 1009
    with one_refusal(gateway, "frame.websocket"), dial(gateway) as peer:
        hello(peer)
        peer.socket.sendall(b"\xff" * 100)
        assert closed(peer) == 1002


def test_a_message_that_is_too_long(gateway: LiveGateway) -> None:
    with one_refusal(gateway, "frame.limit"), dial(gateway) as peer:
        hello(peer)
        peer.send(bytes(MAX_FRAME + 1))
        assert closed(peer) == 1009


# ---- shards ----------------------------------------------------------------------------------


def cut(text: str) -> Module:
    return Split().run(place_module(parse_module(text)))


SMALL = """rlx.module version = "1.0"

func @small(%x: f32[n, 4]) -> (f32[n, 4]) {
  %y = rlxc::relu(%x) : f32[n, 4]
  return %y
}
"""


def test_an_unknown_digest(gateway: LiveGateway) -> None:
    with one_refusal(gateway, "upload.unasked", "digest.mismatch"), dial(gateway) as peer:
        hello(peer)
        say(peer, Kind.BLOB, b"x", digest=bytes_digest(b"x"), offset=0, total=1)
        assert hear(peer, Kind.ERROR).text("code") == "upload.unasked"
        assert ask(peer, b"another text", ir=bytes_digest(b"a text")).text("code") == (
            "digest.mismatch"
        )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"\xff\xfe", "compile.text"),
        (b"hello", "parse.syntax"),
        (SMALL.replace("relu", "explode").encode(), "parse.operator"),
        (print_module(cut(SMALL)).replace("edge = 0", "edge = 7", 1).encode(), "comm.edge"),
        (print_module(cut(SMALL)).replace("f32[n, 4]", "f32[n, m]").encode(), None),
        (SMALL.encode(), "shard.device"),
    ],
    ids=["no text", "no IR", "no operator", "a lone edge", "no size", "not placed"],
)
def test_ir_that_fails_verification(gateway: LiveGateway, text: bytes, code: str | None) -> None:
    before = len(gateway.refused())
    with dial(gateway) as peer:
        hello(peer)
        refusal = ask(peer, text)
        assert refusal.integer("shard") == 0 and refusal.integer("fatal") == 0
        if code is not None:
            assert refusal.text("code") == code
    settle(gateway, before + 1)
    assert gateway.refused()[before:] == [refusal.text("code")]


def test_ir_that_asks_for_a_terabyte(gateway: LiveGateway) -> None:
    huge = SMALL.replace("f32[n, 4]", "f32[65536, 4194304]")
    module = cut(huge)
    text, graph = print_module(module).encode(), schedule(module).digest
    with dial(gateway) as peer:
        hello(peer)
        say(
            peer,
            Kind.SHARD,
            shard=0,
            device=DEVICE,
            ir=module_digest(module),
            graph=graph,
            model="",
            values={},
        )
        hear(peer, Kind.NEED)
        with one_refusal(gateway, "plan.memory"):
            for part in blob_frames(bytes_digest(text), text):
                peer.send(encode(part))
            hear(peer, Kind.READY)
            say(peer, Kind.RUN, run=0, shard=0, graph=graph, symbols={})
            assert hear(peer, Kind.ERROR).text("code") == "plan.memory"
    grown = SMALL.replace("f32[n, 4]", "f32[n, 1048576]")
    module = cut(grown)
    text, graph = print_module(module).encode(), schedule(module).digest
    with dial(gateway) as peer, one_refusal(gateway, "memory.limit", "plan.memory"):
        hello(peer)
        say(
            peer,
            Kind.SHARD,
            shard=0,
            device=DEVICE,
            ir=module_digest(module),
            graph=graph,
            model="",
            values={},
        )
        hear(peer, Kind.NEED)
        for part in blob_frames(bytes_digest(text), text):
            peer.send(encode(part))
        hear(peer, Kind.READY)
        for run, (n, code) in enumerate(((100, "memory.limit"), (1 << 40, "plan.memory"))):
            say(peer, Kind.RUN, run=run, shard=0, graph=graph, symbols={"n": n})
            assert hear(peer, Kind.ERROR).text("code") == code


def test_ir_with_weights_of_a_terabyte(gateway: LiveGateway) -> None:
    text = print_module(cut(SMALL)).replace(
        "  %y = rlxc::relu(%x_1)",
        f'  %k = tensor::const() {{ digest = "{bytes_digest(b"")}", phase = "compile", '
        f'target_device_set = ["{DEVICE}"], sync_mode = "none" }} : f32[68719476736, 4]\n'
        '  %m = rlxc::reduce_max(%k) { axes = [0], keepdims = false, phase = "execute", '
        f'target_device_set = ["{DEVICE}"], sync_mode = "none" }} : f32[4]\n'
        "  %y = rlxc::mul(%x_1, %m)",
    )
    with dial(gateway) as peer, one_refusal(gateway, "plan.memory"):
        hello(peer)
        assert ask(peer, text.encode()).text("code") == "plan.memory"


def test_ir_that_loops_the_compiler(gateway: LiveGateway) -> None:
    lines = ["  %y0 = rlxc::relu(%x) : f32[n, 4]"]
    lines += [f"  %y{i} = rlxc::relu(%y{i - 1}) : f32[n, 4]" for i in range(1, 14000)]
    text = SMALL.replace("  %y = rlxc::relu(%x) : f32[n, 4]", "\n".join(lines))
    text = text.replace("return %y", "return %y13999")
    placed = "\n".join(
        line.replace(" : f32", f' {{ target_device_set = ["{DEVICE}"], sync_mode = "none" }} : f32')
        if " = rlxc::" in line
        else line
        for line in text.splitlines()
    )
    with dial(gateway) as peer, one_refusal(gateway, "compile.timeout"):
        hello(peer)
        assert ask(peer, placed.encode()).text("code") == "compile.timeout"


def test_a_stale_graph_digest(gateway: LiveGateway) -> None:
    module = cut(SMALL)
    text = print_module(module).encode()
    with dial(gateway) as peer, one_refusal(gateway, "digest.mismatch"):
        hello(peer)
        refusal = ask(peer, text, graph=bytes_digest(b"the graph of yesterday"))
        assert refusal.text("code") == "digest.mismatch"
        assert refusal.text("allowed") == schedule(module).digest
        assert refusal.text("found") == bytes_digest(b"the graph of yesterday")


# ---- sockets ---------------------------------------------------------------------------------


def test_a_client_that_says_no_hello(gateway: LiveGateway) -> None:
    with one_refusal(gateway, "peer.silent"), dial(gateway) as peer:
        assert hear(peer, Kind.ERROR).text("code") == "peer.silent"
        assert closed(peer) == 1002


@pytest.mark.slow
def test_a_half_open_socket(gateway: LiveGateway) -> None:
    """A peer that is there and never answers: heartbeats find it out."""
    with one_refusal(gateway, "peer.silent"), dial(gateway) as peer:
        hello(peer)
        refusal = None
        while refusal is None:
            data = peer.recv(timeout=10)
            assert isinstance(data, bytes)
            message = decode(data)
            refusal = message if message.kind is Kind.ERROR else None
        assert refusal.text("code") == "peer.silent"


def test_a_slow_reader(gateway: LiveGateway) -> None:
    """A peer that asks and never reads is left, with no more memory than its queue may have."""
    before = len(gateway.refused())
    raw = socket.create_connection(("127.0.0.1", gateway.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.sendall(
        f"GET /offload HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Sec-WebSocket-Version: 13\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    assert raw.recv(2000).startswith(b"HTTP/1.1 101")

    def masked(data: bytes) -> bytes:
        size = len(data)
        head = bytes([0x82, 0x80 | size]) if size < 126 else b"\x82\xfe" + struct.pack(">H", size)
        return head + b"\0\0\0\0" + data

    raw.sendall(masked(encode(frame(Kind.HELLO, versions=[1], client="slow", capabilities=[]))))
    ping = masked(encode(frame(Kind.PING, sent=1)))
    raw.settimeout(5)
    end = time.monotonic() + 60
    try:
        while gateway.refused()[before:] == [] and time.monotonic() < end:
            raw.sendall(ping * 2000)
    except OSError:
        pass
    finally:
        settle(gateway, before + 1)
        raw.close()
    assert gateway.refused()[before:] == ["peer.slow"]


# ---- tensors over HTTP -----------------------------------------------------------------------


@contextmanager
def opened_put(
    gateway: LiveGateway, id: str, headers: dict[str, str]
) -> Iterator[http.client.HTTPConnection]:
    """A request whose body has not been sent."""
    peer = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    try:
        peer.putrequest("PUT", f"/tensors/{id}")
        for name, value in headers.items():
            peer.putheader(name, value)
        peer.endheaders()
        yield peer
    finally:
        peer.close()


def put(gateway: LiveGateway, id: str, headers: dict[str, str], body: bytes) -> tuple[int, str]:
    with opened_put(gateway, id, headers) as peer:
        peer.send(body)
        answer = peer.getresponse()
        return answer.status, answer.read().decode()


def test_tensors_of_strangers(gateway: LiveGateway) -> None:
    with dial(gateway) as peer:
        ticket = {"Authorization": f"Bearer {hello(peer).text('ticket')}"}
        cases = [
            ({"Authorization": "Bearer x", "Content-Length": "1"}, "a", 401, "peer.token"),
            ({**ticket, "Origin": "https://evil.example", "Content-Length": "1"}, "a", 403,
             "peer.origin"),
            ({**ticket, "Content-Length": str(1 << 31)}, "a", 413, "upload.limit"),
            ({**ticket, "Content-Length": "1"}, "a.b", 400, "peer.id"),
        ]  # fmt: skip
        for headers, name, status, code in cases:
            with one_refusal(gateway, code):
                found, body = put(gateway, name, headers, b"x")
                assert (found, json.loads(body)["code"]) == (status, code)
        assert put(gateway, "a", {**ticket, "Content-Length": "1"}, b"x")[0] == 204
        with one_refusal(gateway, "tensor.missing"):
            peer2 = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
            peer2.request("GET", "/tensors/0-0", headers=ticket)
            assert peer2.getresponse().status == 400
            peer2.close()


@contextmanager
def ticket(gateway: LiveGateway) -> Iterator[dict[str, str]]:
    """Headers of a session that answers heartbeats until the block ends."""
    with GatewayConnection(gateway.url, TOKEN) as session:
        yield {"Authorization": f"Bearer {session.welcome.ticket}"}


def test_bodies_under_way_are_bounded(gateway: LiveGateway) -> None:
    """Each of them keeps its room from its first byte on."""
    size = {"Content-Length": str(8 << 20)}
    with ticket(gateway) as headers, ExitStack() as stack:
        for id in "ab":
            peer = stack.enter_context(opened_put(gateway, id, headers | size))
            peer.send(b"x" * 1000)
        time.sleep(0.3)
        with one_refusal(gateway, "upload.limit"):
            found, _ = put(gateway, "c", headers | size, b"x")
            assert found == 413
        before = len(gateway.refused())
        stack.close()
        settle(gateway, before + 2)
        assert gateway.refused()[before:] == ["frame.length", "frame.length"]
        body = b"x" * (8 << 20)
        assert put(gateway, "d", headers | size, body)[0] == 204, "their room is free again"


@pytest.mark.slow
def test_a_body_that_stands_still(gateway: LiveGateway) -> None:
    with (
        ticket(gateway) as headers,
        one_refusal(gateway, "peer.silent"),
        opened_put(gateway, "a", headers | {"Content-Length": "1000"}) as peer,
    ):
        peer.send(b"x" * 10)
        answer = peer.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (408, "peer.silent")


@pytest.mark.slow
def test_a_reader_of_a_body_that_stands_still(gateway: LiveGateway) -> None:
    """Who asks for a large tensor and does not read it is left; what waited for it is freed."""
    module = Split(bulk_bytes=0).run(place_module(parse_module(SMALL)))
    text, graph = print_module(module).encode(), schedule(module).digest
    x = bytes(8 << 20)
    with GatewayConnection(gateway.url, TOKEN) as session:

        def run() -> str:
            number = session.start(0, {"n": len(x) >> 4})
            session.send(number, 0, x, "http")
            while not isinstance(event := session._next(), Offered):
                pass
            return event.id

        session.load(0, DEVICE, module_digest(module), graph, lambda digest: text)
        for _ in range(2):
            id = run()
            with socket.socket() as raw, one_refusal(gateway, "peer.slow"):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                raw.connect(("127.0.0.1", gateway.port))
                raw.sendall(
                    f"GET /tensors/{id} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
                    f"Authorization: Bearer {session.welcome.ticket}\r\n\r\n".encode()
                )
                assert raw.recv(15) == b"HTTP/1.1 200 OK"
        assert session._request("GET", run(), None) == x, "there is room again"


# ---- pages that are served elsewhere ---------------------------------------------------------


def asked(
    gateway: LiveGateway, method: str, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage]:
    """Status and headers of the answer."""
    peer = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    try:
        peer.request(method, "/tensors/a", body=b"x" if method == "PUT" else None, headers=headers)
        answer = peer.getresponse()
        answer.read()
        return answer.status, answer.headers
    finally:
        peer.close()


def test_pages_of_the_list_may_exchange_tensors(gateway: LiveGateway) -> None:
    page = {"Origin": ORIGIN}
    wanted = {
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "authorization",
    }
    status, headers = asked(gateway, "OPTIONS", page | wanted)
    assert status == 204
    assert headers["access-control-allow-origin"] == ORIGIN
    assert "PUT" in headers["access-control-allow-methods"]
    assert "authorization" in headers["access-control-allow-headers"]
    with ticket(gateway) as bearer:
        for method, expected in (("PUT", 204), ("GET", 400)):
            status, headers = asked(gateway, method, page | bearer)
            assert (status, headers["access-control-allow-origin"]) == (expected, ORIGIN)
            assert headers["vary"] == "origin"
            assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_other_pages_may_not(gateway: LiveGateway, origin: str) -> None:
    page = {"Origin": origin, "Access-Control-Request-Method": "PUT"}
    with ticket(gateway) as bearer:
        for method in ("OPTIONS", "PUT", "GET"):
            with one_refusal(gateway, "peer.origin"):
                status, headers = asked(gateway, method, page | bearer)
                assert status == 403
                assert not [name for name in headers if name.startswith("access-control")]
