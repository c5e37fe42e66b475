"""Element-by-element operators against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from rlx_edge.ir.errors import RlxError
from tests.ir.onnx.models import Array, Case, check, imported, model, node, op_names, value

RNG = np.random.default_rng(7)
X = RNG.standard_normal((3, 4)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
Y = RNG.standard_normal((4,)).astype(np.float32)
INTS = np.array([[5, -5, 7], [-7, 3, 9]], np.int64)
DIVISORS = np.array([3, -3, 2], np.int64)
BOOLS = np.array([[True, False], [False, False]])
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 0.5], np.float32)


def unary(op: str, x: Array, ops: tuple[str, ...] | None, opset: int = 17, **attrs: Any) -> Case:
    dtype = "bool" if x.dtype == bool else "i64" if x.dtype == np.int64 else "f32"
    dims = [f"d{axis}" for axis in range(x.ndim)]
    built = model([node(op, "x", "y", **attrs)], [value("x", dims, dtype)], ["y"], opset=opset)
    return Case(f"{op}-{opset}", built, {"x": x}, ops)


def binary(
    op: str, a: Array, b: Array, ops: tuple[str, ...], opset: int = 17, **attrs: Any
) -> Case:
    kinds = {np.dtype(bool): "bool", np.dtype(np.int64): "i64", np.dtype(np.float32): "f32"}
    infos = [
        value("a", ["n", *a.shape[1:]], kinds[a.dtype]),
        value("b", list(b.shape), kinds[b.dtype]),
    ]
    built = model([node(op, "a b", "y", **attrs)], infos, ["y"], opset=opset)
    return Case(f"{op}-{opset}", built, {"a": a, "b": b}, ops)


UNARY = [
    unary("Relu", X, ("relu",)),
    unary("Sigmoid", X, ("sigmoid",)),
    unary("Tanh", X, ("tanh",)),
    unary("Exp", X, ("exp",)),
    unary("Log", POSITIVE, ("log",)),
    unary("Sqrt", POSITIVE, ("sqrt",)),
    unary("Reciprocal", POSITIVE, ("reciprocal",)),
    unary("Erf", X, ("erf",)),
    unary("Abs", X, ("abs",)),
    unary("Neg", X, ("neg",)),
    unary("Floor", X, ("floor",)),
    unary("Ceil", X, ("ceil",)),
    unary("Round", np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32), ("round",)),
    unary("Sign", X, ("sign",)),
    unary("Sin", X, ("sin",)),
    unary("Cos", X, ("cos",)),
    unary("Tan", X, ("sin", "cos", "div")),
    unary("Softplus", X, ("softplus",)),
    unary("Softsign", X, ("abs", "add", "div")),
    unary("HardSwish", X, ("hard_swish",)),
    unary("Mish", X, ("softplus", "tanh", "mul"), opset=18),
    unary("Gelu", X, ("gelu",), opset=20),
    unary("Gelu", X, ("gelu",), opset=20, approximate="tanh"),
    unary("Not", BOOLS, ("not",)),
    unary("IsNaN", SPECIAL, ("is_nan",)),
    unary("IsInf", SPECIAL, ("equal", "equal", "or")),
    unary("IsInf", SPECIAL, ("equal",), detect_negative=0),
    unary("LeakyRelu", X, ("leaky_relu",)),
    unary("LeakyRelu", X, ("leaky_relu",), alpha=0.3),
    unary("Elu", X, ("elu",), alpha=0.7),
    unary("Selu", X, ("elu", "mul")),
    unary("HardSigmoid", X, ("hard_sigmoid",)),
    unary("HardSigmoid", X, ("hard_sigmoid",), alpha=0.1667, beta=0.4),
    unary("ThresholdedRelu", X, ("greater", "where"), alpha=0.5),
    unary("Celu", X, ("div", "exp", "sub", "mul", "max", "min", "add"), alpha=0.7),
    unary("Shrink", X, None, lambd=0.4, bias=0.1),
    unary("Clip", X, ("clip",), opset=6, min=-0.5, max=0.5),
    unary("Clip", X, ("max",), opset=6, min=0.25),
    unary("Identity", X, ()),
    unary("Dropout", X, ()),
    unary("Cast", X, ("cast",), to=TensorProto.INT64),
    unary("Cast", INTS, ("cast",), to=TensorProto.FLOAT),
    unary("Cast", X, (), to=TensorProto.FLOAT),
    unary("Cast", X, ("cast",), to=TensorProto.BOOL),
    unary("Sum", X, ()),
    unary("Swish", X, ("sigmoid", "mul"), opset=24),
    unary("Swish", X, ("mul", "sigmoid", "mul"), opset=24, alpha=0.5),
    unary("Cast", BOOLS, ("cast",), to=TensorProto.FLOAT),
]

BINARY = [
    binary("Add", X, Y, ("add",)),
    binary("Sub", X, Y, ("sub",)),
    binary("Mul", X, Y, ("mul",)),
    binary("Div", X, Y, ("div",)),
    binary("Div", INTS, DIVISORS, ("div",)),
    binary("Mod", INTS, DIVISORS, ("mod",)),
    binary("Mod", INTS, DIVISORS, ("div", "mul", "sub"), fmod=1),
    binary("Pow", POSITIVE, Y, ("pow",)),
    binary("Pow", X, np.array([2, 2, 3, 3], np.int64), ("cast", "pow")),
    binary("PRelu", X, Y, ("prelu",)),
    binary("Equal", INTS, DIVISORS, ("equal",)),
    binary("Less", X, Y, ("less",)),
    binary("LessOrEqual", X, Y, ("less_or_equal",)),
    binary("Greater", X, Y, ("greater",)),
    binary("GreaterOrEqual", X, Y, ("greater_or_equal",)),
    binary("And", BOOLS, BOOLS[0], ("and",)),
    binary("Or", BOOLS, BOOLS[0], ("or",)),
    binary("Xor", BOOLS, BOOLS[0], ("xor",)),
    binary("Max", X, Y, ("max",)),
    binary("Min", X, Y, ("min",)),
    binary("Sum", X, Y, ("add",)),
    binary("Mean", X, Y, ("add", "div")),
    binary("CastLike", X, INTS, ("cast",)),
]


@pytest.mark.parametrize("case", UNARY + BINARY, ids=lambda case: case.name)
def test_operator(case: Case) -> None:
    check(case)


def test_where_and_clip_with_inputs() -> None:
    nodes = [
        node("Greater", "x zero", "positive"),
        node("Where", "positive x zero", "kept"),
        node("Clip", "kept low high", "clipped"),
        node("Clip", "clipped - high", "upper"),
        node("Clip", "upper low", "y"),
    ]
    constants = {"zero": np.float32(0), "low": np.float32(0.25), "high": np.array(0.75, np.float32)}
    built = model(nodes, [value("x", ["n", 4])], ["y"], constants)
    module = check(Case("clip", built, {"x": X}, ("greater", "where", "clip", "min", "max")))
    splats = [op.attrs["value"] for op in module.function.ops if op.name == "tensor::splat"]
    assert splats == [0.0, 0.25, 0.75]


def test_variadic_operators_fold_from_the_left() -> None:
    infos = [value(name, [4]) for name in "abc"]
    built = model([node("Max", "a b c", "y")], infos, ["y"])
    feeds = {name: RNG.standard_normal(4).astype(np.float32) for name in "abc"}
    check(Case("max", built, feeds, ("max", "max")))


def test_old_broadcasting_aligns_at_an_axis() -> None:
    built = model(
        [node("Add", "x w", "y", broadcast=1, axis=1)],
        [value("x", ["n", 3, 4])],
        ["y"],
        {"w": np.arange(3, dtype=np.float32)},
        opset=6,
    )
    module = imported(built)
    assert op_names(module) == ["rlxc::reshape", "rlxc::add"] or op_names(module) == ["rlxc::add"]
    assert str(module.function.returns[0].type) == "f32[n, 3, 4]"
    add = module.function.ops[-1]
    assert str(add.operands[1].type) == "f32[3, 1]"


@pytest.mark.parametrize(
    ("built", "code", "message"),
    [
        (
            model([node("And", "x x", "y")], [value("x", [2])], ["y"]),
            "import.node",
            "operands must be bool",
        ),
        (
            model(
                [node("Add", "x w", "y")], [value("x", [2])], ["y"], {"w": np.zeros(3, np.float32)}
            ),
            "op.shape",
            "sizes 2 and 3 do not broadcast",
        ),
        (
            model(
                [node("Add", "x w", "y")], [value("x", [2])], ["y"], {"w": np.zeros(2, np.int64)}
            ),
            "op.type",
            "must have the element type",
        ),
        (
            model([node("Mod", "x x", "y")], [value("x", [2])], ["y"]),
            "import.attribute",
            "needs fmod = 1",
        ),
        (
            model([node("Mod", "x x", "y", fmod=1)], [value("x", [2])], ["y"]),
            "import.unsupported_op",
            "fmod = 1 on floats",
        ),
        (
            model([node("Shrink", "x", "y")], [value("x", [2], "i64")], ["y"]),
            "import.unsupported_op",
            "element type; found i64",
        ),
        (
            model(
                [node("IsInf", "x", "y", detect_negative=0, detect_positive=0)],
                [value("x", [2])],
                ["y"],
            ),
            "import.unsupported_op",
            "neither sign",
        ),
        (model([node("Sum", "", "y")], [value("x", [2])], ["y"]), "import.node", "at least one"),
        (model([node("Max", "", "y")], [value("x", [2])], ["y"]), "import.node", "at least one"),
        (model([node("Mean", "", "y")], [value("x", [2])], ["y"]), "import.node", "at least one"),
        (
            model([node("Cast", "x", "y")], [value("x", [2])], ["y"]),
            "import.attribute",
            "attribute 'to' is missing",
        ),
        (
            model([node("Cast", "x", "y", to=TensorProto.STRING)], [value("x", [2])], ["y"]),
            "import.data_type",
            "found string",
        ),
        (
            model([node("Add", "x", "y")], [value("x", [2])], ["y"]),
            "import.node",
            "input 1 is missing",
        ),
        (
            model([node("LeakyRelu", "x", "y", alpha=[1.0])], [value("x", [2])], ["y"]),
            "import.attribute",
            "'alpha' has the wrong type",
        ),
    ],
)
def test_mistakes_name_the_node(built: Any, code: str, message: str) -> None:
    with pytest.raises(RlxError, match=message) as caught:
        imported(built)
    assert caught.value.code == code
    assert "m.onnx: node 'make_y' (" in str(caught.value)
    assert "opset 17)" in str(caught.value)
