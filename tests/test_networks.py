"""Random networks, compiled once and run at several sizes, against the interpreter: same bits."""

# covers R12, R14

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge import InferenceSession
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import GuardError
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.module_file import save_module
from rlx_edge.ir.tensor import Tensor
from rlx_edge.ir.types import F32
from tests.compile.passes.test_preserves_values import difference
from tests.network_strategies import feeds, networks

SIZES = ({"batch": 2, "w": 5}, {"batch": 1, "w": 9}, {"batch": 3, "w": 6})


def run(session: InferenceSession, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    arrays = {
        name: np.frombuffer(item.tobytes(), np.float32).reshape(item.shape)
        for name, item in inputs.items()
    }
    outputs = session.run(None, arrays)
    names = [port.name for port in session.get_outputs()]
    return {
        name: Tensor(F32, array.shape, np.ascontiguousarray(array).tobytes())
        for name, array in zip(names, outputs, strict=True)
    }


@settings(max_examples=40)
@given(networks(), st.integers(0, 99), st.booleans())
def test_kernels_give_the_interpreters_bits(module: Module, seed: int, special: bool) -> None:
    # The rewrites that change values come first, so that all that follows keeps the bits.
    module = run_passes(module, "canonicalize,revalue")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.rlx"
        save_module(module, path)
        with InferenceSession(str(path)) as session:
            for sizes in SIZES:
                inputs = feeds(module, seed, special, sizes)
                expected = interpret(module, inputs)
                if any(0 in tensor.shape for tensor in expected.values()):
                    with pytest.raises(GuardError, match="would be empty"):
                        run(session, inputs)
                    continue
                problem = difference(expected, run(session, inputs))
                assert problem is None, f"{sizes}: {problem}"
