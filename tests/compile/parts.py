"""Both parts of a cut module in one process, joined by the loopback link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from rlx_edge.compile import compile_part, compile_placed
from rlx_edge.compile.passes.split import Split, crossing
from rlx_edge.ir.core import Module
from rlx_edge.ir.transfer_rules import devices, home
from rlx_edge.ir.verifier import verify
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import BoundFeeds, FeedChecker
from rlx_edge.runtime.links import Loopback
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.trace import Trace
from rlx_edge.wasm_runtime.unit import WasmUnit

Array = npt.NDArray[Any]


def cuts(placed: Module, most: int = 3) -> Iterator[tuple[str, int]]:
    """Every prefix of the running operations that at most ``most`` values cross: the name that the
    prefix ends with (``""`` for the empty one) and how many cross."""
    function = placed.function
    for count in range(len(function.ops) + 1):
        last = function.ops[count - 1] if count else None
        if last is not None and last.attrs["phase"] == "compile":
            continue
        crossed = len(crossing(function, count))
        if crossed <= most:
            yield (last.results[0].name if last is not None else "", crossed)


def bound(placed: Module, feeds: Mapping[str, Array]) -> BoundFeeds:
    """Arrays and symbols for a placed module."""
    program = compile_placed(placed)
    return FeedChecker(program.inputs, program.bindings).bind(feeds)


def run_whole(placed: Module, bound: BoundFeeds) -> list[Array]:
    """The outputs of the module on one device."""
    context = DeviceContext("wasm:0")
    runner = ProgramRunner(compile_placed(placed), placed.constants, WasmUnit(), context)
    try:
        return runner.run(bound.arrays, bound.symbols)
    finally:
        runner.close()
        context.close()


def run_cut(placed: Module, after: str, bound: BoundFeeds) -> tuple[list[Array], dict[str, Trace]]:
    """The outputs of the module cut behind ``after``, and what each device did."""
    module = Split(after=after).run(placed)
    verify(module)
    contexts = {device: DeviceContext(device) for device in devices(module.function)}
    runners = {
        device: ProgramRunner(
            compile_part(module, device), module.constants, WasmUnit(device), context
        )
        for device, context in contexts.items()
    }
    link = Loopback(runners, home(module.function)[0])
    try:
        outputs = link.run(bound.arrays, bound.symbols)
        return outputs, {device: runner.trace for device, runner in runners.items()}
    finally:
        for runner in runners.values():
            runner.close()
        for context in contexts.values():
            context.close()
