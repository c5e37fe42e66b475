"""One convolution, its input on one device and its weight on another, run once on each.

Both runs come from one fused module. On the device that has the input, the weight travels; on the
other one, the input travels and the result comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.compile.compiler import compile_part
from rlx_edge.compile.passes.hold import Hold
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.engines import provider_of
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Constant, Function, Module, Value
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.digest import bytes_digest, module_digest
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.program import Program
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import F32, tensor_type
from rlx_edge.ir.verifier import verify
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.links import Loopback
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.trace import TraceEvent

Array = npt.NDArray[Any]
CHANNELS, OUTPUTS, SIZE, KERNEL = 8, 16, 20, 3
MEMCPY = {"protocol": "memcpy", "bulk_protocol": "memcpy"}
FUSING = "canonicalize,revalue,decompose,canonicalize,share,fold,eliminate-dead,fuse"
PLACING = "place{{device={device}}},layout,borders"


def layer() -> tuple[Module, Array]:
    """``relu(conv2d(x, w) + b)`` before any pass, and an input."""
    rng = np.random.default_rng(31)
    weight = rng.standard_normal((OUTPUTS, CHANNELS, KERNEL, KERNEL)).astype(np.float32)
    bias = rng.standard_normal((OUTPUTS, 1, 1)).astype(np.float32)
    digests = [bytes_digest(array.tobytes()) for array in (weight, bias)]
    shape = f"n, {OUTPUTS}, {SIZE}, {SIZE}"
    text = f"""rlx.module version = "1.0"

func @layer(%x: f32[n, {CHANNELS}, {SIZE}, {SIZE}]) -> (f32[{shape}]) {{
  %w = tensor::const() {{ digest = "{digests[0]}" }} : f32[{OUTPUTS}, {CHANNELS}, {KERNEL}, {KERNEL}]
  %b = tensor::const() {{ digest = "{digests[1]}" }} : f32[{OUTPUTS}, 1, 1]
  %conv = rlxc::conv2d(%x, %w) {{ stride = [1, 1], padding = [1, 1, 1, 1], dilation = [1, 1], groups = 1 }} : f32[{shape}]
  %sum = rlxc::add(%conv, %b) : f32[{shape}]
  %y = rlxc::relu(%sum) : f32[{shape}]
  return %y
}}
"""  # noqa: E501
    module = parse_module(text)
    for array, digest in zip((weight, bias), digests, strict=True):
        type, source = tensor_type(F32, *array.shape), MemorySource(array.tobytes())
        module.constants[digest] = Constant(digest, type, source, 0, array.nbytes)
    return module, rng.standard_normal((2, CHANNELS, SIZE, SIZE)).astype(np.float32)


def small_module() -> Module:
    """``max(x + x, 0)``."""
    x = Value("x", tensor_type(F32, "n"))
    function = Function("small", [x], [], [])
    builder = Builder(function)
    total = builder.op("rlxc::add", [x, x], {})
    function.returns = [builder.op("rlxc::relu", [total], {})]
    return Module("small", function)


@dataclass(frozen=True)
class DeviceRun:
    """The layer on device ``runs_on``: its placed text, a program a device, what happened."""

    runs_on: str
    moved: str
    text: str
    programs: Mapping[str, Program]
    output: Array
    events: tuple[TraceEvent, ...]
    carriers: Mapping[int, str]
    """How the bytes of each edge travelled."""

    def trace(self) -> Iterator[str]:
        """A line an event, in microseconds from the first one."""
        shown = (f"edge {edge}: {name}" for edge, name in self.carriers.items())
        yield ", ".join(shown)
        start = min(event.start for event in self.events)
        for event in self.events:
            name = f" {event.name}" if event.name else ""
            nbytes = f", {event.nbytes} bytes" if event.nbytes else ""
            begin, took = (event.start - start) / 1e3, event.duration / 1e3
            yield f"{begin:9.1f} us {event.device:9} {event.kind}{name}{nbytes}, {took:.1f} us"


@dataclass(frozen=True)
class TwoDevices:
    """Both runs of one fused module; ``expected`` is the interpreter's output."""

    fused: Module
    runs: tuple[DeviceRun, DeviceRun]
    expected: Array

    @property
    def digest(self) -> str:
        """Of the fused module that both code versions come from."""
        return module_digest(self.fused)

    @property
    def equal(self) -> bool:
        """Whether both runs have the interpreter's bits."""
        return all(run.output.tobytes() == self.expected.tobytes() for run in self.runs)


def run_both(input_device: str, weight_device: str) -> TwoDevices:
    """The input lies on one device, the weight on the other; devices must be there."""
    module, x = layer()
    fused = run_passes(module, FUSING)
    on_input = run_passes(fused, PLACING.format(device=input_device))
    on_input = Hold(values="w", device=weight_device).run(on_input)
    on_weight = run_passes(fused, PLACING.format(device=input_device))
    on_weight = Split(first=input_device, second=weight_device, **MEMCPY).run(on_weight)
    tensor = Tensor(F32, x.shape, x.tobytes())
    (expected,) = interpret(module, {"x": tensor}).values()
    found = np.frombuffer(expected.tobytes(), np.float32).reshape(expected.shape)
    return TwoDevices(
        fused,
        (
            run(on_input, input_device, (input_device, weight_device), "weight", x),
            run(on_weight, weight_device, (input_device, weight_device), "input", x),
        ),
        found,
    )


def run(placed: Module, runs_on: str, devices: tuple[str, str], moved: str, x: Array) -> DeviceRun:
    """One run of a module that stands on two devices; ``devices`` begins with that of the input."""
    verify(placed)
    contexts = {name: DeviceContext(name) for name in devices}
    programs, runners = dict[str, Program](), dict[str, ProgramRunner]()
    link: Loopback | None = None
    try:
        for name in devices:
            device = parse_device(name)
            provider = provider_of(device)
            target = provider.make_target(device, "cranelift")
            programs[name] = compile_part(placed, name, target)
            unit = provider.make_unit(device, False)
            runners[name] = ProgramRunner(programs[name], placed.constants, unit, contexts[name])
        home = programs[devices[0]]
        bound = FeedChecker(home.inputs, home.bindings).bind({"x": x})
        link = Loopback(runners, devices[0])
        link.run(bound.arrays, bound.symbols)  # prepares, so that the trace shows a run alone
        for runner in runners.values():
            runner.trace.take()
        (output,) = link.run(bound.arrays, bound.symbols)
        events = [event for runner in runners.values() for event in runner.trace.take()]
        carriers = link.carriers
    finally:
        if link is not None:
            link.close()
        for runner in runners.values():
            runner.close()
        for context in contexts.values():
            context.close()
    ordered = tuple(sorted(events, key=lambda event: event.start))
    return DeviceRun(runs_on, moved, print_module(placed), programs, output, ordered, carriers)
