"""The acceptance list of devices on a machine with an NVIDIA GPU: CUDA and Vulkan, a figure a line.

usage: python -m scripts.accept_gpu [--only N ...] [--records FOLDER]

A device that is missing fails the list. `--records` writes what scalar operators do there, for
`tests/records/scalars`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from rlx_edge.compile.codegen.cuda.ptxas import parse_ptxas, unfit
from rlx_edge.compile.fit import compile_fitting
from rlx_edge.compile.passes import fuse
from rlx_edge.engines import provider_of
from rlx_edge.gpu_workers.cuda.device import open_device
from rlx_edge.gpu_workers.cuda.provider import describe as describe_cuda
from rlx_edge.gpu_workers.cuda.provider import make_assembler
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.gpu_workers.vulkan.context import context
from rlx_edge.gpu_workers.vulkan.provider import describe as describe_vulkan
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import F64
from rlx_edge.model_store import model_path
from scripts import accept_precision, gpu_times
from scripts.acceptance import Line, Verdict, list_parser, run_lines
from scripts.device_checks import (
    carried,
    conformance,
    initialisations,
    joined,
    models,
    pytest_verdict,
    scalars,
    two_devices,
)
from scripts.device_models import subjects
from tests import cuda_programs, scalar_behaviour
from tests.compile.oversized import REGION, oversized

CUDA, VULKAN = "cuda:0", "vulkan:0"
BOTH = (CUDA, VULKAN)


def operators() -> Verdict:
    """Every operator's examples on CUDA, the interpreter's bits."""
    programs = cuda_programs.example_programs()
    cache = Path(tempfile.mkdtemp())
    wrong = cuda_programs.wrong_examples(lambda _: CudaUnit(CUDA, cache))
    figure = f"{len(programs) - len(wrong)} of {len(programs)} examples with the interpreter's bits"
    return Verdict(not wrong, figure, tuple(wrong[:5]))


def check_two() -> Verdict:
    """Both devices of the GPU, either way round."""
    ways = [
        carried(*ends, wanted)
        for pair, wanted in (((CUDA, "cpu:0"), "shared_arena"), (BOTH, "external_memory"))
        for ends in (pair, pair[::-1])
    ]
    return joined(two_devices(CUDA, VULKAN), two_devices(VULKAN, CUDA), scalars(BOTH), *ways)


# ---- 5 -------------------------------------------------------------------------------------------


def check_fitting() -> Verdict:
    return joined(oversized_fusion(), assembler())


def oversized_fusion() -> Verdict:
    """A fusion that the device cannot hold runs in parts, with the interpreter's bits."""
    place = parse_device(CUDA)
    target, module = provider_of(place).make_target(place, "cranelift"), oversized()
    fuse.MAX_REGION, before = REGION, fuse.MAX_REGION
    try:
        found = compile_fitting(module, target, make_assembler(place, True), device=CUDA)
    finally:
        fuse.MAX_REGION = before
    x = np.linspace(0.25, 4, 1000)
    (output,) = cuda_programs.run_program(found, CudaUnit(CUDA), {"x": x}).values()
    (expected,) = interpret(module, {"x": Tensor(F64, x.shape, x.tobytes())}).values()
    equal = output.tobytes() == expected.tobytes()
    split = bool(found.fallbacks) and all(item.split for item in found.fallbacks)
    return Verdict(
        equal and split,
        f"an oversized fusion runs in {len(found.program.launches)} launches, the interpreter's "
        f"bits: {equal}",
        tuple(map(str, found.fallbacks)),
    )


def assembler() -> Verdict:
    """Registers, spills and occupancy of every kernel of the models, by the device's own limits."""
    place = parse_device(CUDA)
    words_of, details, misfits = make_assembler(place, True), list[str](), 0
    limits = words_of.limits
    for subject in subjects():
        program = cuda_programs.compile_model(subject.name, model_path(subject.name)).program
        log = words_of.words(program.code)
        threads = {entry.name: entry.threads for entry in program.entries}
        found = parse_ptxas(log)
        misfits += len(unfit(program.entries, lambda log=log: log, limits))  # type: ignore[misc]
        least = min(found, key=lambda item: item.occupancy(limits, threads[item.name]))
        details.append(
            f"{subject.name}: {len(found)} kernels, {max(item.registers for item in found)} "
            f"registers at most, least occupancy "
            f"{least.occupancy(limits, threads[least.name]):.2f} ({least.name})"
        )
    return Verdict(misfits == 0, f"{misfits} kernels of the models do not fit", tuple(details))


# ---- 6 -------------------------------------------------------------------------------------------


def check_life() -> Verdict:
    """One context a device, its memory flat; failures reported, leaks named."""

    def used() -> int:
        free, total = open_device(0).free_memory()
        return total - free

    cuda = initialisations(CUDA, lambda: open_device(0), lambda: 0, used)
    vulkan = initialisations(VULKAN, lambda: context(0), lambda: len(context(0).buffers), used)
    faults = pytest_verdict(["tests/gateway/test_faults.py"])
    leaks = pytest_verdict(
        ["tests/gpu_workers", "tests/runtime/test_buffers.py", "-k", "leak and not leaky"]
    )
    figure = f"{cuda.figure}; {vulkan.figure}; faults: {faults.figure}; leaks: {leaks.figure}"
    passed = cuda.passed and vulkan.passed and faults.passed and leaks.passed
    return Verdict(passed, figure, (*faults.details, *leaks.details))


def check_times() -> Verdict:
    """No bound: figures alone."""
    return Verdict(True, "figures", (*gpu_times.times(), *gpu_times.layers()))


def check_precision() -> Verdict:
    """The lines of ``accept_precision``; one that differs ends with ``SystemExit``."""
    told: list[str] = []
    failed: list[str] = []
    for name, line in accept_precision.LINES.items():
        try:
            told += [f"{name}: {text}" for text in line()]
        except (SystemExit, AssertionError, RlxError) as error:
            failed.append(name)
            told.append(f"{name}: FAILED: {error}")
    return Verdict(not failed, f"failed: {failed}" if failed else "all hold", tuple(told))


LINES: dict[int, Line] = {
    1: (
        "every operator on CUDA and Vulkan",
        lambda: joined(operators(), conformance(BOTH)),
    ),
    2: ("models on CUDA and Vulkan, here and behind a gateway", partial(models, BOTH)),
    4: ("one fused layer on two devices; scalars at the edges", check_two),
    5: ("what does not fit runs in parts", check_fitting),
    6: ("one context, memory flat, failures reported, leaks named", check_life),
    7: ("times", check_times),
    8: ("precisions beyond fixed", check_precision),
}


def write_records(folder: Path) -> None:
    """The records of the scalar operators on both devices."""
    folder.mkdir(parents=True, exist_ok=True)
    for device in BOTH:
        name = scalar_behaviour.record_name(device)
        content = scalar_behaviour.record(device, f"{device} ({name})")
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = list_parser(__doc__, LINES)
    parser.add_argument("--records", type=Path, help="write scalar records into this folder")
    options = parser.parse_args(arguments)
    try:
        print(json.dumps({"cuda": describe_cuda(), "vulkan": describe_vulkan()}))
    except RlxError as error:
        print(error, file=sys.stderr)
        return 1
    if options.records is not None:
        write_records(options.records)
    return run_lines("accept-gpu", LINES, options.only)


if __name__ == "__main__":
    sys.exit(main())
