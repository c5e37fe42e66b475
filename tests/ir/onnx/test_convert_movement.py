"""Shapes, slices, joins, padding, gathering and resizing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from rlx_edge.ir.errors import RlxError
from tests.ir.onnx.models import Array, Case, Dims, check, imported, model, node, op_names, value

RNG = np.random.default_rng(13)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
FREE: Dims = ["n", "c", "w"]


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def case(
    op: str,
    inputs: str,
    constants: Mapping[str, Array],
    ops: tuple[str, ...] | None,
    *,
    dims: Dims = FREE,
    x: Array = X,
    opset: int = 17,
    outputs: str = "y",
    **attrs: Any,
) -> Case:
    built = model(
        [node(op, inputs, outputs, **attrs)],
        [value("x", dims)],
        outputs.split(),
        constants,
        opset=opset,
    )
    name = f"{op}-{opset}-{'-'.join(str(item.tolist()) for item in constants.values())}"
    return Case(name, built, {"x": x}, ops, exact=attrs.get("mode") != "linear")


SHAPES = [
    case("Reshape", "x s", {"s": ints(0, -1)}, ("reshape",)),
    case("Reshape", "x s", {"s": ints(-1)}, ("reshape",)),
    case("Reshape", "x s", {"s": ints(-1, 4, 3)}, ("reshape",), dims=["n", 3, 4]),
    case("Reshape", "x s", {"s": ints(0, 0, 2, -1)}, ("reshape",), dims=["n", 3, 4]),
    case("Reshape", "x s", {"s": ints(-1, 2)}, ("reshape",)),
    case("Flatten", "x", {}, ("reshape",)),
    case("Flatten", "x", {}, ("reshape",), axis=0),
    case("Flatten", "x", {}, ("reshape",), axis=-1),
    case("Unsqueeze", "x a", {"a": ints(0, -1)}, ("reshape",)),
    case("Unsqueeze", "x", {}, ("reshape",), opset=11, axes=[1, 3]),
    case("Squeeze", "x a", {"a": ints(1)}, ("reshape",), dims=["n", 1, 4], x=X[:, :1]),
    case("Squeeze", "x a", {"a": ints(-2)}, ("reshape",), x=X[:, :1]),
    case("Squeeze", "x", {}, ("reshape",), dims=["n", 1, 4], x=X[:, :1]),
    case("Squeeze", "x", {}, ("reshape",), dims=["n", 1, 4], x=X[:, :1], opset=11, axes=[1]),
    case("Transpose", "x", {}, ("transpose",)),
    case("Transpose", "x", {}, ("transpose",), perm=[1, 0, 2]),
    case("Transpose", "x", {}, (), perm=[0, 1, 2]),
    case("Expand", "x s", {"s": ints(2, 1, 3, 4)}, ("expand",), dims=["n", 3, 4]),
    case("Expand", "x s", {"s": ints(1, 1)}, ()),
    case("Expand", "x s", {"s": ints(5, 1)}, ("expand",), dims=["n", 1, 4], x=X[:, :1]),
    case("Tile", "x r", {"r": ints(1, 2, 3)}, ("tile",)),
    case("Tile", "x r", {"r": ints(1, 1, 1)}, ()),
]

SLICES = [
    case("Slice", "x b e", {"b": ints(0, 1), "e": ints(1, 3)}, ("slice",), dims=["n", 3, 4]),
    case("Slice", "x b e a", {"b": ints(-2), "e": ints(2**63 - 1), "a": ints(-1)}, ("slice",)),
    case("Slice", "x b e a", {"b": ints(1), "e": ints(-1), "a": ints(2)}, ("slice",)),
    case("Slice", "x b e a", {"b": ints(0), "e": ints(99), "a": ints(2)}, ("slice",)),
    case("Slice", "x b e a", {"b": ints(1), "e": ints(2**31 - 1), "a": ints(2)}, ("slice",)),
    case(
        "Slice", "x b e a s", {"b": ints(0), "e": ints(4), "a": ints(2), "s": ints(2)}, ("slice",)
    ),
    case(
        "Slice",
        "x b e a s",
        {"b": ints(-1), "e": ints(-(2**63)), "a": ints(1), "s": ints(-1)},
        ("slice",),
    ),
    case(
        "Slice",
        "x b e a s",
        {"b": ints(2), "e": ints(0), "a": ints(2), "s": ints(-1)},
        ("slice",),
        dims=["n", 3, 4],
    ),
    case("Slice", "x", {}, ("slice",), opset=9, starts=[0, 1], ends=[1, 9], axes=[0, 2]),
    case("Slice", "x", {}, (), opset=9, starts=[0], ends=[2**31 - 1], axes=[0]),
    case("Split", "x", {}, ("slice", "slice"), dims=["n", 3, 4], axis=2, outputs="y z"),
    case("Split", "x", {}, ("slice", "slice"), axis=2, outputs="y z"),
    case("Split", "x s", {"s": ints(1, 2)}, ("slice", "slice"), axis=1, outputs="y z"),
    case("Split", "x", {}, ("slice", "slice"), opset=11, axis=1, split=[2, 1], outputs="y z"),
    case("Split", "x", {}, ("slice",) * 3, opset=18, axis=2, num_outputs=3, outputs="y z v"),
    case("Gather", "x i", {"i": np.array(1, np.int64)}, ("slice", "reshape"), axis=1),
    case("Gather", "x i", {"i": np.array(-1, np.int64)}, ("slice", "reshape"), axis=2),
    case("Gather", "x i", {"i": ints(1)}, ("slice",), axis=0),
    case("Gather", "x i", {"i": ints(1, 0, -1)}, ("gather",), axis=1),
    case("Gather", "x i", {"i": np.array([[0, 1], [1, -2]], np.int32)}, ("gather",)),
    case(
        "GatherElements",
        "x i",
        {"i": np.array([[[0, 1]], [[1, -1]]], np.int64)},
        ("gather_elements",),
        dims=[2, 3, 4],
        axis=2,
    ),
]

BLOCKS = [
    case(
        op,
        "x",
        {},
        ("reshape", "transpose", "reshape"),
        dims=["n", 8, "h", "w"],
        x=RNG.standard_normal((2, 8, 4, 6)).astype(np.float32),
        blocksize=2,
        **attrs,
    )
    for op, attrs in (
        ("DepthToSpace", {}),
        ("DepthToSpace", {"mode": "CRD"}),
        ("SpaceToDepth", {}),
    )
]

PADS = [
    case("Pad", "x p", {"p": ints(0, 1, 0, 2, 0, 1)}, ("pad",)),
    case("Pad", "x p v", {"p": ints(0, 1, 0, 2, 0, 1), "v": np.float32(2.5)}, ("pad",)),
    case("Pad", "x p", {"p": ints(0, 1, -1, 2, 0, 1)}, ("pad",)),
    case("Pad", "x p", {"p": ints(0, 0, 2, 0, 0, 1)}, ("pad",), mode="reflect"),
    case("Pad", "x p", {"p": ints(0, 0, 2, 0, 0, -1)}, ("slice", "pad"), mode="edge"),
    case("Pad", "x p", {"p": ints(0, 0, 0, 0, 0, 0)}, ()),
    case("Pad", "x", {}, ("pad",), opset=9, pads=[0, 0, 1, 0, 0, 2], value=1.5),
    case("Pad", "x p - a", {"p": ints(1, 2), "a": ints(-1)}, ("pad",), opset=18),
]


def resized(op: str, x: Array, opset: int, inputs: str = "x - s", **attrs: Any) -> Case:
    constants = attrs.pop("constants")
    dims: Dims = ["n", x.shape[1], "h", "w"]
    ops = attrs.pop("ops", ("resize",))
    return case(op, inputs, constants, ops, dims=dims, x=x, opset=opset, **attrs)


IMAGE = RNG.standard_normal((1, 2, 4, 6)).astype(np.float32)
TWICE = {"s": np.array([1, 1, 2, 2], np.float32)}
HALF = {"s": np.array([1, 1, 0.5, 0.5], np.float32)}
LINEAR = {"mode": "linear"}
RESIZES = [
    resized("Resize", IMAGE, 13, constants=TWICE, coordinate_transformation_mode="asymmetric"),
    resized("Resize", IMAGE, 13, constants=TWICE, nearest_mode="floor"),
    resized("Resize", IMAGE, 13, constants=HALF),
    resized("Resize", IMAGE, 13, constants=TWICE, **LINEAR),
    resized(
        "Resize",
        IMAGE,
        13,
        constants=TWICE,
        coordinate_transformation_mode="align_corners",
        **LINEAR,
    ),
    resized(
        "Resize",
        IMAGE,
        13,
        constants=HALF,
        coordinate_transformation_mode="pytorch_half_pixel",
        **LINEAR,
    ),
    resized("Resize", IMAGE, 13, "x - - s", constants={"s": ints(1, 2, 5, 9)}, **LINEAR),
    resized("Resize", IMAGE, 18, "x - - s", constants={"s": ints(8, 3)}, axes=[2, 3]),
    resized(
        "Resize", IMAGE, 19, constants=TWICE, coordinate_transformation_mode="half_pixel_symmetric"
    ),
    resized("Resize", IMAGE, 10, "x s", constants=TWICE),
    resized("Resize", IMAGE, 13, constants={"s": np.ones(4, np.float32)}, ops=()),
    resized("Upsample", IMAGE, 9, "x s", constants=TWICE),
    resized("Upsample", IMAGE, 7, "x", constants={}, scales=[1.0, 1.0, 2.0, 3.0]),
]


@pytest.mark.parametrize(
    "item", SHAPES + SLICES + BLOCKS + PADS + RESIZES, ids=lambda item: item.name
)
def test_operator(item: Case) -> None:
    check(item)


def test_concat_of_symbolic_parts() -> None:
    built = model(
        [node("Concat", "a b a", "y", axis=-1)],
        [value("a", ["n", 3]), value("b", ["n", "m"])],
        ["y"],
    )
    feeds = {"a": X[:, :, 0], "b": X[:, 0, :]}
    module = check(Case("concat", built, feeds, ("concat",), exact=True))
    assert str(module.function.returns[0].type) == "f32[n, m + 6]"


def test_scales_computed_at_run_time_are_refused() -> None:
    infos = [value("x", ["n", 2, "h", "w"]), value("s", [4])]
    with pytest.raises(RlxError, match=r"scales \(input 2\) must be known") as caught:
        imported(model([node("Resize", "x - s", "y")], infos, ["y"]))
    assert caught.value.code == "import.data_dependent"


def test_unequal_parts_of_a_symbolic_axis() -> None:
    built = case("Split", "x s", {"s": ints(1, 3)}, None, axis=2, outputs="y z").model
    module = imported(built)
    assert [str(guard) for guard in module.function.guards] == ["w == 4"]


def test_an_expansion_that_needs_equal_sizes_is_guarded() -> None:
    nodes = [node("Shape", "a", "s"), node("Expand", "x s", "y")]
    module = imported(model(nodes, [value("x", ["n"]), value("a", ["m"])], ["y"]))
    assert [str(guard) for guard in module.function.guards] == ["n == m"]


def test_constants_of_shape_with_a_value() -> None:
    nodes = [
        node("Shape", "x", "s"),
        helper.make_node(
            "ConstantOfShape", ["s"], ["c"], value=numpy_helper.from_array(np.array([7], np.int64))
        ),
        node("Cast", "c", "y", to=1),
    ]
    check(Case("sevens", model(nodes, [value("x", FREE)], ["y"]), {"x": X}, ("expand", "cast")))


def test_a_constant_of_symbolic_shape() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("ConstantOfShape", "s", "zeros"),
        node("Add", "x zeros", "y"),
    ]
    module = check(
        Case("zeros", model(nodes, [value("x", FREE)], ["y"]), {"x": X}, ("expand", "add"))
    )
    assert module.function.guards == []


def test_reshaped_weights_stay_constants() -> None:
    nodes = [node("Reshape", "w s", "v"), node("Mul", "x v", "y")]
    constants = {"w": np.arange(12, dtype=np.float32).reshape(12, 1), "s": ints(3, 4)}
    module = imported(model(nodes, [value("x", ["n", 3, 4])], ["y"], constants))
    assert op_names(module) == ["rlxc::mul"]
    assert str(module.function.ops[0].result.type) == "f32[3, 4]"


def test_equal_bytes_are_one_constant_whatever_their_type() -> None:
    weights = np.arange(1, 2049, dtype=np.float32)
    nodes = [
        node("Mul", "x a", "p"),
        node("Mul", "p b", "q"),
        node("Mul", "q c", "r"),
        node("Cast", "d", "e", to=1),
        node("Mul", "r e", "y"),
    ]
    constants = {
        "a": weights.reshape(2, 1024),
        "b": weights.reshape(2, 1024),
        "c": weights.reshape(1, 2, 1024),
        "d": np.frombuffer(weights.tobytes(), np.int32).reshape(2, 1024),
    }
    module = imported(model(nodes, [value("x", [2, 1024])], ["y"], constants))
    names = [op.name for op in module.function.ops]
    assert names.count("rlxc::reshape") == 2
    assert names.count("tensor::const") == 2 == len(module.constants)
    assert names.count("tensor::splat") == 1  # the first element of d


@pytest.mark.parametrize(
    ("built", "code", "message"),
    [
        (
            case("Reshape", "x s", {"s": ints(-1, -1)}, None).model,
            "import.node",
            "more than one -1",
        ),
        (
            case("Reshape", "x s", {"s": ints(1, 1, 1, 0)}, None).model,
            "import.node",
            "no dim to copy",
        ),
        (case("Reshape", "x s", {"s": ints(-2)}, None).model, "import.node", "negative size"),
        (
            case("Reshape", "x s", {"s": ints(5, -1)}, None, dims=[2, 3, 4]).model,
            "import.node",
            "do not fit",
        ),
        (
            case("Reshape", "x s", {"s": ints(5, 5)}, None, dims=[2, 3, 4]).model,
            "op.shape",
            "another number of elements",
        ),
        (
            case("Squeeze", "x a", {"a": ints(1)}, None, dims=["n", 3, 4]).model,
            "import.node",
            "axis 1 has not size 1",
        ),
        (case("Transpose", "x", {}, None, perm=[0, 0, 1]).model, "import.attribute", "permutation"),
        (case("Flatten", "x", {}, None, axis=4).model, "import.attribute", "axis out of range"),
        (
            case(
                "Split", "x s", {"s": ints(1, 1)}, None, dims=[2, 3, 4], axis=1, outputs="y z"
            ).model,
            "import.node",
            "do not add up",
        ),
        (
            case("Gather", "x i", {"i": np.array(3, np.int64)}, None, dims=[2, 3, 4], axis=1).model,
            "import.node",
            "index out of range",
        ),
        (
            case("Reshape", "x s", {"s": ints(0, -1)}, None, opset=14, allowzero=1).model,
            "import.node",
            "-1 beside a size of 0",
        ),
        (case("Unsqueeze", "x", {}, None).model, "import.attribute", "axes are missing"),
        (
            case("Expand", "x s", {"s": ints(5, 4)}, None, dims=[2, 3, 4]).model,
            "import.node",
            "sizes do not broadcast; found 3 and 5",
        ),
        (case("Tile", "x r", {"r": ints(1, 2)}, None).model, "import.node", "one repeat an axis"),
        (
            case("Slice", "x b e", {"b": ints(0, 0), "e": ints(1)}, None).model,
            "import.node",
            "differ in length",
        ),
        (
            case("Slice", "x b e a s", {k: ints(0) for k in "beas"}, None).model,
            "import.node",
            "a step of 0",
        ),
        (
            case("Split", "x", {}, None, dims=[2, 3, 4], axis=1, outputs="y z").model,
            "import.node",
            "does not split into 2 equal parts",
        ),
        (
            case("Split", "x s", {"s": ints(3)}, None, dims=[2, 3, 4], axis=1, outputs="y z").model,
            "import.node",
            "more outputs than parts",
        ),
        (
            case("DepthToSpace", "x", {}, None, dims=["n", 6, 4, 4], blocksize=2).model,
            "import.node",
            "channels do not divide by 4",
        ),
        (
            case("DepthToSpace", "x", {}, None, dims=["n", 8, 4, 4], blocksize=2, mode="X").model,
            "import.attribute",
            "unknown mode",
        ),
        (case("SpaceToDepth", "x", {}, None, blocksize=2).model, "import.node", "not an image"),
        (
            case("SpaceToDepth", "x", {}, None, dims=["n", 8, 4, 4], blocksize=0).model,
            "import.attribute",
            "must be positive",
        ),
        (
            resized("Resize", IMAGE, 18, constants=TWICE, antialias=1).model,
            "import.unsupported_op",
            "antialias",
        ),
        (
            resized(
                "Resize",
                IMAGE,
                18,
                "x - - s",
                constants={"s": ints(1, 2, 5, 9)},
                keep_aspect_ratio_policy="smallest",
            ).model,
            "import.attribute",
            "unknown keep_aspect_ratio_policy; found smallest",
        ),
        (
            resized(
                "Resize",
                IMAGE,
                13,
                constants=TWICE,
                coordinate_transformation_mode="tf_crop_and_resize",
            ).model,
            "import.unsupported_op",
            "coordinate_transformation_mode",
        ),
        (
            resized("Resize", IMAGE, 13, constants=TWICE, nearest_mode="nearest").model,
            "import.attribute",
            "unknown nearest_mode",
        ),
        (
            resized("Resize", IMAGE, 13, constants={"s": np.ones(3, np.float32)}).model,
            "import.node",
            "one scale an axis",
        ),
        (
            resized("Upsample", IMAGE, 7, "x", constants={}, scales=[2.0]).model,
            "import.attribute",
            "one scale an axis",
        ),
        (
            resized("Resize", IMAGE, 13, constants={"s": ints(1, 1, 2, 2)}).model,
            "import.node",
            "scales must be floats",
        ),
        (
            case("Pad", "x p", {"p": ints(1, 1)}, None).model,
            "import.node",
            "two amounts an axis",
        ),
        (
            case("Pad", "x p", {"p": ints(0, 0, 1, 0, 0, 1)}, None, opset=19, mode="mirror").model,
            "import.attribute",
            "unknown mode; found mirror",
        ),
        (
            resized("Resize", IMAGE, 13, constants=TWICE, mode="area").model,
            "import.attribute",
            "unknown mode; found area",
        ),
        (
            resized(
                "Resize", IMAGE, 13, constants={"s": np.array([1, 1, np.pi, 2], np.float32)}
            ).model,
            "import.unsupported_op",
            "no simple fraction",
        ),
        (
            model(
                [node("Reshape", "x s", "y")], [value("x", FREE), value("s", ["k"], "i64")], ["y"]
            ),
            "import.data_dependent",
            "must be known when the model is imported",
        ),
        *(
            (
                model(
                    [node("Range", "a b one", "y")],
                    [value("a", sizes[0], "i64"), value("b", sizes[1], "i64")],
                    ["y"],
                    {"one": np.int64(1)},
                ),
                "import.node",
                message,
            )
            for sizes, message in (
                (([], [2]), "input 1 .'b'. has one element; found 2 elements"),
                (([3], []), "input 0 .'a'. has one element; found 3 elements"),
            )
        ),
    ],
)
def test_what_cannot_be_converted_says_why(built: Any, code: str, message: str) -> None:
    with pytest.raises(RlxError, match=message) as caught:
        imported(built)
    assert caught.value.code == code
    assert "m.onnx: node 'make_y' (" in str(caught.value)
