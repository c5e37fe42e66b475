"""Precisions beyond ``fixed`` on Vulkan: errors stated, cooperative matrices laid open."""

# covers R18

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rlx_edge.compile import CompiledModule, VulkanTarget, compile_module, single_entries
from rlx_edge.compile.claims import vulkan as claims
from rlx_edge.compile.codegen.spirv.dump import dump
from rlx_edge.compile.codegen.spirv.emit import emit_module
from rlx_edge.compile.targets.record import target_fields, target_of
from rlx_edge.compile.templates.cooperative import cooperative_tile, cooperative_tiles
from rlx_edge.compile.templates.gpu import MATMUL_WORDS, conv_words
from rlx_edge.gpu_workers.vulkan import physical, pipelines
from rlx_edge.gpu_workers.vulkan.context import VulkanContext
from rlx_edge.gpu_workers.vulkan.unit import VulkanUnit
from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import acc, load, select
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.plan import evaluate
from rlx_edge.ir.types import F32
from rlx_edge.runtime.records import records
from tests.compile.codegen.test_cuda_precision import (
    BOUNDS,
    SHAPES,
    close,
    conv,
    convolved,
    matmul,
    reference,
)
from tests.conftest import Golden
from tests.cooperative import laid_open
from tests.cuda_programs import run_program
from tests.vulkan_host import opened, validate

Array = np.ndarray
H200 = VulkanTarget(shared=49152, invocations=1024, matrices="16x16x16@32")
SHORT = ((2, 5, 39, 9), (1, 130, 40, 68), (1, 7, 129, 17))
"""Few tiles and short sums: once a shader has gone 65535 times through loops, lavapipe ends all."""
CASES = ((3, 16, 3, 2, 1), (16, 10, 1, 1, 1), (8, 72, 3, 1, 1), (8, 16, 3, 1, 2))


@pytest.fixture(scope="module")
def owner() -> Iterator[VulkanContext]:
    with opened(shared=H200.shared, matrices=H200.matrices) as found:
        yield found


@pytest.fixture
def without_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay every module open before the driver sees it."""

    def opened_entries(code: bytes) -> list[bytes]:
        validate(code)
        parts = [laid_open(part, 32) for part in single_entries(code)]
        for part in parts:
            validate(part)
        return parts

    monkeypatch.setattr(pipelines, "single_entries", opened_entries)


def compiled_for(module: Module, precision: str, target: VulkanTarget) -> CompiledModule:
    return compile_module(module, target, device="vulkan:0", precision=precision)


def run(owner: VulkanContext, compiled: CompiledModule, feeds: Mapping[str, Array]) -> Array:
    unit = VulkanUnit(owner=owner, holder="test")
    return next(iter(run_program(compiled, unit, feeds).values()))


def check_products(
    owner: VulkanContext, precision: str, shapes: Sequence[tuple[int, int, int, int]] = SHAPES
) -> None:
    compiled = compiled_for(matmul(), precision, owner.device.target)
    rng = np.random.default_rng(0)
    for batch, rows, depth, columns in shapes:
        feeds = {
            "a": rng.standard_normal((batch, rows, depth), np.float32),
            "b": rng.standard_normal((batch, depth, columns), np.float32),
            "c": rng.standard_normal(columns, np.float32),
        }
        found = run(owner, compiled, feeds)
        assert close(found, reference(feeds), BOUNDS[precision]), feeds["a"].shape


def check_convolution(
    owner: VulkanContext, precision: str, case: tuple[int, int, int, int, int]
) -> None:
    inner, outer, size, stride, groups = case
    compiled = compiled_for(conv(*case), precision, owner.device.target)
    rng = np.random.default_rng(1)
    feeds = {
        "x": rng.standard_normal((2, inner, 9, 11), np.float32),
        "k": rng.standard_normal((outer, inner // groups, size, size), np.float32),
        "b": rng.standard_normal(outer, np.float32),
    }
    expected = convolved(feeds, stride, groups, 1)
    assert close(run(owner, compiled, feeds), expected, BOUNDS[precision])


# ---- relaxed ---------------------------------------------------------------------------------


def test_relaxed_products_and_convolutions(owner: VulkanContext) -> None:
    check_products(owner, "relaxed")
    for case in CASES:
        check_convolution(owner, "relaxed", case)


def test_relaxed_kernels_fuse() -> None:
    texts = [
        dump(compiled_for(matmul(), precision, VulkanTarget()).program.code)
        for precision in ("fixed", "relaxed")
    ]
    assert ["Fma" in text for text in texts] == [False, True]
    assert "FMul" not in texts[1] and "FMul" in texts[0]


# ---- cooperative matrices --------------------------------------------------------------------


@pytest.mark.usefixtures("without_matrices")
def test_products_of_matrices(owner: VulkanContext) -> None:
    check_products(owner, "fp16")


@pytest.mark.usefixtures("without_matrices")
def test_a_convolution_of_matrices(owner: VulkanContext) -> None:
    check_convolution(owner, "fp16", CASES[3])


@pytest.mark.slow
@pytest.mark.usefixtures("without_matrices")
@pytest.mark.parametrize("tile", [tile.name for tile in cooperative_tiles(H200)])
def test_every_tile(owner: VulkanContext, tile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a few workgroups for several tiles each."""
    monkeypatch.setattr(claims, "_tiles", lambda tiled: [cooperative_tile(tile)])
    monkeypatch.setattr(owner, "device", replace(owner.device, groups=3))
    check_products(owner, "fp16", SHORT)
    for case in CASES:
        check_convolution(owner, "fp16", case)


def test_the_plan_takes_the_largest_tile_with_workgroups_enough() -> None:
    program = compiled_for(matmul(), "fp16", H200).program
    assert [entry.threads for entry in program.entries] == [256, 256, 128]

    def groups(rows: int, columns: int) -> list[int]:
        sizes = {"batch": 1, "rows": rows, "depth": 64, "columns": columns}
        words = np.array(evaluate(program.plan, sizes).words, np.int32)
        block = program.plan.block_address
        return [item.groups for item in records(words, block, program.entries, 0, 3)]

    assert groups(4096, 1024) == [256, 0, 0]
    assert groups(4096, 384) == [96, 0, 0]
    assert groups(1024, 1024) == [0, 256, 0]
    assert groups(128, 1000) == [0, 0, 128]
    assert groups(1, 1) == [0, 0, 1]


def test_tiles_are_as_wide_as_the_result_needs() -> None:
    def threads(outputs: int) -> list[int]:
        program = compiled_for(conv(8, outputs, 3, 1, 1), "fp16", H200).program
        return [entry.threads for entry in program.entries if "mma" in entry.name]

    assert threads(16) == threads(32) == [128, 128]
    assert threads(64) == [256, 256, 128]
    assert threads(72) == threads(256) == [256, 256, 256, 128]


def test_devices_with_less_get_smaller_tiles_or_none() -> None:
    def names(**features: object) -> list[str]:
        return [tile.name for tile in cooperative_tiles(replace(H200, **features))]

    large = ["128x128:64x32", "128x64:32x32", "128x32:32x32"]
    assert names() == [*large, "64x64:16x32", "32x32x4:32x32"]
    assert names(shared=32768) == ["128x32:32x32", "64x64:16x32", "32x32x2:32x32"]
    assert names(invocations=128) == ["128x32:32x32", "64x64:32x32", "32x32x4:32x32"]
    assert names(invocations=64) == ["32x32x2:32x32"]
    assert names(matrices="8x16x16@16")[0] == large[0]
    assert names(matrices="16x16x64@32") == names(matrices="") == names(storage8=False) == []


BIASED = select(acc() + load(0, F32, ()) < 0.0, 0.0, acc() + load(0, F32, ()))
GOLDEN = {
    "mma_matmul": ({"a_vectors": True, "b_vectors": False}, MATMUL_WORDS),
    "mma_conv2d": (
        {"rows": 3, "columns": 3, "input": "blocked", "output": "planes"},
        conv_words(("channel",)),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, golden: Golden) -> None:
    """A product with bias and ReLU in two matrices of sums of one subgroup."""
    config, words = GOLDEN[name]
    options = tuple(sorted({**config, "precision": "fp16", "tile": "32x32:16x32"}.items()))
    kernel = TemplateKernel(name, options, (F32,) * 4, BIASED, ("channel",), len(words))
    code = emit_module([kernel], replace(H200, matrices="16x32x32@64")).data
    validate(code)
    golden.check(f"spirv/template_{name}.dump", dump(code))


# ---- what devices say ------------------------------------------------------------------------


def test_a_target_says_which_matrices_it_has() -> None:
    assert H200.name.endswith("-f16_16x16x16@32")
    assert target_of(target_fields(H200)) == H200
    assert not VulkanTarget().takes(H200.name)
    with pytest.raises(RlxError) as caught:
        VulkanTarget(matrices="16x16")
    assert caught.value.code == "target.matrices"


@pytest.mark.parametrize("matrices", ["", "16x16x16@32"])
def test_other_precisions_are_refused(matrices: str) -> None:
    with pytest.raises(RlxError) as caught:
        compiled_for(matmul(), "tf32", VulkanTarget(matrices=matrices))
    assert caught.value.code == "precision.device"
    offered = "fixed, relaxed, fp16" if matrices else "fixed, relaxed"
    assert f"found tf32; allowed: {offered}" in str(caught.value)


LISTED = """
16 16 16 0 0 0 0
16 8 16 0 0 0 0
16 8 8 0 0 0 0
16 8 16 0 0 1 1
16 16 16 0 0 1 1
16 8 8 0 0 1 1
16 16 32 7 7 9 9
16 16 32 3 3 5 5
16 8 32 7 7 9 9
16 16 16 1000141000 1000141000 1 1
"""
"""What an NVIDIA H200 lists (driver 580): sizes, component types; all at subgroup scope."""


def listed(line: str, scope: int = 3) -> SimpleNamespace:
    names = ("MSize", "NSize", "KSize", "AType", "BType", "CType", "ResultType")
    sizes_and_types = map(int, line.split())
    return SimpleNamespace(**dict(zip(names, sizes_and_types, strict=True)), scope=scope)


def test_the_largest_matrices_of_f16_with_f32_sums_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [listed(line) for line in LISTED.strip().splitlines()]
    found = physical.Subgroups(32, 32, asked=False)

    def told(rows: Sequence[SimpleNamespace], subgroups: physical.Subgroups | None) -> str:
        monkeypatch.setattr(physical, "_matrix_rows", lambda handle: rows)
        return physical.matrices_of(None, subgroups)

    assert told(rows, found) == H200.matrices
    assert told(rows[3:4], found) == "16x8x16@32"
    assert told([listed("16 16 16 0 0 1 1", scope=2)], found) == ""
    assert told(rows[6:], found) == told(rows, None) == ""
