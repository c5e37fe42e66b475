"""The memory plan never overlaps buffers that are alive together, whatever the sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.memory_plan import ALIGNMENT, Lifetime, assign_offsets, hint_offsets
from rlx_edge.compile.plan_builder import PlanBuilder
from rlx_edge.ir.plan import PlanProgram, run_instructions


def _program(builder: PlanBuilder) -> PlanProgram:
    return PlanProgram(
        tuple(builder.symbols), tuple(builder.instructions), (), (), (), 0, 0, (), ()
    )


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], list[int]]:
    count = draw(st.integers(1, 14))
    spans = []
    for _ in range(count):
        first = draw(st.integers(0, 12))
        spans.append((first, draw(st.integers(first, 14)), draw(st.integers(0, 40) | st.just(0))))
    sizes = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count))
    return spans, sizes


@given(lifetimes())
def test_conflicting_buffers_are_disjoint_at_any_size(
    case: tuple[list[tuple[int, int, int]], list[int]],
) -> None:
    spans, sizes = case
    builder = PlanBuilder()
    buffers = [
        Lifetime(first, last, builder.symbol(f"s{index}"), hint * ALIGNMENT)
        for index, (first, last, hint) in enumerate(spans)
    ]
    offsets, peak = assign_offsets(builder, buffers)
    env = {f"s{index}": size * ALIGNMENT for index, size in enumerate(sizes)}
    values = run_instructions(_program(builder), env)
    for index, buffer in enumerate(buffers):
        start, end = values[offsets[index]], values[offsets[index]] + env[f"s{index}"]
        assert start % ALIGNMENT == 0
        assert end <= values[peak]
        for other in range(index):
            if buffer.conflicts(buffers[other]):
                there = values[offsets[other]]
                assert end <= there or there + env[f"s{other}"] <= start


@given(lifetimes())
def test_the_hint_layout_is_what_the_plan_gives_at_the_hint(
    case: tuple[list[tuple[int, int, int]], list[int]],
) -> None:
    spans, _ = case
    builder = PlanBuilder()
    buffers = [
        Lifetime(first, last, builder.const(hint * ALIGNMENT), hint * ALIGNMENT)
        for first, last, hint in spans
    ]
    offsets, _ = assign_offsets(builder, buffers)
    assert all(
        (builder.literal(value) or 0) <= hint
        for value, hint in zip(offsets, hint_offsets(buffers), strict=True)
    )


def test_buffers_that_never_meet_share_their_memory() -> None:
    builder = PlanBuilder()
    size = builder.const(128)
    buffers = [Lifetime(0, 1, size, 128), Lifetime(2, 3, size, 128), Lifetime(1, 2, size, 128)]
    offsets, peak = assign_offsets(builder, buffers)
    assert [builder.literal(value) for value in offsets] == [0, 0, 128]
    assert builder.literal(peak) == 256
