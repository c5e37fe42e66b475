"""Emitted kernels give the bits of the oracle, whatever the loops, strides, types and lengths."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlx_edge.compile.codegen.wasm.emit import emit_module
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.kernel import generalize
from tests.kernel_oracle import evaluate_kernel, same_bits
from tests.kernel_strategies import Case, elementwise_kernels, reduction_kernels
from tests.wasm_runner import run_kernel

SETTINGS = settings(
    max_examples=150,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@pytest.fixture
def check(tmp_path: Path, wasm_validate: str):
    def run(case: Case) -> None:
        generic, arguments = generalize(case.kernel)
        wasm = emit_module([generic], WasmTarget())
        path = tmp_path / "module.wasm"
        path.write_bytes(wasm)
        result = subprocess.run([wasm_validate, str(path)], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        actual = run_kernel(wasm, 0, case.buffers, [dim.value for dim in arguments])
        expected = evaluate_kernel(case.kernel, case.buffers)
        assert same_bits(actual, expected), np.flatnonzero(actual != expected)[:8]

    return run


@SETTINGS
@given(case=elementwise_kernels())
def test_elementwise(check, case: Case) -> None:
    check(case)


@SETTINGS
@given(case=reduction_kernels(st.integers(0, 40)))
def test_reductions(check, case: Case) -> None:
    check(case)
