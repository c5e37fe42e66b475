"""Trace events: fields, order, bounded memory."""

from __future__ import annotations

import json

from rlx_edge.runtime.trace import KINDS, PHASES, Trace


def test_an_event_has_all_fields() -> None:
    trace = Trace("wasm:0")
    start = Trace.now()
    trace.record("run", "execute", start, begin=2, end=5, name="rlxc::relu", nbytes=12)
    (event,) = trace
    assert event.kind in KINDS and event.phase in PHASES
    assert event.start == start and event.duration >= 0
    assert list(json.loads(json.dumps(event.as_dict()))) == [
        *("kind", "device", "phase", "start", "duration"),
        *("name", "begin", "end", "edge", "nbytes"),
    ]
    assert event.as_dict()["edge"] == -1


def test_taking_empties() -> None:
    trace = Trace("wasm:0")
    trace.record("plan", "dispatch", Trace.now())
    assert [event.kind for event in trace.take()] == ["plan"]
    assert len(trace) == 0


def test_old_events_make_room() -> None:
    trace = Trace("wasm:0", capacity=8)
    for launch in range(20):
        trace.record("run", "execute", Trace.now(), begin=launch, end=launch + 1)
    assert len(trace) <= 8
    assert trace.dropped + len(trace) == 20
    assert [event.begin for event in trace][-1] == 19
