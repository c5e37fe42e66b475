"""Dims become plan instructions with the same value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.plan_builder import PlanBuilder
from rlx_edge.ir.core import Guard
from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.errors import GuardError, LimitError
from rlx_edge.ir.plan import MEMORY_LIMIT, PlanProgram, evaluate, run_instructions

_LEAVES = st.integers(-9, 9).map(as_dim) | st.sampled_from(("a", "b", "c")).map(symbol)


def _combine(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pair = st.tuples(inner, inner)
    divisor = st.integers(1, 7)
    return (
        pair.map(lambda p: p[0] + p[1])
        | pair.map(lambda p: p[0] - p[1])
        | pair.map(lambda p: p[0] * p[1])
        | pair.map(lambda p: dim_max(*p))
        | pair.map(lambda p: dim_min(*p))
        | st.tuples(inner, divisor).map(lambda p: p[0] // p[1])
        | st.tuples(inner, divisor).map(lambda p: p[0] % p[1])
    )


DIMS = st.recursive(_LEAVES, _combine, max_leaves=8)
SIZES = st.integers(1, 50)


def _plan(builder: PlanBuilder, peak: int = 0, words: int = 0, writes=()) -> PlanProgram:  # type: ignore[no-untyped-def]
    return PlanProgram(
        tuple(builder.symbols),
        tuple(builder.instructions),
        tuple(builder.guards),
        (0,) * words,
        tuple(writes),
        0,
        peak,
        (),
        (),
    )


@given(DIMS, SIZES, SIZES, SIZES)
def test_a_dim_and_its_instructions_agree(dim: Dim, a: int, b: int, c: int) -> None:
    builder = PlanBuilder()
    number = builder.dim(dim)
    env = {"a": a, "b": b, "c": c}
    assert run_instructions(_plan(builder), env)[number] == dim.evaluate(env)


def test_equal_dims_are_computed_once() -> None:
    builder = PlanBuilder()
    first = builder.dim("(w + 1) // 2 * 4")
    count = len(builder.instructions)
    assert builder.dim("4 * ((w + 1) // 2)") == first
    assert len(builder.instructions) == count


def test_a_failing_guard_names_itself() -> None:
    builder = PlanBuilder()
    builder.guard(Guard(as_dim("sr"), "==", as_dim(16000), "the branch of this variant"))
    peak = builder.const(0)
    evaluate(_plan(builder, peak), {"sr": 16000})
    with pytest.raises(GuardError, match=r"sr == 16000 \(the branch of this variant\)"):
        evaluate(_plan(builder, peak), {"sr": 8000})


def test_more_memory_than_webassembly_has_is_refused() -> None:
    builder = PlanBuilder()
    peak = builder.dim("n * 65536")
    evaluate(_plan(builder, peak), {"n": MEMORY_LIMIT // 65536})
    with pytest.raises(LimitError, match="4295032832 bytes"):
        evaluate(_plan(builder, peak), {"n": MEMORY_LIMIT // 65536 + 1})


def test_addresses_above_two_gib_keep_their_bits() -> None:
    builder = PlanBuilder()
    address = builder.dim("n * 1024")
    plan = evaluate(_plan(builder, builder.const(0), 1, [(0, address)]), {"n": 3 << 20})
    assert plan.words[0] & 0xFFFFFFFF == 3 << 30
