"""The table of attributes is the schemas', and what is not in it is refused."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.attribute_names import attribute_names
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.onnx.convert import CONTROL_FLOW, CONVERTERS, FOLDED_ONLY
from rlx_edge.ir.onnx.importer import import_model
from rlx_edge.ir.onnx.model import MAX_OPSET, MIN_OPSET
from scripts.build_attributes import ANY_VERSION

OPERATORS = sorted({*(name for _, name in CONVERTERS), *FOLDED_ONLY, *CONTROL_FLOW})
LATEST = min(MAX_OPSET, onnx.defs.onnx_opset_version())


@pytest.mark.parametrize("name", OPERATORS)
def test_table(name: str) -> None:
    for opset in range(MIN_OPSET, LATEST + 1):
        if name not in ANY_VERSION and onnx.defs.has(name, opset, ""):
            schema = onnx.defs.get_schema(name, opset, "")
            assert attribute_names(name, opset) == tuple(sorted(schema.attributes)), opset


def single_node(name: str, opset: int, inputs: int = 1, **attributes: Any) -> MemorySource:
    """A model of one node `odd`, each value f32[1, 2]."""
    names = [f"x{index}" for index in range(inputs)]
    values = [
        helper.make_tensor_value_info(item, TensorProto.FLOAT, [1, 2]) for item in (*names, "y")
    ]
    node = helper.make_node(name, names, ["y"], name="odd", **attributes)
    graph = helper.make_graph([node], "g", values[:-1], values[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return MemorySource(model.SerializeToString())


@pytest.mark.parametrize(
    ("name", "attribute", "opset", "allowed"),
    [
        ("Relu", {"alpha": 0.1}, 17, "none"),
        ("Squeeze", {"axes": [0]}, 13, "none"),
        ("LeakyRelu", {"beta": 0.1}, 17, "alpha"),
    ],
)
def test_unknown(name: str, attribute: dict[str, Any], opset: int, allowed: str) -> None:
    with pytest.raises(ModelError, match="the operator has no such attribute") as caught:
        import_model(single_node(name, opset, **attribute))
    (found,) = attribute
    assert caught.value.found == repr(found)
    assert "node 'odd'" in str(caught.value)
    assert str(caught.value).endswith(f"allowed: {allowed}")


@pytest.mark.parametrize(
    ("name", "attributes", "opset", "inputs"),
    [
        ("Relu", {"__note": "a producer's"}, 17, 1),
        ("LayerNormalization", {"axis": 0, "epsilon": 0.1, "stash_type": 1}, 11, 2),
        ("ThresholdedRelu", {"alpha": 0.5}, 9, 1),
        ("Constant", {"value_floats": [1.0, 2.0]}, 9, 0),
    ],
)
def test_taken(name: str, attributes: dict[str, Any], opset: int, inputs: int) -> None:
    """onnxruntime loads these too."""
    import_model(single_node(name, opset, inputs, **attributes))
