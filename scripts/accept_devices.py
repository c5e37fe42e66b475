"""The acceptance list of devices, as far as it needs no GPU: a figure a line.

usage: python -m scripts.accept_devices [--only N ...]

Vulkan is lavapipe here, CUDA its compilers: `nvcc` for sm_80 and sm_90, NVRTC 12 in an environment
of its own (`build/nvrtc12`, made when it is absent) for sm_70. What needs a GPU is `accept_gpu.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial

from rlx_edge.compile import Assembler, CudaTarget, VulkanTarget, compile_module
from rlx_edge.compile.codegen.cuda.emit import emit_source
from rlx_edge.compile.codegen.cuda.ptxas import parse_ptxas
from rlx_edge.compile.codegen.spirv.emit import emit_module
from rlx_edge.compile.fit import compile_fitting
from rlx_edge.compile.passes import fuse
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of
from rlx_edge.gpu_workers.vulkan.context import context
from rlx_edge.ir.kernel import Kernel
from rlx_edge.model_source import open_source
from rlx_edge.model_store import model_path
from scripts.acceptance import Line, Verdict, list_parser, run_lines
from scripts.device_checks import (
    conformance,
    initialisations,
    joined,
    models,
    pytest_verdict,
    resident_bytes,
    scalars,
    two_devices,
)
from tests import nvrtc
from tests.compile.codegen.test_emit import all_kernels
from tests.compile.oversized import REGION, oversized
from tests.cuda_programs import MODEL_VALUES, compile_model, example_programs, kernels_of
from tests.vulkan_host import VARIANTS, validate

MODELS = ("digits", "orientation", "ppocr_rec", "silero_vad")
VULKAN = "vulkan:0"


# ---- 3: code -------------------------------------------------------------------------------------


@cache
def cuda_kernels(arch: str) -> tuple[Kernel, ...]:
    """Every kernel of the models and of the operators' examples, equal ones once."""
    target = CudaTarget(arch)
    stored = [compile_model(name, model_path(name), arch) for name in MODELS]
    compiled = (*stored, *(item.compiled for item in example_programs()))
    return tuple(dict.fromkeys(k for item in compiled for k in kernels_of(item, target)))


def cuda_code(arch: str, words: Callable[[bytes], str]) -> Verdict:
    """All kernels through a compiler: each has figures, and fits."""
    target = CudaTarget(arch)
    code = emit_source(cuda_kernels(arch), target)
    found = parse_ptxas(words(code.data))
    threads = {entry.name: entry.threads for entry in code.entries if entry.threads}
    unfit = [f"{f.name}: {f.excess(target.limits, threads[f.name])}" for f in found
             if f.excess(target.limits, threads[f.name])]  # fmt: skip
    return Verdict(
        {item.name for item in found} == set(threads) and not unfit,
        f"{arch}: {len(found)} of {len(threads)} kernels, at most "
        f"{max(item.registers for item in found)} registers, {len(unfit)} unfit",
        tuple(unfit[:5]),
    )


def with_nvcc(arch: str) -> Verdict:
    assembler = assembler_of(CudaTarget(arch))
    if assembler is None:
        return Verdict(False, f"{arch}: nvcc is not installed")
    return cuda_code(arch, assembler.words)


def with_nvrtc12() -> Verdict:
    path = nvrtc.install()
    return cuda_code("sm_70", lambda source: nvrtc.words(source, "sm_70", path))


def spirv_code() -> Verdict:
    """Modules of the models and of the operators' examples through ``spirv-val``."""
    count = 0
    for name in MODELS:
        module = open_source(str(model_path(name))).module(MODEL_VALUES.get(name, {}), {})
        for options in VARIANTS.values():
            target = VulkanTarget(**options)
            validate(compile_module(module, target, device=VULKAN).program.code)
            count += 1
    for options in VARIANTS.values():
        target = VulkanTarget(**options)
        validate(emit_module(all_kernels(), target).data)
        count += 1
    for item in example_programs():
        code = compile_module(item.module, VulkanTarget(), device=VULKAN).program.code
        if code:
            validate(code)
            count += 1
    return Verdict(True, f"spirv-val takes {count} modules")


def check_code() -> Verdict:
    golden = pytest_verdict(
        ["tests/compile/codegen/test_cuda.py", "tests/compile/codegen/test_spirv.py",
         "-k", "golden or dump or same_text or same_bytes"]
    )  # fmt: skip
    checks = (with_nvrtc12(), with_nvcc("sm_80"), with_nvcc("sm_90"), spirv_code(), golden)
    return joined(*checks)


# ---- the others ----------------------------------------------------------------------------------


def check_fitting() -> Verdict:
    """An oversized fusion, the assembler's words about it and its parts; the Adreno rewrite."""
    fuse.MAX_REGION, before = REGION, fuse.MAX_REGION
    try:
        details = []
        for arch in ("sm_80", "sm_90"):
            assembler = assembler_of(CudaTarget(arch))
            if assembler is None:
                return Verdict(False, "nvcc is not installed")
            details.append(f"{arch}: {fitted(CudaTarget(arch), assembler)}")
    finally:
        fuse.MAX_REGION = before
    passed = all("it runs in parts" in line and " 0 spill" in line for line in details)
    tests = pytest_verdict(["tests/compile/test_fit.py"], marks="")
    adreno = pytest_verdict(
        ["tests/compile/codegen/test_spirv.py", "-k", "adreno or extracts or drivers"]
    )
    figure = f"fallback: {tests.figure}; Adreno: {adreno.figure}"
    more = (*details, *tests.details, *adreno.details)
    return Verdict(passed and tests.passed and adreno.passed, figure, more)


def fitted(target: CudaTarget, assembler: Assembler) -> str:
    found = compile_fitting(oversized(), target, assembler, device="cuda:0")
    parts = parse_ptxas(assembler.words(found.program.code))
    spilling = sum(bool(item.spill_stores) for item in parts)
    told = "; ".join(map(str, found.fallbacks)) or "it fits"
    return f"{told}; {len(parts)} kernels, {spilling} spill"


def check_life() -> Verdict:
    vulkan = initialisations(
        VULKAN, lambda: context(0), lambda: len(context(0).buffers), resident_bytes
    )
    faults = pytest_verdict(["tests/gateway/test_faults.py"])
    leaks = pytest_verdict(
        ["tests/gpu_workers", "tests/runtime/test_buffers.py", "-k", "leak and not leaky"]
    )
    return Verdict(
        vulkan.passed and faults.passed and leaks.passed,
        f"{vulkan.figure}; devices that fail: {faults.figure}; leaks: {leaks.figure}",
        (*faults.details, *leaks.details),
    )


def check_two() -> Verdict:
    return joined(two_devices("cpu:0", VULKAN), scalars(("wasm:0", VULKAN)))


LINES: dict[int, Line] = {
    1: ("every operator on wasmtime and lavapipe", partial(conformance, ("wasm:0", VULKAN))),
    2: ("models on lavapipe, here and behind a gateway", partial(models, (VULKAN,))),
    3: ("generated code compiles", check_code),
    4: ("one fused layer on two devices; scalars at the edges", check_two),
    5: ("what does not fit runs in parts; the Adreno rewrite", check_fitting),
    6: ("one context, failures reported, leaks named", check_life),
}


def main(arguments: list[str] | None = None) -> int:
    options = list_parser(__doc__, LINES).parse_args(arguments)
    return run_lines("accept-devices", LINES, options.only)


if __name__ == "__main__":
    sys.exit(main())
