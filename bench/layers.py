"""The layers that are measured: matrix products and convolutions of well-known networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

LARGE_OPERATIONS = 1e8
"""A layer with more multiplications and additions than this has to come near the limit."""


@dataclass(frozen=True)
class Layer:
    """One layer: as a model with random weights, its input, and what one run computes.

    `op` is a part of the name of the launches that are timed: conversions of layout around a
    single layer would not be there inside a network.
    """

    name: str
    op: str
    model: bytes
    inputs: dict[str, npt.NDArray[np.float32]]
    operations: int
    depthwise: bool = False

    @property
    def is_large(self) -> bool:
        """Whether the threshold of the acceptance list holds for this layer."""
        return self.operations >= LARGE_OPERATIONS and not self.depthwise


def matmul(m: int, n: int, k: int) -> Layer:
    """[m, k] times a constant [k, n]; m is left open in the model."""
    rng = np.random.default_rng(m * n + k)
    weight = rng.standard_normal((k, n), dtype=np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = _model([node], ["m", k], ["m", n], {"w": weight})
    x = rng.standard_normal((m, k), dtype=np.float32)
    return Layer(f"matmul {m}x{n}x{k}", "matmul", model, {"x": x}, 2 * m * n * k)


def conv(
    channels: int, side: int, kernel: int, out: int, stride: int = 1, groups: int = 1
) -> Layer:
    """A square image, same padding, bias and ReLU; the batch is left open in the model."""
    rng = np.random.default_rng(channels * side + kernel)
    weight = rng.standard_normal((out, channels // groups, kernel, kernel), dtype=np.float32)
    bias = rng.standard_normal(out, dtype=np.float32)
    half = kernel // 2
    result = (side + 2 * half - kernel) // stride + 1
    nodes = [
        helper.make_node(
            "Conv",
            ["x", "w", "b"],
            ["c"],
            kernel_shape=[kernel, kernel],
            pads=[half] * 4,
            strides=[stride, stride],
            group=groups,
        ),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = _model(
        nodes, ["n", channels, side, side], ["n", out, result, result], {"w": weight, "b": bias}
    )
    depthwise = groups == channels
    kind = "depthwise" if depthwise else "conv"
    name = f"{kind} {channels}@{side} {kernel}x{kernel} {out}" + (f" /{stride}" * (stride > 1))
    x = rng.standard_normal((1, channels, side, side), dtype=np.float32)
    operations = 2 * result * result * out * (channels // groups) * kernel * kernel
    return Layer(name, "conv2d", model, {"x": x}, operations, depthwise)


def layers() -> list[Layer]:
    """Matrix products, then the shapes of ResNet-50, then depthwise layers of MobileNet."""
    return [
        matmul(512, 512, 512),
        matmul(128, 768, 768),
        matmul(196, 256, 1024),
        conv(64, 56, 3, 64),
        conv(128, 28, 3, 128),
        conv(256, 14, 3, 256),
        conv(512, 7, 3, 512),
        conv(128, 56, 3, 128, stride=2),
        conv(3, 224, 7, 64, stride=2),
        conv(1024, 14, 1, 256),
        conv(64, 56, 1, 256),
        conv(144, 56, 3, 144, groups=144),
        conv(384, 14, 3, 384, groups=384),
    ]


def _model(
    nodes: list[object],
    x: list[int | str],
    y: list[int | str],
    weights: dict[str, npt.NDArray[np.float32]],
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    result: bytes = model.SerializeToString()
    return result
