"""The loopback link: the parts of one program in one process, each as one run.

Nothing here knows a socket: payloads are handed from run to run, in the order in which they were
emitted. It is the reference for what a link does, and what tests and local checks use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from rlx_edge.ir.messages import failure
from rlx_edge.runtime.executor import State
from rlx_edge.runtime.program_run import ProgramRun
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.units import Array


class Loopback:
    """Runners by device; ``home`` has the inputs and the outputs."""

    def __init__(self, runners: Mapping[str, ProgramRunner], home: str) -> None:
        self._runners = runners
        self._home = home
        self._receiver = {
            port.edge: device
            for device, runner in runners.items()
            for port in runner.program.transfers
            if not port.is_send
        }

    def run(self, arrays: Sequence[Array], symbols: Mapping[str, int]) -> list[Array]:
        """The outputs of one run of all parts; ``DeviceError`` ``link.stalled`` if they wait for
        each other in vain."""
        in_flight: deque[tuple[int, Array]] = deque()

        def emit(edge: int, array: Array) -> None:
            in_flight.append((edge, array))

        runs: dict[str, ProgramRun] = {
            device: runner.start(symbols, emit) for device, runner in self._runners.items()
        }
        for device, run in runs.items():
            run.begin(arrays if device == self._home else [])
        while in_flight:
            edge, array = in_flight.popleft()
            runs[self._receiver[edge]].arrived(edge, array)
        waiting = [device for device, run in runs.items() if run.state is not State.FINISHED]
        if waiting:
            raise failure("link.stalled", devices=waiting)
        return runs[self._home].outputs()
