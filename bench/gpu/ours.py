"""A model of ours on a device: its work without copies of inputs and outputs, and its bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.gpu.subjects import Feeds
from bench.gpu.timing import Work
from rlx_edge import InferenceSession
from rlx_edge.compile.launches import Launch
from rlx_edge.compile.lower import lower
from rlx_edge.ir.commands import Run
from rlx_edge.ir.dims import ONE
from rlx_edge.ir.kernel import TemplateKernel


@dataclass(frozen=True)
class Amount:
    """What a run of a program does: operations of contractions, bytes that its launches touch."""

    flops: int
    nbytes: int


class Ours:
    """``precision`` on ``device``; inputs stay where the first run put them."""

    def __init__(self, model: Any, device: str, precision: str, feeds: Feeds) -> None:
        self.session = InferenceSession(model, [device], precision=precision)
        self.session.run(None, feeds)
        names = [output.name for output in self.session.get_outputs()]
        self.outputs = dict(zip(names, self.session.run(None, feeds), strict=True))
        self._variant = self.session._variants[-1]
        self._symbols = self._variant.checker.bind(feeds).symbols
        self._runs = [
            command for command in self._variant.program.execute if isinstance(command, Run)
        ]

    @property
    def work(self) -> Work:
        unit = self._variant.runner.unit

        def step() -> None:
            for command in self._runs:
                unit.launch(command.begin, command.end)

        return Work(step, unit.synchronize)

    @property
    def measurements(self) -> list[Mapping[str, object]]:
        """The ways that a CUDA unit chose, and what each took."""
        return list(getattr(self._variant.runner.unit, "measurements", []))

    @property
    def amount(self) -> Amount:
        target = self.session._target
        lowered = lower(self._variant.compiled.placed, target)
        flops = nbytes = 0
        for launch in lowered.execute:
            if self._runs_in_first_way(launch):
                touched = dict.fromkeys(launch.buffers)
                if launch.op == "rlxc::gather":  # as many elements as it writes
                    touched = dict.fromkeys(launch.buffers[:1])
                buffers = [lowered.buffers[number] for number in touched]
                # Scratch memory is planned for ways that may not be taken.
                sizes = [item.nbytes for item in buffers if item.kind != "scratch"]
                nbytes += sum(size.evaluate(self._symbols) for size in sizes)
                if isinstance(launch.kernel, TemplateKernel):
                    flops += launch.time.evaluate(self._symbols) * target.rates.template
        return Amount(flops, nbytes)

    def _runs_in_first_way(self, launch: Launch) -> bool:
        if launch.choice is not None and launch.choice[1] > 0:
            return False
        groups = ONE if launch.groups is None else launch.groups
        return groups.evaluate(self._symbols) > 0

    def close(self) -> None:
        self.session.close()
