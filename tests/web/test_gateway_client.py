"""The runtime as a client of a live gateway: split programs with the bits of one device."""

# covers R4, R6, R24, R34

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlx_edge import InferenceSession
from rlx_edge.gateway.registry import file_digest
from tests import sample_inputs
from tests.oracles import same_bits
from tests.web.split import SplitRuns, compiled, free_port, log_lines, offload_gateway, run_split

ModelFile = Callable[[str], Path]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway") / "site"


@pytest.fixture(scope="module")
def gateway(site: Path) -> Iterator[str]:
    with offload_gateway(site) as url:
        yield url


def test_cuts_of_digits_have_the_bits_of_one_device(
    gateway: str, model_file: ModelFile, tmp_path: Path
) -> None:
    path = model_file("digits")
    feeds = sample_inputs.digits(0, batch=3)
    with InferenceSession(path) as session:
        expected = session.run(None, feeds)
    cuts = json.loads(compiled(path, "local").cuts)
    chosen = [after for after, values in cuts[1:-1] if len(values) <= 3][::3]
    assert len(chosen) >= 3
    parts = [compiled(path, "remote"), *(compiled(path, "split", after) for after in chosen)]
    found = run_split(gateway, path, parts, feeds, tmp_path)
    for number, after in enumerate(["", *chosen]):
        assert same_bits(expected, found.outputs(number)), after
        row = found.report[number]
        assert {"send", "receive", "wait"} <= set(row["local"])
        assert {"run", "send", "receive"} <= set(row["remote"])
        assert row["nested"] and 0 < row["uncertainty"] < 50_000_000
        assert ("run" in row["local"]) == (number > 0)
    assert found.states == ["connecting", "open", "closed"]


def test_large_tensors_go_by_http(gateway: str, model_file: ModelFile, tmp_path: Path) -> None:
    path = model_file("digits")
    feeds = sample_inputs.digits(1, batch=300)
    with InferenceSession(path) as session:
        expected = session.run(None, feeds)
    cuts = json.loads(compiled(path, "local").cuts)
    part = compiled(path, "split", cuts[2][0])
    found = run_split(gateway, path, [part], feeds, tmp_path)
    assert same_bits(expected, found.outputs(0))


def test_weights_of_a_known_model_are_not_uploaded(
    gateway: str, model_file: ModelFile, tmp_path: Path
) -> None:
    path = model_file("digits")
    feeds = sample_inputs.digits(2, batch=1)
    part = compiled(path, "remote")
    # Ranges beyond the file: an upload would fail.
    constants = {
        digest: {"file": "model", "offset": 1 << 40, "length": 4}
        for digest in json.loads(part.constants)
    }
    lacking = replace(part, constants=json.dumps(constants))
    job = {"model": file_digest(path)}
    with InferenceSession(path) as session:
        expected = session.run(None, feeds)
    found = run_split(gateway, path, [lacking], feeds, tmp_path, **job)
    assert same_bits(expected, found.outputs(0))
    unknown = run_split(gateway, path, [lacking], feeds, tmp_path)
    assert unknown.report[0]["error"] == "weights.short"


def test_a_stale_graph_digest_and_a_wrong_ir_are_refused(
    gateway: str, model_file: ModelFile, tmp_path: Path
) -> None:
    path = model_file("digits")
    feeds = sample_inputs.digits(3, batch=1)
    cuts = json.loads(compiled(path, "local").cuts)
    first, second = (compiled(path, "split", after) for after, _ in cuts[2:4])
    stale = replace(first, task_graph=second.task_graph)
    edited = replace(first, placed=first.placed.replace("func @", "func @other_"))
    nowhere = replace(first, peer="cuda:9@gateway")
    found = run_split(gateway, path, [stale, edited, nowhere, first], feeds, tmp_path)
    codes = [row.get("error") for row in found.report]
    assert codes == ["digest.mismatch", "digest.mismatch", "peer.device", None]


def test_a_cancelled_run_leaves_the_next_one_alone(
    site: Path, gateway: str, model_file: ModelFile, tmp_path: Path
) -> None:
    path = model_file("ppocr_rec")
    feeds = sample_inputs.ppocr_rec(6, 2, 640)
    with InferenceSession(path) as session:
        expected = session.run(None, feeds)
    part = compiled(path, "remote")
    found = run_split(gateway, path, [part, part], feeds, tmp_path, abort={"0": 100})
    assert found.report[0]["error"] == "session.cancelled"
    assert found.report[0]["kind"] == "AbortError"
    assert same_bits(expected, found.outputs(1))
    client = log_lines(site)[-1]["session"]
    events = [line["event"] for line in log_lines(site) if line.get("session") == client]
    assert events.count("cancelled") == 1 and events.count("done") == 2, events


def test_a_wrong_token_is_told(gateway: str, model_file: ModelFile, tmp_path: Path) -> None:
    path = model_file("digits")
    part = compiled(path, "remote")
    feeds = sample_inputs.digits(4, batch=1)
    found = run_split(gateway, path, [part], feeds, tmp_path, token="wrong")
    assert found.report[0]["error"] == "peer.lost"
    assert "token" in found.report[0]["message"]
    assert found.states == ["connecting", "lost", "closed"]


def test_after_a_restart_the_next_run_reconnects(model_file: ModelFile, tmp_path: Path) -> None:
    path = model_file("digits")
    feeds = sample_inputs.digits(5, batch=2)
    with InferenceSession(path) as session:
        expected = session.run(None, feeds)
    part = compiled(path, "remote")
    port, site = free_port(), tmp_path / "site"
    go = tmp_path / "go"
    stopped = tmp_path / "stopped"
    wait = f"touch {stopped}; while ! [ -e {go} ]; do sleep 0.1; done"
    results: list[SplitRuns] = []

    def client(url: str) -> None:
        between = {"0": wait}
        results.append(run_split(url, path, [part, part, part], feeds, tmp_path, between=between))

    with offload_gateway(site, port=port) as url:
        thread = threading.Thread(target=client, args=(url,))
        thread.start()
        while not stopped.exists():
            thread.join(0.05)
            assert thread.is_alive()
    with offload_gateway(tmp_path / "again", port=port):
        go.touch()
        thread.join()
    [found] = results
    # The pause blocks the client, so it may meet the end of its socket only in the next run.
    assert [row.get("error") for row in found.report] in ([None] * 3, [None, "peer.lost", None])
    assert same_bits(expected, found.outputs(0))
    assert same_bits(expected, found.outputs(2))
    assert found.states == ["connecting", "open", "lost", "connecting", "open", "closed"]
    events = [line["event"] for line in log_lines(tmp_path / "again")]
    assert events.count("hello") == 1 and events.count("compiled") == 1 and "done" in events
