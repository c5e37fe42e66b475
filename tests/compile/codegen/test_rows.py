"""Kernels by rows: whole normalisations in one launch, with WebAssembly's bits for every length."""

# covers R16

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from rlx_edge import InferenceSession
from rlx_edge.compile import CompiledModule, compile_module, workgroups
from rlx_edge.compile.lower import lower
from rlx_edge.compile.pipeline import native_pipeline, run_passes, with_options
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.compile.targets.target import Target
from rlx_edge.compile.targets.vulkan import VulkanTarget
from rlx_edge.compile.workgroups import ALIGNED, LONG, MANY_ROWS, SHORT, spread
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.expression import load, reduce
from rlx_edge.ir.kernel import Loop, LoopKernel, generalize
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.types import F32
from tests.cuda_host import HostCudaUnit, HostModule, code_of
from tests.cuda_programs import run_program, same_bits

Array = npt.NDArray[np.float32]

TEXT = """rlx.module version = "1.0"

func @rows(%x: f32[r, n], %scale: f32[n], %bias: f32[n]) -> (RESULTS) {
  %normal = rlxc::layer_norm(%x, %scale, %bias) { axis = 1, epsilon = 1e-05 } : f32[r, n]
  %moved = rlxc::add(%x, %bias) : f32[r, n]
  %shares = rlxc::softmax(%moved) { axis = 1 } : f32[r, n]
  %logarithms = rlxc::log_softmax(%x) { axis = 1 } : f32[r, n]
  %squares = rlxc::mul(%x, %x) : f32[r, n]
  %power = rlxc::reduce_mean(%squares) { axes = [1], keepdims = true } : f32[r, 1]
  %root = rlxc::sqrt(%power) : f32[r, 1]
  %unit = rlxc::div(%x, %root) : f32[r, n]
  %scaled = rlxc::mul(%x, %scale) : f32[r, n]
  %products = rlxc::reduce_prod(%scaled) { axes = [1], keepdims = false } : f32[r]
  %moduli = rlxc::abs(%x) : f32[r, n]
  %largest = rlxc::reduce_max(%moduli) { axes = [1], keepdims = true } : f32[r, 1]
  %mean = rlxc::reduce_mean(%x) { axes = [0, 1], keepdims = false } : f32[]
  return %normal, %shares, %logarithms, %unit, %products, %largest, %mean
}
""".replace("RESULTS", "f32[r, n], f32[r, n], f32[r, n], f32[r, n], f32[r], f32[r, 1], f32[]")
WIDER = """rlx.module version = "1.0"

func @wider(%x: f32[r, n]) -> (f64[r, n]) {
  %mean = rlxc::reduce_mean(%x) { axes = [1], keepdims = true } : f32[r, 1]
  %centred = rlxc::sub(%x, %mean) : f32[r, n]
  %wide = rlxc::cast(%centred) { dtype = f64 } : f64[r, n]
  %squares = rlxc::mul(%wide, %wide) : f64[r, n]
  %variance = rlxc::reduce_mean(%squares) { axes = [1], keepdims = true } : f64[r, 1]
  %y = rlxc::div(%wide, %variance) : f64[r, n]
  return %y
}
"""
RESULTS = ("normal", "shares", "logarithms", "unit", "products", "largest", "mean")
FORMS = {
    (1, 1): (ALIGNED, ALIGNED),
    (5, 3): (ALIGNED, ALIGNED),
    (7, SHORT): (ALIGNED, ""),
    (3, SHORT + 1): ("", ""),
    (2, 384): ("", ""),
    (3, 513): ("", ""),
    (1, 1000): ("", ""),
    (MANY_ROWS + 3, 65): (ALIGNED, LONG),
    (MANY_ROWS + 1, 5): (ALIGNED, ""),
    (2, 4096): ("", ""),
    (3, 4097): ("", ""),
    (2, 5000): ("", ""),
    (2, 16384): ("", LONG),
    (1, 16385): (LONG, LONG),
    (1, 140001): (LONG, LONG),
}
SIZES = tuple(FORMS)
"""Rows and their length → the form of what is one a row, and of the mean of everything: each form,
and both sides of every border between pieces and chunks."""


def feeds_of(rows: int, length: int) -> dict[str, Array]:
    rng = np.random.default_rng(rows + length)
    shapes = {"x": (rows, length), "scale": (length,), "bias": (length,)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def compiled(target: Target, device: str) -> CompiledModule:
    return compile_module(parse_module(TEXT), target, device=device)


@pytest.fixture(scope="module")
def expected() -> Iterator[list[list[Array]]]:
    with InferenceSession(TEXT.encode()) as session:
        yield [session.run(None, feeds_of(*size)) for size in SIZES]


@pytest.mark.parametrize("target", [CudaTarget(), VulkanTarget()], ids=["cuda", "vulkan"])
def test_one_launch_a_result(target: Target) -> None:
    """In one of its forms: the one of the sizes at hand has workgroups, the others none."""
    launches = lower(compiled(target, f"{target.kind}:0").placed, target).execute
    for rows, length in SIZES:
        sizes = {"r": rows, "n": length}
        used = [
            (launch.value, launch.kernel.walk)
            for launch in launches
            if isinstance(launch.kernel, LoopKernel)
            and launch.groups is not None
            and launch.groups.evaluate(sizes) > 0
        ]
        of_rows, of_all = FORMS[rows, length]
        assert used == [*((name, of_rows) for name in RESULTS[:-1]), ("mean", of_all)]


def test_cuda_has_the_bits(expected: list[list[Array]], tmp_path: Path) -> None:
    program = compiled(CudaTarget(), "cuda:0")
    module = HostModule([code_of(program.program)], tmp_path)
    for size, wanted in zip(SIZES, expected, strict=True):
        found = run_program(program, HostCudaUnit(module, 0, grid=50), feeds_of(*size))
        differing = [
            name
            for (name, a), b in zip(found.items(), wanted, strict=True)
            if not same_bits(a, b.reshape(a.shape))
        ]
        assert differing == [], size


def test_vulkan_has_the_bits(expected: list[list[Array]]) -> None:
    with InferenceSession(TEXT.encode(), ["vulkan:0"]) as session:
        for size, wanted in zip(SIZES, expected, strict=True):
            found = session.run(None, feeds_of(*size))
            assert [same_bits(a, b) for a, b in zip(found, wanted, strict=True)] == [
                True for _ in wanted
            ], size


def test_reductions_of_two_types_share_the_memory(tmp_path: Path) -> None:
    """Fewer teams where a workgroup's memory does not hold all of them."""
    program = compile_module(parse_module(WIDER), CudaTarget(), device="cuda:0")
    threads = {entry.threads for entry in program.program.entries}
    assert max(threads) == 23 * 32 and all(entry.threads for entry in program.program.entries)
    module = HostModule([code_of(program.program)], tmp_path)
    sizes = ((3, 7), (MANY_ROWS, 33), (2, 1000), (1, 20000))
    with (
        InferenceSession(WIDER.encode()) as reference,
        InferenceSession(WIDER.encode(), ["vulkan:0"]) as vulkan,
    ):
        for rows, length in sizes:
            feeds = {"x": feeds_of(rows, length)["x"]}
            (wanted,) = reference.run(None, feeds)
            (by_vulkan,) = vulkan.run(None, feeds)
            (by_cuda,) = run_program(program, HostCudaUnit(module, 0), feeds).values()
            assert same_bits(by_vulkan, wanted) and same_bits(by_cuda, wanted), (rows, length)


def test_webassembly_runs_the_same_ir(expected: list[list[Array]]) -> None:
    """Its pipeline does not ask for rows, but a text that has them is its own as well."""
    pipeline = with_options(native_pipeline("wasm:0"), "fuse", reductions=workgroups.REDUCTIONS)
    text = print_module(run_passes(parse_module(TEXT), pipeline))
    assert text.count("fused_rows_") == 4
    with InferenceSession(text.encode()) as session:
        for size, wanted in zip(SIZES, expected, strict=True):
            found = session.run(None, feeds_of(*size))
            assert all(map(same_bits, found, wanted)), size


def test_time_of_a_row_grows_with_its_length() -> None:
    """A reduction counts once a row, not once for each of its elements."""
    launches = lower(compiled(CudaTarget(), "cuda:0").placed, CudaTarget()).execute
    short, long = (
        [time for item in launches if (time := item.time.evaluate({"r": 64, "n": length}))]
        for length in (4096, 8192)
    )
    assert [b / a for a, b in zip(short, long, strict=True)] == pytest.approx([2] * 7, rel=0.01)


def test_what_is_the_same_in_all_rows_is_reduced_together() -> None:
    """A mean over everything is no thread's own business."""
    extent = symbol("n")
    total = reduce("sum", ["_r0"], [extent], load(1, F32, [symbol("_r0")]))
    kernel, arguments = generalize(LoopKernel((), (F32, F32), as_dim(0), total / 3.0))
    assert spread(kernel).rows
    assert [form.walk for form, _ in workgroups.groups(kernel, arguments)] == ["", ALIGNED, LONG]


def test_columns_stay_with_their_threads() -> None:
    """Neighbours read side by side: sharing a column would scatter its loads."""
    i, r = symbol("_v0"), symbol("_r0")
    body = load(1, F32, [r * symbol("w") + i])
    value = reduce("sum", ["_r0"], [symbol("n")], body)
    kernel, _ = generalize(LoopKernel((Loop("_v0", symbol("w")),), (F32, F32), i, value))
    assert not spread(kernel).rows
