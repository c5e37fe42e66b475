"""Shards in the gateway's own process: one thread a device does all its work, job by job.

A run that waits for an edge holds no thread: it is a record whose next step becomes a job when the
edge arrives. Jobs are bounded; ``close`` stops the threads behind the jobs at hand. Whatever a
shard does to its device, its own run fails and the device's thread goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rlx_edge.gateway.engines.engine import Listener
from rlx_edge.gateway.engines.faults import close_contexts, closed, told
from rlx_edge.gateway.engines.job_queue import JobQueue
from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.executor import State
from rlx_edge.runtime.program_run import ProgramRun
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.trace import Trace
from rlx_edge.runtime.units import Array, ExecutionUnit

MakeUnit = Callable[[str], ExecutionUnit]
Post = Callable[[Callable[[], None]], None]
Key = tuple[str, int]


@dataclass(slots=True)
class _Run:
    number: int
    symbols: Mapping[str, int]
    early: list[tuple[int, bytes]] = field(default_factory=list)
    run: ProgramRun | None = None
    stopped: bool = False


@dataclass(slots=True)
class _Shard:
    listener: Listener
    program: Program
    constants: Mapping[str, Constant]
    runner: ProgramRunner | None = None
    runs: deque[_Run] = field(default_factory=deque)
    """The active run, and those behind it."""
    freed: bool = False


class InProcessEngine:
    """``Engine`` for ``devices`` of this process. ``make_unit`` gives the unit of a device,
    ``post`` runs a function in the thread that listeners live in, from any thread.
    ``memory_limit`` bounds a shard's linear memory, ``capacity`` the jobs that wait."""

    def __init__(
        self,
        devices: tuple[str, ...],
        make_unit: MakeUnit,
        post: Post,
        *,
        memory_limit: int,
        capacity: int,
    ) -> None:
        self.devices = devices
        self._make_unit = make_unit
        self._post = post
        self._memory_limit = memory_limit
        self._capacity = capacity
        self._contexts = {device: DeviceContext(device) for device in devices}
        self._shards: dict[Key, _Shard] = {}
        self._runs: dict[Key, tuple[_Shard, _Run]] = {}
        self._queues = {device: JobQueue(f"rlx-{device}") for device in devices}

    # ---- calls of the event loop -------------------------------------------------------------

    def load(
        self,
        owner: str,
        shard: int,
        program: Program,
        constants: Mapping[str, Constant],
        listener: Listener,
    ) -> None:
        record = _Shard(listener, program, constants)
        self._check_queue(record)
        self._shards[owner, shard] = record
        self._submit(record, partial(self._load, (owner, shard), record))

    def start(self, owner: str, shard: int, run: int, symbols: Mapping[str, int]) -> None:
        record, entry = self._shards[owner, shard], _Run(run, symbols)
        self._check_queue(record)
        self._runs[owner, run] = (record, entry)
        record.runs.append(entry)
        if len(record.runs) == 1:
            self._submit(record, partial(self._begin, owner, record, entry))

    def deliver(self, owner: str, run: int, edge: int, data: bytes) -> None:
        found = self._runs.get((owner, run))
        if found is not None:
            self._submit(found[0], partial(self._arrived, owner, *found, edge, data))

    def stop(self, owner: str, run: int) -> None:
        found = self._runs.get((owner, run))
        if found is None:
            return
        record, entry = found
        entry.stopped = True
        if entry.run is not None:
            entry.run.cancel()
        self._submit(record, partial(self._stop, owner, record, entry))

    def free(self, owner: str, shard: int) -> None:
        record = self._shards.pop((owner, shard), None)
        if record is None:
            return
        record.freed = True
        for entry in record.runs:
            entry.stopped = True
            if entry.run is not None:
                entry.run.cancel()
            self._runs.pop((owner, entry.number), None)
        self._submit(record, partial(self._free, record))

    def close(self) -> None:
        for owner, shard in list(self._shards):
            self.free(owner, shard)
        for queue in self._queues.values():
            queue.close()
        close_contexts(self._contexts.values())

    def _check_queue(self, record: _Shard) -> None:
        waiting = self._queues[record.program.device].waiting
        if waiting >= self._capacity:
            raise failure("queue.full", found=f"{waiting} jobs", allowed=self._capacity)

    def _submit(self, record: _Shard, job: Callable[[], None]) -> None:
        self._queues[record.program.device].submit(job)

    # ---- the device's thread -----------------------------------------------------------------

    def _load(self, key: Key, record: _Shard) -> None:
        if record.freed:
            return
        try:
            self._check_memory(record.program.resident)
            record.runner = self._runner(record)
        except Exception as error:  # of this shard alone: the device goes on with others
            self._post(partial(self._load_failed, key, record, told(error)))
            return
        self._post(partial(record.listener.loaded, key[1]))

    def _load_failed(self, key: Key, record: _Shard, error: RlxError) -> None:
        if self._shards.get(key) is record:
            del self._shards[key]
        record.listener.load_failed(key[1], error)

    def _runner(self, record: _Shard) -> ProgramRunner:
        device = record.program.device
        unit = self._make_unit(device)
        try:
            return ProgramRunner(
                record.program,
                record.constants,
                unit,
                self._contexts[device],
                holder="a client's shard",
                trace=Trace(device),
                check_weights=True,
            )
        except BaseException:
            closed(unit.close)
            raise

    def _begin(self, owner: str, record: _Shard, entry: _Run) -> None:
        if entry.stopped or record.freed:
            self._end(owner, record, entry, failure("run.cancelled"))
            return

        def emit(edge: int, array: Array) -> None:
            data = np.ascontiguousarray(array).tobytes()
            self._post(partial(record.listener.emitted, entry.number, edge, data))

        def step() -> None:
            if record.runner is None:  # the run before failed and took its unit along
                record.runner = self._runner(record)
            runner = record.runner
            runner.trace.take()
            self._check_memory(runner.plan(entry.symbols).peak)
            entry.run = runner.start(entry.symbols, emit)
            entry.run.begin([])
            while entry.early and not entry.stopped:
                entry.run.arrived(*entry.early.pop(0))

        self._step(owner, record, entry, step)

    def _arrived(self, owner: str, record: _Shard, entry: _Run, edge: int, data: bytes) -> None:
        if entry.stopped or record.freed:
            return
        run = entry.run
        if run is None:
            entry.early.append((edge, data))
            return
        if run.state is State.ACTIVE:
            self._step(owner, record, entry, lambda: run.arrived(edge, data))

    def _step(self, owner: str, record: _Shard, entry: _Run, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # of this shard alone: the device goes on with others
            self._end_failed(owner, record, entry, told(error))
            return
        assert entry.run is not None and record.runner is not None
        if entry.run.state is State.FINISHED:
            events = record.runner.trace.take()
            self._next(owner, record, entry)
            self._post(partial(record.listener.run_done, entry.number, events))
        elif entry.run.state in (State.STOPPED, State.STOPPING):
            self._end(owner, record, entry, failure("run.cancelled"))

    def _stop(self, owner: str, record: _Shard, entry: _Run) -> None:
        if entry in record.runs and not record.freed:
            if entry.run is not None and entry.run.state is State.ACTIVE:
                entry.run.stop()
            self._end(owner, record, entry, failure("run.cancelled"))

    def _end(self, owner: str, record: _Shard, entry: _Run, error: RlxError) -> None:
        if entry in record.runs:
            self._next(owner, record, entry)
            if not record.freed:  # nobody listens any more
                self._post(partial(record.listener.run_failed, entry.number, error))

    def _next(self, owner: str, record: _Shard, entry: _Run) -> None:
        was_active = record.runs[0] is entry
        record.runs.remove(entry)
        self._runs.pop((owner, entry.number), None)
        if was_active and record.runs:
            self._submit(record, partial(self._begin, owner, record, record.runs[0]))

    def _end_failed(self, owner: str, record: _Shard, entry: _Run, error: RlxError) -> None:
        """Memory after a failed kernel cannot be trusted: the next run has a fresh unit."""
        self._free(record)
        self._end(owner, record, entry, error)

    def _free(self, record: _Shard) -> None:
        old, record.runner = record.runner, None
        if old is not None:
            closed(old.close)

    def _check_memory(self, nbytes: int) -> None:
        if nbytes > self._memory_limit:
            raise failure("memory.limit", nbytes=nbytes, limit=self._memory_limit)
