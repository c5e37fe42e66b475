"""Every operator's examples by the interpreter against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_edge.ir.opdef import Data, Example
from rlx_edge.ir.ops import OPS
from tests.ir.op_cases import NODES, SIZES, reference, run_example, sample

CASES = [
    pytest.param(name, example, id=f"{name.removeprefix('rlxc::')}-{example.name}")
    for name, definition in OPS.items()
    if name.startswith("rlxc::")
    for example in definition.examples
]
TOLERANCE = 2e-6
"""Of the largest reference value or 1: f32 sums of a few dozen terms around 1, in another order."""


@pytest.mark.parametrize(("name", "example"), CASES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_example_matches_onnxruntime(name: str, example: Example, seed: int) -> None:
    arrays = sample(name, example, seed)
    expected = reference(name, example.attrs, arrays)
    found = run_example(name, example, arrays)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        largest = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * largest)
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_operator_has_an_example_a_doc_line_and_a_reference() -> None:
    for name, definition in OPS.items():
        assert definition.doc, name
        if not isinstance(definition.define, Data) and name != "tensor::splat":
            assert definition.examples, name
        if name.startswith("rlxc::"):
            assert name.removeprefix("rlxc::") in NODES, name


def test_sizes_as_data() -> None:
    (example,) = OPS["tensor::from_dims"].examples
    found = run_example("tensor::from_dims", example, [])
    np.testing.assert_array_equal(found, [SIZES["n"], 8, SIZES["n"] * 8])
