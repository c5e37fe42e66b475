"""CUDA C++: golden text, the interpreter's bits on the CPU, and what the real compiler says."""

# covers R15, R17

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlx_edge import InferenceSession
from rlx_edge.compile.codegen.cuda.emit import emit_source
from rlx_edge.compile.codegen.cuda.ptxas import KernelFigures, parse_ptxas, unfit
from rlx_edge.compile.codegen.cuda.scalar_table import literal
from rlx_edge.compile.codegen.kernel_form import CHUNK
from rlx_edge.compile.targets.cuda import ARCHITECTURES, CudaTarget
from rlx_edge.compile.workgroups import spread
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import load, reduce, unary
from rlx_edge.ir.kernel import Loop, LoopKernel, TemplateKernel, generalize
from rlx_edge.ir.program import LaunchInfo
from rlx_edge.ir.types import F16, F32
from tests import nvrtc, sample_inputs
from tests.compile.codegen.test_emit import KERNELS, all_kernels
from tests.conftest import Golden
from tests.cuda_host import HostCudaUnit, HostModule, code_of, run_loop_kernels
from tests.cuda_programs import (
    compile_model,
    example_programs,
    kernels_of,
    run_program,
    same_bits,
    wrong_examples,
)
from tests.kernel_oracle import evaluate_kernel
from tests.kernel_strategies import Case, elementwise_kernels, reduction_kernels

ModelFile = Callable[[str], Path]
MODELS = ("digits", "orientation", "ppocr_rec", "silero_vad")
SLOW = {"ppocr_rec": pytest.mark.slow}
LENGTHS = st.sampled_from((1, 2, 3, 5, 16, 17, 64, 65, 130, CHUNK, CHUNK + 3))
SMALL_FEEDS = {
    "digits": lambda: sample_inputs.digits(0, 3),
    "orientation": lambda: sample_inputs.orientation(0),
    "ppocr_rec": lambda: sample_inputs.ppocr_rec(0, 1, 64),
    "silero_vad": lambda: sample_inputs.silero_vad(0),
}


# ---- text ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_golden_loops(name: str, golden: Golden) -> None:
    text = emit_source([KERNELS[name]()], CudaTarget()).data.decode()
    golden.check(f"cuda/loops_{name}.cu", text[text.index("\nstruct K0") + 1 :])


def test_golden_functions_and_prelude(golden: Golden) -> None:
    x = load(1, F32, [symbol("_v0")])
    kernel = LoopKernel(
        (Loop("_v0", symbol("p0")),), (F32, F32), symbol("_v0"), unary("tanh", x), 1
    )
    golden.check("cuda/prelude_tanh.cu", emit_source([kernel], CudaTarget()).data.decode())


def test_golden_model(golden: Golden, model_file: ModelFile) -> None:
    """Convolutions with epilogues, depthwise or not, products, reductions: one small model."""
    text = compile_model("digits", model_file("digits")).program.code.decode()
    golden.check("cuda/digits.cu", text[text.index("\n// first for") + 1 :])


def test_the_largest_number_has_a_literal() -> None:
    """Its shorter decimal forms lie beyond it."""
    largest = float(np.finfo(np.float32).max)
    assert float(literal(-largest, F32).rstrip("f")) == pytest.approx(-largest, rel=1e-8)
    assert literal(-0.0, F32) == "-0.0f"


def test_names_come_from_the_ir() -> None:
    use = LaunchInfo("rlxc::add", "sum", 0, "execute")
    code = emit_source([KERNELS["elementwise"]()], CudaTarget(), [use])
    assert "// first for %sum = rlxc::add" in code.data.decode()
    (entry,) = code.entries
    assert (entry.name, entry.threads, entry.words) == ("k0_loop1_add_lt_select", 256, 4)


def test_what_has_no_code_is_refused() -> None:
    with pytest.raises(RlxError) as caught:
        emit_source([TemplateKernel("winograd", (), (F32,))], CudaTarget())
    assert caught.value.code == "codegen.template"
    v0 = symbol("_v0")
    half = LoopKernel((Loop("_v0", symbol("p0")),), (F16, F16), v0, load(1, F16, [v0]), 1)
    with pytest.raises(RlxError) as caught:
        emit_source([half], CudaTarget())
    assert caught.value.code == "codegen.type"
    with pytest.raises(RlxError) as caught:
        CudaTarget("sm_35")
    assert caught.value.code == "target.arch" and "sm_70" in str(caught.value)


def test_capabilities_map_to_known_architectures() -> None:
    names = [CudaTarget.for_capability(*pair).arch for pair in ((7, 0), (8, 7), (9, 0), (12, 0))]
    assert names == ["sm_70", "sm_86", "sm_90", "sm_90"]
    with pytest.raises(RlxError):
        CudaTarget.for_capability(6, 1)


# ---- bits, on the CPU ----------------------------------------------------------------------------


def test_every_example_has_the_interpreters_bits(tmp_path: Path) -> None:
    module = HostModule([code_of(item.compiled.program) for item in example_programs()], tmp_path)
    assert len(example_programs()) > 100
    assert wrong_examples(lambda number: HostCudaUnit(module, number)) == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in MODELS])
def test_models_have_the_bits_of_webassembly(
    name: str, tmp_path: Path, model_file: ModelFile
) -> None:
    compiled = compile_model(name, model_file(name))
    feeds = SMALL_FEEDS[name]()
    module = HostModule([code_of(compiled.program)], tmp_path, "-O2")
    # Fewer workgroups than asked for: every kernel walks with a stride.
    actual = run_program(compiled, HostCudaUnit(module, 0, grid=7), feeds)
    with InferenceSession(model_file(name)) as session:
        expected = session.run(None, feeds)
    assert [same_bits(a, b) for a, b in zip(actual.values(), expected, strict=True)] == [
        True for _ in expected
    ]


def rows(kind: str, count: int) -> tuple[LoopKernel, list[np.ndarray]]:
    """A reduction over ``count`` elements in each of three rows, by workgroups."""
    v0, r0, extent = symbol("_v0"), symbol("_r0"), as_dim(count)
    body = load(1, F32, [v0 * extent + r0])
    kernel = LoopKernel(
        (Loop("_v0", as_dim(3)),), (F32, F32), v0, reduce(kind, ["_r0"], [extent], body)
    )
    rng = np.random.default_rng(count)
    x = rng.standard_normal((3, count)).astype(np.float32)
    return kernel, [np.zeros(3, np.float32), x]


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_long_reductions_keep_the_contract(kind: str, tmp_path: Path) -> None:
    cases = [rows(kind, count) for count in (65, 127, CHUNK, CHUNK + 1, 3 * CHUNK + 5)]
    assert all(spread(generalize(kernel)[0]).rows for kernel, _ in cases)
    for (kernel, buffers), found in zip(cases, run_loop_kernels(cases, tmp_path), strict=True):
        with np.errstate(all="ignore"):
            assert same_bits(found, evaluate_kernel(kernel, buffers))


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(
    st.lists(elementwise_kernels(), min_size=8, max_size=20),
    st.lists(reduction_kernels(LENGTHS), min_size=8, max_size=20),
)
def test_random_kernels(
    tmp_path_factory: pytest.TempPathFactory, plain: list[Case], reducing: list[Case]
) -> None:
    cases = [(case.kernel, case.buffers) for case in (*plain, *reducing)]
    results = run_loop_kernels(cases, tmp_path_factory.mktemp("kernels"))
    for (kernel, buffers), found in zip(cases, results, strict=True):
        assert same_bits(found, evaluate_kernel(kernel, buffers))


# ---- the real compiler -----------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_everything_compiles(arch: str, model_file: ModelFile) -> None:
    """Every kernel of the models and of the operators' examples, equal ones once."""
    target = CudaTarget(arch)
    assembler = assembler_of(target)
    if assembler is None:
        pytest.skip("nvcc is not installed")
    models = [compile_model(name, model_file(name), arch) for name in MODELS]
    compiled = (*models, *(item.compiled for item in example_programs()))
    kernels = list(dict.fromkeys(k for item in compiled for k in kernels_of(item, target)))
    code = emit_source(kernels, target)
    found = {item.name: item for item in parse_ptxas(assembler.words(code.data))}
    assert set(found) == {entry.name for entry in code.entries}
    limits = ARCHITECTURES[arch]
    threads = {entry.name: entry.threads for entry in code.entries}
    assert [item for item in found.values() if item.excess(limits, threads[item.name])] == []
    assert all(item.occupancy(limits, threads[item.name]) > 0 for item in found.values())
    assert max(item.shared for item in found.values()) >= 4 * CHUNK


@pytest.mark.slow
def test_volta_compiles_with_nvrtc_12(model_file: ModelFile) -> None:
    """CUDA 13 has no sm_70 any more; `make accept-devices` makes the environment for 12."""
    library = nvrtc.library()
    if library is None:
        pytest.skip("NVRTC 12 is not installed under build/nvrtc12")
    code = compile_model("digits", model_file("digits"), "sm_70").program
    words = nvrtc.words(code.code, "sm_70", library)
    assert {item.name for item in parse_ptxas(words)} == {entry.name for entry in code.entries}
    assert unfit(code.entries, lambda: words, ARCHITECTURES["sm_70"]) == {}


def test_figures_are_read_from_the_assembler() -> None:
    text = (
        "ptxas info    : Compiling entry function 'k1_big' for 'sm_90'\n"
        "ptxas info    : Function properties for k1_big\n"
        "    48 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, "
        "50000 bytes smem\n"
    )
    (found,) = parse_ptxas(text)
    assert found == KernelFigures("k1_big", 255, 48, 16, 20, 50000)
    limits = ARCHITECTURES["sm_90"]
    assert "spills 16 bytes" in found.excess(limits, 256)
    fit = KernelFigures("k", 64, 0, 0, 0, 1024)
    assert fit.excess(limits, 256) == ""
    assert fit.occupancy(limits, 256) == 0.5  # 64 registers a thread: 1024 of 2048 threads
    crowded = KernelFigures("k", 32, 0, 0, 0, 49153)
    assert "shared memory" in crowded.excess(limits, 256)


def test_same_text_twice() -> None:
    first = emit_source(all_kernels(), CudaTarget("sm_80")).data
    assert emit_source(all_kernels(), CudaTarget("sm_90")).data == first
