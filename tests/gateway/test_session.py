"""Both sides' machines against each other, without sockets; what a client must not do."""

# covers R35

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rlx_edge.compile import compile_part
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.schedule import schedule
from rlx_edge.gateway import client
from rlx_edge.gateway.client import ClientSession
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
from rlx_edge.gateway.protocol import Kind, decode, encode, frame, tensor_frames
from rlx_edge.gateway.session import ServerSession
from rlx_edge.ir.core import Module
from rlx_edge.ir.digest import bytes_digest, module_digest
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.program import Program
from rlx_edge.ir.task_graph import TaskGraph
from tests.conftest import Golden

DEVICE = "cpu:0@gateway"
WEIGHT = np.arange(4, dtype=np.float32).tobytes()
TEXT = f"""rlx.module version = "1.0"

func @f(%x: f32[n, 4]) -> (f32[n, 4]) {{
  %k = tensor::const() {{ digest = "{bytes_digest(WEIGHT)}", phase = "compile", target_device_set = ["wasm:0"], sync_mode = "none" }} : f32[4]
  %y = rlxc::mul(%x, %k) {{ phase = "execute", target_device_set = ["wasm:0"], sync_mode = "blocking" }} : f32[n, 4]
  return %y
}}
"""  # noqa: E501


class Clock:
    """Nanoseconds that move only when they are told to."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Pair:
    """A client and a gateway's session; the gateway's own work is answered by the test."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = Clock(1_000_000)
        self.client = ClientSession("test", Clock())
        self.server = ServerSession(
            "client-1", "ticket", (DEVICE,), (), limits or Limits(), 0.0, self.clock
        )
        self.work: list[Effect] = []
        self.logs: list[Log] = []
        self.events: list[client.Event] = []
        self.hung_up: list[HangUp] = []

    def exchange(self, effects: list[Effect] | None = None) -> None:
        """Carry frames both ways until both sides are silent."""
        self.carry(effects or [])
        while sent := self.client.take():
            for data in sent:
                self.carry(self.server.received(data, 0.0))

    def carry(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Stream):
                for part in tensor_frames(effect.run, effect.edge, effect.data):
                    self.events += self.client.received(encode(part))
                self.server.fetched(len(effect.data))
            elif isinstance(effect, Transmit):
                self.events += self.client.received(effect.data)
            elif isinstance(effect, Log):
                self.logs.append(effect)
            elif isinstance(effect, HangUp):
                self.hung_up.append(effect)
            else:
                self.work.append(effect)

    def say(self, kind: Kind, payload: bytes = b"", **control: Any) -> None:
        self.carry(self.server.received(encode(frame(kind, payload, **control)), 0.0))

    def refusals(self) -> list[str]:
        found = [item.error.code for item in self.events if isinstance(item, client.Refused)]
        logged = [log.fields["code"] for log in self.logs if log.event == "refused"]
        assert found == logged, "every refusal is told and logged once"
        return found

    def pop(self, kind: type[Any]) -> Any:
        (found,) = [item for item in self.work if isinstance(item, kind)]
        self.work.remove(found)
        return found


@pytest.fixture
def cut() -> Module:
    return Split().run(parse_module(TEXT))


def texts(module: Module) -> tuple[bytes, str, TaskGraph]:
    return print_module(module).encode(), module_digest(module), schedule(module)


def program_of(module: Module) -> Program:
    from rlx_edge.gateway.compile_process import absent_constants

    module.constants = absent_constants(module)
    return compile_part(module, DEVICE)


def opened(limits: Limits | None = None) -> Pair:
    pair = Pair(limits)
    pair.exchange()
    assert isinstance(pair.events.pop(), client.Welcomed)
    return pair


def made_ready(cut: Module, limits: Limits | None = None) -> Pair:
    pair = opened(limits)
    text, ir, graph = texts(cut)
    pair.client.ask_shard(0, DEVICE, ir, graph.digest)
    pair.exchange()
    assert pair.events == [client.Needed(0, (ir,))]
    pair.client.upload(ir, text)
    pair.exchange()
    assert pair.pop(Compile) == Compile(0, DEVICE, text)
    pair.exchange(pair.server.compiled(0, program_of(cut), graph))
    assert pair.pop(FindWeights).digests == (bytes_digest(WEIGHT),)
    pair.exchange(pair.server.weights_found(0, frozenset()))
    assert pair.events.pop() == client.Needed(0, (bytes_digest(WEIGHT),))
    pair.client.upload(bytes_digest(WEIGHT), WEIGHT)
    pair.exchange()
    assert pair.pop(Load).blobs == {bytes_digest(WEIGHT): WEIGHT}
    pair.exchange(pair.server.loaded(0))
    assert isinstance(pair.events.pop(), client.Ready)
    pair.events.clear()
    return pair


def test_a_run_from_hello_to_done(cut: Module) -> None:
    pair = made_ready(cut)
    run = pair.client.run(0, {"n": 2})
    pair.client.send_tensor(run, 0, b"x" * 100_000)
    pair.exchange()
    assert pair.work == [Start(run, 0, {"n": 2}), Deliver(run, 0, b"x" * 100_000)]
    pair.exchange(pair.server.emitted(run, 1, b"y" * 100_000))
    pair.exchange(pair.server.run_done(run, [["run", DEVICE, "execute", 1, 2, "", 0, 1, -1, 0]]))
    arrived, done = pair.events
    assert arrived == client.Arrived(run, 1, b"y" * 100_000)
    assert isinstance(done, client.Done) and done.events[0][0] == "run"
    assert pair.refusals() == []
    assert [log.event for log in pair.logs] == ["hello", "compiled", "ready", "done"]


def test_large_tensors_go_over_http(cut: Module) -> None:
    pair = made_ready(cut)
    run = pair.client.run(0, {"n": 2})
    large = bytes(300 << 10)
    pair.exchange(pair.server.stored("a-1", large))
    pair.client.send_tensor_at(run, 0, "a-1", len(large))
    pair.exchange()
    assert pair.work[-1] == Deliver(run, 0, large)
    pair.work.clear()
    pair.exchange(pair.server.emitted(run, 1, large))
    assert pair.work == [Publish("0-1", large)]
    assert pair.events == [client.Offered(run, 1, "0-1", len(large))]
    pair.client.send_tensor_at(run, 0, "a-1", len(large))
    pair.exchange()
    assert pair.refusals() == ["tensor.missing"], "an id is good once"
    assert pair.pop(Stop) == Stop(run)


def test_weights_that_the_gateway_has_are_not_asked_for(cut: Module) -> None:
    pair = opened()
    text, ir, graph = texts(cut)
    pair.client.ask_shard(0, DEVICE, ir, graph.digest, model=ir, values={"sr": [16000]})
    pair.client.upload(ir, text)
    pair.exchange()
    pair.exchange(pair.server.compiled(0, program_of(cut), graph))
    asked = [item for item in pair.work if isinstance(item, FindWeights)]
    assert asked[0].model == ir and asked[0].values == {"sr": (16000,)}
    pair.exchange(pair.server.weights_found(0, frozenset({bytes_digest(WEIGHT)})))
    assert pair.pop(Load).blobs == {}


def test_a_cancelled_run_is_confirmed(cut: Module) -> None:
    pair = made_ready(cut)
    run = pair.client.run(0, {"n": 2})
    pair.client.cancel(run)
    pair.exchange()
    assert pair.work == [Start(run, 0, {"n": 2}), Stop(run)]
    pair.exchange(pair.server.run_failed(run, failure("run.cancelled")))
    assert pair.events == [client.Cancelled(run)] and pair.refusals() == []


def test_clocks(cut: Module) -> None:
    pair = opened()
    pair.client.ping()
    pair.exchange()
    assert pair.events == [client.ClockRead(1_000_000, 0)]


def test_a_socket_that_goes_frees_everything(cut: Module) -> None:
    pair = made_ready(cut)
    run = pair.client.run(0, {"n": 2})
    pair.client.send_tensor(run, 0, b"x" * 100_000)
    pair.exchange()
    pair.work.clear()
    held = pair.server.holding()
    assert (held["shards"], held["runs"], held["tensor_bytes"]) == (1, 1, 0)
    assert held["upload_bytes"] == len(texts(cut)[0]) + len(WEIGHT)
    pair.carry(pair.server.gone("lost"))
    assert not any(pair.server.holding().values())
    assert pair.work == [Stop(run), Free(0)]
    assert pair.server.state == "closed"
    assert pair.server.received(b"late", 1.0) == []
    assert pair.server.emitted(run, 1, b"late") == []
    assert pair.server.run_done(run, []) == []
    assert pair.server.gone("again") == []


def test_a_shard_is_released(cut: Module) -> None:
    pair = made_ready(cut)
    pair.client.run(0, {"n": 2})
    pair.exchange()
    pair.work.clear()
    pair.client.release(0)
    pair.exchange()
    assert pair.work == [Stop(0), Free(0)]
    pair.say(Kind.RELEASE, shard=0)
    assert pair.refusals() == ["peer.id"]


# ---- what a client must not do ---------------------------------------------------------------


def test_hello_comes_first() -> None:
    pair = Pair()
    pair.say(Kind.PING, sent=1)
    assert pair.refusals() == ["peer.state"]
    assert pair.hung_up == [HangUp(1002, "peer.state")]


def test_hello_comes_once() -> None:
    pair = opened()
    pair.say(Kind.HELLO, versions=[1], client="x", capabilities=[])
    assert pair.refusals() == ["peer.state"] and pair.hung_up


def test_versions_have_to_meet() -> None:
    pair = Pair()
    pair.client.take()
    pair.say(Kind.HELLO, versions=[2, 3], client="x", capabilities=[])
    assert pair.refusals() == ["peer.version"] and pair.hung_up


def test_garbage_ends_the_session() -> None:
    pair = opened()
    pair.carry(pair.server.received(b"garbage", 0.0))
    assert pair.refusals() == ["frame.magic"]
    assert pair.hung_up == [HangUp(1002, "frame.magic")]


def test_frames_of_a_gateway_are_not_for_it() -> None:
    pair = opened()
    pair.say(Kind.DONE, run=0, device="x", events=[])
    assert pair.refusals() == ["peer.state"]


LIMITS = Limits(silence_seconds=5.0, body_seconds=12.0)


def test_silence() -> None:
    pair = Pair(LIMITS)
    pair.carry(pair.server.tick(4.9))
    assert pair.server.state == "new"
    pair.carry(pair.server.tick(5.1))
    assert pair.refusals() == ["peer.silent"] and pair.hung_up
    pair = opened(LIMITS)
    pair.carry(pair.server.tick(2.1))
    (ping,) = [decode(data) for data in pair.client.take()]
    assert ping.kind is Kind.PONG
    pair.carry(pair.server.received(encode(ping), 2.2))
    pair.carry(pair.server.tick(7.1))
    assert pair.server.state == "open"
    pair.carry(pair.server.tick(7.3))
    assert pair.refusals() == ["peer.silent"] and pair.hung_up


def test_a_body_under_way_is_a_sign_of_life() -> None:
    pair = opened(LIMITS)
    pair.server.body_begins(1.0, 100)
    pair.carry(pair.server.tick(12.9))
    assert pair.server.state == "open"
    pair.server.heard(12.9)
    pair.carry(pair.server.tick(24.8))
    assert pair.server.state == "open"
    pair.server.body_ends(24.8, 100)
    pair.carry(pair.server.tick(29.7))
    assert pair.server.state == "open"
    pair.carry(pair.server.tick(29.9))
    assert pair.refusals() == ["peer.silent"] and pair.hung_up


def test_a_body_that_stands_still_is_no_sign_of_life() -> None:
    pair = opened(LIMITS)
    pair.server.body_begins(1.0)
    pair.carry(pair.server.tick(13.1))
    assert pair.refusals() == ["peer.silent"]


def test_nobody_is_blamed_for_a_late_gateway_or_a_long_transfer() -> None:
    pair = opened(LIMITS)
    pair.server.heard(4.0)
    pair.server.heard(1.0)
    pair.carry(pair.server.tick(8.9))
    assert pair.server.state == "open"
    pair.server.excuse(3.0)
    pair.carry(pair.server.tick(11.9))
    assert pair.server.state == "open"
    pair.carry(pair.server.tick(12.1))
    assert pair.refusals() == ["peer.silent"]


WELCOME = {
    "version": 1,
    "session": "client-1",
    "ticket": "t",
    "devices": [DEVICE],
    "models": [],
    "limits": {},
    "heartbeat_ms": 2000,
}
SILENCES: dict[str, list[tuple[float, str, dict[str, Any]]]] = {
    "no welcome": [(9.9, "tick", {}), (10.3, "tick", {})],
    "ten heartbeats missed": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (20.9, "tick", {}),
        (21.3, "tick", {}),
    ],
    "any frame counts": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (20, "frame", {"kind": "PING", "control": {"sent": 1}}),
        (39.9, "tick", {}),
        (40.3, "tick", {}),
    ],
    "a body under way": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (2, "body_begins", {}),
        (61.9, "tick", {}),
        (62.3, "tick", {}),
    ],
    "pieces of a body": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (2, "body_begins", {}),
        (60, "heard", {}),
        (119.9, "tick", {}),
        (120.3, "tick", {}),
    ],
    "two bodies, one through": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (2, "body_begins", {}),
        (3, "body_begins", {}),
        (4, "body_ends", {}),
        (63.9, "tick", {}),
        (64.3, "tick", {}),
    ],
    "after a body": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (2, "body_begins", {}),
        (50, "body_ends", {}),
        (69.9, "tick", {}),
        (70.3, "tick", {}),
    ],
    "this side was late": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (100, "tick", {"late": 85 * 10**9}),
        (105.9, "tick", {}),
        (106.3, "tick", {}),
    ],
    "slow heartbeats": [
        (1, "frame", {"kind": "WELCOME", "control": {**WELCOME, "heartbeat_ms": 5250}}),
        (53.4, "tick", {}),
        (53.8, "tick", {}),
    ],
    "after the end": [
        (1, "frame", {"kind": "WELCOME", "control": WELCOME}),
        (2, "frame", {"kind": "BYE", "control": {"reason": "stopping"}}),
        (1000, "tick", {}),
    ],
}


def test_golden_silence(golden: Golden) -> None:
    """The client's machine in either language calls the same silence too long."""
    scenarios = list[dict[str, Any]]()
    for name, steps in SILENCES.items():
        clock, told = Clock(), list[dict[str, Any]]()
        session = ClientSession("test", clock)
        for at, act, words in steps:
            clock.now = round(at * 1e9)
            answer: dict[str, Any] = {"result": None}
            try:
                if act == "frame":
                    session.received(encode(frame(Kind[words["kind"]], **words["control"])))
                else:
                    getattr(session, act)(**words)
            except RlxError as error:
                answer = {"error": error.code, "message": str(error)}
            told.append({"at": clock.now, "do": act, **words, "answer": answer})
        scenarios.append({"name": name, "steps": told})
    ends = [row["steps"][-1]["answer"].get("error") for row in scenarios]
    assert ends == [*["peer.silent"] * (len(ends) - 1), None]
    middles = [step["answer"] for row in scenarios for step in row["steps"][:-1]]
    assert all("error" not in answer for answer in middles)
    golden.check("protocol/silence.json", json.dumps(scenarios, indent=1) + "\n")


def test_a_slow_reader_is_left() -> None:
    pair = opened()
    pair.carry(pair.server.overflowed(1 << 30))
    assert pair.refusals() == ["peer.slow"]
    assert pair.hung_up == [HangUp(1009, "peer.slow")]


SHARD: dict[str, Any] = {
    "shard": 0,
    "device": DEVICE,
    "ir": bytes_digest(b"ir"),
    "graph": bytes_digest(b"graph"),
    "model": "",
    "values": {},
}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"device": "cuda:7"}, "peer.device"),
        ({"ir": "sha256:0"}, "peer.digest"),
        ({"graph": "../../etc/passwd"}, "peer.digest"),
        ({"shard": -1}, "peer.id"),
    ],
)
def test_shards_that_cannot_be(change: dict[str, Any], code: str) -> None:
    pair = opened()
    pair.say(Kind.SHARD, **(SHARD | change))
    assert pair.refusals() == [code] and pair.server.state == "open"


def test_shards_are_counted() -> None:
    pair = opened(Limits(shards=2))
    for number in (0, 0, 1, 2):
        pair.say(Kind.SHARD, **(SHARD | {"shard": number}))
    assert pair.refusals() == ["peer.id", "queue.full"]


def test_uploads_are_asked_for_and_checked(cut: Module) -> None:
    text, ir, graph = texts(cut)
    pair = opened(Limits(ir_bytes=len(text)))
    pair.say(Kind.BLOB, b"x", digest=ir, offset=0, total=1)
    assert pair.refusals() == ["upload.unasked"]
    for attempt, (payload, offset, total, code) in enumerate(
        (
            (b"x" * len(text), 0, len(text), "digest.mismatch"),
            (b"x", 0, len(text) + 1, "upload.limit"),
            (b"x", 5, len(text), "upload.order"),
            (b"x", 0, -1, "upload.limit"),
        )
    ):
        pair.client.ask_shard(attempt, DEVICE, ir, graph.digest)
        pair.exchange()
        pair.say(Kind.BLOB, payload, digest=ir, offset=offset, total=total)
        assert pair.refusals()[-1] == code
    assert pair.work == []


def test_weights_beyond_the_limit_are_not_asked_for(cut: Module) -> None:
    text, ir, graph = texts(cut)
    pair = opened(Limits(upload_bytes=len(text) + 10))
    pair.client.ask_shard(0, DEVICE, ir, graph.digest)
    pair.client.upload(ir, text)
    pair.exchange()
    pair.exchange(pair.server.compiled(0, program_of(cut), graph))
    pair.exchange(pair.server.weights_found(0, frozenset()))
    assert pair.refusals() == ["upload.limit"]


def test_stale_graphs(cut: Module) -> None:
    text, ir, graph = texts(cut)
    pair = opened()
    pair.client.ask_shard(0, DEVICE, ir, bytes_digest(b"another graph"))
    pair.client.upload(ir, text)
    pair.exchange()
    pair.exchange(pair.server.compiled(0, program_of(cut), graph))
    assert pair.refusals() == ["digest.mismatch"]
    pair = made_ready(cut)
    pair.say(Kind.RUN, run=0, shard=0, graph=bytes_digest(b"another graph"), symbols={"n": 1})
    assert pair.refusals() == ["digest.mismatch"] and pair.work == []


def test_runs_are_counted_and_follow_each_other(cut: Module) -> None:
    pair = made_ready(cut, Limits(runs=2))
    graph = schedule(cut).digest
    for number, shard in ((3, 0), (3, 0), (2, 0), (4, 9), (5, 0), (6, 0)):
        pair.say(Kind.RUN, run=number, shard=shard, graph=graph, symbols={"n": 1})
    assert pair.refusals() == ["peer.id", "peer.id", "peer.id", "queue.full"]
    assert [item.run for item in pair.work if isinstance(item, Start)] == [3, 5]


def test_tensors_under_way_are_bounded(cut: Module) -> None:
    pair = made_ready(cut, Limits(stored_bytes=1000, tensor_bytes=800))
    pair.client.run(0, {"n": 1})
    pair.exchange()
    for name, size, code in (("a", 801, "upload.limit"), ("a/../b", 1, "peer.id")):
        with pytest.raises(RlxError) as error:
            pair.server.stored(name, bytes(size))
        assert error.value.code == code
    pair.server.stored("a", bytes(700))
    with pytest.raises(RlxError) as error:
        pair.server.stored("b", bytes(400))
    assert error.value.code == "upload.limit"
    pair.server.body_begins(0.0, 200)
    with pytest.raises(RlxError) as error:
        pair.server.body_begins(0.0, 200)
    assert error.value.code == "upload.limit", "bodies that are under way count"
    pair.server.body_ends(0.0, 200)
    pair.server.body_begins(0.0, 300)
    pair.say(Kind.TENSOR, b"x", run=0, edge=0, offset=0, total=1 << 40)
    assert pair.refusals() == ["upload.limit"]


def test_frames_for_runs_that_have_ended_are_ignored(cut: Module) -> None:
    pair = made_ready(cut)
    pair.say(Kind.TENSOR, b"x", run=7, edge=0, offset=0, total=1)
    pair.say(Kind.TENSOR_AT, run=7, edge=0, id="a", total=1)
    pair.say(Kind.CANCEL, run=7)
    assert pair.refusals() == [] and pair.work == []


def test_a_gateway_that_breaks_the_protocol_is_noticed(cut: Module) -> None:
    session = ClientSession("test", Clock())
    with pytest.raises(RlxError) as error:
        session.received(encode(frame(Kind.PING, sent=1)))
    assert error.value.code == "peer.state"
    pair = opened()
    pair.client.ask_shard(0, DEVICE, bytes_digest(b"ir"), bytes_digest(b"graph"))
    with pytest.raises(RlxError) as stale:
        pair.client.received(
            encode(
                frame(
                    Kind.READY,
                    shard=0,
                    ir=bytes_digest(b"ir"),
                    graph=bytes_digest(b"other"),
                    kernels=bytes_digest(b"k"),
                    resident=1,
                )
            )
        )
    assert stale.value.code == "digest.mismatch"
