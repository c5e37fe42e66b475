"""GatherND against onnxruntime: positions along some or all axes, sizes open or known."""

# covers R13

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper

from rlx_edge import InferenceSession
from rlx_edge.ir.errors import ModelError
from tests.oracles import Oracle

SHAPE = (3, 4, 5)


def model(rank: int, count: int, is_open: bool, batch_dims: int = 0) -> bytes:
    sizes = ["a", "b", "c"][:rank] if is_open else list(SHAPE[:rank])
    graph = helper.make_graph(
        [helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch_dims)],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["n", 2, count]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opset = helper.make_opsetid("", 17)
    found = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(found.SerializeToString())


@pytest.mark.parametrize(("rank", "count"), [(1, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
@pytest.mark.parametrize("is_open", [False, True])
def test_it_agrees_with_onnxruntime(rank: int, count: int, is_open: bool) -> None:
    given = model(rank, count, is_open)
    rng = np.random.default_rng(rank * 10 + count)
    positions = [rng.integers(-size, size, (7, 2)) for size in SHAPE[:count]]
    feeds: dict[str, npt.NDArray[Any]] = {
        "x": rng.standard_normal(SHAPE[:rank]).astype(np.float32),
        "i": np.stack(positions, -1),
    }
    with InferenceSession(given) as session:
        (found,) = session.run(None, feeds)
    assert np.array_equal(found, Oracle(given).run(feeds)["y"])


def test_batches_of_positions_are_refused() -> None:
    with pytest.raises(ModelError, match="batch_dims"):
        InferenceSession(model(3, 1, False, batch_dims=1))
