"""Operators run by the interpreter on numpy arrays, and the ONNX nodes they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Op, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.interpreter import evaluate_op
from rlx_edge.ir.opdef import Example
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import BY_ONNX, DTYPES, TensorType
from tests.numpy_expressions import NUMPY
from tests.oracles import Oracle

Array = npt.NDArray[Any]
Attrs = Mapping[str, Attribute]
SIZES = {"n": 5}
"""What the symbols of examples stand for."""


def to_tensor(array: Array) -> Tensor:
    dtype = BY_ONNX[helper.np_dtype_to_tensor_dtype(array.dtype)]
    return Tensor(dtype, array.shape, np.ascontiguousarray(array).tobytes())


def to_array(tensor: Tensor) -> Array:
    return np.frombuffer(tensor.tobytes(), NUMPY[tensor.dtype.name]).reshape(tensor.shape)


def build(
    name: str, types: Sequence[TensorType], attrs: Attrs, result: TensorType | None = None
) -> Op:
    """One op on parameters of these types."""
    params = [Value(f"x{slot}", item) for slot, item in enumerate(types)]
    value = Builder(Function("f", params, [], [])).op(name, params, attrs, type=result)
    assert value.producer is not None
    return value.producer


def run(name: str, arrays: Sequence[Array], attrs: Attrs | None = None) -> Array:
    """The interpreter's result of one op on concrete arrays."""
    tensors = [to_tensor(array) for array in arrays]
    types = [TensorType(item.dtype, tuple(map(_constant, item.shape))) for item in tensors]
    return to_array(evaluate_op(build(name, types, attrs or {}), tensors, {}))


def _constant(size: int) -> Dim:
    from rlx_edge.ir.dims import as_dim

    return as_dim(size)


def run_example(name: str, example: Example, arrays: Sequence[Array]) -> Array:
    """The interpreter's result of an example with its symbolic types."""
    op = build(name, example.operands, example.attrs)
    result = evaluate_op(op, [to_tensor(array) for array in arrays], SIZES)
    assert result.dtype is op.result.type.dtype
    assert result.shape == tuple(dim.evaluate(SIZES) for dim in op.result.type.shape)
    return to_array(result)


def sizes(dims: object) -> list[int]:
    """A ``dims`` attribute in integers."""
    assert isinstance(dims, tuple)
    return [item.evaluate(SIZES) if isinstance(item, Dim) else int(item) for item in dims]


def sample(name: str, example: Example, seed: int) -> list[Array]:
    """Operands of an example: within what the operator is defined for, both signs, some zeros."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for slot, type in enumerate(example.operands):
        shape = [dim.evaluate(SIZES) for dim in type.shape]
        if type.dtype.kind == "bool":
            arrays.append(np.asarray(rng.random(shape) < 0.5))
        elif type.dtype.is_float:
            arrays.append(np.asarray(rng.normal(0, 2, shape), NUMPY[type.dtype.name]))
        elif name.startswith("rlxc::gather") and slot == 1:
            axis = example.attrs["axis"]
            assert isinstance(axis, int)
            extent = example.operands[0].shape[axis].evaluate(SIZES)
            arrays.append(np.asarray(rng.integers(-extent, extent, shape), np.int64))
        else:
            low = 1 if name in ("rlxc::div", "rlxc::mod") and slot == 1 else -9
            low = 0 if type.dtype.kind == "uint" and low < 0 else low
            arrays.append(np.asarray(rng.integers(low, 10, shape), NUMPY[type.dtype.name]))
    if name in ("rlxc::log", "rlxc::sqrt") or (name == "rlxc::batch_norm"):
        arrays[-1] = np.abs(arrays[-1]) + np.asarray(0.1, arrays[-1].dtype)
    if name == "rlxc::pow":
        if arrays[0].dtype.kind == "f":
            arrays[0] = np.abs(arrays[0]) + np.asarray(0.1, arrays[0].dtype)
        if arrays[0].dtype.kind == "i":
            arrays[1] = np.abs(arrays[1]) % 8
    if name == "rlxc::range":
        arrays[1] = np.where(arrays[1] == 0, 3, arrays[1]).astype(arrays[1].dtype)
    if name == "rlxc::clip":
        arrays[1] = np.asarray(-0.5, np.float32)
    return arrays


# ---- onnxruntime -----------------------------------------------------------------------------

Node = Callable[[Attrs], tuple[str, dict[str, Any], list[Array | None]]]
"""ONNX operator, attributes, and constant inputs after the operands (None: not given)."""


def _plain(op: str, **fixed: Any) -> Node:
    return lambda attrs: (op, {**fixed, **attrs}, [])


def _ints(values: Sequence[int]) -> Array:
    return np.array(values, np.int64)


def _window(op: str) -> Node:
    names = {
        "stride": "strides", "padding": "pads", "dilation": "dilations", "kernel": "kernel_shape",
        "groups": "group",
    }  # fmt: skip
    return lambda attrs: (
        op,
        {names.get(name, name): _plainly(value) for name, value in attrs.items()},
        [],
    )


def _plainly(value: object) -> Any:
    return int(value) if isinstance(value, bool) else value


def _reduce(op: str) -> Node:
    return lambda attrs: (op, {"axes": attrs["axes"], "keepdims": int(bool(attrs["keepdims"]))}, [])


def _reduce_sum(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    axes = attrs["axes"]
    assert isinstance(axes, tuple)
    return "ReduceSum", {"keepdims": int(bool(attrs["keepdims"]))}, [_ints(axes)]  # type: ignore[arg-type]


def _slice(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    starts, ends, steps = sizes(attrs["starts"]), sizes(attrs["ends"]), sizes(attrs["steps"])
    for position, step in enumerate(steps):
        if step < 0:
            start, end = starts[position], ends[position]
            starts[position] = end - 1
            ends[position] = start - 1 if start else -(1 << 60)
    return "Slice", {}, [_ints(starts), _ints(ends), _ints(sizes(attrs["axes"])), _ints(steps)]


def _pad(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    return "Pad", {"mode": attrs["mode"]}, [_ints(sizes(attrs["pads"])), np.float32(attrs["value"])]  # type: ignore[arg-type,list-item]


def _resize(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    names = ("mode", "coordinate_transformation_mode", "nearest_mode")
    chosen = {name: attrs[name] for name in names}
    scales = attrs["scales"]
    if scales and isinstance(scales, tuple):
        pairs = zip(scales[::2], scales[1::2], strict=True)
        return "Resize", chosen, [None, np.array([a / b for a, b in pairs], np.float32)]  # type: ignore[operator]
    return "Resize", chosen, [None, None, _ints(sizes(attrs["sizes"]))]


def _resize_cubic(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    chosen = {
        "mode": "cubic",
        "coordinate_transformation_mode": attrs["coordinate_transformation_mode"],
        "cubic_coeff_a": attrs["coefficient"],
        "exclude_outside": int(bool(attrs["exclude_outside"])),
    }
    return "Resize", chosen, [None, None, _ints(sizes(attrs["sizes"]))]


def _grid_sample(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    return "GridSample", {name: _plainly(value) for name, value in attrs.items()}, []


def _range(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    """The limit is the third operand, put in by ``reference``."""
    return "Range", {}, []


def _cast(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    dtype = attrs["dtype"]
    return "Cast", {"to": DTYPES[str(dtype)].onnx}, []


def _attention(attrs: Attrs) -> tuple[str, dict[str, Any], list[Array | None]]:
    """Without rows that have no key, of which ONNX says something else."""
    return "Attention", {"scale": attrs["scale"], "is_causal": int(bool(attrs["causal"]))}, []


NODES: dict[str, Node] = {
    "exp": _plain("Exp"), "log": _plain("Log"), "sqrt": _plain("Sqrt"),
    "reciprocal": _plain("Reciprocal"), "erf": _plain("Erf"), "abs": _plain("Abs"),
    "neg": _plain("Neg"), "floor": _plain("Floor"), "ceil": _plain("Ceil"),
    "round": _plain("Round"), "sign": _plain("Sign"), "sin": _plain("Sin"), "cos": _plain("Cos"),
    "asin": _plain("Asin"), "acos": _plain("Acos"), "atan": _plain("Atan"),
    "sinh": _plain("Sinh"), "cosh": _plain("Cosh"), "asinh": _plain("Asinh"),
    "acosh": _plain("Acosh"), "atanh": _plain("Atanh"),
    "relu": _plain("Relu"), "leaky_relu": _plain("LeakyRelu"), "elu": _plain("Elu"),
    "hard_sigmoid": _plain("HardSigmoid"), "hard_swish": _plain("HardSwish"),
    "sigmoid": _plain("Sigmoid"), "tanh": _plain("Tanh"), "softplus": _plain("Softplus"),
    "gelu": _plain("Gelu"), "prelu": _plain("PRelu"),
    "add": _plain("Add"), "sub": _plain("Sub"), "mul": _plain("Mul"), "div": _plain("Div"),
    "pow": _plain("Pow"), "mod": _plain("Mod"), "min": _plain("Min"), "max": _plain("Max"),
    "equal": _plain("Equal"), "less": _plain("Less"), "less_or_equal": _plain("LessOrEqual"),
    "greater": _plain("Greater"), "greater_or_equal": _plain("GreaterOrEqual"),
    "and": _plain("And"), "or": _plain("Or"), "xor": _plain("Xor"), "not": _plain("Not"),
    "is_nan": _plain("IsNaN"), "where": _plain("Where"), "clip": _plain("Clip"), "cast": _cast,
    "conv2d": _window("Conv"), "conv_transpose2d": _window("ConvTranspose"),
    "matmul": _plain("MatMul"), "batch_norm": _plain("BatchNormalization"),
    "softmax": _plain("Softmax"), "log_softmax": _plain("LogSoftmax"),
    "layer_norm": _plain("LayerNormalization"), "attention": _attention,
    "max_pool2d": _window("MaxPool"), "average_pool2d": _window("AveragePool"),
    "global_average_pool": _plain("GlobalAveragePool"), "global_max_pool": _plain("GlobalMaxPool"),
    "reduce_sum": _reduce_sum, "reduce_mean": _reduce("ReduceMean"),
    "reduce_max": _reduce("ReduceMax"), "reduce_min": _reduce("ReduceMin"),
    "reduce_prod": _reduce("ReduceProd"), "reduce_l2": _reduce("ReduceL2"),
    "reshape": lambda attrs: ("Reshape", {}, [_ints(sizes(attrs["shape"]))]),
    "transpose": _plain("Transpose"), "concat": _plain("Concat"), "slice": _slice, "pad": _pad,
    "expand": lambda attrs: ("Expand", {}, [_ints(sizes(attrs["shape"]))]),
    "tile": lambda attrs: ("Tile", {}, [_ints(sizes(attrs["repeats"]))]),
    "convert_layout": _plain("Identity"), "copy": _plain("Identity"), "rows": _plain("Identity"),
    "gather": _plain("Gather"), "gather_elements": _plain("GatherElements"), "resize": _resize,
    "resize_cubic": _resize_cubic, "range": _range, "grid_sample": _grid_sample,
}  # fmt: skip
"""``rlxc`` operator → the ONNX node of the same meaning."""
OPSETS = {"attention": 23, "gelu": 20, "grid_sample": 20, "average_pool2d": 19}
"""Operator sets other than 17."""


def reference(name: str, attrs: Attrs, arrays: Sequence[Array]) -> Array:
    """onnxruntime's result of the operator of the same meaning."""
    short = name.removeprefix("rlxc::")
    op, node_attrs, constants = NODES[short](attrs)
    if op == "Range":
        (size,) = sizes(attrs["size"])
        start, delta = (array.dtype.type(array) for array in arrays)
        middle = start + delta * arrays[0].dtype.type(size - 1)
        half = delta / delta.dtype.type(2) if delta.dtype.kind == "f" else np.sign(delta)
        arrays = [arrays[0], np.asarray(middle + half, arrays[0].dtype), arrays[1]]
    if op == "Attention":  # keys are rows there, and a bias has all rows
        q, keys, v, *bias = arrays
        if attrs.get("rows_first"):
            q, v = q.swapaxes(1, 2), v.swapaxes(1, 2)
        rows = (*q.shape[:1], 1, q.shape[2], keys.shape[3])
        arrays = [q, keys.swapaxes(2, 3), v, *(np.broadcast_to(item, rows) for item in bias)]
    inputs = [f"x{slot}" for slot in range(len(arrays))]
    initializers = []
    for position, constant in enumerate(constants):
        if constant is None:
            inputs.append("")
            continue
        inputs.append(f"c{position}")
        initializers.append(numpy_helper.from_array(np.asarray(constant), f"c{position}"))
    outputs = ["y"]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, **node_attrs)],
        "reference",
        [
            helper.make_tensor_value_info(
                f"x{slot}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for slot, array in enumerate(arrays)
        ],
        [onnx.ValueInfoProto(name="y")],
        initializers,
    )
    opset = OPSETS.get(short, 17)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {f"x{slot}": array for slot, array in enumerate(arrays)}
    found = np.asarray(Oracle(model.SerializeToString()).run(feeds)["y"])
    return found.swapaxes(1, 2) if attrs.get("rows_first") else found
