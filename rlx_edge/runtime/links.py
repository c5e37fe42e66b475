"""The loopback link: the parts of one program in one process, each as one run.

Nothing here knows a socket. Where a unit can reach into another's memory (``carriers.py``) the
bytes of an edge go from place to place; elsewhere payloads are handed from run to run, in the order
in which they were emitted. It is the reference for what a link does, and what tests and local
checks use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from rlx_edge.ir.messages import failure
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.carriers import COPY, Carrier, carrier
from rlx_edge.runtime.executor import State
from rlx_edge.runtime.program_run import ProgramRun
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.trace import Trace
from rlx_edge.runtime.units import Array


class Loopback:
    """Runners by device; ``home`` has the inputs and the outputs. ``direct`` off hands every
    payload on as an array. To be closed before its runners are: a context manager."""

    def __init__(
        self, runners: Mapping[str, ProgramRunner], home: str, *, direct: bool = True
    ) -> None:
        self._runners = runners
        self._home = home
        self._direct = direct
        ends = {
            is_send: {
                port.edge: device
                for device, runner in runners.items()
                for port in runner.program.transfers
                if port.is_send is is_send
            }
            for is_send in (True, False)
        }
        self._sender, self._receiver = ends[True], ends[False]
        self._carriers: dict[tuple[str, str], Carrier] = {}

    @property
    def carriers(self) -> dict[int, str]:
        """How the bytes of each edge get to where they are read, once a run has begun."""
        names = {ends: item.name for ends, item in self._carriers.items()}
        return {
            edge: names.get((self._sender[edge], self._receiver[edge]), COPY)
            for edge in sorted(self._sender)
        }

    def run(self, arrays: Sequence[Array], symbols: Mapping[str, int]) -> list[Array]:
        """The outputs of one run of all parts; ``DeviceError`` ``link.stalled`` if they wait for
        each other in vain."""
        in_flight: deque[tuple[int, Array | None]] = deque()

        def emit(edge: int, array: Array) -> None:
            in_flight.append((edge, array))

        def direct(edge: int) -> bool:
            if self._carrier(edge).name == COPY:
                return False
            in_flight.append((edge, None))
            return True

        runs: dict[str, ProgramRun] = {
            device: runner.start(symbols, emit, direct if self._direct else None)
            for device, runner in self._runners.items()
        }
        for device, run in runs.items():
            run.begin(arrays if device == self._home else [])
        put_off = 0
        while in_flight:
            edge, array = in_flight.popleft()
            source, target = runs[self._sender[edge]], runs[self._receiver[edge]]
            if array is None and not target.is_open(edge):
                if put_off < len(in_flight):  # others first: they may open it
                    put_off += 1
                    in_flight.append((edge, None))
                    continue
                array = self._fetched(edge, source)
            put_off = 0
            if array is None:
                self._move(edge, source, target)
            else:
                target.arrived(edge, array)
        waiting = [device for device, run in runs.items() if run.state is not State.FINISHED]
        if waiting:
            raise failure("link.stalled", devices=waiting)
        return runs[self._home].outputs()

    def _carrier(self, edge: int) -> Carrier:
        ends = self._sender[edge], self._receiver[edge]
        found = self._carriers.get(ends)
        if found is None:
            source, target = (self._runners[device].unit for device in ends)
            found = self._carriers[ends] = carrier(source, target)
        return found

    def _move(self, edge: int, source: ProgramRun, target: ProgramRun) -> None:
        self._runners[self._receiver[edge]].unit.synchronize()
        start = Trace.now()
        place, nbytes = source.place_of(edge)
        self._carrier(edge).move(place, target.place_of(edge)[0], nbytes)
        target.arrived_in_place(edge, start)

    def _fetched(self, edge: int, source: ProgramRun) -> Array:
        """The payload of an edge whose place is not reserved yet."""
        runner = self._runners[self._sender[edge]]
        (port,) = (item for item in runner.program.transfers if item.edge == edge)
        place, nbytes = source.place_of(edge)
        size = nbytes // np.dtype(numpy_dtype(port.type.dtype)).itemsize
        return runner.unit.download(place, port.type.dtype, (size,))

    def close(self) -> None:
        """Give up what was registered or imported."""
        for item in self._carriers.values():
            item.close()
        self._carriers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
