"""Modules: the launch table, determinism, names, and golden dumps of typical kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx_edge.compile.codegen.wasm.dump import dump
from rlx_edge.compile.codegen.wasm.emit import emit_module
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX, binary, cast, const, index, load, reduce, select, unary
from rlx_edge.ir.kernel import Loop, LoopKernel, TemplateKernel
from rlx_edge.ir.types import BOOL, F32, I64
from tests.conftest import Golden
from tests.wasm_runner import Module

P0, P1, P2, P3 = (symbol(f"p{position}") for position in range(4))
V0, V1, LANE, R0 = (symbol(name) for name in ("_v0", "_v1", "_l", "_r0"))


def elementwise() -> LoopKernel:
    x = load(1, F32, [V0]) + load(2, F32, [V0])
    return LoopKernel((Loop("_v0", P0),), (F32, F32, F32), V0, select(x < 0.0, 0.0, x), 1)


def row_softmax() -> LoopKernel:
    row = load(1, F32, [V0 * P1 + R0])
    top = reduce("max", ["_r0"], [P1], row)
    total = reduce("sum", ["_r0"], [P1], unary("exp", row - top))
    value = unary("exp", load(1, F32, [V0 * P1 + V1]) - top) / total
    loops = (Loop("_v0", P0), Loop("_v1", P1))
    return LoopKernel(loops, (F32, F32), V0 * P1 + V1, value, 2)


def column_sum() -> LoopKernel:
    value = reduce("sum", ["_r0"], [P1], load(1, F32, [R0 * P0 + V0]))
    return LoopKernel((Loop("_v0", P0),), (F32, F32), V0, value, 2)


def channel_scale() -> LoopKernel:
    """NCHW4c: the innermost loop is one vector, its scale is constant along the pixels."""
    value = load(1, F32, [V0 * P2 + V1 * 4 + LANE]) * load(2, F32, [V0 * 4 + LANE])
    loops = (Loop("_v0", P0), Loop("_v1", P1), Loop("_l", as_dim(4)))
    offset = V0 * P2 + V1 * 4 + LANE
    return LoopKernel(loops, (F32, F32, F32), offset, value, 3, lanes=True)


def embedding() -> LoopKernel:
    row = binary("mul", cast(load(2, I64, [V0]), INDEX), index(P1))
    value = load(1, F32, [binary("add", row, index(V1))])
    loops = (Loop("_v0", P0), Loop("_v1", P1))
    return LoopKernel(loops, (F32, F32, I64), V0 * P1 + V1, value, 2)


def masked_strided() -> LoopKernel:
    """A strided operand is gathered, a bool operand becomes a mask."""
    value = select(load(2, BOOL, [V0]), load(1, F32, [V0 * P1]), const(0.0, F32))
    return LoopKernel((Loop("_v0", P0),), (F32, F32, BOOL), V0, value, 2)


def integers() -> LoopKernel:
    value = binary("add", load(1, I64, [V0]), cast(index(V0), I64))
    return LoopKernel((Loop("_v0", P0),), (I64, I64), V0, value, 1)


KERNELS = {
    function.__name__: function
    for function in (
        elementwise, row_softmax, column_sum, channel_scale, embedding, masked_strided, integers,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_golden_code(name: str, golden: Golden) -> None:
    wasm = emit_module([KERNELS[name]()], WasmTarget())
    golden.check(f"wasm/loops_{name}.dump", dump(wasm))


def all_kernels() -> list[LoopKernel]:
    return [function() for function in KERNELS.values()]


def test_module_is_valid(tmp_path: Path, wasm_validate: str) -> None:
    path = tmp_path / "module.wasm"
    path.write_bytes(emit_module(all_kernels(), WasmTarget()))
    subprocess.run([wasm_validate, str(path)], check=True)


def test_same_bytes_in_another_process() -> None:
    """Neither hash seeds nor what was interned before may show in the bytes."""
    program = (
        "import sys, hashlib; from tests.compile.codegen.test_emit import all_kernels;"
        "from rlx_edge.compile.codegen.wasm.emit import emit_module;"
        "from rlx_edge.compile.targets.wasm import WasmTarget;"
        "kernels = all_kernels();"
        "print(hashlib.sha256(emit_module(kernels, WasmTarget())).hexdigest())"
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
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def launch_words(module: Module, records: list[list[int]]) -> None:
    """Write records and the words that point to them; the block is at byte 64."""
    words = module.bytes.view(np.uint32)
    at = 1024
    for position, record in enumerate(records):
        words[64 // 4 + position] = at
        words[at // 4 : at // 4 + len(record)] = record
        at += 4 * len(record)


def fill(value: float) -> LoopKernel:
    return LoopKernel((Loop("_v0", P0),), (F32,), V0, const(value, F32), 1)


def test_run_walks_the_launches() -> None:
    """Launches begin … end - 1 run in order, each with its own record."""
    wasm = emit_module([fill(1.0), fill(2.0), fill(3.0)], WasmTarget())
    module = Module(wasm)
    output = module.bytes.view(np.float32)[8192 // 4 :][:8]
    launch_words(module, [[0, 8192, 8], [1, 8192, 6], [2, 8192, 4], [0, 8192, 2]])
    for begin, end, expected in (
        (0, 0, [0] * 8),
        (1, 1, [0] * 8),
        (2, 1, [0] * 8),
        (1, 3, [3, 3, 3, 3, 2, 2, 0, 0]),
        (0, 4, [1, 1, 3, 3, 2, 2, 1, 1]),
    ):
        output[:] = 0
        module.run(64, begin, end)
        assert output.tolist() == expected, (begin, end)


def test_no_kernels() -> None:
    module = Module(emit_module([], WasmTarget()))
    module.run(64, 0, 0)


def test_nothing_is_read_for_an_empty_result() -> None:
    """With an extent of 0 the kernel returns before it reads any operand."""
    module = Module(emit_module([row_softmax()], WasmTarget()))
    size = len(module.bytes)
    launch_words(module, [[0, size, size, 0, 5], [0, size, size, 5, 0]])
    module.run(64, 0, 2)


def test_kernel_functions_have_names() -> None:
    text = dump(emit_module([elementwise(), fill(0.0)], WasmTarget()))
    assert "k0.loop1_add_lt_select" in text
    assert "k1.loop1_fill" in text


def test_unknown_template() -> None:
    with pytest.raises(RlxError) as caught:
        emit_module([TemplateKernel("winograd", (), (F32,))], WasmTarget())
    assert caught.value.code == "codegen.template"
    assert "winograd" in str(caught.value)
