"""Fused operations that a device cannot hold run in parts, and the plan says why."""

# covers R16, R17

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.cli.main import main
from rlx_edge.compile import CudaTarget, WasmTarget
from rlx_edge.compile.backends import Assembler
from rlx_edge.compile.codegen.cuda import ptxas
from rlx_edge.compile.codegen.cuda.ptxas import KernelFigures, parse_ptxas
from rlx_edge.compile.fit import compile_fitting
from rlx_edge.compile.passes import fuse
from rlx_edge.compile.passes.fuse import Fuse
from rlx_edge.compile.pipeline import NATIVE_PIPELINE, parse_pipeline, with_regions_apart
from rlx_edge.compile.targets.cuda import ARCHITECTURES
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of, find_nvcc
from rlx_edge.ir.core import Module
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import F64
from rlx_edge.ir.verifier import verify
from tests.compile.oversized import REGION, oversized

LIMITS = ARCHITECTURES["sm_80"]


def words(registers: Callable[[str], int]) -> Callable[[bytes], str]:
    """An assembler that gives each kernel of the code so many registers, by its text."""

    def say(code: bytes) -> str:
        lines = []
        for part in code.decode().split('extern "C" __global__ ')[1:]:
            name = part.split("\n")[1].split("(")[0]
            lines.append(f"Compiling entry function '{name}' for 'sm_80'")
            lines.append("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")
            lines.append(f"Used {registers(part)} registers, used 0 barriers")
        return "\n".join(lines)

    return say


def roots(text: str) -> int:
    """A register a square root that a kernel computes."""
    return text.count("square_root(")


def small() -> Module:
    return oversized(16)


def sizes(module: Module) -> list[int]:
    """How many operations the kernels of a fused module take in."""
    return [
        sum(str(op.attrs["epilogue"]).count(word) for word in ("sqrt", "*")) + 1
        if "epilogue" in op.attrs
        else 1
        for op in module.function.ops
    ]


# ---- the pass ------------------------------------------------------------------------------------


def test_a_region_is_halved_by_every_mention() -> None:
    module = small()
    whole = Fuse().run(module)
    (op,) = whole.function.ops
    name = op.result.name
    counts = [1]
    for mentions in range(1, 7):
        apart = Fuse(apart="+".join([name] * mentions)).run(module)
        verify(apart)
        counts.append(len(apart.function.ops))
        given = {"x": Tensor(F64, (3,), np.array([0.5, 2, 9]).tobytes())}
        assert interpret(apart, given)[name].tobytes() == interpret(whole, given)[name].tobytes()
    assert counts == sorted(counts) and counts[1] > 1
    assert counts[-1] == len(module.function.ops)  # nothing is fused any more


def test_other_regions_stay_as_they_are() -> None:
    module = small()
    assert print_module(Fuse(apart="another").run(module)) == print_module(Fuse().run(module))


def test_names_survive_the_pipelines_text() -> None:
    text = with_regions_apart(NATIVE_PIPELINE.format(device="cuda:0"), ["/a,b{0}+c", "y"])
    (step,) = (step for step in parse_pipeline(text) if step.name == "fuse")
    assert step.options == (("apart", "%2Fa%2Cb%7B0%7D%2Bc+y"),)
    assert with_regions_apart("fuse", []) == "fuse"


# ---- the loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [10, 5, 2])
def test_regions_shrink_until_they_fit(most: int) -> None:
    def registers(text: str) -> int:
        return 40 if roots(text) <= most else 300

    target = CudaTarget("sm_80")
    found = compile_fitting(small(), target, Assembler(words(registers), LIMITS), device="cuda:0")
    assert found.fallbacks and all(item.split for item in found.fallbacks)
    assert "needs 300 registers a thread of 255: it runs in parts" in str(found.fallbacks[0])
    assert found.fallbacks[0].op == "rlxc::fused_sqrt_mul"
    kernels = found.program.code.decode().split('extern "C" __global__ ')[1:]
    assert all(roots(text) <= most for text in kernels)
    verify(found.placed)


def test_what_has_no_parts_runs_as_it_is() -> None:
    assembler = Assembler(words(lambda text: 300), LIMITS)
    found = compile_fitting(small(), CudaTarget("sm_80"), assembler, device="cuda:0")
    kept = [item for item in found.fallbacks if not item.split]
    assert kept and "it has no parts and runs as it is" in str(kept[-1])
    assert not [op for op in found.placed.function.ops if "epilogue" in op.attrs]


def test_nothing_is_asked_where_nobody_can_tell() -> None:
    def refuse(code: bytes) -> str:
        raise AssertionError("WebAssembly has no assembler")

    for assembler in (None, Assembler(refuse, None)):
        assert compile_fitting(small(), WasmTarget(), assembler).fallbacks == ()


def test_arguments_are_counted_without_an_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptxas, "ARGUMENT_BYTES", 16)

    def refuse(code: bytes) -> str:
        raise AssertionError("no assembler takes such a kernel")

    found = compile_fitting(
        small(), CudaTarget("sm_80"), Assembler(refuse, LIMITS), device="cuda:0"
    )
    assert "bytes of arguments of 16" in found.fallbacks[0].reason


@pytest.mark.parametrize(
    ("figures", "threads", "reason"),
    [
        (KernelFigures("k", 256, 0, 0, 0, 0), 32, "needs 256 registers a thread of 255"),
        (KernelFigures("k", 64, 16, 16, 20, 0), 256, "spills 16 bytes of registers"),
        (KernelFigures("k", 32, 0, 0, 0, 49153), 256, "bytes of shared memory of 49152"),
        (KernelFigures("k", 128, 0, 0, 0, 0), 1024, "needs 131072 registers of 65536"),
        (KernelFigures("k", 16, 0, 0, 0, 0), 2048, "needs 2048 threads a block of 1024"),
        (KernelFigures("k", 255, 0, 0, 0, 0), 64, ""),
        (KernelFigures("k", 32, 0, 0, 0, 49152), 64, "fills 9.4% of a processor"),
    ],
)
def test_every_limit_has_its_reason(figures: KernelFigures, threads: int, reason: str) -> None:
    found = figures.excess(LIMITS, threads)
    assert reason in found and bool(reason) == bool(found)


# ---- the real assembler --------------------------------------------------------------------------


@pytest.fixture
def nvcc() -> None:
    if find_nvcc() is None:
        pytest.skip("nvcc is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_an_oversized_fusion_runs_in_parts_that_fit(
    arch: str, nvcc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuse, "MAX_REGION", REGION)
    target = CudaTarget(arch)
    assembler = assembler_of(target)
    assert assembler is not None
    found = compile_fitting(oversized(), target, assembler, device="cuda:0")
    assert [item.split for item in found.fallbacks] == [True]
    assert "spills" in found.fallbacks[0].reason
    figures = parse_ptxas(assembler.words(found.program.code))
    assert figures and not any(item.spill_stores for item in figures)


@pytest.mark.slow
def test_the_plan_explains_it(
    nvcc: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fuse, "MAX_REGION", REGION)
    path = tmp_path / "oversized.rlx"
    path.write_text(print_module(oversized()), encoding="utf-8")
    assert main(["plan", str(path), "--arch", "sm_80", "--explain"]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("fitting"))
    assert "rlxc::fused_sqrt_mul spills" in line and "it runs in parts" in line
    assert main(["plan", str(path), "--explain"]) == 0
    assert "nothing here tells whether kernels fit" in capsys.readouterr().out
    assert main(["plan", str(path), "--arch", "sm_80", "--device", "vulkan:0"]) != 0
    assert "--arch is for CUDA" in capsys.readouterr().err
