"""The contract of engines, on the one that runs in this process."""

# covers R23, R26, R35

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rlx_edge.compile import compile_part, place_module
from rlx_edge.compile.passes.split import Split
from rlx_edge.gateway.engines.in_process import InProcessEngine
from rlx_edge.ir.core import Constant, Module
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.errors import LimitError, RlxError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import F32, tensor_type
from rlx_edge.runtime.trace import TraceEvent
from rlx_edge.wasm_runtime.unit import WasmUnit

DEVICE = "cpu:0@gateway"
WEIGHT = np.array([1, 2, 3, 4], np.float32)
DIGEST = bytes_digest(WEIGHT.tobytes())
TEXT = f"""rlx.module version = "1.0"

func @scale(%x: f32[n, 4]) -> (f32[n, 4]) {{
  %k = tensor::const() {{ digest = "{DIGEST}" }} : f32[4]
  %y = rlxc::mul(%x, %k) : f32[n, 4]
  return %y
}}
"""
SECONDS = 20.0


class Listening:
    """Everything that the engine told, in order; ``wait`` until it told something."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._news = threading.Condition()

    def _tell(self, *row: Any) -> None:
        with self._news:
            self.told.append(row)
            self._news.notify_all()

    def wait(self, *kinds: str) -> tuple[Any, ...]:
        """The first row of one of these kinds, which is taken out."""
        with self._news:
            found = self._news.wait_for(
                lambda: [row for row in self.told if row[0] in kinds], SECONDS
            )
            assert found, f"no {kinds} in {self.told}"
            self.told.remove(found[0])
            return found[0]

    def loaded(self, shard: int) -> None:
        self._tell("loaded", shard)

    def load_failed(self, shard: int, error: RlxError) -> None:
        self._tell("load_failed", shard, error.code)

    def emitted(self, run: int, edge: int, data: bytes) -> None:
        self._tell("emitted", run, edge, data)

    def run_done(self, run: int, events: tuple[TraceEvent, ...]) -> None:
        self._tell("run_done", run, [event.kind for event in events])

    def run_failed(self, run: int, error: RlxError) -> None:
        self._tell("run_failed", run, error.code)


def constants() -> dict[str, Constant]:
    data = WEIGHT.tobytes()
    return {DIGEST: Constant(DIGEST, tensor_type(F32, 4), MemorySource(data), 0, len(data))}


@pytest.fixture(scope="module")
def program() -> Program:
    module: Module = parse_module(TEXT)
    module.constants = constants()
    return compile_part(Split().run(place_module(module)), DEVICE)


def direct(call: Callable[[], None]) -> None:
    call()


@pytest.fixture
def engine() -> Iterator[InProcessEngine]:
    made = InProcessEngine((DEVICE,), WasmUnit, direct, memory_limit=1 << 20, capacity=8)
    yield made
    made.close()  # raises should a buffer still be held


@pytest.fixture
def ready(engine: InProcessEngine, program: Program) -> Listening:
    listener = Listening()
    engine.load("a", 0, program, constants(), listener)
    assert listener.wait("loaded", "load_failed") == ("loaded", 0)
    return listener


def rows(count: int, start: int = 0) -> bytes:
    return np.arange(start, start + 4 * count, dtype=np.float32).tobytes()


def scaled(count: int, start: int = 0) -> bytes:
    values = np.frombuffer(rows(count, start), np.float32).reshape(count, 4)
    return (values * WEIGHT).tobytes()


def test_runs_take_turns_and_may_be_fed_early(engine: InProcessEngine, ready: Listening) -> None:
    for run in range(3):
        engine.start("a", 0, run, {"n": run + 1})
    for run in (2, 0, 1):
        engine.deliver("a", run, 0, rows(run + 1, run))
    for run in range(3):
        assert ready.wait("emitted") == ("emitted", run, 1, scaled(run + 1, run))
        _, number, kinds = ready.wait("run_done")
        assert number == run and {"run", "receive", "send"} <= set(kinds)


def test_a_waiting_run_is_stopped(engine: InProcessEngine, ready: Listening) -> None:
    engine.start("a", 0, 0, {"n": 1})
    engine.start("a", 0, 1, {"n": 1})
    engine.stop("a", 0)
    assert ready.wait("run_failed") == ("run_failed", 0, "run.cancelled")
    engine.deliver("a", 1, 0, rows(1))
    assert ready.wait("emitted")[1] == 1
    engine.stop("a", 7)  # unknown: nothing happens


def test_payloads_and_sizes_that_do_not_fit(engine: InProcessEngine, ready: Listening) -> None:
    for run, (symbols, payload, code) in enumerate((
        ({"n": 1}, b"123", "edge.bytes"),
        ({}, b"", "input.symbol"),
        ({"n": 0}, b"", "plan.guard"),
        ({"n": 1 << 20}, b"", "memory.limit"),
        ({"n": 1 << 60}, b"", "plan.memory"),
    )):  # fmt: skip
        engine.start("a", 0, run, symbols)
        if code == "edge.bytes":
            engine.deliver("a", run, 0, payload)
        assert ready.wait("run_failed") == ("run_failed", run, code)
    engine.start("a", 0, 9, {"n": 1})
    engine.deliver("a", 9, 5, rows(1))
    assert ready.wait("run_failed")[2] == "edge.unknown"
    engine.start("a", 0, 10, {"n": 1})
    engine.deliver("a", 10, 0, rows(1))
    assert ready.wait("emitted")[3] == scaled(1)


def test_shards_that_cannot_be_loaded(engine: InProcessEngine, program: Program) -> None:
    listener = Listening()
    engine.load("a", 0, program, {}, listener)
    assert listener.wait("load_failed") == ("load_failed", 0, "program.constant")
    other = {DIGEST: Constant(DIGEST, tensor_type(F32, 4), MemorySource(bytes(16)), 0, 16)}
    engine.load("a", 1, program, other, listener)
    assert listener.wait("loaded", "load_failed")[0] == "loaded"
    engine.start("a", 1, 0, {"n": 1})
    assert listener.wait("run_failed") == ("run_failed", 0, "weights.digest")


def test_a_freed_shard_is_silent(engine: InProcessEngine, ready: Listening) -> None:
    engine.start("a", 0, 0, {"n": 1})
    engine.free("a", 0)
    engine.free("a", 0)
    engine.deliver("a", 0, 0, rows(1))
    assert ready.told == []


def test_owners_do_not_meet(engine: InProcessEngine, program: Program, ready: Listening) -> None:
    other = Listening()
    engine.load("b", 0, program, constants(), other)
    assert other.wait("loaded") == ("loaded", 0)
    engine.start("a", 0, 0, {"n": 1})
    engine.start("b", 0, 0, {"n": 2})
    engine.deliver("b", 0, 0, rows(2))
    assert other.wait("emitted") == ("emitted", 0, 1, scaled(2))
    engine.free("b", 0)
    engine.deliver("a", 0, 0, rows(1))
    assert ready.wait("emitted") == ("emitted", 0, 1, scaled(1))


def test_a_full_queue_refuses(program: Program) -> None:
    engine = InProcessEngine((DEVICE,), WasmUnit, direct, memory_limit=1 << 20, capacity=0)
    try:
        with pytest.raises(LimitError) as error:
            engine.load("a", 0, program, constants(), Listening())
        assert error.value.code == "queue.full"
    finally:
        engine.close()
