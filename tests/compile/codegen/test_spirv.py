"""SPIR-V: golden dumps, the validator, and bits on the Vulkan device at hand."""

# covers R15, R18

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlx_edge.compile import VulkanTarget
from rlx_edge.compile.codegen.kernel_form import canonical
from rlx_edge.compile.codegen.spirv.assembler import Module, decode, encode
from rlx_edge.compile.codegen.spirv.dump import dump
from rlx_edge.compile.codegen.spirv.emit import emit_module
from rlx_edge.compile.codegen.spirv.entries import single_entries
from rlx_edge.compile.codegen.spirv.opcodes import OPCODES
from rlx_edge.compile.codegen.spirv.quirks import apply_quirks
from rlx_edge.compile.compiler import compile_module
from rlx_edge.compile.targets.vulkan import QUIRKS
from rlx_edge.compile.templates.gpu import MATMUL_WORDS, conv_words
from rlx_edge.gpu_workers.vulkan.context import VulkanContext
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import LimitError, RlxError
from rlx_edge.ir.expression import Expr, acc, binary, load, reduce, select, walk
from rlx_edge.ir.kernel import Loop, LoopKernel, TemplateKernel
from rlx_edge.ir.ordered_reduction import CHUNK
from rlx_edge.ir.types import F16, F32, F64, I64
from rlx_edge.model_source import open_source
from tests.compile.codegen.test_emit import KERNELS, all_kernels
from tests.conftest import Golden
from tests.kernel_oracle import NUMPY, evaluate_kernel, same_bits
from tests.kernel_strategies import Case, elementwise_kernels, reduction_kernels
from tests.vulkan_host import VARIANTS, opened, run_kernels, spirv_tool, validate

# ---- text and bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_golden_loops(name: str, golden: Golden) -> None:
    code = emit_module([KERNELS[name]()], VulkanTarget())
    golden.check(f"spirv/loops_{name}.dump", dump(code.data))


def test_golden_without_features(golden: Golden) -> None:
    """A descriptor, bytes taken out of words, no float controls."""
    target = VulkanTarget(
        addressing="descriptor", storage8=False, special_values=False, round_even=False
    )
    code = emit_module([KERNELS["masked_strided"]()], target)
    validate(code.data)
    golden.check("spirv/plain_device.dump", dump(code.data))


BIASED = select(acc() + load(0, F32, ()) < 0.0, 0.0, acc() + load(0, F32, ()))
TEMPLATES = {
    "matmul": (
        {"tile": "8x8x4", "chain": 128, "a_vectors": True, "b_vectors": False},
        MATMUL_WORDS,
    ),
    "conv2d": (
        {"tile": "8x8x4", "chain": 108, "rows": 3, "columns": 3, "input": "blocked",
         "output": "planes"},
        conv_words(("channel",)),
    ),
    "depthwise": (
        {"chain": 36, "rows": 3, "columns": 3, "input": "blocked", "output": "blocked"},
        conv_words(("channel",)),
    ),
}  # fmt: skip


def template(name: str) -> TemplateKernel:
    config, words = TEMPLATES[name]
    kinds = ("channel",)
    options = tuple(sorted(config.items()))
    return TemplateKernel(name, options, (F32,) * 4, BIASED, kinds, len(words))


@pytest.mark.parametrize("name", TEMPLATES)
def test_golden_templates(name: str, golden: Golden) -> None:
    """A contraction with bias and ReLU as its epilogue."""
    code = emit_module([template(name)], VulkanTarget())
    validate(code.data)
    golden.check(f"spirv/template_{name}.dump", dump(code.data))


@pytest.mark.parametrize("variant", VARIANTS)
def test_modules_are_valid(variant: str) -> None:
    code = emit_module(all_kernels(), VulkanTarget(**VARIANTS[variant]))
    validate(code.data)
    assert [entry.words for entry in code.entries] == [4, 4, 4, 6, 5, 5, 3]


def test_the_dump_says_what_spirv_dis_says() -> None:
    """The same instructions with the same operands, up to names and the form of literals."""
    code = emit_module(all_kernels(), VulkanTarget()).data
    options = ("--no-header", "--no-indent", "--no-color", "--raw-id", "-")
    command = [spirv_tool("spirv-dis"), *options]
    theirs = subprocess.run(command, input=code, capture_output=True, check=True).stdout.decode()
    ours = dump(code).splitlines()[1:]
    assert len(ours) == len(theirs.splitlines())
    for own, other in zip(ours, theirs.splitlines(), strict=True):
        assert re.findall(r"Op\w+", own)[0] == re.findall(r"Op\w+", other)[0]
        if "OpConstant" not in other:
            assert len(own.split()) >= len(other.split()) - other.count("|"), (own, other)
        numbers = re.findall(r"%(\d+)\b", own)
        assert set(numbers) <= set(re.findall(r"%(\d+)\b", other)), (own, other)


def test_same_bytes_in_another_process() -> None:
    """Neither hash seeds nor what was interned before may show in the bytes."""
    program = (
        "import hashlib; from tests.compile.codegen.test_emit import all_kernels;"
        "from rlx_edge.compile.codegen.spirv.emit import emit_module;"
        "from rlx_edge.compile import VulkanTarget;"
        "code = emit_module(all_kernels(), VulkanTarget());"
        "print(hashlib.sha256(code.data).hexdigest())"
    )
    root = Path(__file__).resolve().parents[3]
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_types_and_constants_are_written_once() -> None:
    items, bound = decode(emit_module(all_kernels(), VulkanTarget()).data)
    plain = [OPCODES[f"Type{name}"].number for name in ("Int", "Float", "Bool", "Void", "Vector")]
    constant = OPCODES["Constant"].number
    declared = [(item[0], *item[2:]) for item in items if item[0] in plain]
    literals = [(item[1], *item[3:]) for item in items if item[0] == constant]
    assert len(set(declared)) == len(declared)
    assert len(set(literals)) == len(literals)
    assert encode(items, bound) == emit_module(all_kernels(), VulkanTarget()).data


def test_capabilities_follow_from_the_kernels() -> None:
    def capabilities(kernel: str, **features: object) -> list[str]:
        text = dump(emit_module([KERNELS[kernel]()], VulkanTarget(**features)).data)
        return re.findall(r"OpCapability (\w+)", text)

    plain = {"addressing": "descriptor", "special_values": False, "round_even": False}
    assert capabilities("elementwise", **plain) == ["Shader"]
    assert capabilities("integers", **plain) == ["Shader", "Int64"]
    assert capabilities("masked_strided", **plain) == ["Shader", "StorageBuffer8BitAccess"]
    assert "PhysicalStorageBufferAddresses" in capabilities("elementwise")


# ---- refusals ------------------------------------------------------------------------------------


def copies(dtype: object) -> LoopKernel:
    v0 = symbol("_v0")
    return LoopKernel((Loop("_v0", symbol("p0")),), (dtype, dtype), v0, load(1, dtype, [v0]), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kernel", "features", "code"),
    [
        (copies(F16), {}, "codegen.type"),
        (copies(I64), {"int64": False, "addressing": "descriptor"}, "target.type"),
        (copies(F64), {"float64": False}, "target.type"),
        (TemplateKernel("winograd", (), (F32,)), {}, "codegen.template"),
    ],
)
def test_what_the_device_lacks_is_refused(kernel: object, features: dict, code: str) -> None:
    with pytest.raises(RlxError) as caught:
        emit_module([kernel], VulkanTarget(**features))  # type: ignore[list-item]
    assert caught.value.code == code


def test_a_tile_beyond_workgroup_memory_is_refused(model_file: Callable[[str], Path]) -> None:
    module = open_source(model_file("digits")).module({}, {})
    with pytest.raises(LimitError) as caught:
        compile_module(module, VulkanTarget(shared=4096), device="vulkan:0")
    assert caught.value.code == "target.shared" and "4096" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"addressing": "telepathy"},
        {"driver": "acme"},
        {"int64": False},
    ],
)
def test_impossible_targets(options: dict) -> None:
    with pytest.raises(RlxError):
        VulkanTarget(**options)


# ---- quirks --------------------------------------------------------------------------------------


def nested(depth: int) -> Module:
    """A shader that takes the f32 out of a struct in a struct … ``depth`` deep."""
    module = Module()
    kind = value = module.float_type()
    value = module.constant(kind, 0x3F800000)
    for _ in range(depth):
        outer = module.type("Struct", kind, module.float_type())
        value = module._once(
            ("composite", outer), "ConstantComposite", (outer,), (value, module.real(2.0))
        )
        kind = outer
    code = module.code()
    first = code.label
    inner = code.op("CompositeExtract", module.float_type(), value, *[0] * depth)
    beside = code.op("CompositeExtract", module.float_type(), value, *[0] * (depth - 1), 1)
    code.op("FAdd", module.float_type(), inner, beside)
    code.do("Return")
    function = module.function(code, first)
    module.entry_point(function, "nested", [])
    module.mode(function, "LocalSize", 1, 1, 1)
    return module


def extracts(data: bytes) -> list[int]:
    number = OPCODES["CompositeExtract"].number
    return [len(item) - 4 for item in decode(data)[0] if item[0] == number]


def test_adreno_takes_deep_extracts_in_steps(golden: Golden) -> None:
    module = nested(12)
    before = module.encode()
    items, bound = apply_quirks(list(module.instructions()), module.bound, QUIRKS["adreno"])
    after = encode(items, bound)
    for data in (before, after):
        validate(data)
    assert extracts(before) == [12, 12]
    assert extracts(after) == [8, 4, 8, 4]
    golden.check("spirv/adreno_nested.dump", dump(after))


@pytest.mark.parametrize("depth", [1, 7, 8, 9, 16, 17, 30])
def test_extracts_of_any_depth(depth: int) -> None:
    module = nested(depth)
    items, bound = apply_quirks(list(module.instructions()), module.bound, QUIRKS["adreno"])
    after = encode(items, bound)
    validate(after)
    steps = [8] * ((depth - 1) // 8) + [(depth - 1) % 8 + 1]
    assert extracts(after) == steps * 2


def comparisons() -> LoopKernel:
    """A greater one, the order of two, and one beside a literal that is no denormal."""
    v0 = symbol("_v0")
    a, b = load(1, F32, [v0]), load(2, F32, [v0])
    value = select(a < b, binary("max", a, b), select(a < 2.0, a, b))
    return LoopKernel((Loop("_v0", symbol("p0")),), (F32, F32, F32), v0, value, 1)


def test_nvidia_compares_denormals_by_their_bits(golden: Golden) -> None:
    """Other drivers get plain comparisons."""
    plain, changed = (
        emit_module([comparisons()], VulkanTarget(driver=driver)).data for driver in ("", "nvidia")
    )
    validate(changed)
    assert "OpSLessThan" not in dump(plain).split("OpPhi")[1]
    assert "OpFOrdLessThan" in dump(changed) and "OpSLessThan" in dump(changed)
    golden.check("spirv/nvidia_comparisons.dump", dump(changed))


def test_other_drivers_get_the_module_as_it_is() -> None:
    module = nested(12)
    items, bound = apply_quirks(list(module.instructions()), module.bound, VulkanTarget().quirks)
    assert encode(items, bound) == module.encode()


def test_drivers_are_known_by_vendor_and_driver() -> None:
    assert VulkanTarget.driver_of(0x5143, 8) == "adreno"
    assert VulkanTarget.driver_of(0x10DE, 4) == "nvidia"
    assert VulkanTarget.driver_of(0x10005, 13) == ""
    forced = VulkanTarget().forced("adreno")
    assert forced.driver == "adreno" and forced.most_invocations == 128
    assert VulkanTarget().forced("cranelift") == VulkanTarget()
    assert VulkanTarget().takes(forced.name)
    assert not VulkanTarget().takes(VulkanTarget(storage8=False).name)


# ---- bits on the device --------------------------------------------------------------------------

LENGTHS = st.sampled_from((0, 1, 2, 3, 4, 5, 17, 40))
SETTINGS = settings(
    max_examples=8,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


class Cases(list[Case]):
    """Kernels that go into one module; the failing one is shown by the assertion."""

    def __repr__(self) -> str:
        return f"{len(self)} cases"


@pytest.fixture(scope="module", params=list(VARIANTS))
def owner(request: pytest.FixtureRequest) -> Iterator[VulkanContext]:
    with opened(**VARIANTS[request.param]) as found:
        yield found


# lavapipe takes x + 0.0 for x and x * 0.0 for 0.0 where it knows the 0.0 when it compiles (gallivm,
# lp_build_add and lp_build_mul). The first is wrong for -0.0, which is compared without its sign;
# kernels with the second, wrong for NaN and infinity, are left out.


def without_sign_of_zero(array: np.ndarray) -> np.ndarray:
    return array + np.zeros((), array.dtype) if array.dtype.kind == "f" else array


def multiplies_by_zero(kernel: LoopKernel) -> bool:
    """Whether a product has a factor that is known to be zero."""
    nodes = walk(canonical(kernel).value)
    moving: dict[Expr, bool] = {}
    for node in nodes:
        moving[node] = node.op in ("load", "index") or any(moving[arg] for arg in node.args)
    factors = [
        arg
        for node in nodes
        if node.op in ("mul", "reduce") and node.dtype.is_float
        for arg in node.args[:2]
        if not moving[arg] and arg.dtype.is_float
    ]
    return any(_constant(factor) == 0 for factor in factors)


def _constant(value: Expr) -> float:
    kernel = LoopKernel((), (value.dtype,), as_dim(0), value)
    return float(evaluate_kernel(kernel, [np.zeros(1, NUMPY[value.dtype])])[0])


def check(owner: VulkanContext, cases: list[Case]) -> None:
    cases = [case for case in cases if not multiplies_by_zero(case.kernel)]
    if not cases:
        return
    found = run_kernels(owner, [(case.kernel, case.buffers) for case in cases])
    for case, actual in zip(cases, found, strict=True):
        expected = evaluate_kernel(case.kernel, case.buffers)
        ours, theirs = without_sign_of_zero(actual), without_sign_of_zero(expected)
        assert same_bits(ours, theirs), (case, np.flatnonzero(actual != expected)[:8])


@SETTINGS
@given(cases=st.lists(elementwise_kernels(), min_size=8, max_size=12).map(Cases))
def test_elementwise(owner: VulkanContext, cases: Cases) -> None:
    check(owner, cases)


@SETTINGS
@given(cases=st.lists(reduction_kernels(LENGTHS), min_size=6, max_size=8).map(Cases))
def test_reductions(owner: VulkanContext, cases: Cases) -> None:
    check(owner, cases)


@pytest.mark.parametrize("kind", ["chain", "sum", "prod", "max", "min"])
def test_long_reductions(owner: VulkanContext, kind: str) -> None:
    """Over several chunks, in one axis and in two."""
    v0, r0, r1 = symbol("_v0"), symbol("_r0"), symbol("_r1")
    cases = []
    for count in (CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5):
        x = np.random.default_rng(count).uniform(0.5, 1.5, (2, count)).astype(np.float32)
        out = np.zeros(2, np.float32)
        body = load(1, F32, [v0 * count + r0])
        one = reduce(kind, ["_r0"], [as_dim(count)], body)
        cases.append(Case(LoopKernel((Loop("_v0", as_dim(2)),), (F32, F32), v0, one), (out, x)))
        # The second axis walks backwards, so that the axes cannot be merged.
        body = load(1, F32, [v0 * count + r0 * 7 + 6 - r1])
        two = reduce(kind, ["_r0", "_r1"], [as_dim(count // 7), as_dim(7)], body)
        cases.append(Case(LoopKernel((Loop("_v0", as_dim(2)),), (F32, F32), v0, two), (out, x)))
    check(owner, cases)


# ---- entries taken apart -------------------------------------------------------------------------


def test_every_entry_has_a_module_of_its_own() -> None:
    """Valid ones, with the workgroup memory of that kernel only and nothing else left out."""
    kernels = [*all_kernels(), *(template(name) for name in TEMPLATES)]
    whole = emit_module(kernels, VulkanTarget())
    parts = single_entries(whole.data)
    assert len(parts) == len(kernels) == len(whole.entries)
    for kernel, entry, part in zip(kernels, whole.entries, parts, strict=True):
        validate(part)
        text, alone = dump(part), dump(emit_module([kernel], VulkanTarget()).data)
        assert f'"{entry.name}"' in text and text.count("OpEntryPoint") == 1
        for word in ("OpVariable %\\d+ Workgroup", "NoContraction", "OpStore", "OpExecutionMode"):
            assert len(re.findall(word, text)) == len(re.findall(word, alone)), (entry.name, word)
