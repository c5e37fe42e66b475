"""Folded constants: their bytes and digests, limits, and NaN."""

from __future__ import annotations

import math
import struct

import pytest

from rlx_edge.compile.passes import fold
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Constant, Function, Module, Value
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.types import F32, I64, tensor_type


def with_constant(numbers: list[float]) -> tuple[Module, Builder, Value]:
    """A module with a parameter ``x`` and one constant vector."""
    x = Value("x", tensor_type(F32, "n", len(numbers)))
    function = Function("f", [x], [], [])
    module = Module("f", function)
    builder = Builder(function)
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    type = tensor_type(F32, len(numbers))
    digest = bytes_digest(data)
    module.constants[digest] = Constant(digest, type, MemorySource(data), 0, len(data))
    return module, builder, builder.op("tensor::const", [], {"digest": digest}, type=type)


def folded(module: Module, builder: Builder, value: Value) -> Module:
    module.function.returns = [builder.op("rlxc::add", [module.function.params[0], value])]
    return run_passes(module, "fold,eliminate-dead", check=True)


def test_new_constants_are_named_by_their_bytes() -> None:
    module, builder, k = with_constant([1.0, 2.0, 3.0])
    after = folded(module, builder, builder.op("rlxc::mul", [k, k]))
    ((digest, constant),) = after.constants.items()
    assert constant.read() == struct.pack("<3f", 1.0, 4.0, 9.0)
    assert digest == constant.digest == bytes_digest(constant.read())
    assert constant.read(4, 4) == struct.pack("<f", 4.0)
    assert constant.type == tensor_type(F32, 3)


def test_nan_is_the_same_on_every_machine() -> None:
    module, builder, k = with_constant([math.inf, 1.0])
    after = folded(module, builder, builder.op("rlxc::sub", [k, k]))
    (constant,) = after.constants.values()
    assert constant.read() == bytes.fromhex("0000c07f00000000")


def test_all_nan_is_no_splat() -> None:
    module, builder, k = with_constant([math.inf, math.inf])
    after = folded(module, builder, builder.op("rlxc::sub", [k, k]))
    (constant,) = after.constants.values()
    assert constant.read() == bytes.fromhex("0000c07f0000c07f")


def test_negative_zero_keeps_its_sign() -> None:
    module, builder, k = with_constant([0.0, 0.0])
    after = folded(module, builder, builder.op("rlxc::neg", [k]))
    (splat,) = [op for op in after.function.ops if op.name == "tensor::splat"]
    assert math.copysign(1.0, float(str(splat.attrs["value"]))) == -1.0


@pytest.mark.parametrize(("limit", "left"), [(3, []), (2, ["rlxc::mul"])])
def test_the_limit_counts_elements(
    monkeypatch: pytest.MonkeyPatch, limit: int, left: list[str]
) -> None:
    monkeypatch.setattr(fold, "FOLD_LIMIT", limit)
    module, builder, k = with_constant([1.0, 2.0, 3.0])
    after = folded(module, builder, builder.op("rlxc::mul", [k, k]))
    once = [op for op in after.function.ops if op.attrs.get("phase") == "compile"]
    assert [op.name for op in once] == left


def test_contractions_count_every_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "FOLD_LIMIT", 15)
    module, builder, k = with_constant([1.0, 2.0, 3.0, 4.0])
    square = builder.op("rlxc::reshape", [k], {"shape": (as_dim(2), as_dim(2))})
    product = builder.op("rlxc::matmul", [square, square])
    after = folded(module, builder, builder.op("rlxc::reshape", [product], {"shape": (as_dim(4),)}))
    once = [op.name for op in after.function.ops if op.attrs.get("phase") == "compile"]
    assert once == ["rlxc::matmul", "rlxc::reshape"]


def test_known_sizes_are_constants() -> None:
    x = Value("x", tensor_type(I64, 2))
    function = Function("f", [x], [], [])
    builder = Builder(function)
    known = builder.op("tensor::from_dims", [], {"values": (as_dim(3), as_dim(4))})
    unknown = builder.op("tensor::from_dims", [], {"values": (as_dim("n"), as_dim(4))})
    total = builder.op("rlxc::add", [known, unknown])
    function.params.append(Value("y", tensor_type(I64, "n")))
    function.returns = [builder.op("rlxc::add", [x, total])]
    after = run_passes(Module("f", function), "fold", check=True)
    names = [op.name for op in after.function.ops]
    assert names == ["tensor::const", "tensor::from_dims", "rlxc::add", "rlxc::add"]
