"""Choices without a device: what is measured, what runs, what is told of it."""

# covers R15

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np
import pytest

from rlx_edge.compile import CudaTarget, compile_module
from rlx_edge.gpu_workers.cuda import choices as module
from rlx_edge.gpu_workers.cuda.choices import IDLE, REPEATS, TIMES, WAKE, Choices
from rlx_edge.gpu_workers.cuda.tuning import Tuning
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.plan import evaluate
from rlx_edge.ir.program import Program
from rlx_edge.runtime.records import Record

TEXT = """\
rlx.module version = "1.0"

func @m(%a: f32[m, 8], %b: f32[8, 4], %c: f32[4]) -> (f32[m, 4]) {
  %p = rlxc::matmul(%a, %b) : f32[m, 4]
  %s = rlxc::add(%p, %c) : f32[m, 4]
  return %s
}
"""


class FakeStream:
    """Keeps what is started; time passes with every launch, by its kernel's name. Launches take
    five times as long until the device has been busy for ``WAKE`` seconds."""

    def __init__(self, program: Program, microseconds: dict[str, float]) -> None:
        self.program, self.microseconds = program, microseconds
        self.now = 0.0
        self.clock = 7.0
        """Seconds of the host, a tenth for each wait."""
        self.busy = 0.0
        self.capturing: list[Record] | None = None
        self.started: list[str] = []
        self.alone: tuple[str, ...] = ()
        """What does not let itself be captured."""

    def start(self, record: Record) -> None:
        entry = self.program.entries[record.kernel]
        name = entry.library or entry.name.partition("_")[2]
        if name not in self.microseconds or (self.capturing is not None and name in self.alone):
            raise DeviceError("cuda.library", "refused")
        self.started.append(name)
        if self.capturing is not None:
            self.capturing.append(record)

    def begin_capture(self) -> None:
        self.capturing = []

    def end_capture(self) -> Any:
        launches, self.capturing = self.capturing, None
        assert launches is not None

        def launch(stream: FakeStream) -> None:
            slow = 1 if self.busy >= WAKE else 5
            for record in launches:
                entry = self.program.entries[record.kernel]
                name = entry.library or entry.name.partition("_")[2]
                self.now += slow * self.microseconds[name]

        return SimpleNamespace(launch=launch)

    def synchronize(self) -> None:
        self.clock += 0.1
        self.busy += 0.1

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace


class FakeEvent:
    def __init__(self) -> None:
        self.at = 0.0

    def record(self, stream: FakeStream) -> None:
        self.at = stream.now

    def synchronize(self) -> None:
        """Nothing is under way."""


def prepared(
    monkeypatch: pytest.MonkeyPatch, microseconds: dict[str, float], rows: int = 4
) -> tuple[Choices, FakeStream]:
    program = compile_module(
        parse_module(TEXT), CudaTarget(), device="cuda:0", precision="tf32"
    ).program
    stream = FakeStream(program, microseconds)
    cuda = SimpleNamespace(
        Event=FakeEvent, get_elapsed_time=lambda begin, end: (end.at - begin.at) / 1e3
    )
    monkeypatch.setattr(module, "cupy", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: stream.clock))
    found = Choices(program, Tuning("d", None), stream.start, stream)
    found.take_words(np.array(evaluate(program.plan, {"m": rows}).words, np.int32))
    return found, stream


def taken(found: Choices) -> list[int]:
    return [launch for launch in range(len(found._program.launches)) if found.takes(launch)]


FAST_LIBRARY = {"matmul": 9.0, "mma_matmul": 5.0, "cublas:tf32": 1.0, "finish": 2.0}


def test_the_fastest_way_runs_with_all_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    found, stream = prepared(monkeypatch, FAST_LIBRARY)
    (choice,) = found._program.choices
    assert taken(found) == list(choice.way(choice.ways - 1))
    assert stream.started.count("mma_matmul") == 3 * (1 + REPEATS) and TIMES > 1
    (row,) = found.rows()
    assert (row["op"], row["value"]) == ("rlxc::fused_matmul_add", "s")
    assert row["taken"] == "4 cublas:tf32"
    times = row["microseconds"]
    assert isinstance(times, dict) and times["4 cublas:tf32"] == pytest.approx(3.0)


def test_an_idle_device_is_woken_before_ways_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    found, stream = prepared(monkeypatch, FAST_LIBRARY, 20)
    taken(found)
    (row,) = found.rows()
    assert isinstance(row["microseconds"], dict)
    assert next(iter(row["microseconds"].values())) == pytest.approx(9.0)
    woken = stream.clock
    for rows, pause in ((40, IDLE / 2), (80, 2 * IDLE)):
        stream.clock += pause
        woken += pause
        found.take_words(np.array(evaluate(found._program.plan, {"m": rows}).words, np.int32))
        taken(found)
        assert (stream.clock > woken) is (pause > IDLE)


def test_a_way_that_cannot_run_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = prepared(monkeypatch, {"matmul": 9.0, "mma_matmul": 5.0})
    (choice,) = found._program.choices
    assert taken(found) == list(choice.way(1))
    (row,) = found.rows()
    assert isinstance(row["microseconds"], dict)
    assert row["microseconds"]["4 cublas:tf32"] is None


def test_a_way_that_cannot_be_captured_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found, stream = prepared(monkeypatch, FAST_LIBRARY)
    monkeypatch.setattr(module, "errors", lambda: (MemoryError,))
    stream.alone = ("cublas:tf32",)
    (choice,) = found._program.choices
    assert taken(found) == list(choice.way(1))
    assert stream.capturing is None


def test_sizes_of_a_class_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, stream = prepared(monkeypatch, FAST_LIBRARY, 20)
    taken(found)
    count = len(stream.started)
    plan = found._program.plan
    for rows, more in ((31, False), (40, True)):
        found.take_words(np.array(evaluate(plan, {"m": rows}).words, np.int32))
        assert (found.rows() == []) is more
        taken(found)
        assert (len(stream.started) > count) is more


def test_a_program_without_choices_runs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found, stream = prepared(monkeypatch, FAST_LIBRARY)
    whole = replace(found._program, choices=())
    assert taken(Choices(whole, Tuning("d", None), stream.start, stream)) == list(
        range(len(whole.launches))
    )
