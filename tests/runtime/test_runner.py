"""The order of things on any unit, seen through one that computes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlx_edge.ir.commands import Free, Run, Send
from rlx_edge.ir.errors import (
    DeviceError,
    DigestError,
    GuardError,
    InputError,
    LimitError,
    RlxError,
)
from rlx_edge.ir.program import Program
from rlx_edge.runtime import runner as runner_module
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.units import NullUnit
from tests.runtime import hand_made


def make(
    program: Program = hand_made.PROGRAM, unit: NullUnit | None = None, **options: object
) -> ProgramRunner:
    return ProgramRunner(
        program,
        hand_made.constants(),
        unit or NullUnit(),
        DeviceContext("null:0"),
        **options,  # type: ignore[arg-type]
    )


def run(runner: ProgramRunner, n: int, k: int = 3) -> list[np.ndarray]:
    program = runner.program
    bound = FeedChecker(program.inputs, program.bindings).bind(hand_made.feeds(n, k))
    return runner.run(bound.arrays, bound.symbols)


def test_prepare_runs_once_and_segments_every_time() -> None:
    unit = NullUnit()
    runner = make(unit=unit)
    assert unit.launches == []
    run(runner, 2)
    run(runner, 2)
    assert unit.launches == [(0, 1), (1, 2), (2, 3), (1, 2), (2, 3)]


def test_words_and_weights_are_where_the_plan_says() -> None:
    unit = NullUnit()
    runner = make(unit=unit)
    run(runner, 2, k=9)
    words = unit.bytes_at(hand_made.BLOCK, 4 * len(hand_made.WORDS)).view("<i4")
    assert words[7:11].tolist() == [1184 + 32, 1184, hand_made.PACKED_AT, 32]
    assert words[14] == 9
    assert (unit.bytes_at(hand_made.WEIGHTS_AT, 16).view("<f4") == hand_made.WEIGHTS).all()


def test_plans_are_remembered_and_bounded() -> None:
    runner = make(plans=2)
    for n in (1, 2, 1, 2):
        run(runner, n)
    assert runner.plan_count == 2
    run(runner, 3)
    run(runner, 2)
    assert runner.plan_count == 3
    run(runner, 1)
    assert runner.plan_count == 4


def test_memory_grows_and_never_shrinks() -> None:
    unit = NullUnit()
    runner = make(unit=unit)
    run(runner, 100)
    large = unit.size
    run(runner, 1)
    assert unit.size == large == hand_made.RESIDENT + 2 * 1600 + 16


def test_outputs_are_fresh_arrays() -> None:
    runner = make()
    (first,) = run(runner, 2)
    first[:] = 77
    (second,) = run(runner, 2)
    assert not np.shares_memory(first, second)
    assert not (second == 77).any()


def test_execute_allocates_nothing() -> None:
    # covers R4
    runner = make()
    for n in (3, 3, 1):
        run(runner, n)
    events = runner.trace.take()
    assert [event.phase for event in events if event.kind == "allocate"] == ["dispatch"]
    assert {event.kind for event in events if event.phase == "execute"} == {
        "input",
        "run",
        "output",
    }
    assert sum(event.kind == "upload" for event in events) == 1


def test_profiling_times_every_launch() -> None:
    program = replace(hand_made.PROGRAM, execute=(Run(1, 3), Free(0)))
    unit = NullUnit()
    runner = make(program, unit, profile=True)
    run(runner, 2)
    names = [event.name for event in runner.trace if event.kind == "run"]
    assert names == ["rlxc::mul", "rlxc::mul", "rlxc::add"]
    assert unit.launches == [(0, 1), (1, 2), (2, 3)]


def test_closing_releases_everything() -> None:
    context, unit = DeviceContext("null:0"), NullUnit()
    runner = ProgramRunner(
        hand_made.PROGRAM, hand_made.constants(), unit, context, holder="session digits"
    )
    run(runner, 2)
    assert [leak.name for leak in context.leaks()] == ["arena", "weights"]
    assert {leak.holder for leak in context.leaks()} == {"session digits"}
    runner.close()
    context.close()
    with pytest.raises(DeviceError) as caught:
        run(runner, 2)
    assert caught.value.code == "unit.closed"


def test_weights_go_through_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "STAGING", 6)
    told: list[tuple[int, int]] = []
    unit = NullUnit()
    runner = make(unit=unit, progress=lambda done, total: told.append((done, total)))
    run(runner, 1)
    assert told == [(6, 16), (12, 16), (16, 16)]
    assert (unit.bytes_at(hand_made.WEIGHTS_AT, 16).view("<f4") == hand_made.WEIGHTS).all()


def test_weights_of_another_digest_are_refused() -> None:
    other = hand_made.constants(hand_made.WEIGHTS + 1)
    runner = ProgramRunner(
        hand_made.PROGRAM, other, NullUnit(), DeviceContext("null:0"), check_weights=True
    )
    with pytest.raises(DigestError) as caught:
        run(runner, 1)
    assert hand_made.DIGEST in str(caught.value) and str(caught.value).count("sha256:") == 2


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        ({"execute": (Run(1, 4),)}, DeviceError, "program.launches"),
        ({"execute": (Send(0),)}, DeviceError, "program.transport"),
        ({"execute": (Run(2, 2),)}, RlxError, "commands.run"),
        (
            {"uploads": (replace(hand_made.PROGRAM.uploads[0], nbytes=8),)},
            DigestError,
            "program.constant",
        ),
        (
            {"uploads": (replace(hand_made.PROGRAM.uploads[0], digest="sha256:11"),)},
            DigestError,
            "program.constant",
        ),
        ({"resident": (1 << 32) + 1}, LimitError, "memory.limit"),
    ],
)
def test_programs_that_cannot_run(
    change: dict[str, object], error: type[RlxError], code: str
) -> None:
    unit = NullUnit()
    with pytest.raises(error) as caught:
        make(replace(hand_made.PROGRAM, **change), unit)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert unit.program is None


def test_a_plan_that_was_edited_cannot_reach_outside_its_memory() -> None:
    plan = replace(hand_made.PLAN, outputs=((9, (0, 9)),), peak=4)  # y at 4, over x and beyond
    for changed, code in (
        (replace(hand_made.PLAN, peak=4), "plan.place"),
        (plan, None),
        (replace(hand_made.PLAN, outputs=((10, (0, 9)),)), "plan.align"),
    ):
        runner = make(replace(hand_made.PROGRAM, plan=changed))
        with pytest.raises(LimitError) as caught:
            run(runner, 2)
        assert code is None or caught.value.code == code


def test_sizes_beyond_the_plan() -> None:
    runner = make(unit=NullUnit(limit=1 << 20))
    with pytest.raises(LimitError) as caught:
        runner.plan({"n": (1 << 28) - 1, "k": 0})
    assert "4294967296" in str(caught.value)
    with pytest.raises(GuardError) as guard:
        runner.plan({"n": (1 << 28) + 1, "k": 0})
    assert "n <= 268435456" in str(guard.value)
    with pytest.raises(LimitError) as caught:
        runner.plan({"n": 1, "k": 1 << 40})
    assert caught.value.code == "plan.range"
    with pytest.raises(LimitError) as caught:
        run(runner, 1 << 16)
    assert caught.value.code == "memory.limit"
    run(runner, 1)


def test_symbols_that_no_input_gives() -> None:
    with pytest.raises(InputError) as caught:
        make().plan({"n": 1})
    assert caught.value.code == "input.symbol"
    assert "k" in str(caught.value)


def test_guards_choose_the_variant() -> None:
    runner = make()
    assert runner.holds({"n": 1, "k": 99})
    assert not runner.holds({"n": 1, "k": 100})
