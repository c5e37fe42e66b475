"""The choices of a program on one device: what each way takes, and which one runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rlx_edge.gpu_workers.cuda.library import cupy
from rlx_edge.gpu_workers.cuda.memory import errors
from rlx_edge.gpu_workers.cuda.tuning import Measured, Tuning
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.program import Choice, Program
from rlx_edge.runtime.records import Record, Words, records

REPEATS = 10
"""Runs of a way in the graph that is timed."""
TIMES = 3
IDLE = 0.05
"""Seconds without a measurement after which a device may have lowered its clock."""
WAKE = 0.3
"""Seconds of work after which it is back at its full clock; short measurements before that took
four to six times as long on an H200."""


class Choices:
    """Decides for the words at hand. Measuring runs every way on the buffers of the run itself:
    all of them fill the same ones, and the way that is taken runs after them.

    ``start`` puts a launch into ``stream``.
    """

    def __init__(
        self, program: Program, tuning: Tuning, start: Callable[[Record], None], stream: Any
    ) -> None:
        self._program = program
        self._tuning = tuning
        self._start = start
        self._stream = stream
        self._parts = {
            launch: (number, way)
            for number, choice in enumerate(program.choices)
            for way in range(choice.ways)
            for launch in choice.way(way)
        }
        self._words: Words | None = None
        self._taken: dict[int, Measured] = {}
        self._awake_until = 0.0

    def take_words(self, words: Words) -> None:
        """Another parameter block: other sizes, maybe other ways."""
        self._words = words
        self._taken.clear()

    def takes(self, launch: int) -> bool:
        """Whether the launch runs; what nobody knows yet is measured now."""
        part = self._parts.get(launch)
        if part is None:
            return True
        number, way = part
        if number not in self._taken:
            self._taken[number] = self._measured(self._program.choices[number])
        return self._taken[number].way == way

    def rows(self) -> list[Mapping[str, object]]:
        """Operation, value, microseconds of each way by name, and the name of the one taken."""
        found: list[Mapping[str, object]] = []
        for choice in self._program.choices if self._words is not None else ():
            measured = self._tuning.known(choice.key, self._sizes(choice))
            if measured is None:
                continue
            info = self._program.launches[choice.starts[0]]
            names = [self._name(choice, way) for way in range(choice.ways)]
            found.append(
                {
                    "op": info.op,
                    "value": info.value,
                    "microseconds": dict(zip(names, measured.microseconds, strict=True)),
                    "taken": names[measured.way],
                }
            )
        return found

    def _name(self, choice: Choice, way: int) -> str:
        launches = (self._program.launches[launch] for launch in choice.way(way))
        entries = [self._program.entries[launch.kernel] for launch in launches]
        library = next((entry.library for entry in entries if entry.library), "")
        return f"{way} {library or entries[0].name}"

    def _measured(self, choice: Choice) -> Measured:
        return self._tuning.measured(
            choice.key,
            self._sizes(choice),
            choice.ways,
            lambda way: self._time(self._records(choice, way)),
        )

    def _sizes(self, choice: Choice) -> list[int]:
        return [int(size) for size in self._records(choice, 0)[0].words[-choice.sizes :]]

    def _records(self, choice: Choice, way: int) -> list[Record]:
        assert self._words is not None
        launches = choice.way(way)
        block = self._program.plan.block_address
        entries = self._program.entries
        return list(records(self._words, block, entries, launches.start, launches.stop))

    def _time(self, launches: list[Record]) -> float | None:
        """Microseconds on the device, by events around replays of a graph."""
        try:
            for record in launches:
                self._start(record)
        except DeviceError:  # the library is absent or does not offer this
            return None
        stream, cuda = self._stream, cupy().cuda
        try:
            with stream:
                stream.begin_capture()
                for _ in range(REPEATS):
                    for record in launches:
                        self._start(record)
                graph = stream.end_capture()
        except DeviceError:  # the library does not let itself be captured
            with suppress(*errors()):
                stream.end_capture()
            return None
        self._wake(graph)
        begin, end = cuda.Event(), cuda.Event()
        graph.launch(stream=stream)
        times = []
        for _ in range(TIMES):
            begin.record(stream)
            graph.launch(stream=stream)
            end.record(stream)
            end.synchronize()
            times.append(float(cuda.get_elapsed_time(begin, end)))
        self._awake_until = time.perf_counter() + IDLE
        return 1e3 * min(times) / REPEATS

    def _wake(self, graph: Any) -> None:
        """Keep the device busy until its clock is up, if it was idle: ways are compared at one
        clock."""
        started = time.perf_counter()
        if started < self._awake_until:
            return
        while time.perf_counter() < started + WAKE:
            graph.launch(stream=self._stream)
            self._stream.synchronize()
