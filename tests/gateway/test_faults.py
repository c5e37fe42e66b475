"""Devices that fail under the engine: reported, survived, and nothing of them is left."""

# covers R22, R23, R28, R35

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlx_edge.gateway.engines.in_process import InProcessEngine
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import U8
from rlx_edge.wasm_runtime.unit import WasmUnit
from tests.gateway.test_engine import (
    DEVICE,
    Listening,
    constants,
    direct,
    program,
    rows,
    scaled,
)

__all__ = ["program"]

LOST = DeviceError("vulkan.lost", "the device was lost while running kernels", where=DEVICE)
FAULTS: dict[str, tuple[str, BaseException, str]] = {
    "raises": ("launch", RuntimeError("a kernel of the tests"), "engine.internal"),
    "raises in a copy": ("download", ValueError("planted"), "engine.internal"),
    "no host memory": ("upload", MemoryError(), "memory.exhausted"),
    "no device memory": (
        "grow",
        failure("memory.grow", where=DEVICE, nbytes=1 << 40),
        "memory.grow",
    ),
    "lost": ("launch", LOST, "vulkan.lost"),
    "lost while waiting": ("synchronize", LOST, "vulkan.lost"),
}
"""Which call of a unit fails how, and the code that a client is told."""


class Faults:
    """Makes units of which a call fails as long as ``fault`` names it; counts those alive."""

    def __init__(self) -> None:
        self.fault: tuple[str, BaseException] | None = None
        self.close_fails = False
        self.alive = 0
        self.made = 0

    def unit(self, device: str) -> WasmUnit:
        faults = self

        class Unit(WasmUnit):
            def close(self) -> None:
                if self._state != "closed":
                    faults.alive -= 1
                super().close()
                if faults.close_fails:
                    raise LOST

        unit = Unit(device)
        for name in ("grow", "upload", "launch", "download", "synchronize", "load"):
            setattr(unit, name, self._guarded(name, getattr(unit, name)))
        self.alive += 1
        self.made += 1
        return unit

    def _guarded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*words: Any) -> Any:
            if self.fault is not None and self.fault[0] == name:
                raise self.fault[1]
            return call(*words)

        return guarded


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def engine(faults: Faults) -> Iterator[InProcessEngine]:
    made = InProcessEngine((DEVICE,), faults.unit, direct, memory_limit=1 << 20, capacity=8)
    yield made
    made.close()  # raises should a buffer still be held
    assert faults.alive == 0


def turn(engine: InProcessEngine, listener: Listening, run: int) -> tuple[Any, ...]:
    """How run ``run`` of shard 0 ends."""
    engine.start("a", 0, run, {"n": 1})
    engine.deliver("a", run, 0, rows(1, run))
    told = listener.wait("run_done", "run_failed")
    assert told[1] == run
    return told


@pytest.mark.parametrize("closing", ["closes", "refuses to close"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_run_that_fails_is_reported_and_the_next_one_runs(
    engine: InProcessEngine, faults: Faults, program: Program, name: str, closing: str
) -> None:
    call, error, code = FAULTS[name]
    listener = Listening()
    engine.load("a", 0, program, constants(), listener)
    assert listener.wait("loaded", "load_failed") == ("loaded", 0)
    if call != "grow":  # memory grows for the first run only
        assert turn(engine, listener, 0)[0] == "run_done"
    faults.fault, faults.close_fails = (call, error), closing == "refuses to close"
    for run in (1, 2):  # the device stays as it is: so does the report
        assert turn(engine, listener, run) == ("run_failed", run, code)
        assert faults.alive == 0 and not list(engine._contexts[DEVICE])
    faults.fault, faults.close_fails = None, False
    assert turn(engine, listener, 3)[0] == "run_done"
    emitted = [row[3] for row in listener.told if row[0] == "emitted"]
    assert emitted[-1] == scaled(1, 3)
    assert faults.alive == 1


def test_a_device_that_cannot_be_loaded_leaves_the_others_alone(program: Program) -> None:
    faults = Faults()
    second = "cpu:1@gateway"
    engine = InProcessEngine(
        (DEVICE, second), faults.unit, direct, memory_limit=1 << 20, capacity=8
    )
    try:
        faults.fault = ("load", LOST)
        listener = Listening()
        engine.load("a", 0, program, constants(), listener)
        assert listener.wait("loaded", "load_failed") == ("load_failed", 0, "vulkan.lost")
        assert faults.alive == 0
        faults.fault = None
        engine.load("a", 1, program, constants(), listener)
        assert listener.wait("loaded", "load_failed") == ("loaded", 1)
    finally:
        engine.close()
    assert faults.alive == 0


def test_a_planted_leak_is_named_at_shutdown(program: Program) -> None:
    engine = InProcessEngine((DEVICE,), WasmUnit, direct, memory_limit=1 << 20, capacity=8)
    listener = Listening()
    engine.load("a", 0, program, constants(), listener)
    assert listener.wait("loaded", "load_failed") == ("loaded", 0)
    assert turn(engine, listener, 0)[0] == "run_done"
    unit = engine._shards["a", 0].runner.unit  # type: ignore[union-attr]
    engine._contexts[DEVICE].adopt(unit, 0, U8, (48,), name="scratch", holder="the forgetful test")
    with pytest.raises(DeviceError) as caught:
        engine.close()
    assert caught.value.code == "device.leak"
    assert "the forgetful test holds scratch (48 bytes at 0) of cpu:0@gateway" in str(caught.value)


def test_a_job_that_breaks_is_logged_and_the_next_one_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from rlx_edge.gateway.engines.job_queue import JobQueue

    done: list[int] = []

    def breaks() -> None:
        raise RuntimeError("planted")

    with caplog.at_level(logging.ERROR, "rlx_edge.gateway"):
        logging.getLogger("rlx_edge.gateway").propagate = True
        queue = JobQueue("tests")
        queue.submit(breaks)
        queue.submit(lambda: done.append(1))
        queue.close()
    assert done == [1]
    assert "planted" in caplog.text
