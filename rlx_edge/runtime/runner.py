"""Runs one ``Program`` on one unit: prepare once, plan once a shape, execute once a call.

Only this module knows the order: grow, write the parameter block, upload weights, ``prepare``;
then for every call copy inputs, execute the segments, copy outputs. It works for any
``ExecutionUnit``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod

import numpy as np

from rlx_edge.ir.commands import Command, Run
from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.plan import MEMORY_LIMIT, Placement, Plan, evaluate
from rlx_edge.ir.program import EdgePort, Port, Program, Upload
from rlx_edge.ir.types import U8
from rlx_edge.runtime.buffers import DeviceContext, TensorBuffer
from rlx_edge.runtime.executor import Executor, Finished, SegmentDone, Started, check_commands
from rlx_edge.runtime.program_run import Direct, Emit, ProgramRun, check_edges
from rlx_edge.runtime.trace import Trace
from rlx_edge.runtime.units import Array, ExecutionUnit

STAGING = 16 << 20
"""Bytes of a constant that pass through Python at a time."""
PLANS = 64
"""Plans kept, least recently used first out."""

Progress = Callable[[int, int], None]
"""Told bytes uploaded so far and in all."""


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: Plan
    words: Array


class ProgramRunner:
    """A program, its unit and its plans. Used by one thread at a time."""

    def __init__(
        self,
        program: Program,
        constants: Mapping[str, Constant],
        unit: ExecutionUnit,
        context: DeviceContext,
        *,
        holder: str = "session",
        trace: Trace | None = None,
        plans: int = PLANS,
        check_weights: bool = False,
        profile: bool = False,
        progress: Progress | None = None,
    ) -> None:
        check_program(program, constants, unit.address_space)
        self.program = program
        self.unit = unit
        self.trace = Trace(unit.device) if trace is None else trace
        self.plan_count = 0
        """How many times the plan program was evaluated."""
        self.profile = profile
        """Whether every launch is a segment of its own, so that the trace has its time."""
        self._constants = constants
        self._context = context
        self._holder = holder
        self._capacity = max(1, plans)
        self._check_weights = check_weights
        self._progress = progress
        self._plans: OrderedDict[tuple[int, ...], _Planned] = OrderedDict()
        self._written: _Planned | None = None
        self._resident: TensorBuffer | None = None
        self._arena: TensorBuffer | None = None
        self._held: set[tuple[int, ...]] = set()
        self._key_decides = {
            name
            for guard in program.guards
            for dim in (guard.left, guard.right)
            for name in dim.symbols()
        } <= set(program.plan.symbols)
        start = Trace.now()
        unit.load(program)
        self.trace.record("load", "dispatch", start, nbytes=len(program.code))

    def holds(self, symbols: Mapping[str, int]) -> bool:
        """Whether the guards that bind this program to sizes and values hold."""
        key = self._key(symbols)
        if key in self._held:
            return True
        if not all(guard.holds(dict(symbols)) for guard in self.program.guards):
            return False
        if self._key_decides:
            if len(self._held) >= self._capacity:
                self._held.clear()
            self._held.add(key)
        return True

    def plan(self, symbols: Mapping[str, int]) -> Plan:
        """The plan for these symbols, evaluated or remembered.

        ``GuardError`` where the program does not cover them, ``LimitError`` where the device's
        memory does not.
        """
        return self._planned(symbols).plan

    def run(self, arrays: Sequence[Array], symbols: Mapping[str, int]) -> list[Array]:
        """The outputs, as fresh arrays, for input ``arrays`` in the order of the program."""
        run = self.start(symbols, self._no_link)
        run.begin(arrays)
        return run.outputs()

    def start(
        self, symbols: Mapping[str, int], emit: Emit, direct: Direct | None = None
    ) -> ProgramRun:
        """A run that has not begun, with the memory of its plan in place. It has to end before the
        next one starts: they share the memory."""
        planned = self._planned(symbols)
        self._make_ready(planned)
        return ProgramRun(
            self.program, planned.plan, self.unit, self.trace, self._segment, emit, direct
        )

    def _no_link(self, edge: int, array: Array) -> None:
        raise failure("program.transport", command=f"send {edge}")

    def close(self) -> None:
        """Release the buffers and the unit."""
        for buffer in (self._arena, self._resident):
            if buffer is not None:
                buffer.release()
        self._arena = self._resident = self._written = None
        self._plans.clear()
        self.unit.close()

    # ---- plans -------------------------------------------------------------------------------

    def _planned(self, symbols: Mapping[str, int]) -> _Planned:
        key = self._key(symbols)
        found = self._plans.get(key)
        if found is not None:
            self._plans.move_to_end(key)
            return found
        start = Trace.now()
        planned = self._evaluate(symbols)
        self.trace.record("plan", "dispatch", start, nbytes=planned.words.nbytes)
        self._plans[key] = planned
        if len(self._plans) > self._capacity:
            self._plans.popitem(last=False)
        return planned

    def _key(self, symbols: Mapping[str, int]) -> tuple[int, ...]:
        try:
            return tuple([symbols[name] for name in self.program.plan.symbols])
        except KeyError as missing:
            raise failure("input.symbol", symbol=missing.args[0]) from None

    def _evaluate(self, symbols: Mapping[str, int]) -> _Planned:
        self.plan_count += 1
        try:
            plan = evaluate(self.program.plan, symbols, self.unit.address_space)
        except ZeroDivisionError:
            raise failure("plan.division", symbols=_show(symbols)) from None
        except OverflowError:
            raise failure("plan.range", symbols=_show(symbols)) from None
        _check_places(self.program.inputs, plan.inputs, plan.peak)
        _check_places(self.program.outputs, plan.outputs, plan.peak)
        _check_places(self.program.transfers, plan.transfers, plan.peak)
        return _Planned(plan, np.frombuffer(plan.words, np.int32))

    # ---- memory ------------------------------------------------------------------------------

    def _make_ready(self, planned: _Planned) -> None:
        """Memory of this plan, its words in place, and the weights prepared."""
        if planned is self._written:
            return
        self._written = None
        self._grow(max(planned.plan.peak, resident_need(self.program)))
        self._hold_arena(planned.plan.peak)
        self.unit.upload(self.program.plan.block_address, planned.words)
        if self._resident is None:
            self._prepare()
        self._written = planned

    def _grow(self, nbytes: int) -> None:
        before, start = self.unit.size, Trace.now()
        self.unit.grow(nbytes)
        if self.unit.size > before:
            self.trace.record("allocate", "dispatch", start, nbytes=self.unit.size - before)

    def _hold_arena(self, peak: int) -> None:
        if self._arena is not None:
            self._arena.release()
            self._arena = None
        resident = self.program.resident
        if peak > resident:
            self._arena = self._context.adopt(
                self.unit, resident, U8, (peak - resident,), name="arena", holder=self._holder
            )

    def _prepare(self) -> None:
        total = sum(upload.nbytes for upload in self.program.uploads)
        done = 0
        for upload in self.program.uploads:
            done = self._upload(upload, done, total)
        self._execute(self.program.prepare, "compile")
        self._resident = self._context.adopt(
            self.unit, 0, U8, (self.program.resident,), name="weights", holder=self._holder
        )

    def _upload(self, upload: Upload, done: int, total: int) -> int:
        constant = self._constants[upload.digest]
        start, state = Trace.now(), sha256()
        for offset in range(0, upload.nbytes, STAGING):
            chunk = constant.read(offset, min(STAGING, upload.nbytes - offset))
            if self._check_weights:
                state.update(chunk)
            self.unit.upload(upload.address + offset, np.frombuffer(chunk, np.uint8))
            done += len(chunk)
            if self._progress is not None:
                self._progress(done, total)
        self.trace.record("upload", "compile", start, name=upload.digest, nbytes=upload.nbytes)
        if self._check_weights and state.hexdigest() != upload.digest.removeprefix("sha256:"):
            raise failure(
                "weights.digest",
                where=constant.location or None,
                found=f"sha256:{state.hexdigest()}",
                expected=upload.digest,
            )
        return done

    # ---- commands ----------------------------------------------------------------------------

    def _execute(self, commands: Sequence[Command], phase: str) -> None:
        executor = Executor(commands)
        actions = executor.handle(Started())
        while actions:
            action = actions.pop(0)
            if isinstance(action, Run):
                self._segment(action, phase)
                actions += executor.handle(SegmentDone())
            elif isinstance(action, Finished):
                self.unit.synchronize()

    def _segment(self, segment: Run, phase: str) -> None:
        step = 1 if self.profile else segment.end - segment.begin
        for begin in range(segment.begin, segment.end, step):
            start = Trace.now()
            try:
                self.unit.launch(begin, begin + step)
                if self.profile:
                    self.unit.synchronize()
            except DeviceError as error:
                raise self._located(error, begin, begin + step) from error
            name = self.program.launches[begin].op if step == 1 else ""
            self.trace.record("run", phase, start, name=name, begin=begin, end=begin + step)

    def _located(self, error: DeviceError, begin: int, end: int) -> DeviceError:
        first, last = self.program.launches[begin], self.program.launches[end - 1]
        return DeviceError(
            error.code,
            error.what,
            found=error.found,
            allowed=error.allowed,
            where=f"{self.unit.device}: launches {begin} to {end - 1} "
            f"(%{first.value} {first.op} … %{last.value} {last.op})",
        )


def resident_need(program: Program) -> int:
    """Bytes that the block, the weights and their upload need, whatever the sizes."""
    block = program.plan.block_address + 4 * len(program.plan.words)
    return max(
        [program.resident, block, *(upload.address + upload.nbytes for upload in program.uploads)]
    )


def check_program(
    program: Program, constants: Mapping[str, Constant], limit: int = MEMORY_LIMIT
) -> None:
    """Refuse a program that cannot run here, before anything is loaded.

    ``DigestError`` ``program.constant`` for weights that are absent or of another length,
    ``DeviceError`` ``program.launches`` and ``program.transport``, ``LimitError``
    ``memory.limit``, and what ``check_commands`` says.
    """
    for upload in program.uploads:
        constant = constants.get(upload.digest)
        if constant is None or constant.nbytes != upload.nbytes:
            raise failure(
                "program.constant",
                found="none" if constant is None else f"{constant.nbytes} bytes",
                digest=upload.digest,
                nbytes=upload.nbytes,
            )
    need = resident_need(program)
    if need > limit:
        raise failure("memory.limit:weights", nbytes=need, limit=limit)
    check_edges(program)
    for commands in (program.prepare, program.execute):
        check_commands(commands)
        for command in commands:
            if isinstance(command, Run) and command.end > len(program.launches):
                raise failure(
                    "program.launches",
                    begin=command.begin,
                    end=command.end,
                    count=len(program.launches),
                )


def _check_places(ports: Sequence[Port | EdgePort], places: Sequence[Placement], peak: int) -> None:
    """Places come from a plan program that may have been edited: never trust them."""
    for port, place in zip(ports, places, strict=True):
        nbytes = prod(place.shape) * port.type.dtype.bytes
        if min(place.shape, default=1) < 1:
            raise failure("plan.shape", name=port.name, shape=place.shape)
        if place.address < 0 or place.address + nbytes > peak:
            raise failure(
                "plan.place", name=port.name, nbytes=nbytes, address=place.address, peak=peak
            )
        if place.address % port.type.dtype.bytes:
            raise failure(
                "plan.align", name=port.name, address=place.address, size=port.type.dtype.bytes
            )


def _show(symbols: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sorted(symbols.items()))
