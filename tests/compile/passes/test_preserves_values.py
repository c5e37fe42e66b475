"""Every pass keeps every bit of every result, on random networks and inputs."""

# covers R12

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlx_edge.compile.passes import fold
from rlx_edge.compile.pipeline import native_pipeline, parse_pipeline, run_passes
from rlx_edge.ir.core import Module
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.tensor import Tensor
from tests.network_strategies import feeds, networks

DEVICES = ("wasm:0", "vulkan:0")
"""A target whose kernels reduce once, and one whose kernels take whole rows."""


def difference(before: dict[str, Tensor], after: dict[str, Tensor]) -> str | None:
    """The first element that has other bits; every NaN counts as the same."""
    if list(before) != list(after):
        return f"outputs {list(before)} became {list(after)}"
    for name, expected in before.items():
        found = after[name]
        if (expected.dtype, expected.shape) != (found.dtype, found.shape):
            return f"{name}: {expected} became {found}"
        if expected.tobytes() == found.tobytes():
            continue
        for place, (a, b) in enumerate(zip(expected.values(), found.values(), strict=True)):
            same = a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
            if not same and not (a != a and b != b):
                return f"{name}[{place}]: {a!r} became {b!r}"
    return None


@settings(max_examples=60)
@given(networks(), st.integers(0, 99), st.booleans(), st.sampled_from(DEVICES))
def test_passes_keep_every_bit(module: Module, seed: int, special: bool, device: str) -> None:
    check_every_step(module, seed, special, device)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(module=networks(), seed=st.integers(0, 99), device=st.sampled_from(DEVICES))
def test_passes_keep_every_bit_where_constants_wait_for_prepare(
    monkeypatch: pytest.MonkeyPatch, module: Module, seed: int, device: str
) -> None:
    monkeypatch.setattr(fold, "FOLD_LIMIT", 0)
    check_every_step(module, seed, special=False, device=device)


def check_every_step(module: Module, seed: int, special: bool, device: str) -> None:
    inputs = feeds(module, seed, special)
    before = interpret(module, inputs)
    for step in parse_pipeline(native_pipeline(device)):
        module = run_passes(module, str(step), check=True)
        after = interpret(module, inputs)
        if step.name != "revalue":
            problem = difference(before, after)
            assert problem is None, f"{step}: {problem}\n{print_module(module)}"
        before = after


@settings(max_examples=60)
@given(networks(), st.sampled_from(DEVICES))
def test_the_whole_pipeline_is_deterministic(module: Module, device: str) -> None:
    pipeline = native_pipeline(device)
    given_text = print_module(module)
    first = print_module(run_passes(module, pipeline))
    assert print_module(run_passes(module, pipeline)) == first
    assert print_module(module) == given_text
