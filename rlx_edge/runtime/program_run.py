"""One run of a program that may exchange tensors with other devices, without I/O.

The machine of ``executor.py`` says what to do; this carries it out on a unit and hands what has to
travel to ``emit``. Whoever owns the link calls ``arrived`` with what came. Between calls nothing
happens here, so a thread can serve many runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from rlx_edge.ir.commands import Receive, Run, Send, Wait
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.plan import Placement, Plan
from rlx_edge.ir.program import EdgePort, Program
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.executor import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Executor,
    Failed,
    SegmentDone,
    SendDone,
    Started,
    State,
)
from rlx_edge.runtime.trace import Trace
from rlx_edge.runtime.units import Array, ExecutionUnit

Emit = Callable[[int, Array], None]
"""Takes the tensor of an edge, a fresh array; it may keep it."""
Direct = Callable[[int], bool]
"""Whether the link takes an edge from where it lies, which stays as it is to the end of the run."""
Segment = Callable[[Run, str], None]


class ProgramRun:
    """``begin`` once, then ``arrived`` for every edge that is received; ``outputs`` at the end.

    Used by one thread at a time, except for ``cancel``, which takes effect between two segments.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        unit: ExecutionUnit,
        trace: Trace,
        segment: Segment,
        emit: Emit,
        direct: Direct | None = None,
    ) -> None:
        self.program = program
        self.plan = plan
        self._unit = unit
        self._trace = trace
        self._segment = segment
        self._emit = emit
        self._direct = direct
        self._executor = Executor(program.execute)
        self._ports: Mapping[int, tuple[EdgePort, Placement]] = {
            port.edge: (port, place)
            for port, place in zip(program.transfers, plan.transfers, strict=True)
        }
        self._early: dict[int, Array] = {}
        self._open: set[int] = set()
        self._cancelled = False
        self._blocked_since = 0
        self._blocked_on = -1

    @property
    def state(self) -> State:
        """Where the run is: ``ACTIVE`` means that it waits for an edge."""
        return self._executor.state

    @property
    def waits_for(self) -> int:
        """The edge that the run waits for, -1 where it does not."""
        return self._blocked_on if self.state is State.ACTIVE else -1

    def begin(self, arrays: Sequence[Array]) -> None:
        """Copy the inputs and work until something has to arrive."""
        for port, place, array in zip(self.program.inputs, self.plan.inputs, arrays, strict=True):
            start = Trace.now()
            self._unit.upload(place.address, array)
            self._trace.record("input", "execute", start, name=port.name, nbytes=array.nbytes)
        self._handle(Started())

    def arrived(self, edge: int, data: Array | bytes | bytearray | memoryview) -> None:
        """Take the bytes of an edge and work on.

        ``InputError`` ``edge.unknown`` for one that this program does not receive or has received,
        ``edge.bytes`` for a payload of another length.
        """
        array = self.checked(edge, data)
        if self.state in (State.STOPPING, State.STOPPED):
            return
        self._early[edge] = array
        if edge in self._open:
            self._store(edge)
        self._handle(Arrived(edge))

    def is_open(self, edge: int) -> bool:
        """Whether the place of an edge that is received is reserved, and nothing is there yet."""
        return edge in self._open and edge not in self._early

    def place_of(self, edge: int) -> tuple[int, int]:
        """Address and bytes of an edge of this program."""
        port, place = self._ports[edge]
        return place.address, prod(place.shape) * port.type.dtype.bytes

    def arrived_in_place(self, edge: int, start: int) -> None:
        """As ``arrived``, for an open edge whose bytes are in their place; the copy began at
        ``start`` of the trace's clock."""
        port, _ = self._ports[edge]
        if self.state in (State.STOPPING, State.STOPPED):
            return
        self._early[edge] = np.zeros(0, numpy_dtype(port.type.dtype))
        self._end_wait()
        nbytes = self.place_of(edge)[1]
        self._trace.record("receive", "sync", start, name=port.name, edge=edge, nbytes=nbytes)
        self._handle(Arrived(edge))

    def checked(self, edge: int, data: Array | bytes | bytearray | memoryview) -> Array:
        """``data`` as the tensor of ``edge``; see ``arrived``."""
        port, place = self._ports.get(edge, (None, None))
        if port is None or place is None or port.is_send or edge in self._early:
            known = [item.edge for item in self.program.transfers if not item.is_send]
            raise failure("edge.unknown", edge=edge, known=known or "none")
        dtype = numpy_dtype(port.type.dtype)
        found = data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)
        wanted = prod(place.shape) * dtype.itemsize
        if found != wanted:
            raise failure("edge.bytes", edge=edge, name=port.name, found=found, expected=wanted)
        flat = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype)
        return flat.view(dtype).reshape(place.shape)

    def cancel(self) -> None:
        """Stop before the next segment; from any thread."""
        self._cancelled = True

    def stop(self) -> None:
        """Stop now; by the thread that uses the run."""
        self._cancelled = True
        self._executor.handle(Cancelled())

    def outputs(self) -> list[Array]:
        """Fresh arrays, once the state is ``FINISHED``."""
        if self.state is not State.FINISHED:
            raise failure("run.unfinished", state=self.state.value)
        outputs = []
        for port, place in zip(self.program.outputs, self.plan.outputs, strict=True):
            start = Trace.now()
            array = self._unit.download(place.address, port.type.dtype, place.shape)
            self._trace.record("output", "execute", start, name=port.name, nbytes=array.nbytes)
            outputs.append(array)
        return outputs

    # ---- actions -----------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        pending = self._executor.handle(event)
        while pending:
            pending += self._carry_out(pending.pop(0))

    def _carry_out(self, action: Action) -> list[Action]:
        match action:
            case Run():
                return self._run(action)
            case Send(edge):
                self._unit.synchronize()
                port, place = self._ports[edge]
                start = Trace.now()
                nbytes = self.place_of(edge)[1]
                if self._direct is None or not self._direct(edge):
                    array = self._unit.download(place.address, port.type.dtype, place.shape)
                    self._emit(edge, array)
                self._trace.record("send", "sync", start, name=port.name, edge=edge, nbytes=nbytes)
                return self._executor.handle(SendDone(edge))
            case Receive(edge):
                self._open.add(edge)
                if edge in self._early:
                    self._store(edge)
            case Wait(edge):
                self._blocked_on, self._blocked_since = edge, Trace.now()
        if self.state is State.FINISHED:
            self._unit.synchronize()
        return []

    def _run(self, segment: Run) -> list[Action]:
        if self._cancelled:
            self._executor.handle(Failed("cancelled"))
            return []
        self._end_wait()
        try:
            self._segment(segment, "execute")
        except RlxError as error:
            self._executor.handle(Failed(str(error)))
            raise
        return self._executor.handle(SegmentDone())

    def _store(self, edge: int) -> None:
        port, place = self._ports[edge]
        array = self._early[edge]
        self._end_wait()
        start = Trace.now()
        self._unit.upload(place.address, array)
        self._early[edge] = array[:0] if array.ndim else array
        self._trace.record("receive", "sync", start, name=port.name, edge=edge, nbytes=array.nbytes)

    def _end_wait(self) -> None:
        if self._blocked_on >= 0:
            self._trace.record("wait", "sync", self._blocked_since, edge=self._blocked_on)
            self._blocked_on = -1


def check_edges(program: Program) -> None:
    """``DeviceError`` ``program.transport`` for commands that name transfers which the program
    does not describe, or describes as the other end."""
    ends = {port.edge: port.is_send for port in program.transfers}
    for command in program.execute:
        if isinstance(command, Send | Receive) and ends.get(command.edge) is not isinstance(
            command, Send
        ):
            raise failure("program.transport", command=command)
    for command in program.prepare:
        if isinstance(command, Send | Receive):
            raise failure("program.transport", command=command)
    commanded = [item.edge for item in program.execute if isinstance(item, Send | Receive)]
    if sorted(commanded) != sorted(port.edge for port in program.transfers):
        raise DeviceError(
            "program.transfers",
            "the command list and the transfers of the program do not agree",
            found=commanded,
            allowed=[port.edge for port in program.transfers],
        )
