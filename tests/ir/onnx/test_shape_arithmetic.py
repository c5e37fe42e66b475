"""Shape arithmetic: what the importer knows about sizes is what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.errors import RlxError
from tests.ir.onnx.models import Array, environment, imported, model, node, op_names, value
from tests.oracles import Oracle

SIZES = {"n": 5, "h": 7, "w": 12}
X = np.zeros(tuple(SIZES.values()), np.float32)
SHAPE = node("Shape", "x", "s")
CONSTANTS = {
    "zero": np.int64(0),
    "one": np.int64(1),
    "two": np.int64(2),
    "minus": np.int64(-1),
    "first": np.array([0], np.int64),
    "mid": np.array([1], np.int64),
    "end": np.array([3], np.int64),
    "last": np.array([-1], np.int64),
    "pair": np.array([2, 0], np.int64),
    "vector": np.array([2, 3, 4], np.int64),
    "half": np.float32(0.5),
    "twice": np.float32(2.0),
    "three": np.float32(3.0),
    "big": np.int64(1000),
}


def numbers_of(built: Value, env: dict[str, int]) -> list[int]:
    """The elements of an output that the importer knows, for these sizes."""
    op = built.producer
    assert isinstance(op, Op)
    if op.name == "rlxc::reshape":
        return numbers_of(op.operands[0], env)
    if op.name == "tensor::splat":
        number = op.attrs["value"]
        assert isinstance(number, (int, float))
        return [int(number)] * max(1, built.type.size.value)
    assert op.name == "tensor::from_dims", op.name
    values = op.attrs["values"]
    assert isinstance(values, tuple)
    return [as_dim(item).evaluate(env) for item in values]


def compare(nodes: Sequence[onnx.NodeProto], x: Array = X, opset: int = 17) -> Value:
    """Import the graph that ends in ``y`` and compare its elements with onnxruntime's."""
    built = model(list(nodes), [value("x", list(SIZES))], ["y"], CONSTANTS, opset=opset)
    expected = Oracle(built.SerializeToString()).run({"x": x})["y"]
    module = imported(built)
    result = module.function.returns[0]
    env = environment(module.function, {"x": x})
    if result.producer is not None and result.producer.name == "tensor::const":
        stored = next(iter(module.constants.values()))
        found = np.frombuffer(stored.read(), expected.dtype).tolist()
    else:
        found = numbers_of(result, env)
    assert found == expected.flatten().tolist()
    assert tuple(dim.evaluate(env) for dim in result.type.shape) == expected.shape
    assert all(guard.holds(env) for guard in module.function.guards)
    return result


CHAINS: dict[str, list[onnx.NodeProto]] = {
    "shape": [node("Shape", "x", "y")],
    "size": [node("Size", "x", "y")],
    "gather scalar": [SHAPE, node("Gather", "s one", "y")],
    "gather negative": [SHAPE, node("Gather", "s minus", "y")],
    "gather vector": [SHAPE, node("Gather", "s pair", "y")],
    "slice": [SHAPE, node("Slice", "s mid end", "y")],
    "slice from the end": [SHAPE, node("Slice", "s last end", "y")],
    "concat": [SHAPE, node("Concat", "s vector s", "y", axis=0)],
    "add": [SHAPE, node("Add", "s vector", "y")],
    "sub": [SHAPE, node("Sub", "s one", "y")],
    "mul": [SHAPE, node("Mul", "s s", "y")],
    "div": [SHAPE, node("Div", "s vector", "y")],
    "mod": [SHAPE, node("Mod", "s vector", "y")],
    "neg": [SHAPE, node("Neg", "s", "y")],
    "abs": [SHAPE, node("Neg", "s", "t"), node("Abs", "t", "y")],
    "max": [SHAPE, node("Max", "s vector one", "y")],
    "min": [SHAPE, node("Min", "s big", "y")],
    "reduce prod": [SHAPE, node("ReduceProd", "s", "y", keepdims=0)],
    "reduce sum": [SHAPE, node("ReduceSum", "s", "y")],
    "reduce max": [SHAPE, node("Cast", "s", "t", to=6), node("ReduceMax", "t", "y")],
    "unsqueeze squeeze": [
        SHAPE,
        node("Gather", "s zero", "a"),
        node("Unsqueeze", "a first", "b"),
        node("Concat", "b b", "c", axis=0),
        node("Unsqueeze", "c first", "d"),
        node("Squeeze", "d first", "y"),
    ],
    "reshape": [SHAPE, node("Concat", "s vector", "t", axis=0), node("Reshape", "t pair2", "y")],
    "split": [SHAPE, node("Split", "s first2", "a b", axis=0), node("Mul", "a b", "y")],
    "transpose": [
        SHAPE,
        node("Unsqueeze", "s first", "a"),
        node("Transpose", "a", "b", perm=[1, 0]),
        node("Flatten", "b", "y", axis=0),
    ],
    "cast and floor": [
        SHAPE,
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Mul", "f half", "g"),
        node("Floor", "g", "h"),
        node("Cast", "h", "y", to=TensorProto.INT64),
    ],
    "cast and ceil": [
        SHAPE,
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Div", "f twice", "g"),
        node("Ceil", "g", "h"),
        node("Cast", "h", "y", to=TensorProto.INT64),
    ],
    "cast truncates": [
        SHAPE,
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Div", "f twice", "g"),
        node("Cast", "g", "y", to=TensorProto.INT64),
    ],
    "ratio of sizes": [
        SHAPE,
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Mul", "f twice", "g"),
        node("Div", "g f", "h"),
        node("Cast", "h", "y", to=TensorProto.INT64),
    ],
    "where on a bound": [
        SHAPE,
        node("Less", "s zero", "c"),
        node("Where", "c vector s", "y"),
    ],
    "equal to minus one": [SHAPE, node("Equal", "s minus", "c"), node("Where", "c one s", "y")],
    "and or not": [
        SHAPE,
        node("Greater", "s zero", "a"),
        node("Not", "a", "b"),
        node("Or", "a b", "c"),
        node("And", "c a", "d"),
        node("Xor", "d b", "e"),
        node("Where", "e s vector", "y"),
    ],
    "range": [node("Range", "zero big two100", "y")],
    "constant of shape": [
        SHAPE,
        node("Shape", "s", "t"),
        node("ConstantOfShape", "t", "u"),
        node("Cast", "u", "v", to=TensorProto.INT64),
        node("Add", "v s", "y"),
    ],
    "expand": [SHAPE, node("Gather", "s zero", "a"), node("Expand", "a end", "y")],
    "tile": [SHAPE, node("Tile", "s pair1", "y")],
    "non-zero": [node("NonZero", "vector", "y")],
    "cumulative sum": [SHAPE, node("CumSum", "s zero", "y")],
    "pow": [SHAPE, node("Pow", "s two", "y")],
    "clip": [SHAPE, node("Clip", "s one big", "y")],
    "identity": [SHAPE, node("Identity", "s", "y")],
}
FLOAT = node("Cast", "s", "f", to=TensorProto.FLOAT)
INTEGER = node("Cast", "z", "y", to=TensorProto.INT64)
CHAINS |= {
    "float add": [SHAPE, FLOAT, node("Add", "f half", "g"), node("Ceil", "g", "z"), INTEGER],
    "float sub": [SHAPE, FLOAT, node("Sub", "f half", "g"), node("Floor", "g", "z"), INTEGER],
    "float max": [SHAPE, FLOAT, node("Max", "f twice", "z"), INTEGER],
    "float min": [SHAPE, FLOAT, node("Min", "f half", "g"), node("Ceil", "g", "z"), INTEGER],
    "float neg": [
        SHAPE,
        FLOAT,
        node("Neg", "f", "g"),
        node("Abs", "g", "h"),
        node("Round", "h", "z"),
        INTEGER,
    ],
    "float constants": [
        node("Mul", "half three", "a"),
        node("Add", "a twice", "b"),
        node("Sub", "b half", "c"),
        node("Div", "c tenth", "d"),
        node("Sqrt", "d", "e"),
        node("Ceil", "e", "g"),
        node("Floor", "e", "h"),
        node("Neg", "h", "i"),
        node("Abs", "i", "j"),
        node("Round", "d", "k"),
        node("Add", "g j", "l"),
        node("Add", "l k", "z"),
        INTEGER,
    ],
    "double": [
        node("Cast", "three", "a", to=TensorProto.DOUBLE),
        node("Cast", "tenth", "b", to=TensorProto.DOUBLE),
        node("Div", "a b", "z"),
        INTEGER,
    ],
    "float comparison": [
        SHAPE,
        FLOAT,
        node("Greater", "f half", "c"),
        node("Where", "c s vector", "y"),
    ],
    "constant comparison": [
        node("Less", "half three", "a"),
        node("LessOrEqual", "three half", "b"),
        node("GreaterOrEqual", "three three", "c"),
        node("Equal", "half half", "d"),
        node("And", "a c", "e"),
        node("Equal", "e d", "g"),
        node("Or", "b g", "h"),
        node("Where", "h two one", "y"),
    ],
    "divided by sizes": [
        SHAPE,
        FLOAT,
        node("Mul", "f twice", "g"),
        node("Div", "f g", "h"),
        node("Mul", "h twice", "z"),
        INTEGER,
    ],
    "bool as number": [
        SHAPE,
        node("Greater", "s zero", "c"),
        node("Cast", "c", "d", to=TensorProto.INT64),
        node("Cast", "d", "e", to=TensorProto.BOOL),
        node("Cast", "e", "y", to=TensorProto.INT64),
    ],
    "float to bool": [
        node("Cast", "half", "c", to=TensorProto.BOOL),
        node("Cast", "c", "y", to=TensorProto.INT64),
    ],
    "wrapping cast": [
        node("Cast", "huge", "a", to=TensorProto.INT32),
        node("Cast", "a", "b", to=TensorProto.UINT8),
        node("Cast", "b", "y", to=TensorProto.INT64),
    ],
    "negative division": [
        node("Div", "minus7 two", "a"),
        node("Mod", "minus7 two", "b"),
        node("Sub", "a b", "y"),
    ],
    "exact division": [SHAPE, node("Mul", "s minus", "a"), node("Div", "a s", "y")],
    "bounded clip": [SHAPE, node("Clip", "s - two", "y")],
    "minimum of sizes": [SHAPE, node("ReduceMin", "s", "y", keepdims=0)],
    "rows and columns": [
        SHAPE,
        node("Unsqueeze", "s first", "row"),
        node("Concat", "row row", "both", axis=0),
        node("ReduceSum", "both mid", "sums", keepdims=0),
        node("Gather", "both one", "second", axis=0),
        node("Slice", "both first mid mid", "column"),
        node("Squeeze", "column", "flat"),
        node("Concat", "sums second flat", "y", axis=0),
    ],
}
CONSTANTS |= {
    "tenth": np.float32(0.1),
    "huge": np.int64(2**40 + 300),
    "minus7": np.int64(-7),
    "pair2": np.array([2, 3], np.int64),
    "first2": np.array([1, 2], np.int64),
    "pair1": np.array([2], np.int64),
    "two100": np.int64(100),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chain(name: str) -> None:
    compare(CHAINS[name])


def test_part_of_a_shape() -> None:
    for start, end in ((0, 2), (-2, 3), (1, -1)):
        compare([node("Shape", "x", "y", start=start, end=end)], opset=17)


def test_what_is_known_of_a_chain_is_an_expression() -> None:
    result = compare(CHAINS["cast and ceil"])
    assert result.producer is not None
    assert str(result.producer.attrs["values"][0]) == "(n + 1) // 2"  # type: ignore[index]


INTEGER_STEPS = ["Add", "Sub", "Mul", "Max", "Min"]


@st.composite
def chains(draw: st.DrawFn) -> list[onnx.NodeProto]:
    """A random chain of operators over the shape, vectors and scalars."""
    nodes = [SHAPE]
    known = ["s", "vector", "one", "two"]
    for step in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from([*INTEGER_STEPS, "Div", "Mod", "Where", "Cast"]))
        name = f"t{step}"
        a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        match op:
            case "Div" | "Mod":
                nodes.append(node(op, f"s {draw(st.sampled_from(['vector', 'two', 's']))}", name))
            case "Where":
                relation = draw(st.sampled_from(["Less", "Greater", "Equal"]))
                nodes.append(node(relation, "s zero", f"c{step}"))
                nodes.append(node("Where", f"c{step} {a} {b}", name))
            case "Cast":
                nodes.append(node("Cast", a, f"f{step}", to=TensorProto.FLOAT))
                nodes.append(node("Mul", f"f{step} half", f"g{step}"))
                nodes.append(node("Floor", f"g{step}", f"h{step}"))
                nodes.append(node("Cast", f"h{step}", name, to=TensorProto.INT64))
            case _:
                nodes.append(node(op, f"{a} {b}", name))
        known.append(name)
    nodes.append(node("Identity", known[-1], "y"))
    return nodes


@settings(max_examples=60)
@given(chains(), st.tuples(*(st.integers(1, 40) for _ in range(3))))
def test_random_chains(nodes: list[onnx.NodeProto], sizes: tuple[int, ...]) -> None:
    compare(nodes, np.zeros(sizes, np.float32))


def test_a_reshape_by_shape_arithmetic_leaves_no_shape_operations() -> None:
    nodes = [
        SHAPE,
        node("Gather", "s zero", "n"),
        node("Gather", "s two", "w"),
        node("Unsqueeze", "n first", "n1"),
        node("Mul", "w two", "w2"),
        node("Unsqueeze", "w2 first", "w1"),
        node("Concat", "n1 w1 last", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    built = model(nodes, [value("x", ["n", 6, "w"])], ["y"], CONSTANTS)
    module = imported(built)
    assert op_names(module) == ["rlxc::reshape"]
    assert str(module.function.returns[0].type) == "f32[n, 2 * w, 3]"
    assert module.function.guards == []


def test_a_reshape_that_need_not_fit_is_guarded() -> None:
    built = model(
        [node("Reshape", "x t", "y")],
        [value("x", ["n", "w"])],
        ["y"],
        {"t": np.array([-1, 8], np.int64)},
    )
    module = imported(built)
    assert [str(guard) for guard in module.function.guards] == ["(n * w) % 8 == 0"]


def test_sizes_as_floats_become_tensors_where_they_are_used() -> None:
    nodes = [
        SHAPE,
        node("Gather", "s minus", "w"),
        node("Cast", "w", "f", to=TensorProto.FLOAT),
        node("Mul", "f half", "g"),
        node("Div", "x g", "y"),
    ]
    module = imported(model(nodes, [value("x", list(SIZES))], ["y"], CONSTANTS))
    names = [op.name for op in module.function.ops]
    assert names == ["tensor::from_dims", "rlxc::cast", "tensor::splat", "rlxc::div", "rlxc::div"]
    assert module.function.ops[0].attrs["values"] == (as_dim("w"),)


def test_data_in_an_integer_input_is_not_part_of_the_plan() -> None:
    """Token ids of a fixed small shape are data, although their elements could be symbols."""
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    nodes = [node("Add", "ids one", "next"), node("Gather", "table next", "y")]
    built = model(nodes, [value("ids", [1, 4], "i64")], ["y"], CONSTANTS | {"table": table})
    module = imported(built)
    assert op_names(module) == ["rlxc::add", "rlxc::gather"]
    assert module.function.bindings == []


def test_an_integer_input_as_a_shape_is_bound() -> None:
    nodes = [node("Mul", "shape two", "t"), node("Expand", "x t", "y")]
    built = model(nodes, [value("x", [1, 1]), value("shape", [2], "i64")], ["y"], CONSTANTS)
    module = imported(built)
    assert [(b.symbol, b.parameter, b.position) for b in module.function.bindings] == [
        ("shape_0", "shape", 0),
        ("shape_1", "shape", 1),
    ]
    assert str(module.function.returns[0].type) == "f32[2 * shape_0, 2 * shape_1]"


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ([node("NonZero", "x", "y")], "import.data_dependent"),
    ],
)
def test_what_needs_data_says_so(nodes: list[Any], code: str) -> None:
    head = [SHAPE, node("Gather", "s zero", "n0")]
    built = model([*head, *nodes], [value("x", list(SIZES))], ["y"], CONSTANTS)
    with pytest.raises(RlxError, match="known at import") as caught:
        imported(built)
    assert caught.value.code == code


def test_dims_are_dims() -> None:
    result = compare(CHAINS["mul"])
    assert result.producer is not None
    assert all(isinstance(item, Dim) for item in result.producer.attrs["values"])  # type: ignore[union-attr]
