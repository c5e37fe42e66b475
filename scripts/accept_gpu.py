"""The acceptance list of the CUDA device: a figure a line, on a machine with a GPU.

1. every operator's examples on the device, against the interpreter's bits;
2. the stored models through `rlx run --device cuda:0`, against onnxruntime, one compile each;
3. a thousand initialisations hold one context and no more memory;
4. what the assembler says of the kernels: registers, spills, occupancy;
5. times: models launch by launch and by graphs, layers beside torch where it is installed.

usage: python -m scripts.accept_gpu [--only LINE ...] [--profile]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession
from rlx_edge.compile.codegen.cuda.ptxas import parse_ptxas
from rlx_edge.gpu_workers.cuda.compiler import compile_source
from rlx_edge.gpu_workers.cuda.device import open_device
from rlx_edge.gpu_workers.cuda.provider import describe
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.types import F32, tensor_type
from rlx_edge.model_store import model_path
from tests import cuda_programs, sample_inputs
from tests.oracles import Comparison, Oracle

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
DEVICE = "cuda:0"
TOLERANCE = 1e-4
INITIALISATIONS = 1000
RUNS = 50
MODELS: dict[str, Callable[[int], Feeds]] = {
    "digits": lambda seed: sample_inputs.digits(seed, 1 + seed % 4),
    "orientation": sample_inputs.orientation,
    "ppocr_rec": lambda seed: sample_inputs.ppocr_rec(seed, 1, 32 * (seed + 2)),
    "silero_vad": sample_inputs.silero_vad,
}
SEEDS = range(10)


def operators() -> Iterator[str]:
    """Examples on the device."""
    programs = cuda_programs.example_programs()
    start = time.perf_counter()
    wrong = cuda_programs.wrong_examples(
        lambda _: CudaUnit(DEVICE, Path(tempfile.gettempdir()) / "cubin")
    )
    seconds = time.perf_counter() - start
    yield from wrong
    yield f"{len(programs) - len(wrong)} of {len(programs)} examples: same bits ({seconds:.1f} s)"
    if wrong:
        raise SystemExit("operators differ")


def models() -> Iterator[str]:
    """Models against onnxruntime, through sessions and through the command line."""
    for name, feeds_of in MODELS.items():
        comparison, oracle = Comparison(), Oracle(model_path(name))
        hint = {"sr": 16000} if name == "silero_vad" else None
        with InferenceSession(model_path(name), [DEVICE], value_hint=hint) as session:
            names = [arg.name for arg in session.get_outputs()]
            for seed in SEEDS:
                feeds = feeds_of(seed)
                found = dict(zip(names, session.run(None, feeds), strict=True))
                comparison.add(found, oracle.run(feeds))
            counts = session.compile_count, session.plan_count
        worst = max(item.relative for item in comparison.outputs.values())
        yield (
            f"{name}: {comparison.inputs} inputs, {worst:.2e} of the largest value, "
            f"{counts[0]} compile, {counts[1]} plans"
        )
        if not worst <= TOLERANCE or counts[0] != 1:
            raise SystemExit(f"{name} differs")
    yield from command_line()


def command_line() -> Iterator[str]:
    """The same through `rlx run`, once a model, its outputs compared as well."""
    folder = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "rlx_edge.cli.main", "run", "--json", "--device", DEVICE]
    for name, feeds_of in MODELS.items():
        feeds, given, written = feeds_of(0), folder / "feeds.npz", folder / f"{name}.npz"
        np.savez(given, **feeds)
        words = [str(model_path(name)), "--input", str(given), "--output", str(written)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        comparison, report = Comparison(), json.loads(done.stdout)
        expected = Oracle(model_path(name)).run(feeds)
        with np.load(written) as outputs:
            comparison.add({key: outputs[key] for key in expected}, expected)
        worst = max(item.relative for item in comparison.outputs.values())
        yield (
            f"rlx run {name}: {worst:.2e} of the largest value, {report['compile_count']} compile, "
            f"ready after {report['seconds']['load']:.2f} s, first run "
            f"{1e3 * report['seconds']['runs'][0]:.2f} ms, {report['memory_bytes']} bytes"
        )
        if not worst <= TOLERANCE:
            raise SystemExit(f"rlx run {name} differs")


def contexts() -> Iterator[str]:
    """Open, load, run, close, a thousand times."""
    compiled = cuda_programs.compile_model("digits", model_path("digits"), "sm_90")
    feeds = sample_inputs.digits(0)
    cache = Path(tempfile.mkdtemp())

    def once() -> None:
        cuda_programs.run_program(compiled, CudaUnit(DEVICE, cache), feeds)

    once()
    device = open_device(0)
    before = device.free_memory()[0]
    start = time.perf_counter()
    for _ in range(INITIALISATIONS):
        once()
        assert open_device(0) is device
    seconds = time.perf_counter() - start
    lost = before - device.free_memory()[0]
    yield f"{INITIALISATIONS} initialisations: {lost} bytes lost, {seconds:.1f} s"
    if lost > 0:
        raise SystemExit("memory was lost")


def assembler() -> Iterator[str]:
    """Registers, spills and occupancy of every kernel of the models."""
    properties = open_device(0).properties
    limits = properties.target.limits
    for name in MODELS:
        program = cuda_programs.compile_model(name, model_path(name)).program
        binary = compile_source(program.code, properties.target.arch)
        threads = {entry.name: entry.threads for entry in program.entries}
        found = parse_ptxas(binary.log)
        unfit = [item.name for item in found if item.excess(limits, threads[item.name])]
        least = min(found, key=lambda item: item.occupancy(limits, threads[item.name]))
        yield (
            f"{name}: {len(found)} kernels, {max(item.registers for item in found)} registers at "
            f"most, {len(unfit)} unfit; least occupancy "
            f"{least.occupancy(limits, threads[least.name]):.2f} ({least.name})"
        )


def times() -> Iterator[str]:
    """Models with graphs, then launch by launch with what takes the time."""
    for name, feeds_of in MODELS.items():
        feeds = sample_inputs.ppocr_rec(0) if name == "ppocr_rec" else feeds_of(0)
        hint = {"sr": 16000} if name == "silero_vad" else None
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


LINES: dict[str, Callable[[], Iterator[str]]] = {
    "operators": operators,
    "models": models,
    "contexts": contexts,
    "assembler": assembler,
    "times": times,
    "layers": layers,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=LINES, default=list(LINES))
    options = parser.parse_args(arguments)
    try:
        print(json.dumps(describe()))
    except RlxError as error:
        print(error, file=sys.stderr)
        return 1
    failed = 0
    for name in options.only:
        start = time.perf_counter()
        try:
            for line in LINES[name]():
                print(f"{name}: {line}", flush=True)
        except (SystemExit, AssertionError, RlxError) as error:
            failed = 1
            print(f"{name}: FAILED: {error}", flush=True)
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
