"""What the GPU benchmark builds and writes; how fast anything is, no test says."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.gpu.attention import AttentionRow, error_of
from bench.gpu.models import Row
from bench.gpu.ours import Ours
from bench.gpu.peaks import Peaks
from bench.gpu.peers import fixed_graph
from bench.gpu.report import as_json, as_markdown
from bench.gpu.subjects import dequantised, resnet50
from bench.gpu.timing import interleave
from bench.timing import Times
from rlx_edge.model_store import model_path
from tests import sample_inputs
from tests.oracles import Oracle

TIMES = Times((0.002, 0.002, 0.004))


def quantised() -> onnx.ModelProto:
    weight = np.array([[1, -2], [3, 4]], np.int8)
    nodes = [
        helper.make_node("Cast", ["w_q"], ["w_f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["w_f", "scale"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Reshape", ["y", "size"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2])],
        [
            numpy_helper.from_array(weight, "w_q"),
            numpy_helper.from_array(np.array([0.5, 0.25], np.float32), "scale"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_int8_weights_become_floats() -> None:
    feeds = {"x": np.array([[1, 2], [3, 4]], np.float32)}
    expected = Oracle(quantised().SerializeToString()).run(feeds)["z"]
    model = dequantised(quantised())
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Shape", "Reshape"]
    assert {item.name for item in model.graph.initializer} == {"w"}
    assert np.array_equal(Oracle(model.SerializeToString()).run(feeds)["z"], expected)


def test_peers_get_a_graph_without_shape_arithmetic() -> None:
    feeds = {"x": np.ones((3, 2), np.float32)}
    graph = fixed_graph(dequantised(quantised()).SerializeToString(), feeds).graph
    assert "Shape" not in [node.op_type for node in graph.node]


@pytest.mark.slow
def test_the_light_model_keeps_its_values_in_range() -> None:
    model = resnet50(0).SerializeToString()
    assert model == resnet50(0).SerializeToString()
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    (logits,) = Oracle(model).run({"x": x}).values()
    assert logits.shape == (1, 1000) and 1 < float(np.abs(logits).max()) < 1000


def test_work_and_its_amount() -> None:
    ours = Ours(model_path("digits"), "wasm:0", "fixed", sample_inputs.digits(0, 2))
    amount = ours.amount
    assert amount.flops > 100_000 and amount.nbytes > 10_000
    (times,) = interleave([ours.work], 2)
    assert len(times.seconds) == 2 and ours.measurements == []
    ours.close()


def rows() -> list[Row]:
    ways: list[Mapping[str, object]] = [{"value": "y", "microseconds": {"0 a": 1.234, "1 b": None}}]
    peers = {"eager": Times((0.003, 0.003, 0.003)), "CUDA graph": Times((0.001, 0.001, 0.001))}
    return [
        Row("m", 1, "cuda:0", "fixed", TIMES, peers, 0.001, "memory", 1e-6, ways),
        Row("m", 1, "vulkan:0", "fixed", Times((0.004,) * 3), peers, 0.001, "memory", 1e-6),
    ]


def test_pages_have_ratios_and_bounds() -> None:
    attention = [
        AttentionRow(1, 128, 384, "tf32", TIMES, Times((0.006,) * 3), TIMES, 1e-3, "memory", 0)
    ]
    page = as_markdown({"device": "d"}, rows(), attention)
    assert "| m | 1 | cuda:0 | fixed | 2.000 | 3.000 | 1.000 | 0.50 | 1.000 memory | 50% |" in page
    assert "* m, batch 1, fixed: Vulkan at 50% of CUDA's rate" in page
    assert "| 1 | 128 | 384 | tf32 | 2.000 | 6.000 | 3.00 |" in page
    found = json.loads(as_json({"device": "d"}, rows(), attention))
    assert found["models"][0]["peers"] == {"eager": 0.003, "CUDA graph": 0.001}
    assert found["models"][0]["ways"][0]["microseconds"] == {"0 a": 1.23, "1 b": None}


def test_the_bound_is_the_larger_one() -> None:
    peaks = Peaks({"fp32": 1e12, "tf32": 1e13, "fp16": 1e14}, 1e12)
    assert peaks.bound("fixed", 2_000_000_000, 10**9) == (0.002, "arithmetic")
    assert peaks.bound("fp16", 2_000_000_000, 10**9) == (0.001, "memory")


def test_errors_of_attention_are_relative() -> None:
    feeds = {"q": np.zeros((1, 1, 2)), "k": np.zeros((1, 2, 2)), "v": np.array([[[4.0], [2.0]]])}
    assert error_of(np.array([[[3.0]]]), feeds, 2) == 0
    assert error_of(np.array([[[1.5]]]), feeds, 2) == 0.5
