"""Attention in one kernel: recognised, computed on the CPU, compiled; the parts elsewhere."""

# covers R16, R17

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from rlx_edge.compile import CompiledModule, CudaTarget, compile_module
from rlx_edge.compile.codegen.cuda.emit import emit_source
from rlx_edge.compile.codegen.cuda.ptxas import unfit
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of
from rlx_edge.ir.core import Module
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.parser import parse_module
from tests import nvrtc
from tests.conftest import Golden
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
  %r = rlxc::attention(%q, %k, %v)
    {{ scale = 0.5, causal = true, zero_empty = false, rows_first = false }} : f32[b, t, {e}]
  return %r
}}
"""
HEADS = """\
func @a(%q: f32[b, t, 3, 16], %k: f32[b, 3, 16, s], %v: f32[b, s, 3, 16])
    -> (f32[b, t, 3, 16]) {
  %r = rlxc::attention(%q, %k, %v)
    { scale = 0.25, causal = false, zero_empty = false, rows_first = true } : f32[b, t, 3, 16]
  return %r
}
"""
TURNED = """\
func @a(%q: f32[b, t, 3, 16], %k: f32[b, s, 3, 16], %v: f32[b, s, 3, 16])
    -> (f32[b, t, 3, 16]) {
  %c = tensor::splat() { value = 0.5 } : f32[]
  %p = rlxc::transpose(%q) { perm = [0, 2, 1, 3] } : f32[b, 3, t, 16]
  %left = rlxc::mul(%p, %c) : f32[b, 3, t, 16]
  %columns = rlxc::transpose(%k) { perm = [0, 2, 3, 1] } : f32[b, 3, 16, s]
  %right = rlxc::mul(%columns, %c) : f32[b, 3, 16, s]
  %values = rlxc::transpose(%v) { perm = [0, 2, 1, 3] } : f32[b, 3, s, 16]
  %x = rlxc::matmul(%left, %right) : f32[b, 3, t, s]
  %w = rlxc::softmax(%x) { axis = 3 } : f32[b, 3, t, s]
  %y = rlxc::matmul(%w, %values) : f32[b, 3, t, 16]
  %r = rlxc::transpose(%y) { perm = [0, 2, 1, 3] } : f32[b, t, 3, 16]
  return %r
}
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


@pytest.mark.parametrize(("precision", "text"), [("relaxed", HEADS), ("fp16", TURNED)])
def test_heads_stay_where_they_are(precision: str, text: str, tmp_path: Path) -> None:
    """Queries, values and the result as products around attention have them."""
    compiled = compiled_for(parse_module(HEAD + text), precision)
    assert sum("transpose" in name for name in names(compiled)) == (text is TURNED)
    assert "rlxc::attention" in names(compiled)
    host = HostModule([code_of(compiled.program)], tmp_path)
    for t, s in ((5, 300), (70, 66)):
        plain = given(2, 3, t, s, 16, 16)
        feeds = {name: array.swapaxes(1, 2).copy() for name, array in plain.items()}
        feeds["k"] = plain["k"] if text is HEADS else np.moveaxis(plain["k"], 3, 1).copy()
        reference = expected(plain, 0.25, False).swapaxes(1, 2)
        for way in range(ways(compiled)):
            (found,) = run_program(compiled, HostCudaUnit(host, 0, way=way), feeds).values()
            assert close(found, reference, precision), (way, t, s)


@dataclass(frozen=True)
class Host:
    """Kernels of a precision on the CPU: with a bias, and causal."""

    precision: str
    modules: HostModule
    compiled: tuple[CompiledModule, CompiledModule]


@pytest.fixture(scope="module", params=["relaxed", "fp16"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Host:
    precision = str(request.param)
    compiled = (
        compiled_for(parts(16, 16, "h, 1, s"), precision),
        compiled_for(parse_module(HEAD + WHOLE.format(d=32, e=16)), precision),
    )
    codes = [code_of(item.program) for item in compiled]
    return Host(precision, HostModule(codes, tmp_path_factory.mktemp(precision)), compiled)


@settings(max_examples=20, deadline=None)
@hypothesis.given(data=st.data())
def test_any_sizes_masks_and_missing_numbers(host: Host, data: st.DataObject) -> None:
    """Rows of NaN have no weight, as where the parts replace it; without that they stay NaN."""
    b, h = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    t, s = data.draw(st.integers(1, 80)), data.draw(st.sampled_from((1, 7, 64, 65, 132, 300)))
    causal = data.draw(st.booleans())
    number = int(causal)
    depth = 32 if causal else 16
    feeds = given(b, h, t, s, depth, 16)
    spoiled = data.draw(st.integers(0, t))
    feeds["q"][:, :, spoiled:][:, :, :1] = np.nan
    if causal:
        feeds = {name: array[0] for name, array in feeds.items()}
    else:
        rng = np.random.default_rng(data.draw(st.integers(0, 9)))
        share = data.draw(st.sampled_from((0.0, 0.5, 1.0)))
        hidden = rng.random((h, 1, s)) < share
        rise = data.draw(st.sampled_from((0.0, 0.05)))  # later keys weigh more, step after step
        seen = rng.standard_normal((h, 1, s)) + rise * np.arange(s)
        feeds["m"] = np.where(hidden, -np.inf, seen).astype(np.float32)
    clean = {name: np.nan_to_num(array, nan=0, neginf=-np.inf) for name, array in feeds.items()}
    reference = expected(clean, 0.5 if causal else 0.3, causal)
    reference[..., spoiled : spoiled + 1, :] = np.nan if causal else 0
    compiled = host.compiled[number]
    for way in range(ways(compiled)):
        unit = HostCudaUnit(host.modules, number, way=way)
        (found,) = run_program(compiled, unit, feeds).values()
        assert np.array_equal(np.isnan(found), np.isnan(reference)), (way, b, h, t, s)
        assert close(np.nan_to_num(found), np.nan_to_num(reference), host.precision), (way, t, s)


def test_golden_text(golden: Golden) -> None:
    """Of each kind of kernel one, as the device's compiler gets them."""
    compiled = [
        compiled_for(parse_module(HEAD + WHOLE.format(d=32, e=32)), name)
        for name in ("relaxed", "fp16")
    ]
    target = CudaTarget("sm_90")
    kernels = {
        kernel.template: kernel
        for item in compiled
        for kernel in kernels_of(item, target)
        if isinstance(kernel, TemplateKernel)
    }
    text = emit_source([kernels[name] for name in sorted(kernels)], target).data.decode()
    golden.check("cuda/attention.cu", text[text.index("\nstruct K0") + 1 :])


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


@pytest.mark.slow
def test_volta_has_attention_without_matrix_units() -> None:
    library = nvrtc.library()
    if library is None:
        pytest.skip("NVRTC 12 is not installed under build/nvrtc12")
    target = CudaTarget("sm_70")
    compiled = compile_module(
        parts(64, 64, "b, 1, t, s"), target, device="cuda:0", precision="relaxed"
    )
    assert names(compiled).count("rlxc::attention") == 1
    program = compiled.program
    words = nvrtc.words(program.code, "sm_70", library)
    assert unfit(program.entries, lambda: words, target.limits) == {}
