"""Precisions beyond ``fixed``: every candidate on the CPU, errors stated, code compiled."""

# covers R17

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.compile import CompiledModule, CudaTarget, VulkanTarget, WasmTarget, compile_module
from rlx_edge.compile.codegen.cuda.emit import emit_source
from rlx_edge.compile.targets.target import Target
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Constant, Function, Module, Value
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.program_text import dump_program, load_program
from rlx_edge.ir.types import F32, tensor_type
from tests.cuda_host import HostCudaUnit, HostModule, code_of
from tests.cuda_programs import kernels_of, run_program

Array = np.ndarray
PRECISIONS = ("relaxed", "tf32", "fp16")
BOUNDS = {"relaxed": 1e-6, "tf32": 1.2e-3, "fp16": 1.2e-3}
"""Of the root mean square of the result, for sums of products of two normal numbers."""
HEAD = 'rlx.module version = "1.0"\n\n'
MATMUL = """\
func @m(%a: f32[batch, rows, depth], %b: f32[batch, depth, columns], %c: f32[columns])
    -> (f32[batch, rows, columns]) {
  %p = rlxc::matmul(%a, %b) : f32[batch, rows, columns]
  %s = rlxc::add(%p, %c) : f32[batch, rows, columns]
  %r = rlxc::relu(%s) : f32[batch, rows, columns]
  return %r
}
"""
CONV = """\
func @c(%x: f32[n, {inner}, h, w], %k: f32[{outer}, {each}, {size}, {size}], %b: f32[{outer}])
    -> (f32[n, {outer}, (h - 1) // {stride} + 1, (w - 1) // {stride} + 1]) {{
  %y = rlxc::conv2d(%x, %k, %b) {{ stride = [{stride}, {stride}],
    padding = [{pad}, {pad}, {pad}, {pad}], dilation = [{dilation}, {dilation}],
    groups = {groups} }}
    : f32[n, {outer}, (h - 1) // {stride} + 1, (w - 1) // {stride} + 1]
  return %y
}}
"""
SHAPES = ((2, 5, 39, 9), (1, 130, 64, 132), (1, 1, 300, 17))


def matmul() -> Module:
    return parse_module(HEAD + MATMUL)


def conv(inner: int, outer: int, size: int, stride: int, groups: int, dilation: int = 1) -> Module:
    words = {"each": inner // groups, "pad": dilation * (size // 2), "dilation": dilation}
    return parse_module(
        HEAD
        + CONV.format(inner=inner, outer=outer, size=size, stride=stride, groups=groups, **words)
    )


def compiled_for(module: Module, precision: str, target: Target | None = None) -> CompiledModule:
    return compile_module(
        module, target or CudaTarget("sm_90"), device="cuda:0", precision=precision
    )


def ways(compiled: CompiledModule) -> int:
    return max((choice.ways for choice in compiled.program.choices), default=1)


def close(found: Array, expected: Array, bound: float) -> bool:
    scale = float(np.sqrt(np.mean(np.square(expected)))) or 1.0
    return float(np.abs(found - expected).max()) <= 8 * bound * scale


def reference(feeds: Mapping[str, Array]) -> Array:
    a, b, c = (feeds[name].astype(np.float64) for name in "abc")
    return np.maximum(a @ b + c, 0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_way_to_a_product(precision: str, tmp_path: Path) -> None:
    compiled = compiled_for(matmul(), precision)
    assert ways(compiled) == (2 if precision == "relaxed" else 5)
    host = HostModule([code_of(compiled.program)], tmp_path)
    rng = np.random.default_rng(0)
    for batch, rows, depth, columns in SHAPES:
        feeds = {
            "a": rng.standard_normal((batch, rows, depth), np.float32),
            "b": rng.standard_normal((batch, depth, columns), np.float32),
            "c": rng.standard_normal(columns, np.float32),
        }
        expected = reference(feeds)
        for way in range(ways(compiled)):
            (found,) = run_program(compiled, HostCudaUnit(host, 0, way=way), feeds).values()
            assert close(found, expected, BOUNDS[precision]), (way, feeds["a"].shape)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_way_to_a_product_with_weights(precision: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    cases = [
        (shape, rng.standard_normal(shape, np.float32), rng.standard_normal(shape[1], np.float32))
        for shape in ((300, 17), (64, 132))
    ]
    all_compiled = [compiled_for(weighted(b), precision) for _, b, _ in cases]
    assert {ways(item) for item in all_compiled} == {2 if precision == "relaxed" else 5}
    host = HostModule([code_of(item.program) for item in all_compiled], tmp_path)
    for number, ((shape, b, c), item) in enumerate(zip(cases, all_compiled, strict=True)):
        for rows in (1, 130):
            feeds = {
                "a": rng.standard_normal((2, rows, shape[0]), np.float32),
                "c": c,
                "d": rng.standard_normal((2, rows, shape[1]), np.float32),
            }
            expected = reference({**feeds, "b": b}) + feeds["d"]
            for way in range(ways(item)):
                unit = HostCudaUnit(host, number, way=way)
                (found,) = run_program(item, unit, feeds).values()
                assert close(found, expected, BOUNDS[precision]), (way, shape, rows)


def weighted(b: Array) -> Module:
    """relu(a b + c) + d for a known b."""
    data = b.tobytes()
    digest, type = bytes_digest(data), tensor_type(F32, *b.shape)
    depth, columns = b.shape
    params = [
        Value("a", tensor_type(F32, "x", "y", depth)),
        Value("c", tensor_type(F32, columns)),
        Value("d", tensor_type(F32, "x", "y", columns)),
    ]
    function = Function("weighted", params, [], [])
    builder = Builder(function)
    weights = builder.op("tensor::const", [], {"digest": digest}, type=type)
    product = builder.op("rlxc::matmul", [params[0], weights], {})
    positive = builder.op("rlxc::relu", [builder.op("rlxc::add", [product, params[1]], {})], {})
    function.returns = [builder.op("rlxc::add", [positive, params[2]], {})]
    constant = Constant(digest, type, MemorySource(data), 0, len(data))
    return Module("weighted", function, {digest: constant})


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_way_to_a_convolution(precision: str, tmp_path: Path) -> None:
    cases = [
        *((3, 16, 3, 2, 1, 1), (16, 10, 1, 1, 1, 1), (8, 16, 3, 1, 2, 1)),
        *((20, 12, 3, 2, 1, 2), (12, 6, 3, 1, 3, 1), (32, 70, 3, 1, 1, 1)),
    ]
    modules = [conv(*case) for case in cases]
    all_compiled = [compiled_for(module, precision) for module in modules]
    host = HostModule([code_of(item.program) for item in all_compiled], tmp_path)
    rng = np.random.default_rng(1)
    for number, (case, item) in enumerate(zip(cases, all_compiled, strict=True)):
        inner, outer, size, stride, groups, dilation = case
        feeds = {
            "x": rng.standard_normal((2, inner, 9, 11), np.float32),
            "k": rng.standard_normal((outer, inner // groups, size, size), np.float32),
            "b": rng.standard_normal(outer, np.float32),
        }
        expected = convolved(feeds, stride, groups, dilation)
        for way in range(ways(item)):
            (found,) = run_program(item, HostCudaUnit(host, number, way=way), feeds).values()
            assert close(found, expected, BOUNDS[precision]), (way, case)


def convolved(feeds: Mapping[str, Array], stride: int, groups: int, dilation: int) -> Array:
    x, taps, b = (feeds[name].astype(np.float64) for name in "xkb")
    reach = (taps.shape[2] - 1) * dilation + 1
    k = np.zeros((*taps.shape[:2], reach, reach))
    k[:, :, ::dilation, ::dilation] = taps
    pad = k.shape[2] // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, k.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    per, out = x.shape[1] // groups, k.shape[0] // groups
    parts = [
        np.einsum(
            "nchwij,ocij->nohw",
            windows[:, group * per : (group + 1) * per],
            k[group * out : (group + 1) * out],
        )
        for group in range(groups)
    ]
    return np.concatenate(parts, 1) + b[None, :, None, None]


def test_a_precision_is_part_of_the_text_and_of_the_digest() -> None:
    fixed, tf32 = (compiled_for(matmul(), name) for name in ("fixed", "tf32"))
    assert fixed.program.choices == ()
    assert fixed.program.ir_digest != tf32.program.ir_digest
    again = load_program(dump_program(tf32.program))
    assert again == tf32.program
    assert {entry.library for entry in again.entries} == {"", "cublas:tf32"}


@pytest.mark.parametrize(
    ("target", "device", "allowed"),
    [
        (WasmTarget(), "wasm:0", "fixed"),
        (VulkanTarget(), "vulkan:0", "fixed, relaxed"),
        (CudaTarget("sm_70"), "cuda:0", "fixed, relaxed"),
    ],
)
def test_a_device_without_the_precision_says_so(target: Target, device: str, allowed: str) -> None:
    with pytest.raises(RlxError) as caught:
        compile_module(matmul(), target, device=device, precision="tf32")
    assert caught.value.code == "precision.device"
    assert f"found tf32; allowed: {allowed}" in str(caught.value)


def test_unknown_and_contradicting_precisions() -> None:
    with pytest.raises(RlxError, match="unknown precision; found bf16"):
        compiled_for(matmul(), "bf16")
    placed = compiled_for(matmul(), "tf32").placed
    assert compiled_for(placed, "tf32").program.choices
    with pytest.raises(RlxError) as caught:
        compiled_for(placed, "fp16")
    assert caught.value.code == "precision.placed"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_candidates_compile_without_spills(arch: str) -> None:
    target = CudaTarget(arch)
    assembler = assembler_of(target)
    if assembler is None:
        pytest.skip("nvcc is not installed")
    weights = [weighted(np.ones(shape, np.float32)) for shape in ((64, 64), (39, 9))]
    modules = [matmul(), conv(8, 16, 3, 1, 1), conv(3, 10, 3, 2, 1), *weights]
    compiled = [compiled_for(module, name) for module in modules for name in ("tf32", "fp16")]
    kernels = dict.fromkeys(kernel for item in compiled for kernel in kernels_of(item, target))
    words = assembler.words(emit_source(list(kernels), target).data)
    assert "bytes spill" in words
    assert "spill" not in words.replace(" 0 bytes spill", "")
