"""PyTorch on the same weights: an ONNX graph of fixed sizes as a ``torch.fx`` module.

onnxruntime folds constants and shape arithmetic first (its basic level, which also puts batch
normalisation into convolutions), so what PyTorch runs is the arithmetic alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.tools.update_model_dims import update_inputs_outputs_dims

from bench.gpu.subjects import Feeds

EAGER, GRAPH, COMPILED = "eager", "CUDA graph", "torch.compile"
WARM_UP = 3


def fixed_graph(model: bytes, feeds: Feeds) -> onnx.ModelProto:
    """The graph for inputs of these shapes, its shape arithmetic computed."""
    loaded = onnx.load_model_from_string(model)
    shapes = {name: list(array.shape) for name, array in feeds.items()}
    outputs = {
        item.name: [f"{item.name}_{axis}" for axis in _axes(item)] for item in loaded.graph.output
    }
    sized = update_inputs_outputs_dims(loaded, shapes, outputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fixed.onnx"
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(
            sized.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return onnx.load(path)


def _axes(item: onnx.ValueInfoProto) -> range:
    return range(len(item.type.tensor_type.shape.dim))


Attributes = Mapping[str, Any]
Convert = Callable[[Any, list[Any], Attributes], Any]


def torch_module(model: onnx.ModelProto, half: bool) -> Any:
    """A ``GraphModule`` on the GPU, in f16 if ``half``; inputs and outputs as the graph's."""
    torch, fx = import_module("torch"), import_module("torch.fx")
    root, graph = torch.nn.Module(), fx.Graph()
    values: dict[str, Any] = {}
    host: dict[str, Any] = {}
    emit = _Emit(torch, root, graph, host, half)
    for number, item in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(item)
        host[item.name] = array
        root.register_buffer(f"w{number}", emit.tensor(array))
        values[item.name] = f"w{number}"
    for item in model.graph.input:
        if item.name not in host:
            values[item.name] = graph.placeholder(item.name.replace(".", "_"))

    def value(name: str) -> Any:
        if not name:
            return None
        if isinstance(values[name], str):
            values[name] = graph.get_attr(values[name])
        return values[name]

    for node in model.graph.node:
        if node.op_type == "HardSigmoid":
            emit.gates[node.output[0]] = node.input[0]
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Constant":
            host[node.output[0]] = numpy_helper.to_array(attributes["value"])
            name = f"c{len(host)}"
            root.register_buffer(name, emit.tensor(host[node.output[0]]))
            values[node.output[0]] = name
            continue
        convert = getattr(emit, node.op_type, None)
        if convert is None:
            raise NotImplementedError(node.op_type)
        values[node.output[0]] = convert(value, list(node.input), attributes)
    graph.output(tuple(value(item.name) for item in model.graph.output))
    graph.eliminate_dead_code()
    return fx.GraphModule(root, graph).eval()


class _Emit:
    """One method an ONNX operator; each adds a call to the graph."""

    def __init__(
        self, torch: Any, root: Any, graph: Any, host: Mapping[str, Any], half: bool
    ) -> None:
        self.torch, self.root, self.graph, self.host, self.half = torch, root, graph, host, half
        self.functional = torch.nn.functional
        self.gates: dict[str, str] = {}
        """Values that are the hard sigmoid of another one: times it, they are its hard swish."""

    def tensor(self, array: Any) -> Any:
        tensor = self.torch.from_numpy(np.array(array)).cuda()
        return tensor.half() if self.half and tensor.is_floating_point() else tensor

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        return self.graph.call_function(function, arguments, named)

    def Conv(self, value: Any, names: list[str], a: Attributes) -> Any:
        pads = a.get("pads", [0, 0, 0, 0])
        assert pads[:2] == pads[2:], pads
        return self.call(
            self.functional.conv2d,
            *(value(name) for name in [*names, ""][:3]),
            stride=tuple(a.get("strides", (1, 1))),
            padding=tuple(pads[:2]),
            dilation=tuple(a.get("dilations", (1, 1))),
            groups=a.get("group", 1),
        )

    def MaxPool(self, value: Any, names: list[str], a: Attributes) -> Any:
        pads = a.get("pads", [0, 0, 0, 0])
        assert pads[:2] == pads[2:], pads
        return self.call(
            self.functional.max_pool2d,
            value(names[0]),
            tuple(a["kernel_shape"]),
            stride=tuple(a["strides"]),
            padding=tuple(pads[:2]),
        )

    def GlobalAveragePool(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self.call(self.functional.adaptive_avg_pool2d, value(names[0]), (1, 1))

    def Gemm(self, value: Any, names: list[str], a: Attributes) -> Any:
        assert a.get("alpha", 1.0) == a.get("beta", 1.0) == 1.0 and not a.get("transA")
        b = value(names[1])
        b = self.call(self.torch.t, b) if a.get("transB") else b
        return self.call(self.torch.addmm, value(names[2]), value(names[0]), b)

    def MatMul(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.matmul, value, names)

    def Add(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.add, value, names)

    def Sub(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.sub, value, names)

    def Mul(self, value: Any, names: list[str], a: Attributes) -> Any:
        for gate, x in (names, names[::-1]):
            if self.gates.get(gate) == x:
                return self.call(self.functional.hardswish, value(x))
        return self._plain(self.torch.mul, value, names)

    def Div(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.div, value, names)

    def And(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.logical_and, value, names)

    def Where(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.where, value, names)

    def Relu(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.relu, value, names)

    def Erf(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.erf, value, names)

    def IsNaN(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.torch.isnan, value, names)

    def HardSwish(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self._plain(self.functional.hardswish, value, names)

    def Identity(self, value: Any, names: list[str], a: Attributes) -> Any:
        return value(names[0])

    def HardSigmoid(self, value: Any, names: list[str], a: Attributes) -> Any:
        alpha, beta = a.get("alpha", 0.2), a.get("beta", 0.5)
        if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
            return self.call(self.functional.hardsigmoid, value(names[0]))
        line = self.call(self.torch.mul, value(names[0]), alpha)
        return self.call(self.torch.clamp, self.call(self.torch.add, line, beta), 0, 1)

    def Softmax(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self.call(self.torch.softmax, value(names[0]), a.get("axis", -1))

    def LayerNormalization(self, value: Any, names: list[str], a: Attributes) -> Any:
        shape = self.host[names[1]].shape
        return self.call(
            self.functional.layer_norm,
            value(names[0]),
            tuple(shape),
            *(value(name) for name in names[1:3]),
            a["epsilon"],
        )

    def Flatten(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self.call(self.torch.flatten, value(names[0]), a.get("axis", 1))

    def Reshape(self, value: Any, names: list[str], a: Attributes) -> Any:
        shape = tuple(int(size) for size in self.host[names[1]])
        return self.call(self.torch.reshape, value(names[0]), shape)

    def Expand(self, value: Any, names: list[str], a: Attributes) -> Any:
        shape = tuple(int(size) for size in self.host[names[1]])
        return self.call(self.torch.broadcast_to, value(names[0]), shape)

    def Unsqueeze(self, value: Any, names: list[str], a: Attributes) -> Any:
        (axis,) = (int(axis) for axis in self.host[names[1]])
        return self.call(self.torch.unsqueeze, value(names[0]), axis)

    def Transpose(self, value: Any, names: list[str], a: Attributes) -> Any:
        return self.call(self.torch.permute, value(names[0]), tuple(a["perm"]))

    def Cast(self, value: Any, names: list[str], a: Attributes) -> Any:
        dtype = helper.tensor_dtype_to_np_dtype(a["to"])
        name = "float16" if self.half and dtype.kind == "f" else str(dtype).replace("bool_", "bool")
        return self.call(_to, value(names[0]), getattr(self.torch, name))

    def Gather(self, value: Any, names: list[str], a: Attributes) -> Any:
        assert a.get("axis", 0) == 0
        return self.call(self.functional.embedding, value(names[1]), value(names[0]))

    def GatherND(self, value: Any, names: list[str], a: Attributes) -> Any:
        assert a.get("batch_dims", 0) == 0
        parts = tuple(
            self.graph.get_attr(self._buffer(names[1], part))
            for part in range(self.host[names[1]].shape[-1])
        )
        return self.call(_index, value(names[0]), parts)

    def _buffer(self, name: str, part: int) -> str:
        found = f"index_{name}_{part}".replace(".", "_")
        self.root.register_buffer(
            found, self.tensor(np.ascontiguousarray(self.host[name][..., part]))
        )
        return found

    def _plain(self, function: Any, value: Any, names: list[str]) -> Any:
        return self.call(function, *(value(name) for name in names))


def _to(x: Any, dtype: Any) -> Any:
    return x.to(dtype)


def _index(x: Any, parts: Any) -> Any:
    return x[parts]


def set_precision(precision: str) -> None:
    """Whether f32 products may be rounded to tf32."""
    torch = import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True


def inputs_of(model: onnx.ModelProto, feeds: Feeds, half: bool) -> list[Any]:
    torch = import_module("torch")
    known = {item.name for item in model.graph.initializer}
    tensors = [
        torch.from_numpy(feeds[item.name]).cuda()
        for item in model.graph.input
        if item.name not in known
    ]
    return [item.half() if half and item.is_floating_point() else item for item in tensors]


def callables(
    module: Any, inputs: list[Any], compiled: bool
) -> dict[str, Callable[[], Callable[[], Any]]]:
    """One run, three ways, each prepared by a call; inputs and results stay on the GPU. Compiled
    code is replayed as a graph as well."""
    torch = import_module("torch")
    optimised = torch.compile(module)

    def eager() -> Any:
        with torch.inference_mode():
            return module(*inputs)

    def from_compiler() -> Any:
        with torch.inference_mode():
            return optimised(*inputs)

    found: dict[str, Callable[[], Callable[[], Any]]] = {
        EAGER: lambda: eager,
        GRAPH: lambda: captured(eager),
    }
    if compiled:
        found[COMPILED] = lambda: captured(from_compiler)
    return found


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    """Replays of ``run`` as a graph."""
    torch = import_module("torch")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph_result = run()

    def replay(kept: Any = graph_result) -> Any:
        graph.replay()
        return kept

    return replay
