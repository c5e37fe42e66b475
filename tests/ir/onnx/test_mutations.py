"""Spoiled models: whatever is changed, the importer gives a valid module or one clear error."""

from __future__ import annotations

import random

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.onnx.importer import as_model, import_model, value_inputs
from rlx_edge.ir.verifier import verify
from tests.ir.onnx import (
    test_convert_elementwise,
    test_convert_layers,
    test_convert_movement,
    test_importer,
    test_shape_arithmetic,
)
from tests.ir.onnx.models import model, value

CASES = [
    *test_convert_elementwise.UNARY,
    *test_convert_elementwise.BINARY,
    *test_convert_layers.CONVOLUTIONS,
    *test_convert_layers.POOLS,
    *test_convert_layers.REDUCTIONS,
    *test_convert_movement.SHAPES,
    *test_convert_movement.SLICES,
    *test_convert_movement.PADS,
    *test_convert_movement.RESIZES,
]
MODELS = [
    *(case.model for case in CASES),
    test_importer.RATE,
    test_importer.SIZE_BRANCH,
    *(
        model(nodes, [value("x", list(test_shape_arithmetic.SIZES))], ["y"], constants)
        for nodes, constants in (
            (chain, test_shape_arithmetic.CONSTANTS)
            for chain in test_shape_arithmetic.CHAINS.values()
        )
    ),
]
OPERATORS = sorted({node.op_type for item in MODELS for node in item.graph.node})
NUMBERS = (0, 1, -1, 2, 3, -2, 5, 100, -100, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, float("inf"), float("nan"), 1e30)


def spoil(built: onnx.ModelProto, rng: random.Random) -> None:
    """One change to a node, a constant, an input or the opset."""
    graph = built.graph
    node = rng.choice(graph.node)
    names = [item.name for item in (*graph.input, *graph.initializer)]
    match rng.randrange(9):
        case 0 if node.attribute:
            _spoil_attribute(rng.choice(node.attribute), rng)
        case 1 if node.attribute:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 2 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", *names])
        case 3:
            node.input.append(rng.choice(["", *names]))
        case 4 if node.input:
            del node.input[-1]
        case 5 if graph.initializer:
            _spoil_constant(rng.choice(graph.initializer), rng)
        case 6:
            _spoil_input(rng.choice(graph.input), rng)
        case 7:
            node.op_type = rng.choice(OPERATORS)
        case 8:
            built.opset_import[0].version = rng.choice((6, 7, 9, 10, 11, 12, 13, 17, 18, 21, 24))


def _spoil_attribute(attribute: onnx.AttributeProto, rng: random.Random) -> None:
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
        if rng.random() < 0.3:
            attribute.ints.append(rng.choice(NUMBERS))
    attribute.i = rng.choice(NUMBERS)
    attribute.f = rng.choice(FLOATS)
    attribute.s = rng.choice((b"", b"linear", b"SAME_UPPER", b"\xff"))
    if rng.random() < 0.2:
        attribute.type = rng.randrange(12)


def _spoil_constant(tensor: onnx.TensorProto, rng: random.Random) -> None:
    array = np.array(numpy_helper.to_array(tensor))
    with np.errstate(invalid="ignore", over="ignore"):  # any bits will do
        match rng.randrange(4):
            case 0 if array.size:
                number = np.array(rng.choice(NUMBERS)).astype(array.dtype)
                array.flat[rng.randrange(array.size)] = number
            case 1:
                array = array.reshape(-1)[:-1]
            case 2:
                array = array.astype(rng.choice((np.int64, np.float32, np.int32, np.bool_)))
            case 3:
                array = array[np.newaxis]
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _spoil_input(info: onnx.ValueInfoProto, rng: random.Random) -> None:
    dims = info.type.tensor_type.shape.dim
    match rng.randrange(4):
        case 0 if dims:
            rng.choice(dims).dim_value = rng.choice((1, 2, 3, 7, 0, -1, 2**40))
        case 1 if dims:
            rng.choice(dims).dim_param = rng.choice(("n", "?", "max", "", "q r"))
        case 2:
            dims.add().dim_value = 3
        case 3:
            info.type.tensor_type.elem_type = rng.choice((1, 2, 6, 7, 8, 9, 10, 11))


@settings(max_examples=400)
@given(st.integers(0, 2**40), st.integers(1, 3))
def test_a_spoiled_model_is_imported_or_refused(seed: int, changes: int) -> None:
    rng = random.Random(seed)
    built = onnx.ModelProto.FromString(rng.choice(MODELS).SerializeToString())
    for _ in range(changes):
        spoil(built, rng)
    try:
        records = as_model(built.SerializeToString())
        value_inputs(records)
        verify(import_model(records))
    except RlxError as error:
        assert error.code
        assert error.where
        assert "\n" not in str(error)
