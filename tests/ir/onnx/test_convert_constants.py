"""Constants in all forms, and what becomes of weights of every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import ModelError
from tests.ir.onnx.models import Array, Case, check, imported, model, node, op_names, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LITERALS: list[tuple[dict[str, Any], int]] = [
    ({"value_float": 2.5}, 12),
    ({"value_floats": [1.0, 2.0, 3.0]}, 12),
    ({"value": numpy_helper.from_array(np.float32(3.0), "t")}, 9),
    ({"value": numpy_helper.from_array(X, "t")}, 9),
]


@pytest.mark.parametrize(("attrs", "opset"), LITERALS)
def test_float_constants(attrs: dict[str, Any], opset: int) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **attrs), node("Mul", "x c", "y")]
    check(
        Case(
            "constant", model(nodes, [value("x", ["n", 3])], ["y"], opset=opset), {"x": X}, ("mul",)
        )
    )


def test_integer_constants_are_shapes() -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_ints=[3, -1]),
        node("Reshape", "x a", "r"),
        helper.make_node("Constant", [], ["b"], value_int=1),
        node("Gather", "r b", "y", axis=0),
    ]
    check(Case("ints", model(nodes, [value("x", ["n", 3])], ["y"]), {"x": X}, None))


def test_constants_of_other_kinds_are_refused() -> None:
    for attrs in ({"value_string": "text"}, {"value_strings": ["a"]}):
        nodes = [helper.make_node("Constant", [], ["c"], **attrs), node("Mul", "x c", "y")]
        with pytest.raises(ModelError, match="not a dense tensor of numbers") as caught:
            imported(model(nodes, [value("x", [3])], ["y"]))
        assert caught.value.code == "import.unsupported_op"
    broken = helper.make_node("Constant", [], ["c"])
    broken.attribute.add(name="value_ints", type=onnx.AttributeProto.INT, i=3)
    with pytest.raises(ModelError, match="wrong type"):
        imported(model([broken, node("Mul", "x c", "y")], [value("x", [3])], ["y"]))


def constant_model(weights: onnx.TensorProto) -> onnx.ModelProto:
    built = model([node("Identity", "w", "y")], [value("x", [2])], ["y"])
    built.graph.initializer.append(weights)
    return built


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
)
def test_weights_keep_their_type_and_bytes(dtype: str) -> None:
    weights = np.array([0, 1, 2, 3, 1, 0], np.dtype(dtype))
    module = imported(constant_model(numpy_helper.from_array(weights, "w")))
    [constant] = module.constants.values()
    assert constant.read() == weights.tobytes()
    assert constant.type.dtype.struct == np.dtype(dtype).char.replace("l", "q").replace("L", "Q")


def test_brain_floats_are_stored_as_they_are() -> None:
    data = b"\x80\x3f\x20\xc0"
    module = imported(
        constant_model(helper.make_tensor("w", TensorProto.BFLOAT16, [2], data, raw=True))
    )
    assert str(module.function.returns[0].type) == "bf16[2]"
    assert next(iter(module.constants.values())).read() == data
    one = imported(
        constant_model(helper.make_tensor("w", TensorProto.BFLOAT16, [1], data[2:], raw=True))
    )
    assert splats(one) == [-2.5]


def splats(module: Module) -> list[object]:
    return [op.attrs["value"] for op in module.function.ops if op.name == "tensor::splat"]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (np.float32(0.1), 0.10000000149011612),
        (np.array([[7]], np.int64), 7),
        (np.array([True]), True),
        (np.array([-0.0], np.float64), -0.0),
    ],
)
def test_one_element_is_a_splat(weights: Array, expected: object) -> None:
    module = imported(constant_model(numpy_helper.from_array(np.asarray(weights), "w")))
    [found] = splats(module)
    assert repr(found) == repr(expected)
    assert module.constants == {}
    assert module.function.returns[0].type.static_shape == np.shape(weights)


def test_element_types_without_a_place_in_the_ir_are_refused() -> None:
    for tensor in (
        helper.make_tensor("w", TensorProto.STRING, [1], [b"a"]),
        helper.make_tensor("w", TensorProto.COMPLEX64, [1], bytes(8), raw=True),
        helper.make_tensor("w", TensorProto.INT4, [2], b"\x21", raw=True),
    ):
        with pytest.raises(ModelError, match="element type is not supported") as caught:
            imported(constant_model(tensor))
        assert caught.value.code == "import.data_type"


def test_half_precision_arithmetic_names_the_node() -> None:
    weights = numpy_helper.from_array(np.ones(2, np.float16), "w")
    built = constant_model(weights)
    built.graph.node[0].CopyFrom(node("Exp", "w", "y"))
    with pytest.raises(Exception, match=r"m.onnx: node 'make_y' \(Exp, opset 17\).*f16"):
        imported(built)


def test_equal_constants_are_shared() -> None:
    nodes = [
        node("Mul", "x a", "p"),
        node("Mul", "p b", "q"),
        node("Add", "q c", "r"),
        node("Add", "r d", "y"),
    ]
    constants = {"a": X, "b": X.copy(), "c": np.float32(2), "d": np.float32(2)}
    module = imported(model(nodes, [value("x", ["n", 3])], ["y"], constants))
    assert op_names(module) == ["rlxc::mul", "rlxc::mul", "rlxc::add", "rlxc::add"]
    assert len(module.function.ops) == 6
    assert len(module.constants) == 1


def test_fractions_of_sizes_as_tensors() -> None:
    """Content that is a tensor after all: fractions with different denominators, rows of sizes."""
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Mul", "f weights", "g"),
        node("Unsqueeze", "g zero", "h"),
        node("Mul", "x h", "y"),
    ]
    for weights in ([0.5, 0.25], [0.5, 0.3]):
        constants = {"weights": np.array(weights, np.float32), "zero": np.array([0], np.int64)}
        built = model(nodes, [value("x", ["n", 2])], ["y"], constants)
        check(Case("mixed", built, {"x": np.ones((3, 2), np.float32)}))


def test_conditions_on_sizes_as_tensors_are_decided() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Equal", "s one", "c"),
        node("Where", "c zeros x", "y"),
    ]
    constants = {"one": np.int64(1), "zeros": np.zeros((1, 2), np.float32)}
    built = model(nodes, [value("x", ["n", "m"])], ["y"], constants)
    module = check(Case("decided", built, {"x": np.ones((3, 2), np.float32)}))
    assert "n != 1" in [str(guard) for guard in module.function.guards]


def test_sizes_of_other_integer_types() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "i", to=TensorProto.INT32),
        node("Cast", "s", "u", to=TensorProto.UINT8),
    ]
    built = model(nodes, [value("x", ["n", 2])], ["i", "u", "s"])
    module = check(Case("types", built, {"x": np.ones((3, 2), np.float32)}, ("cast",)))
    assert [str(item.type) for item in module.function.returns] == ["i32[2]", "u8[2]", "i64[2]"]
