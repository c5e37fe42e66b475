"""Bytes between two units of one process: from place to place where a unit reaches, else copied."""

# covers R24, R27

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_edge.compile import compile_part, place_module
from rlx_edge.compile.passes.split import Split
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.types import U8
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.carriers import carrier
from rlx_edge.runtime.links import Loopback
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.units import ExecutionUnit, NullUnit
from rlx_edge.wasm_runtime.unit import WasmUnit
from tests.two_devices import layer

HOME, AWAY = "cpu:0", "cpu:1"


class View:
    """A way into a memory that the host addresses; counts."""

    name = "shared_arena"

    def __init__(self, own: ExecutionUnit, other: ExecutionUnit) -> None:
        self.own, self.other = own, other
        self.moved: list[tuple[str, int]] = []
        self.closed = False

    def pull(self, other: int, own: int, nbytes: int) -> None:
        self.own.bytes_at(own, nbytes)[:] = self.other.bytes_at(other, nbytes)
        self.moved.append(("pull", nbytes))

    def push(self, own: int, other: int, nbytes: int) -> None:
        self.other.bytes_at(other, nbytes)[:] = self.own.bytes_at(own, nbytes)
        self.moved.append(("push", nbytes))

    def close(self) -> None:
        self.closed = True


class ReachingUnit(WasmUnit):
    """A unit that reaches into any other; payloads of its edges may not pass through arrays."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.views: list[View] = []

    def reach(self, other: ExecutionUnit) -> View | None:
        self.views.append(View(self, other))
        return self.views[-1]


def runners(home: WasmUnit, away: WasmUnit) -> tuple[dict[str, ProgramRunner], Any]:
    module, x = layer()
    placed = Split(first=HOME, second=AWAY).run(place_module(module, device=HOME))
    return {
        unit.device: ProgramRunner(
            compile_part(placed, unit.device), placed.constants, unit, DeviceContext(unit.device)
        )
        for unit in (home, away)
    }, x


@pytest.mark.parametrize("reaching", [HOME, AWAY, ""])
def test_edges_go_from_place_to_place(reaching: str) -> None:
    units = [ReachingUnit(n) if n == reaching else WasmUnit(n) for n in (HOME, AWAY)]
    found, x = runners(*units)
    with Loopback(found, HOME, direct=False) as link:
        (expected,) = link.run([x], {"n": 2})
        assert set(link.carriers.values()) == {"copy"}
    with Loopback(found, HOME) as link:
        for _ in range(2):
            (output,) = link.run([x], {"n": 2})
            assert output.tobytes() == expected.tobytes()
        wanted = "shared_arena" if reaching else "copy"
        assert link.carriers == {0: wanted, 1: wanted}
    views = [view for unit in units if isinstance(unit, ReachingUnit) for view in unit.views]
    if reaching:
        ways = {way for view in views for way, _ in view.moved}
        assert ways == {"pull", "push"} and all(view.closed for view in views)
        assert sum(nbytes for view in views for _, nbytes in view.moved) == 2 * (
            x.nbytes + expected.nbytes
        )
    events = [event for runner in found.values() for event in runner.trace.take()]
    assert sum(event.kind == "receive" for event in events) == 6
    for runner in found.values():
        runner.close()


def test_a_copy_where_nobody_reaches() -> None:
    source, target = NullUnit("cpu:0"), NullUnit("cpu:1")
    for unit in (source, target):
        unit.grow(64)
    source.upload(8, np.arange(16, dtype=np.uint8))
    way = carrier(source, target)
    way.move(8, 32, 16)
    assert way.name == "copy" and target.download(32, U8, (16,)).tolist() == list(range(16))
    way.close()
    with pytest.raises(DeviceError):
        way.move(8, 60, 16)
