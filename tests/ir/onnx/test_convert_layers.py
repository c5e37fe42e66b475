"""Convolutions, pooling, matrix products, normalisations, reductions and Softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx_edge.ir.errors import RlxError
from tests.ir.onnx.models import Array, Case, check, imported, model, node, value

RNG = np.random.default_rng(11)


def random(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def window(
    op: str,
    x: Array,
    ops: tuple[str, ...] | None,
    *weights: Array,
    opset: int = 17,
    symbolic: bool = True,
    **attrs: Any,
) -> Case:
    """A convolution or pooling with symbolic batch and spatial sizes."""
    dims: list[int | str | None] = [
        "n",
        x.shape[1],
        *((f"s{axis}" if symbolic else size) for axis, size in enumerate(x.shape[2:])),
    ]
    names = ["w", "b"][: len(weights)]
    built = model(
        [node(op, " ".join(["x", *names]), "y", **attrs)],
        [value("x", dims)],
        ["y"],
        dict(zip(names, weights, strict=True)),
        opset=opset,
    )
    return Case(f"{op}-{x.ndim - 2}d-{'-'.join(map(str, attrs))}", built, {"x": x}, ops)


IMAGE = random(2, 4, 9, 7)
SOUND = random(2, 4, 21)
W2, W1, B = random(6, 4, 3, 3), random(6, 4, 3), random(6)
DEPTHWISE, GROUPED = random(4, 1, 3, 3), random(8, 2, 3, 3)

CONVOLUTIONS = [
    window("Conv", IMAGE, ("conv2d",), W2),
    window("Conv", IMAGE, ("conv2d",), W2, B, pads=[1, 0, 2, 1], strides=[2, 1]),
    window("Conv", IMAGE, ("conv2d",), W2, dilations=[2, 2], kernel_shape=[3, 3]),
    window("Conv", IMAGE, ("conv2d",), DEPTHWISE, group=4, pads=[1, 1, 1, 1]),
    window("Conv", IMAGE, ("conv2d",), GROUPED, group=2),
    window("Conv", IMAGE, ("conv2d",), W2, auto_pad="VALID"),
    window("Conv", IMAGE, ("conv2d",), W2, auto_pad="SAME_UPPER"),
    window("Conv", IMAGE, ("conv2d",), W2, auto_pad="SAME_LOWER"),
    window("Conv", IMAGE, ("pad", "conv2d"), W2, auto_pad="SAME_UPPER", strides=[2, 2]),
    window(
        "Conv", random(1, 4, 8, 6), ("pad", "conv2d"), W2, auto_pad="SAME_LOWER", strides=[3, 2]
    ),
    window("Conv", IMAGE, ("conv2d",), W2, auto_pad="SAME_UPPER", strides=[2, 2], symbolic=False),
    window("Conv", SOUND, ("reshape", "conv2d", "reshape"), W1, B, strides=[2], pads=[1, 0]),
    window("Conv", SOUND, ("reshape", "conv2d", "reshape"), W1, dilations=[3]),
    window("ConvTranspose", IMAGE, ("conv_transpose2d",), random(4, 5, 2, 2), strides=[2, 2]),
    window(
        "ConvTranspose",
        IMAGE,
        ("conv_transpose2d",),
        random(4, 3, 3, 3),
        random(6),
        group=2,
        strides=[2, 1],
        pads=[1, 0, 0, 1],
        output_padding=[1, 0],
        dilations=[1, 2],
    ),
    window("ConvTranspose", SOUND, ("reshape", "conv_transpose2d", "reshape"), random(4, 2, 4)),
    window(
        "ConvTranspose",
        IMAGE,
        ("conv_transpose2d",),
        random(4, 2, 3, 3),
        strides=[2, 2],
        auto_pad="SAME_UPPER",
    ),
    window(
        "ConvTranspose",
        IMAGE,
        ("conv_transpose2d",),
        random(4, 2, 3, 3),
        strides=[2, 2],
        output_shape=[18, 15],
        symbolic=False,
    ),
]

CONVOLUTIONS += [
    window(
        "ConvTranspose", IMAGE, ("conv_transpose2d",), W2.transpose(1, 0, 2, 3), B, auto_pad="VALID"
    ),
]

POOLS = [
    window("MaxPool", IMAGE, ("max_pool2d",), kernel_shape=[2, 2], strides=[2, 2]),
    window("MaxPool", IMAGE, ("max_pool2d",), kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
    window("MaxPool", IMAGE, ("max_pool2d",), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    window("MaxPool", IMAGE, ("max_pool2d",), kernel_shape=[2, 2], dilations=[2, 3]),
    window("MaxPool", IMAGE, ("max_pool2d",), kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
    window(
        "MaxPool",
        IMAGE,
        ("pad", "max_pool2d"),
        kernel_shape=[3, 3],
        strides=[2, 2],
        auto_pad="SAME_UPPER",
    ),
    window("MaxPool", SOUND, ("reshape", "max_pool2d", "reshape"), kernel_shape=[3], strides=[2]),
    window("AveragePool", IMAGE, ("average_pool2d",), kernel_shape=[2, 3], strides=[2, 2]),
    window("AveragePool", IMAGE, ("average_pool2d",), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    window(
        "AveragePool",
        IMAGE,
        ("average_pool2d",),
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    window("AveragePool", SOUND, ("reshape", "average_pool2d", "reshape"), kernel_shape=[4]),
    window("GlobalAveragePool", IMAGE, ("global_average_pool",)),
    window("GlobalMaxPool", IMAGE, ("global_max_pool",)),
    window("GlobalAveragePool", SOUND, ("reduce_mean",)),
    window("GlobalMaxPool", SOUND, ("reduce_max",)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS + POOLS, ids=lambda case: case.name)
def test_window(case: Case) -> None:
    check(case)


def test_the_weight_of_a_one_dimensional_convolution_is_an_image_without_an_operation() -> None:
    module = check(CONVOLUTIONS[11])
    conv = next(op for op in module.function.ops if op.name == "rlxc::conv2d")
    assert conv.operands[1].producer is not None
    assert conv.operands[1].producer.name == "tensor::const"
    assert str(conv.operands[1].type) == "f32[6, 4, 1, 3]"
    assert conv.attrs["padding"] == (0, 1, 0, 0)
    assert conv.attrs["stride"] == (1, 2)


A, C = random(3, 5), random(5, 4)
MATRICES = [
    ("MatMul", {}, (A, C), ("matmul",)),
    ("MatMul", {}, (random(2, 3, 5), random(5, 4)), ("matmul",)),
    ("Gemm", {}, (A, C), ("matmul",)),
    ("Gemm", {}, (A, C, random(4)), ("matmul", "add")),
    ("Gemm", {"transA": 1}, (random(5, 3), C), ("transpose", "matmul")),
    ("Gemm", {"transB": 1, "alpha": 0.5}, (A, random(4, 5)), ("transpose", "matmul", "mul")),
    (
        "Gemm",
        {"alpha": 2.0, "beta": 0.25},
        (A, C, random(3, 4)),
        ("matmul", "mul", "mul", "add"),
    ),
    ("Gemm", {"beta": 0.0}, (A, C, random(4)), ("matmul",)),
]


@pytest.mark.parametrize(("op", "attrs", "operands", "ops"), MATRICES)
def test_matrix_product(
    op: str, attrs: dict[str, Any], operands: tuple[Array, ...], ops: tuple[str, ...]
) -> None:
    names = "abc"[: len(operands)]
    infos = [
        value(
            name,
            ["m" if axis == 0 and name == "a" else size for axis, size in enumerate(item.shape)],
        )
        for name, item in zip(names, operands, strict=True)
    ]
    if attrs.get("transA"):
        infos[0] = value("a", [5, "m"])
    if len(operands) == 3 and operands[2].ndim == 2:
        infos[2] = value("c", ["m", 4])
    built = model([node(op, " ".join(names), "y", **attrs)], infos, ["y"])
    check(Case(op, built, dict(zip(names, operands, strict=True)), ops))


VECTOR = {"scale": random(4), "bias": random(4), "mean": random(4), "var": np.abs(random(4))}
NORMALIZATIONS = [
    ("BatchNormalization", "x scale bias mean var", {}, 15, ("batch_norm",)),
    (
        "BatchNormalization",
        "x scale bias mean var",
        {"epsilon": 0.01, "spatial": 1},
        7,
        ("batch_norm",),
    ),
    ("BatchNormalization", "x scale bias mean var", {"epsilon": 1e-3}, 9, ("batch_norm",)),
    ("InstanceNormalization", "x scale bias", {}, 17, None),
    ("GroupNormalization", "x scale bias", {"num_groups": 2}, 21, None),
    ("MeanVarianceNormalization", "x", {}, 13, None),
    ("MeanVarianceNormalization", "x", {"axes": [1, -1]}, 13, None),
    ("LpNormalization", "x", {"axis": 1}, 17, ("reduce_l2", "div", "equal", "where")),
    (
        *("LpNormalization", "x", {"axis": -1, "p": 1}, 17),
        ("abs", "reduce_sum", "div", "equal", "where"),
    ),
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "opset", "ops"), NORMALIZATIONS)
def test_normalization(
    op: str, inputs: str, attrs: dict[str, Any], opset: int, ops: tuple[str, ...] | None
) -> None:
    used = {name: VECTOR[name] for name in inputs.split() if name != "x"}
    built = model(
        [node(op, inputs, "y", **attrs)], [value("x", ["n", 4, "h", 5])], ["y"], used, opset=opset
    )
    check(Case(op, built, {"x": random(2, 4, 3, 5)}, ops))


def test_layer_normalization() -> None:
    constants = {"scale": random(5), "bias": random(5)}
    for inputs in ("x scale bias", "x scale"):
        built = model(
            [node("LayerNormalization", inputs, "y", axis=-1, epsilon=1e-6)],
            [value("x", ["n", 3, 5])],
            ["y"],
            constants,
        )
        module = check(Case("layer", built, {"x": random(2, 3, 5)}, ("layer_norm",)))
        assert module.function.ops[-1].attrs["axis"] == 2
        assert module.function.ops[-1].attrs["epsilon"] == 1e-6


def test_root_mean_square_normalization() -> None:
    built = model(
        [node("RMSNormalization", "x scale", "y", axis=-1, epsilon=1e-6)],
        [value("x", ["n", 3, 5])],
        ["y"],
        {"scale": random(5)},
        opset=23,
    )
    check(Case("rms", built, {"x": random(2, 3, 5)}))


def reduction(
    op: str, ops: tuple[str, ...], opset: int = 17, axes: Any = None, **attrs: Any
) -> Case:
    inputs, constants = "x", {}
    since_input = 13 if op == "ReduceSum" else 18
    if axes is not None and opset >= since_input:
        inputs, constants = "x axes", {"axes": np.array(axes, np.int64)}
    elif axes is not None:
        attrs["axes"] = axes
    built = model(
        [node(op, inputs, "y", **attrs)], [value("x", ["n", 3, "m"])], ["y"], constants, opset=opset
    )
    return Case(f"{op}-{opset}-{axes}", built, {"x": np.abs(random(2, 3, 4)) + 0.5}, ops)


REDUCTIONS = [
    reduction("ReduceMean", ("reduce_mean",), axes=[1]),
    reduction("ReduceMean", ("reduce_mean",), opset=18, axes=[-1, 0]),
    reduction("ReduceMean", ("reduce_mean",), keepdims=0),
    reduction("ReduceMean", ("reduce_mean",), opset=18, axes=[]),
    reduction("ReduceMean", (), opset=18, noop_with_empty_axes=1),
    reduction("ReduceSum", ("reduce_sum",), opset=11, axes=[2]),
    reduction("ReduceSum", ("reduce_sum",), opset=13, axes=[2], keepdims=0),
    reduction("ReduceMax", ("reduce_max",), axes=[0, 2]),
    reduction("ReduceMin", ("reduce_min",), opset=18, axes=[1]),
    reduction("ReduceProd", ("reduce_prod",), axes=[1]),
    reduction("ReduceL2", ("reduce_l2",), axes=[1]),
    reduction("ReduceL1", ("abs", "reduce_sum"), axes=[1]),
    reduction("ReduceSumSquare", ("mul", "reduce_sum"), axes=[1]),
    reduction("ReduceLogSum", ("reduce_sum", "log"), axes=[1]),
    reduction("ReduceLogSumExp", None, axes=[1]),  # type: ignore[arg-type]
    reduction("ReduceLogSumExp", None, opset=18, axes=[1, -1], keepdims=0),  # type: ignore[arg-type]
    reduction("Softmax", ("softmax",), axis=-1),
    reduction("Softmax", ("softmax",), axis=1),
    reduction("Softmax", ("reshape", "softmax", "reshape"), opset=11),
    reduction("Softmax", ("reshape", "softmax", "reshape"), opset=12, axis=0),
    reduction("Softmax", ("softmax",), opset=12, axis=2),
    reduction("LogSoftmax", ("log_softmax",)),
    reduction("LogSoftmax", ("reshape", "log_softmax", "reshape"), opset=9, axis=1),
]


@pytest.mark.parametrize("case", REDUCTIONS, ids=lambda case: case.name)
def test_reduction(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("built", "code", "message"),
    [
        (
            window("Conv", IMAGE, None, W2, kernel_shape=[5, 5]).model,
            "import.attribute",
            "kernel_shape is not the shape of the weight",
        ),
        (window("Conv", IMAGE, None, W2, strides=[0, 1]).model, "import.attribute", "'strides'"),
        (window("Conv", IMAGE, None, W2, pads=[1, 1]).model, "import.attribute", "'pads'"),
        (window("Conv", IMAGE, None, W2, auto_pad="SAME").model, "import.attribute", "auto_pad"),
        (window("Conv", IMAGE, None, W1).model, "import.attribute", "spatial axes"),
        (window("Conv", random(1, 3, 9, 9), None, W2).model, "op.shape", "do not agree"),
        (
            window("Conv", random(1, 4, 5, 5, 5), None, random(2, 4, 3, 3, 3)).model,
            "import.unsupported_op",
            "three-dimensional",
        ),
        (
            model(
                [node("MaxPool", "x", "y where", kernel_shape=[2, 2])],
                [value("x", [1, 1, 4, 4])],
                ["y", "where"],
            ),
            "import.unsupported_op",
            "indices",
        ),
        (
            model(
                [node("Gemm", "x x", "y")],
                [value("x", [2, 3, 4])],
                ["y"],
            ),
            "import.node",
            "operands must be matrices",
        ),
        (
            model(
                [node("BatchNormalization", "x a a a a", "y m")],
                [value("x", [2, 3])],
                ["y", "m"],
                {"a": random(3)},
            ),
            "import.unsupported_op",
            "outside of training mode",
        ),
        (
            model(
                [node("BatchNormalization", "x a a a a", "y", spatial=0)],
                [value("x", [2, 3])],
                ["y"],
                {"a": random(3)},
                opset=7,
            ),
            "import.unsupported_op",
            "spatial = 0",
        ),
        (
            model(
                [node("GroupNormalization", "x a a", "y", num_groups=2)],
                [value("x", [2, 4, 3])],
                ["y"],
                {"a": random(2)},
                opset=18,
            ),
            "import.unsupported_op",
            "before opset 21",
        ),
        (
            model(
                [node("GroupNormalization", "x a a", "y", num_groups=3)],
                [value("x", [2, 4, 3])],
                ["y"],
                {"a": random(4)},
                opset=21,
            ),
            "import.attribute",
            "do not divide into groups",
        ),
        (
            model([node("LpNormalization", "x", "y", p=3)], [value("x", [2, 4])], ["y"]),
            "import.attribute",
            "unknown norm",
        ),
        (
            model(
                [node("Dropout", "x - on", "y")],
                [value("x", [2, 4])],
                ["y"],
                {"on": np.array(True)},
            ),
            "import.unsupported_op",
            "training mode",
        ),
        (
            window(
                "ConvTranspose", IMAGE, None, W2.transpose(1, 0, 2, 3), output_padding=[1]
            ).model,
            "import.attribute",
            "'output_padding'",
        ),
        (
            window(
                "ConvTranspose", IMAGE, None, W2.transpose(1, 0, 2, 3), output_shape=[9, 7]
            ).model,
            "import.unsupported_op",
            "padding that depends on sizes",
        ),
        (
            window("MaxPool", IMAGE, None, kernel_shape=[2]).model,
            "import.attribute",
            "'kernel_shape'",
        ),
        (
            window(
                "AveragePool",
                IMAGE,
                None,
                kernel_shape=[3, 3],
                strides=[2, 2],
                auto_pad="SAME_UPPER",
            ).model,
            "import.unsupported_op",
            "depends on sizes and is not counted",
        ),
        (
            model([node("GlobalMaxPool", "x", "y")], [value("x", [2, 4])], ["y"]),
            "import.node",
            "no spatial axes",
        ),
        (reduction("ReduceMean", (), axes=[3]).model, "import.attribute", "axis out of range"),
        (reduction("ReduceMean", (), axes=[1, -2]).model, "import.attribute", "axis occurs twice"),
    ],
)
def test_what_cannot_be_converted_says_why(built: Any, code: str, message: str) -> None:
    with pytest.raises(RlxError, match=message) as caught:
        imported(built)
    assert caught.value.code == code
    assert "m.onnx: node 'make_y' (" in str(caught.value)
