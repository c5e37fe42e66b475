"""Parameters, value symbols, branches, functions, sizes that must agree, and whole models."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rlx_edge.ir.errors import InputError, ModelError, RlxError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.onnx.convert import CONVERTERS, FOLDED_ONLY, support_table
from rlx_edge.ir.onnx.importer import dim_names, import_model, value_inputs
from rlx_edge.ir.onnx.reader import open_model
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.verifier import verify
from tests.ir.onnx.models import Case, check, imported, model, node, op_names, records, value
from tests.ir.onnx.test_wire import varint

RELU = [node("Relu", "x", "y")]
ZERO = {"zero": np.int64(0), "rate": np.int64(16000), "one": np.int64(1)}


def graph(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=output)])


# ---- parameters ------------------------------------------------------------------------------


def test_dims_become_readable_symbols() -> None:
    infos = [
        value("x", ["p2o.DynamicDimension.0", 3, "?", None, "batch size"]),
        value("max", ["p2o.DynamicDimension.0", "max", "batch.size"]),
    ]
    built = model([node("Relu", "x", "y"), node("Relu", "max", "z")], infos, ["y", "z"])
    function = imported(built).function
    assert [str(param.type) for param in function.params] == [
        "f32[d0, 3, x_d2, x_d3, batch_size]",
        "f32[d0, max_1, batch_size_1]",
    ]
    assert dim_names(records(built)) == {
        "d0": "p2o.DynamicDimension.0",
        "batch_size": "batch size",
        "max_1": "max",
        "batch_size_1": "batch.size",
    }


def test_public_names_are_kept() -> None:
    built = model([node("Relu", "in/x:0", "out/y:0")], [value("in/x:0", [2])], ["out/y:0"])
    function = imported(built).function
    assert function.params[0].name == "in/x:0"
    assert function.output_names == ["out/y:0"]


def test_inputs_with_initializers_are_constants() -> None:
    built = model(
        [node("Mul", "x w", "y")],
        [value("x", ["n", 2]), value("w", [2])],
        ["y"],
        {"w": np.array([1, 2], np.float32)},
    )
    assert [param.name for param in imported(built).function.params] == ["x"]


def test_outputs_may_be_inputs_constants_and_repeated() -> None:
    built = model(
        [node("Identity", "x", "same"), node("Identity", "w", "weight"), node("Relu", "x", "y")],
        [value("x", ["n"])],
        ["same", "weight", "y"],
        {"w": np.array([1, 2], np.float32)},
    )
    function = imported(built).function
    assert function.returns[0] is function.params[0]
    assert function.output_names == ["same", "weight", "y"]


def test_nodes_without_effect_are_not_even_looked_at() -> None:
    built = model(
        [node("Unknown", "x", "t"), node("Relu", "t2", "u"), *RELU], [value("x", [2])], ["y"]
    )
    assert op_names(imported(built)) == ["rlxc::relu"]


@pytest.mark.parametrize(
    ("built", "code", "message"),
    [
        (model(RELU, [value("x", None)], ["y"]), "import.input_type", "unknown rank"),
        (
            model(
                RELU,
                [helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])],
                ["y"],
            ),
            "import.input_type",
            "found sequence",
        ),
        (
            model(RELU, [helper.make_tensor_value_info("x", TensorProto.STRING, [2])], ["y"]),
            "import.data_type",
            "found string",
        ),
        (model(RELU, [value("a", [2])], ["y"]), "import.graph", "nothing before it produces"),
        (model(RELU, [value("x", [2])], ["z"]), "import.graph", "nothing produces an output"),
        (
            model([*RELU, node("Neg", "x", "y")], [value("x", [2])], ["y"]),
            "import.graph",
            "defines a value twice; found 'y'",
        ),
        (
            model([node("Neg", "x", "x"), *RELU], [value("x", [2])], ["y"]),
            "import.graph",
            "defines a value twice; found 'x'",
        ),
        (
            model(RELU, [value("x", [2])], ["y"], {"y": np.array([1, 2], np.float32)}),
            "import.graph",
            "defines a value twice; found 'y'",
        ),
        (
            model([node("Det", "x", "y")], [value("x", [2, 2])], ["y"]),
            "import.unsupported_op",
            r"m.onnx: node 'make_y' \(Det, opset 17\): the operator Det is not supported",
        ),
        (
            model([node("Warp", "x", "y", domain="org.example")], [value("x", [2])], ["y"]),
            "import.unsupported_op",
            r"\(org.example.Warp, opset 1\)",
        ),
        (
            model([node("Det", "x", "d"), node("Einsum", "d", "y")], [value("x", [2])], ["y"]),
            "import.unsupported_op",
            "unsupported operators in this model: Det, Einsum",
        ),
    ],
)
def test_models_that_cannot_be_imported(built: Any, code: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        imported(built)
    assert caught.value.code == code
    assert "m.onnx" in str(caught.value)


# ---- values and branches ---------------------------------------------------------------------

BRANCHES = node(
    "If",
    "c",
    "y",
    then_branch=graph([node("Add", "x x", "t")], "t"),
    else_branch=graph([node("Mul", "x x", "e")], "e"),
)
RATE = model(
    [node("Equal", "sr rate", "c"), BRANCHES],
    [value("x", ["n"]), value("sr", [], "i64")],
    ["y"],
    ZERO,
)
X = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("rate", "guard", "op"), [(16000, "sr == 16000", "add"), (8000, "sr != 16000", "mul")]
)
def test_a_branch_on_an_input_becomes_a_guard(rate: int, guard: str, op: str) -> None:
    feeds = {"x": X, "sr": np.int64(rate)}
    feeds["sr"] = np.array(rate, np.int64)
    module = check(Case("rate", RATE, feeds, (op,), values={"sr": [rate]}))
    assert [str(item) for item in module.function.guards] == [guard]
    assert [binding.symbol for binding in module.function.bindings] == ["sr"]


def test_a_missing_value_names_the_input_and_the_constants() -> None:
    with pytest.raises(ModelError, match="compared with 16000") as caught:
        imported(RATE)
    assert caught.value.code == "import.value_needed"
    assert "'sr'" in str(caught.value)
    assert value_inputs(records(RATE)) == ("sr",)
    assert value_inputs(records(model(RELU, [value("x", ["n"])], ["y"]))) == ()


def test_inputs_in_shapes_are_value_inputs_without_needing_a_value() -> None:
    built = model(
        [node("Reshape", "x s", "y")], [value("x", ["n", 4]), value("s", [2], "i64")], ["y"]
    )
    assert value_inputs(records(built)) == ("s",)


def test_small_integer_data_needs_no_value() -> None:
    """A mask of fixed small shape is data: comparing its elements decides nothing."""
    nodes = [
        node("Equal", "mask zero", "hidden"),
        node("Where", "hidden minus mask", "shifted"),
        node("Cast", "hidden", "number", to=TensorProto.INT64),
        node("Add", "shifted number", "sum"),
        node("Cast", "sum", "f", to=TensorProto.FLOAT),
        node("Mul", "x f", "y"),
    ]
    built = model(
        nodes,
        [value("x", ["n", 3]), value("mask", [1, 3], "i64")],
        ["y"],
        ZERO | {"minus": np.int64(-5)},
    )
    feeds = {"x": np.ones((2, 3), np.float32), "mask": np.array([[1, 0, 2]], np.int64)}
    ops = ("equal", "where", "cast", "add", "cast", "mul")
    module = check(Case("mask", built, feeds, ops))
    assert (module.function.guards, module.function.bindings) == ([], [])
    assert value_inputs(records(built)) == ()


def test_a_choice_is_made_where_a_size_depends_on_it() -> None:
    nodes = [
        node("Equal", "k zero", "c"),
        node("Where", "c one k", "t"),
        node("Add", "t one", "u"),
        node("Unsqueeze", "u axis", "v"),
        node("Expand", "x v", "y"),
    ]
    infos = [value("x", [1]), value("k", [], "i64")]
    built = model(nodes, infos, ["y"], ZERO | {"axis": np.array([0], np.int64)})
    with pytest.raises(ModelError, match="branches on k == 0") as caught:
        imported(built)
    assert caught.value.code == "import.value_needed"
    x = np.ones(1, np.float32)
    for k, guard, result in ((0, "k == 0", "f32[2]"), (3, "k != 0", "f32[k + 1]")):
        feeds = {"x": x, "k": np.array(k, np.int64)}
        module = check(Case("choice", built, feeds, ("expand",), values={"k": [k]}))
        assert guard in [str(item) for item in module.function.guards]
        assert str(module.function.returns[0].type) == result
    assert value_inputs(records(built)) == ("k",)


def test_an_axis_from_an_input_is_fixed_by_a_guard() -> None:
    built = model(
        [node("Unsqueeze", "x a", "y")], [value("x", ["n", 3]), value("a", [1], "i64")], ["y"]
    )
    with pytest.raises(ModelError, match="needs a_0 as a number") as caught:
        imported(built)
    assert caught.value.code == "import.value_needed"
    module = imported(built, values={"a": [-1]})
    assert str(module.function.returns[0].type) == "f32[n, 3, 1]"
    assert [str(item) for item in module.function.guards] == ["a_0 == -1"]
    assert value_inputs(records(built)) == ("a",)


def test_a_boolean_input_selects_a_branch() -> None:
    built = model([BRANCHES], [value("x", ["n"]), value("c", [1], "bool")], ["y"])
    for flag, op, guard in ((1, "add", "c_0 != 0"), (0, "mul", "c_0 == 0")):
        feeds = {"x": X, "c": np.array([bool(flag)])}
        module = check(Case("flag", built, feeds, (op,), values={"c": [flag]}))
        assert [str(item) for item in module.function.guards] == [guard]


def test_conditions_are_combined() -> None:
    nodes = [
        node("Equal", "a one", "p"),
        node("Less", "b zero", "q"),
        node("Or", "p q", "r"),
        node("Not", "r", "c"),
        BRANCHES,
    ]
    infos = [value("x", ["n"]), value("a", [], "i64"), value("b", [], "i64")]
    built = model(nodes, infos, ["y"], ZERO)
    for a, b, op, guards in (
        (1, 5, "mul", ["a == 1"]),
        (2, -1, "mul", ["b < 0"]),
        (2, 5, "add", ["a != 1", "b >= 0"]),
    ):
        module = imported(built, values={"a": [a], "b": [b]})
        assert op_names(module) == [f"rlxc::{op}"]
        assert [str(item) for item in module.function.guards] == guards
    assert value_inputs(records(built)) == ("a", "b")


SIZE_BRANCH = model(
    [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Equal", "n one", "c"),
        BRANCHES,
    ],
    [value("x", ["n"])],
    ["y"],
    ZERO,
)


def test_a_branch_on_a_size_is_taken_for_any_size_unless_one_is_given() -> None:
    module = imported(SIZE_BRANCH)
    assert [str(item) for item in module.function.guards] == ["n != 1"]
    assert op_names(module) == ["rlxc::mul"]
    module = imported(SIZE_BRANCH, shapes={"x": [1]})
    assert [str(item) for item in module.function.guards] == ["n == 1"]
    assert op_names(module) == ["rlxc::add"]


def test_a_branch_on_an_inequality_of_sizes_needs_a_shape() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Less", "n rate", "c"),
        BRANCHES,
    ]
    built = model(nodes, [value("x", ["n"])], ["y"], ZERO)
    with pytest.raises(ModelError, match="branches on n < 16000") as caught:
        imported(built)
    assert caught.value.code == "import.value_needed"
    module = imported(built, shapes={"x": [20000]})
    assert [str(item) for item in module.function.guards] == ["n >= 16000"]


def test_known_conditions_need_no_guard() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "s", "rank"),
        node("Equal", "rank one", "c"),
        BRANCHES,
    ]
    module = imported(model(nodes, [value("x", ["n"])], ["y"], ZERO))
    assert module.function.guards == []
    assert op_names(module) == ["rlxc::add"]


def test_a_condition_on_data_is_refused() -> None:
    nodes = [
        node("ReduceSum", "x", "t", keepdims=0),
        node("Cast", "t", "c", to=TensorProto.BOOL),
        BRANCHES,
    ]
    with pytest.raises(ModelError, match="computed at run time") as caught:
        imported(model(nodes, [value("x", ["n"])], ["y"]))
    assert caught.value.code == "import.unsupported_op"


@pytest.mark.parametrize(
    ("values", "shapes", "code"),
    [
        ({"rate": [1]}, {}, "input.name"),
        ({"sr": [1, 2]}, {}, "input.values"),
        ({"x": [1]}, {}, "input.values"),
        ({}, {"z": [1]}, "input.name"),
        ({}, {"x": [1, 2]}, "input.shape"),
        ({}, {"sr": [1]}, "input.shape"),
        ({}, {"x": [0]}, "input.shape"),
    ],
)
def test_values_and_shapes_that_do_not_fit(values: Any, shapes: Any, code: str) -> None:
    with pytest.raises(InputError) as caught:
        imported(RATE, values=values, shapes=shapes)
    assert caught.value.code == code


# ---- functions -------------------------------------------------------------------------------


def local_function(name: str, nodes: list[onnx.NodeProto], opset: int = 17) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_function(
        "local",
        name,
        ["a", "b"],
        ["r"],
        nodes,
        opsets,
        attribute_protos=[helper.make_attribute("slope", 0.25)],
    )


def test_model_functions_are_expanded() -> None:
    leaky = node("LeakyRelu", "a", "t")
    reference = leaky.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT)
    reference.ref_attr_name = "slope"
    body = local_function("Body", [leaky, node("Add", "t b", "r")])
    outer = local_function("Outer", [node("Body", "b a", "r", domain="local", slope=0.5)])
    built = model(
        [
            node("Outer", "x x", "u", domain="local"),
            node("Body", "u x", "y", domain="local"),
        ],
        [value("x", ["n"])],
        ["y"],
        functions=[body, outer],
    )
    module = check(Case("calls", built, {"x": X - 2}, ("leaky_relu", "add", "leaky_relu", "add")))
    slopes = [op.attrs["alpha"] for op in module.function.ops if op.name == "rlxc::leaky_relu"]
    assert slopes == [0.5, 0.25]


def test_recursion_and_old_functions_are_refused() -> None:
    loop = local_function("Loop", [node("Loop", "a b", "r", domain="local")])
    built = model(
        [node("Loop", "x x", "y", domain="local")], [value("x", [2])], ["y"], functions=[loop]
    )
    with pytest.raises(ModelError, match="nested too deeply"):
        imported(built)
    old = local_function("Old", [node("Add", "a b", "r")], opset=5)
    built = model(
        [node("Old", "x x", "y", domain="local")], [value("x", [2])], ["y"], functions=[old]
    )
    with pytest.raises(ModelError, match="found 5; allowed: 6 to 28"):
        imported(built)


# ---- sizes that must agree -------------------------------------------------------------------


def test_names_of_one_size_become_one_name() -> None:
    infos = [value("a", ["n", "s"]), value("b", ["n", "t"]), value("c", ["t"])]
    nodes = [node("Add", "a b", "d"), node("Add", "d w", "e"), node("Add", "e c", "y")]
    built = model(nodes, infos, ["y"], {"w": np.arange(5, dtype=np.float32)})
    function = imported(built).function
    assert [str(param.type) for param in function.params] == ["f32[n, 5]", "f32[n, 5]", "f32[5]"]
    assert function.guards == []


def test_channels_are_taken_from_the_weight() -> None:
    built = model(
        [node("Conv", "x w", "y")],
        [value("x", ["n", "c", "h", "w"])],
        ["y"],
        {"w": np.ones((4, 3, 1, 1), np.float32)},
    )
    assert str(imported(built).function.params[0].type) == "f32[n, 3, h, w]"


def test_expressions_that_must_agree_are_guarded() -> None:
    """Up and down again: h must be even."""
    nodes = [
        node("MaxPool", "x", "half", kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", "half - scales", "up", coordinate_transformation_mode="asymmetric"),
        node("Add", "x up", "a"),
        node("Add", "a up", "y"),
    ]
    built = model(
        nodes,
        [value("x", ["n", 1, "h", 4])],
        ["y"],
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    )
    x = np.random.default_rng(1).random((1, 1, 6, 4), dtype=np.float32)
    module = check(Case("skip", built, {"x": x}))
    assert [str(guard) for guard in module.function.guards] == ["h // 2 >= 1", "h == 2 * (h // 2)"]


def test_sizes_that_small_inputs_make_empty_are_guarded() -> None:
    nodes = [
        node("MaxPool", "x", "p", kernel_shape=[5], strides=[2]),
        node("Slice", "p from to axes", "s"),
        node("Pad", "s pads", "y", mode="reflect"),
    ]
    constants = {
        "from": np.array([3], np.int64),
        "to": np.array([-2], np.int64),
        "axes": np.array([2], np.int64),
        "pads": np.array([0, 0, 1, 0, 0, 0], np.int64),
    }
    built = model(nodes, [value("x", ["n", 1, "w"])], ["y"], constants)
    x = np.random.default_rng(1).random((1, 1, 24), dtype=np.float32)
    module = check(Case("sizes", built, {"x": x}))
    guards = module.function.guards
    assert all(guard.holds({"n": 1, "w": 17}) for guard in guards)
    assert not all(guard.holds({"n": 1, "w": 16}) for guard in guards)
    assert not all(guard.holds({"n": 1, "w": 4}) for guard in guards)


def test_a_size_of_one_in_the_given_shapes_stretches() -> None:
    nodes = [
        node("MaxPool", "x", "half", kernel_shape=[1, 2], strides=[1, 2]),
        node("Add", "x half", "y"),
    ]
    built = model(nodes, [value("x", ["n", 1, 1, "w"])], ["y"])
    module = imported(built, shapes={"x": [1, 1, 1, 3]})
    assert [str(guard) for guard in module.function.guards] == ["w // 2 >= 1", "w // 2 == 1"]
    assert str(module.function.returns[0].type) == "f32[n, 1, 1, w]"


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({}, ["f32[a, b]", "f32[a, b]"]),
        ({"x": [2, 3], "z": [2, 3]}, ["f32[a, b]", "f32[a, b]"]),
        ({"x": [1, 3], "z": [1, 3]}, ["f32[a, b]", "f32[a, b]"]),
        ({"x": [1, 3]}, ["f32[a, b]", "f32[a, b]"]),
        ({"x": [1, 3], "z": [2, 3]}, ["f32[1, b]", "f32[c, b]"]),
        ({"x": [2, 3], "z": [1, 1]}, ["f32[a, b]", "f32[1, 1]"]),
        ({"x": [2, 1], "z": [1, 3]}, ["f32[a, 1]", "f32[1, d]"]),
    ],
)
def test_an_input_whose_given_size_of_one_stretches(
    shapes: dict[str, list[int]], expected: list[str]
) -> None:
    built = model(
        [node("Mul", "x z", "y")], [value("x", ["a", "b"]), value("z", ["c", "d"])], ["y"]
    )
    module = imported(built, shapes=shapes)
    assert [str(item.type) for item in module.function.params] == expected


# ---- whole models and documentation ----------------------------------------------------------


def test_the_digits_model(model_file: Any) -> None:
    path = model_file("digits")
    module = import_model(path)
    verify(module, strict=True)
    assert str(module.function.returns[0].type) == "f32[batch, 10]"
    assert {item.location for item in module.constants.values()} == {Path(path).name}
    from_bytes = import_model(Path(path).read_bytes())
    assert print_module(from_bytes) == print_module(module)
    assert {item.location for item in from_bytes.constants.values()} == {""}


@pytest.mark.parametrize(
    ("name", "values", "inputs", "outputs", "guards"),
    [
        ("orientation", {}, ["f32[d0, 3, 224, 224]"], ["f32[d0, 4]"], []),
        (
            "ppocr_rec",
            {},
            ["f32[d0, 3, x_d2, d1]"],
            ["f32[d0, ((d1 + 1) // 2 + 1) // 4, 6625]"],
            [
                "((((x_d2 + 1) // 2 + 1) // 2 + 1) // 2 + 1) // 6 >= 1",
                "((d1 + 1) // 2 + 1) // 4 >= 1",
                "((((x_d2 + 1) // 2 + 1) // 2 + 1) // 2 + 1) // 6 == 1",
            ],
        ),
        *(
            (
                "silero_vad",
                {"sr": [rate]},
                ["f32[batch, sequence]", "i64[]", "f32[2, batch, 128]"],
                ["f32[batch, 1]", "f32[2, batch, 128]"],
                guards,
            )
            for rate, guards in (
                (
                    16000,
                    [
                        "sr == 16000",
                        "sequence - 64 >= 1",
                        "(sequence + 64) // 128 - 1 >= 1",
                        "(sequence + 64) // 256 >= 1",
                    ],
                ),
                (
                    8000,
                    [
                        "sr != 16000",
                        "sequence - 32 >= 1",
                        "(sequence + 32) // 64 - 1 >= 1",
                        "(sequence + 32) // 128 >= 1",
                    ],
                ),
            )
        ),
    ],
)
def test_the_stored_models(
    model_file: Any,
    name: str,
    values: dict[str, list[int]],
    inputs: list[str],
    outputs: list[str],
    guards: list[str],
) -> None:
    source = open_model(model_file(name))
    assert value_inputs(source) == tuple(values)
    module = import_model(source, values=values)
    verify(module, strict=True)
    function = module.function
    assert [str(param.type) for param in function.params] == inputs
    assert [str(item.type) for item in function.returns] == outputs
    assert [str(guard) for guard in function.guards] == guards
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    for constant in module.constants.values():
        assert len(constant.read()) == constant.nbytes


def test_the_import_is_deterministic(model_file: Any) -> None:
    path = model_file("ppocr_rec")
    assert print_module(import_model(path)) == print_module(import_model(path))


def test_the_support_table_lists_every_operator() -> None:
    table = support_table()
    for _, name in CONVERTERS:
        assert f"| `{name}` |" in table
    for name in FOLDED_ONLY:
        assert f"| `{name}` | shapes |" in table
    assert "| `Conv` | tensors |" in table
    assert "| `Gather` | tensors and shapes |" in table


def test_every_operator_of_the_table_exists_in_onnx() -> None:
    for _, name in CONVERTERS:
        assert onnx.defs.has(name), name


def test_large_weights_are_never_in_memory(tmp_path: Path) -> None:
    """Weights of 600 MB, half in the file and half beside it, read in pieces."""
    count = 75_000_000
    shape = [count, 1]
    nodes = [node("MatMul", "x a", "t"), node("MatMul", "t b", "u"), node("Relu", "u", "y")]
    built = model(nodes, [value("x", ["n", count])], ["y"])
    outside = built.graph.initializer.add(name="b", data_type=TensorProto.FLOAT, dims=[1, count])
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="b.bin")
    with (tmp_path / "b.bin").open("wb") as file:
        file.truncate(4 * count)
    inside = onnx.TensorProto(name="a", data_type=TensorProto.FLOAT, dims=shape)
    head = inside.SerializeToString() + b"\x4a" + varint(4 * count)  # raw_data, field 9
    path = tmp_path / "m.onnx"
    graph_bytes = built.graph.SerializeToString()
    length = len(graph_bytes) + 1 + len(varint(len(head) + 4 * count)) + len(head) + 4 * count
    built.ClearField("graph")
    with path.open("wb") as file:
        file.write(built.SerializeToString() + b"\x3a" + varint(length) + graph_bytes)
        file.write(b"\x2a" + varint(len(head) + 4 * count) + head)
        file.truncate(file.tell() + 4 * count)
    tracemalloc.start()
    try:
        module = import_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(item.nbytes for item in module.constants.values()) == [4 * count]
    assert peak < 16 << 20
    assert str(module.function.returns[0].type) == f"f32[n, {count}]"


def test_a_broken_file_is_one_error_from_the_importer_too() -> None:
    for data in (b"", b"not a model at all", records_bytes()[:-10]):
        with pytest.raises(RlxError) as caught:
            import_model(MemorySource(data, "m.onnx"))
        assert caught.value.code in ("import.empty", "import.not_onnx", "import.truncated")


def records_bytes() -> bytes:
    return RATE.SerializeToString()
