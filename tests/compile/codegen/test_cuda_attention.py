"""Attention in one kernel: recognised, computed on the CPU, compiled; the parts elsewhere."""

# covers R16, R17

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.compile import CompiledModule, CudaTarget, compile_module
from rlx_edge.compile.codegen.cuda.emit import emit_source
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of
from rlx_edge.ir.core import Module
from rlx_edge.ir.parser import parse_module
from tests.cuda_host import HostCudaUnit, HostModule, code_of
from tests.cuda_programs import kernels_of, run_program

Array = np.ndarray
HEAD = 'rlx.module version = "1.0"\n\n'
PARTS = """\
func @a(%q: f32[b, h, t, {d}], %k: f32[b, h, {d}, s], %v: f32[b, h, s, {e}], %m: f32[{mask}])
    -> (f32[b, h, t, {e}]) {{
  %c = tensor::splat() {{ value = 0.3 }} : f32[]
  %z = tensor::splat() {{ value = 0.0 }} : f32[]
  %s = rlxc::matmul(%q, %k) : f32[b, h, t, s]
  %x = rlxc::mul(%s, %c) : f32[b, h, t, s]
  %y = rlxc::add(%x, %m) : f32[b, h, t, s]
  %w = rlxc::softmax(%y) {{ axis = 3 }} : f32[b, h, t, s]
  %n = rlxc::is_nan(%w) : bool[b, h, t, s]
  %p = rlxc::where(%n, %z, %w) : f32[b, h, t, s]
  %r = rlxc::matmul(%p, %v) : f32[b, h, t, {e}]
  return %r
}}
"""
WHOLE = """\
func @a(%q: f32[b, t, {d}], %k: f32[b, {d}, s], %v: f32[b, s, {e}]) -> (f32[b, t, {e}]) {{
  %r = rlxc::attention(%q, %k, %v) {{ scale = 0.5, causal = true, zero_empty = false }}
    : f32[b, t, {e}]
  return %r
}}
"""
BOUNDS = {"relaxed": 4e-6, "tf32": 4e-3, "fp16": 4e-3}
"""Of the largest value. Beyond f32 weights and values are rounded to 10 bits, scores besides."""
FEW = 64
"""Up to so many queries the last way has a kernel of its own."""


def parts(depth: int, width: int, mask: str) -> Module:
    return parse_module(HEAD + PARTS.format(d=depth, e=width, mask=mask))


def compiled_for(module: Module, precision: str) -> CompiledModule:
    return compile_module(module, CudaTarget("sm_90"), device="cuda:0", precision=precision)


def names(compiled: CompiledModule) -> list[str]:
    return [op.name for op in compiled.placed.function.ops]


def expected(feeds: Mapping[str, Array], scale: float, causal: bool) -> Array:
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = q @ k * scale
    if causal:
        rows, columns = np.indices(scores.shape[-2:])
        scores = np.where(columns <= rows, scores, -np.inf)
    scores = scores + feeds.get("m", 0)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
    return weights @ v


def ways(compiled: CompiledModule) -> int:
    (choice,) = compiled.program.choices
    return choice.ways


def close(found: Array, expected: Array, precision: str) -> bool:
    return bool(relative(found, expected) <= BOUNDS[precision])


def relative(found: Array, expected: Array) -> float:
    """The largest difference, of the largest value."""
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))


def given(b: int, h: int, t: int, s: int, d: int, e: int) -> dict[str, Array]:
    rng = np.random.default_rng(t * s)
    shapes = {"q": (b, h, t, d), "k": (b, h, d, s), "v": (b, h, s, e)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("precision", "depth", "width", "mask"),
    [
        ("tf32", 8, 16, "b, 1, t, s"),
        ("fp16", 32, 16, "s"),
        ("fp16", 16, 24, "b, h, 1, s"),
        ("relaxed", 32, 48, "b, 1, t, s"),
        ("relaxed", 12, 64, "s"),
    ],
)
def test_parts_become_one_kernel(
    precision: str, depth: int, width: int, mask: str, tmp_path: Path
) -> None:
    compiled = compiled_for(parts(depth, width, mask), precision)
    assert names(compiled).count("rlxc::attention") == 1
    assert not any("exp" in name or "matmul" in name for name in names(compiled))
    host = HostModule([code_of(compiled.program)], tmp_path)
    sizes = {"b": 2, "h": 2, "t": 3, "s": 70, "1": 1}
    for t, s in ((3, 72), (2, 601), (FEW + 3, 5), (FEW + 1, 70)):
        sizes |= {"t": t, "s": s}
        feeds = given(2, 2, t, s, depth, width)
        shape = [sizes[name.strip()] for name in mask.split(",")]
        rng = np.random.default_rng(s)
        hidden = rng.random(shape) < 0.3
        hidden[..., : s // 2] |= rng.random((*shape[:-1], 1)) < 0.2
        feeds["m"] = np.where(hidden, -np.inf, rng.standard_normal(shape)).astype(np.float32)
        feeds["m"].reshape(-1, s)[0] = -np.inf  # a row without any key
        reference = expected(feeds, 0.3, False)
        for way in range(ways(compiled)):
            (found,) = run_program(compiled, HostCudaUnit(host, 0, way=way), feeds).values()
            assert close(found, reference, precision), (way, t, s)


@pytest.mark.parametrize(
    ("precision", "depth", "width"),
    [("fp16", 16, 32), ("fp16", 128, 96), ("relaxed", 8, 16), ("relaxed", 128, 128)],
)
def test_causal_attention(precision: str, depth: int, width: int, tmp_path: Path) -> None:
    module = parse_module(HEAD + WHOLE.format(d=depth, e=width))
    compiled = compiled_for(module, precision)
    assert names(compiled) == ["rlxc::attention"]
    host = HostModule([code_of(compiled.program)], tmp_path)
    for t, s in ((70, 70), (5, 90), (6, 520)):
        feeds = {name: array[0] for name, array in given(1, 2, t, s, depth, width).items()}
        reference = expected(feeds, 0.5, True)
        for way in range(ways(compiled)):
            (found,) = run_program(compiled, HostCudaUnit(host, 0, way=way), feeds).values()
            assert close(found, reference, precision), (way, t, s)


@pytest.mark.parametrize(
    ("precision", "depth", "mask"),
    [
        ("fixed", 32, "s"),
        ("relaxed", 30, "s"),
        ("relaxed", 132, "s"),
        ("fp16", 24, "s"),
        ("tf32", 136, "s"),
        ("tf32", 32, "t, 1"),
    ],
)
def test_without_a_kernel_the_parts_run(precision: str, depth: int, mask: str) -> None:
    compiled = compiled_for(parts(depth, 8, mask), precision)
    assert "rlxc::attention" not in names(compiled)
    whole = parse_module(HEAD + WHOLE.format(d=depth, e=12))
    assert "rlxc::attention" not in names(compiled_for(whole, precision))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_compiles_without_spills(arch: str) -> None:
    target = CudaTarget(arch)
    assembler = assembler_of(target)
    if assembler is None:
        pytest.skip("nvcc is not installed")
    sizes = (("fp16", 128), ("tf32", 64), ("tf32", 128), ("relaxed", 64), ("relaxed", 128))
    compiled = [compiled_for(parts(size, size, "b, 1, t, s"), name) for name, size in sizes]
    kernels = dict.fromkeys(kernel for item in compiled for kernel in kernels_of(item, target))
    words = assembler.words(emit_source(list(kernels), target).data)
    assert "bytes spill" in words
    assert "spill" not in words.replace(" 0 bytes spill", "")
