"""Times on a CUDA device: models by graphs and launch by launch, layers beside torch."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from rlx_edge import InferenceSession
from rlx_edge.gpu_workers.cuda.device import open_device
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.types import F32, tensor_type
from rlx_edge.model_store import model_path
from scripts.device_models import HINTS, subjects

DEVICE = "cuda:0"
RUNS = 50


def times() -> Iterator[str]:
    """Models with graphs, then launch by launch with what takes the time."""
    for subject in subjects():
        name, feeds, hint = subject.name, subject.feeds[0](), HINTS.get(subject.name)
        with InferenceSession(model_path(name), [DEVICE], value_hint=hint) as session:
            seconds = timed(lambda run=session, data=feeds: run.run(None, data))  # type: ignore[misc]
        with InferenceSession(
            model_path(name), [DEVICE], value_hint=hint, enable_profiling=True
        ) as session:
            session.run(None, feeds)
            session.run(None, feeds)
            total: dict[str, float] = defaultdict(float)
            for event in session.last_profile:
                if event.kind == "run":
                    total[event.name] += event.duration
        shown = sorted(total.items(), key=lambda item: -item[1])[:5]
        yield f"{name}: {1e3 * seconds:.3f} ms a run; " + ", ".join(
            f"{op.removeprefix('rlxc::')} {spent / 1e6:.2f}" for op, spent in shown
        )


def timed(action: Callable[[], object]) -> float:
    """Median seconds."""
    for _ in range(5):
        action()
    found = []
    for _ in range(RUNS):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


# ---- layers --------------------------------------------------------------------------------------

MATMULS = ((1024, 1024, 1024), (4096, 4096, 4096), (128, 1536, 384), (1, 1000, 1280))
CONVS = (
    # images, channels, height, width, outputs, kernel, stride
    (1, 64, 56, 56, 64, 3, 1),
    (32, 64, 56, 56, 64, 3, 1),
    (1, 256, 14, 14, 256, 3, 1),
    (32, 256, 14, 14, 256, 3, 1),
    (1, 256, 56, 56, 64, 1, 1),
    (32, 1024, 14, 14, 256, 1, 1),
    (1, 3, 224, 224, 64, 7, 2),
)


def layer_seconds(module: Module, flops: float) -> str:
    """Device time of one execution, by events around replayed graphs."""
    from rlx_edge.compile import compile_module
    from rlx_edge.runtime.buffers import DeviceContext
    from rlx_edge.runtime.runner import ProgramRunner

    cupy = import_module("cupy")
    properties = open_device(0).properties
    compiled = compile_module(module, properties.target, device=DEVICE)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([dim.value for dim in port.type.shape]).astype(np.float32)
        for port in compiled.program.inputs
    ]
    unit = CudaUnit(DEVICE)
    context = DeviceContext(DEVICE)
    runner = ProgramRunner(compiled.program, {}, unit, context)
    for _ in range(3):
        runner.run(arrays, {})
    last = len(compiled.program.launches)
    stream = unit._stream
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    best = []
    for _ in range(5):
        start.record(stream)
        for _ in range(10):
            for command in compiled.program.execute:
                unit.launch(command.begin, command.end)  # type: ignore[union-attr]
        stop.record(stream)
        stop.synchronize()
        best.append(cupy.cuda.get_elapsed_time(start, stop) / 10)
    runner.close()
    context.close()
    milliseconds = statistics.median(best)
    return f"{milliseconds:.4f} ms ({flops / milliseconds / 1e9:.2f} TFLOP/s, {last} launches)"


def layers() -> Iterator[str]:
    """Contractions beside torch's, both f32 without tensor cores."""
    for m, n, k in MATMULS:
        a, b = Value("a", tensor_type(F32, m, k)), Value("b", tensor_type(F32, k, n))
        function = Function("layer", [a, b], [], [])
        function.returns = [Builder(function).op("rlxc::matmul", [a, b], {})]
        ours = layer_seconds(Module("layer", function), 2.0 * m * n * k)
        yield f"matmul {m}x{n}x{k}: {ours}; {torch_matmul(m, n, k)}"
    for images, channels, height, width, outputs, size, stride in CONVS:
        pad = size // 2
        x = Value("x", tensor_type(F32, images, channels, height, width))
        w = Value("w", tensor_type(F32, outputs, channels, size, size))
        function = Function("layer", [x, w], [], [])
        attrs = {
            "stride": (stride, stride),
            "padding": (pad, pad, pad, pad),
            "dilation": (1, 1),
            "groups": 1,
        }
        function.returns = [Builder(function).op("rlxc::conv2d", [x, w], attrs)]
        flops = 2.0 * images * outputs * (height // stride) * (width // stride) * channels * size**2
        ours = layer_seconds(Module("layer", function), flops)
        shape = f"{images}x{channels}x{height}x{width}"
        theirs = torch_conv(images, channels, height, width, outputs, size, stride)
        yield f"conv {shape} to {outputs}, {size}/{stride}: {ours}; {theirs}"


def torch_time(make: Callable[[Any], Callable[[], object]]) -> str:
    if find_spec("torch") is None:
        return "no torch"
    torch = import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    action = make(torch)
    for _ in range(5):
        action()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        action()
    stop.record()
    stop.synchronize()
    return f"torch {start.elapsed_time(stop) / 20:.4f} ms"


def torch_matmul(m: int, n: int, k: int) -> str:
    def make(torch: Any) -> Callable[[], object]:
        a, b = (torch.randn(*shape, device="cuda") for shape in ((m, k), (k, n)))
        return lambda: torch.matmul(a, b)

    return torch_time(make)


def torch_conv(
    images: int, channels: int, height: int, width: int, outputs: int, size: int, stride: int
) -> str:
    def make(torch: Any) -> Callable[[], object]:
        x = torch.randn(images, channels, height, width, device="cuda")
        w = torch.randn(outputs, channels, size, size, device="cuda")
        return lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=size // 2)

    return torch_time(make)
