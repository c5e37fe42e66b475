"""Small ONNX models for the importer's tests, and the check that every one of them goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlx_edge.ir.core import Function, Module
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.onnx.importer import import_model
from rlx_edge.ir.onnx.model import OnnxModel
from rlx_edge.ir.onnx.reader import read_model
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import BY_ONNX
from rlx_edge.ir.verifier import verify
from tests.oracles import Oracle, assert_close, same_bits

Array = npt.NDArray[Any]
Dims = Sequence[int | str | None]

DTYPES = {
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i64": TensorProto.INT64,
    "i32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
    "u8": TensorProto.UINT8,
}


def value(name: str, dims: Dims | None, dtype: str = "f32") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, DTYPES[dtype], dims)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """``node("Add", "a b", "y")``; ``-`` stands for an input that is not given."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"make_{outputs.split()[0]}", **attrs)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    infos = [
        item if isinstance(item, onnx.ValueInfoProto) else onnx.ValueInfoProto(name=item)
        for item in outputs
    ]
    graph = helper.make_graph(
        list(nodes),
        "sample",
        list(inputs),
        infos,
        [
            numpy_helper.from_array(np.asarray(item), name)
            for name, item in (constants or {}).items()
        ],
    )
    domains = sorted({item.domain for item in nodes if item.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, functions=list(functions))


def records(built: onnx.ModelProto) -> OnnxModel:
    return read_model(MemorySource(built.SerializeToString(), "m.onnx"))


def imported(
    built: onnx.ModelProto,
    values: Mapping[str, Sequence[int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Module:
    """The module, verified; its text must read back as the same text."""
    module = import_model(records(built), values=values, shapes=shapes)
    verify(module, strict=True)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    return module


def op_names(module: Module) -> list[str]:
    """Operations in order, constants left out."""
    return [op.name for op in module.function.ops if not op.name.startswith("tensor::")]


def environment(function: Function, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Symbols as these feeds give them."""
    env = {
        symbol: feeds[name].shape[axis] for symbol, (name, axis) in function.size_symbols().items()
    }
    for binding in function.bindings:
        env[binding.symbol] = int(feeds[binding.parameter].flatten()[binding.position])
    return env


@dataclass(frozen=True)
class Case:
    """A model with feeds; ``ops`` are the operations it must become, ``None`` for any."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    ops: tuple[str, ...] | None = None
    exact: bool = False
    values: Mapping[str, Sequence[int]] = field(default_factory=dict)


def interpreted(module: Module, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by the reference interpreter."""
    tensors = {
        name: Tensor(
            BY_ONNX[helper.np_dtype_to_tensor_dtype(item.dtype)], item.shape, item.tobytes()
        )
        for name, item in feeds.items()
    }
    return {
        name: np.frombuffer(
            result.tobytes(), helper.tensor_dtype_to_np_dtype(result.dtype.onnx)
        ).reshape(result.shape)
        for name, result in interpret(module, tensors).items()
    }


def check(case: Case) -> Module:
    """Import, then compare types and values with onnxruntime's."""
    expected = Oracle(case.model.SerializeToString()).run(case.feeds)
    module = imported(case.model, case.values)
    function = module.function
    if case.ops is not None:
        assert tuple(op_names(module)) == tuple(f"rlxc::{name}" for name in case.ops)
    env = environment(function, case.feeds)
    for result, reference in zip(function.returns, expected.values(), strict=True):
        assert tuple(dim.evaluate(env) for dim in result.type.shape) == reference.shape
        assert DTYPES[result.type.dtype.name] == helper.np_dtype_to_tensor_dtype(reference.dtype)
    actual = interpreted(module, case.feeds)
    if case.exact:
        assert same_bits(list(actual.values()), list(expected.values()))
    else:
        assert_close(actual, expected)
    return module
