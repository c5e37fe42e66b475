"""The command-list interpreter: golden event → action logs, and events that cannot happen."""

from __future__ import annotations

import re
from itertools import permutations

import pytest

from rlx_edge.ir.commands import Command, Free, Receive, Run, Send, Wait
from rlx_edge.ir.errors import RlxError
from rlx_edge.runtime.executor import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Executor,
    Failed,
    Finished,
    SegmentDone,
    SendDone,
    Started,
    State,
    Stopped,
    check_commands,
)
from tests.conftest import GOLDEN, Golden

COMMANDS: dict[str, type[Command]] = {
    "run": Run,
    "send": Send,
    "receive": Receive,
    "wait": Wait,
    "free": Free,
}
EVENTS: dict[str, type[Event]] = {
    "started": Started,
    "segment_done": SegmentDone,
    "send_done": SendDone,
    "arrived": Arrived,
    "cancelled": Cancelled,
    "failed": Failed,
}


def read_commands(line: str) -> list[Command]:
    commands: list[Command] = []
    for part in line.split(";"):
        word, *numbers = part.split()
        commands.append(COMMANDS[word](*map(int, numbers)))
    return commands


def read_event(line: str) -> Event:
    word, *rest = line.split(maxsplit=1)
    kind = EVENTS[word]
    if kind is Failed:
        return Failed(rest[0])
    return kind(*map(int, rest))


def show(action: Action) -> str:
    match action:
        case Finished():
            return "finished"
        case Stopped(reason):
            return f"stopped {reason}"
        case Run(begin, end):
            return f"run {begin} {end}"
        case Free(buffer):
            return f"free {buffer}"
    return f"{type(action).__name__.lower()} {action.edge}"


def replay(script: str) -> str:
    """The script with what the executor answers to each event: ``> event`` then ``< action``s."""
    lines: list[str] = []
    executor: Executor | None = None
    for line in script.splitlines():
        if not line or line.startswith("#"):
            lines.append(line)
        elif executor is None:
            commands = read_commands(line.removeprefix("commands:"))
            check_commands(commands)
            executor = Executor(commands)
            lines.append(line)
        else:
            lines.append(f"> {line}")
            try:
                lines += [f"< {show(action)}" for action in executor.handle(read_event(line))]
            except RlxError as error:
                lines.append(f"! {re.sub(r'; found .*', '', str(error))}")
    assert executor is not None
    return "\n".join([*lines, f"= {executor.state.value}", ""])


CASES = sorted(path.stem for path in (GOLDEN / "executor").glob("*.events"))


@pytest.mark.parametrize("case", CASES)
def test_golden(golden: Golden, case: str) -> None:
    golden.check(f"executor/{case}.log", replay(golden.read(f"executor/{case}.events")))


def test_there_are_golden_cases() -> None:
    assert len(CASES) >= 6


def test_every_order_of_arrivals_ends_the_same() -> None:
    commands = [Receive(0), Receive(1), Send(2), Wait(1), Run(0, 2), Wait(0), Run(2, 3), Wait(2)]
    for order in permutations([Arrived(0), Arrived(1), SendDone(2)]):
        executor = Executor(commands)
        log = executor.handle(Started())
        for event in order:
            log += executor.handle(event)
            while executor.state is State.ACTIVE and log[-1] in (Run(0, 2), Run(2, 3)):
                log += executor.handle(SegmentDone())
        assert [action for action in log if not isinstance(action, Wait)] == [
            Receive(0),
            Receive(1),
            Send(2),
            Run(0, 2),
            Run(2, 3),
            Finished(),
        ]


def test_a_run_ends_before_anything_later_begins() -> None:
    executor = Executor([Run(0, 1), Send(0), Free(3)])
    assert executor.handle(Started()) == [Run(0, 1)]
    assert executor.handle(SegmentDone()) == [Send(0), Free(3)]
    assert executor.state is State.ACTIVE
    assert executor.handle(SendDone(0)) == [Finished()]


def test_an_empty_list_is_finished_at_once() -> None:
    assert Executor([]).handle(Started()) == [Finished()]


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ([Run(3, 3)], "commands.run"),
        ([Run(-1, 2)], "commands.run"),
        ([Send(1), Receive(1)], "commands.edge"),
        ([Wait(4)], "commands.wait"),
        ([Send(1), Wait(4)], "commands.wait"),
        ([Free(0), Free(0)], "commands.free"),
    ],
)
def test_lists_that_cannot_work(commands: list[Command], code: str) -> None:
    with pytest.raises(RlxError) as caught:
        check_commands(commands)
    assert caught.value.code == code
    assert caught.value.where == f"command {len(commands) - 1}"


@pytest.mark.parametrize(
    ("events", "culprit"),
    [
        ([], SegmentDone()),
        ([Started()], Started()),
        ([Started(), SegmentDone()], SegmentDone()),
        ([Started()], SendDone(0)),
        ([Started()], Arrived(9)),
        ([Started(), Arrived(1)], Arrived(1)),
    ],
)
def test_events_that_cannot_happen(events: list[Event], culprit: Event) -> None:
    executor = Executor([Run(0, 1), Receive(1), Wait(1), Send(0)])
    for event in events:
        executor.handle(event)
    with pytest.raises(RlxError) as caught:
        executor.handle(culprit)
    assert caught.value.code == "executor.event"
