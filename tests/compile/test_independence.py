"""Launches that run side by side: what may, and that none touches what another one writes."""

# covers R15, R18

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from rlx_edge.compile import VulkanTarget, WasmTarget, compile_module
from rlx_edge.compile.independence import side_by_side, waiting
from rlx_edge.compile.launches import BORDER, Buffer, Launch
from rlx_edge.compile.lower import lower
from rlx_edge.ir.core import Module
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.plan import run_instructions
from rlx_edge.ir.program_text import dump_program, load_program
from rlx_edge.model_source import open_source

KERNEL = TemplateKernel("test", (), ())


def launch(value: str, *buffers: int, op: str = "op", groups: int | None = 1) -> Launch:
    workgroups = None if groups is None else as_dim(groups)
    return Launch(KERNEL, buffers, (), op, value, as_dim(1), workgroups)


def waits(*launches: Launch, boundary: int = 0, scratch: tuple[int, ...] = ()) -> str:
    """A digit a launch: 1 where it waits."""
    buffers = [
        Buffer(f"b{number}", as_dim(16), "scratch" if number in scratch else "value")
        for number in range(10)
    ]
    return "".join(str(int(item)) for item in waiting(launches, buffers, boundary))


def test_what_depends_waits() -> None:
    assert waits(launch("a", 1, 0), launch("b", 2, 0), launch("c", 3, 0)) == "100"
    assert waits(launch("a", 1, 0), launch("b", 2, 1), launch("c", 3, 0)) == "110"
    assert waits(launch("a", 1, 0), launch("b", 0, 2)) == "11"  # written after it is read
    assert waits(launch("a", 1, 0), launch("b", 1, 2)) == "11"  # written twice
    assert (
        waits(launch("a", 1, 0), launch("b", 2, 0), launch("c", 3, 1), launch("d", 4, 2)) == "1010"
    )


def test_scratch_is_written() -> None:
    assert waits(launch("a", 1, 0, 5), launch("b", 2, 0, 5), scratch=(5,)) == "11"


def test_kernels_of_one_result_and_its_border_do_not_wait_for_each_other() -> None:
    assert waits(launch("a", 1, 0), launch("a", 1, 0)) == "10"
    assert waits(launch("a", 1, op=BORDER), launch("a", 1, 0), launch("b", 2, 1)) == "101"


def test_steps_of_one_result_that_leave_something_in_scratch_memory_wait() -> None:
    assert waits(launch("a", 1, 0, 5), launch("a", 1, 0, 5), scratch=(5,)) == "11"


def test_phases_and_targets_without_workgroups() -> None:
    assert waits(launch("a", 1, 0), launch("b", 2, 0), boundary=1) == "11"
    assert waits(launch("a", 1, 0, groups=None), launch("b", 2, 0, groups=None)) == "11"
    assert list(side_by_side([True, False, True])) == [(0, 1), (2, 2)]
    assert waits() == "" and list(side_by_side([])) == []


# ---- whole programs ------------------------------------------------------------------------------

BRANCHES = """rlx.module version = "1.0"

func @branches(%x: f32[n, 64], %a: f32[64, 64], %b: f32[64, 64]) -> (f32[n, 64]) {
  %p = rlxc::matmul(%x, %a) : f32[n, 64]
  %q = rlxc::matmul(%x, %b) : f32[n, 64]
  %s = rlxc::softmax(%p) { axis = 1 } : f32[n, 64]
  %r = rlxc::matmul(%q, %b) : f32[n, 64]
  %t = rlxc::add(%s, %r) : f32[n, 64]
  return %t
}
"""


@pytest.fixture(params=["branches", "digits"])
def module(request: pytest.FixtureRequest, model_file: Callable[[str], Path]) -> Module:
    if request.param == "branches":
        return parse_module(BRANCHES)
    return open_source(model_file(request.param)).module({}, {})


def test_what_runs_side_by_side_shares_no_memory(module: Module) -> None:
    """At several sizes, by the addresses that the plan gives."""
    target = VulkanTarget()
    compiled = compile_module(module, target, device="vulkan:0")
    lowered = lower(compiled.placed, target)
    launches = [*lowered.prepare, *lowered.execute]
    flags = [item.waits for item in compiled.program.launches]
    assert 0 < sum(flags) < len(flags)
    for size in (1, 3, 130):
        sizes = dict.fromkeys(compiled.program.plan.symbols, size)
        values = run_instructions(compiled.program.plan, sizes)
        ranges = [
            range(values[place.address], values[place.address] + place.nbytes.evaluate(sizes))
            for place in compiled.buffers
        ]
        for first, last in side_by_side(flags):
            for a, b in combinations(launches[first : last + 1], 2):
                if a.value != b.value:
                    assert not meet(ranges[a.buffers[0]], [ranges[n] for n in b.buffers])
                    assert not meet(ranges[b.buffers[0]], [ranges[n] for n in a.buffers])


def meet(written: range, touched: list[range]) -> bool:
    return any(written.start < item.stop and item.start < written.stop for item in touched)


def test_a_program_keeps_what_waits(module: Module) -> None:
    program = compile_module(module, VulkanTarget(), device="vulkan:0").program
    again = load_program(dump_program(program))
    assert again.launches == program.launches
    plain = compile_module(module, WasmTarget()).program
    assert all(item.waits for item in plain.launches)
