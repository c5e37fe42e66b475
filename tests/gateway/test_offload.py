"""A live gateway and real clients: the bits of one device, several clients, restarts."""

# covers R34, R35, R36

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.gateway.connection import GatewayConnection
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.parser import parse_module
from rlx_edge.offload import GATEWAY, HOME, OffloadSession
from tests import sample_inputs
from tests.gateway.live import TOKEN, LiveGateway, live_gateway
from tests.oracles import same_bits

RLX = str(Path(sys.executable).with_name("rlx"))


@pytest.fixture(scope="module")
def digits(model_file: Callable[[str], Path]) -> Path:
    return model_file("digits")


@pytest.fixture(scope="module")
def gateway(model_file: Callable[[str], Path]) -> Iterator[LiveGateway]:
    with live_gateway(models=(model_file("orientation"),)) as live:
        yield live
        assert live.stop() == 0
        assert not [line for line in live.lines if line["event"] == "unstructured"]
        assert not [line for line in live.lines if line["level"] in ("warning", "error")]


@pytest.mark.parametrize("after", ["", "image_1", "block1_relu", "features", "reduce_sum"])
def test_digits_over_sockets(gateway: LiveGateway, digits: Path, after: str) -> None:
    mode = "split" if after else "remote"
    with (
        InferenceSession(str(digits)) as whole,
        OffloadSession(str(digits), gateway.url, TOKEN, mode=mode, split_after=after) as parts,
    ):
        for seed, batch in ((0, 1), (1, 4), (2, 200)):
            feeds = sample_inputs.digits(seed, batch=batch)
            assert same_bits(whole.run(None, feeds), parts.run(None, feeds))
            kinds = {(event.device, event.kind) for event in parts.last_profile}
            assert {(HOME, "send"), (GATEWAY, "run"), (GATEWAY, "send")} <= kinds
        assert parts.compile_count == 1
        assert parts.clock_uncertainty < 1_000_000_000
    assert gateway.lines[-1]["event"] in ("closed", "done")


def test_weights_of_a_served_model_do_not_travel(
    gateway: LiveGateway, model_file: Callable[[str], Path]
) -> None:
    path = str(model_file("orientation"))
    feeds = sample_inputs.orientation(0, batch=1)
    with (
        InferenceSession(path) as whole,
        OffloadSession(path, gateway.url, TOKEN, mode="remote") as parts,
    ):
        assert parts.connection.welcome.models
        assert same_bits(whole.run(None, feeds), parts.run(None, feeds))


def test_a_model_that_branches_on_values(
    gateway: LiveGateway, model_file: Callable[[str], Path]
) -> None:
    path = str(model_file("silero_vad"))
    with (
        InferenceSession(path) as whole,
        OffloadSession(path, gateway.url, TOKEN, mode="remote") as parts,
    ):
        for rate in sample_inputs.WINDOWS:
            feeds = sample_inputs.silero_vad(0, rate=rate)
            assert same_bits(whole.run(None, feeds), parts.run(None, feeds))
        assert parts.compile_count == len(sample_inputs.WINDOWS)


def metrics(gateway: LiveGateway, token: str = TOKEN) -> tuple[int, dict[str, float]]:
    """Status, and samples by name and labels."""
    peer = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    try:
        peer.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = peer.getresponse()
        text = answer.read().decode()
    finally:
        peer.close()
    if answer.status != 200:
        return answer.status, {}
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return answer.status, {name: float(number) for name, number in rows}


def test_metrics(gateway: LiveGateway, digits: Path) -> None:
    """What is counted is what is logged, and gauges follow what clients hold."""
    assert metrics(gateway, "another")[0] == 401
    gateway.wait_for("refused")
    with OffloadSession(str(digits), gateway.url, TOKEN, mode="remote") as parts:
        parts.run(None, sample_inputs.digits(0))
        status, found = metrics(gateway)
        assert status == 200
        assert found["rlx_edge_clients"] >= 1 and found["rlx_edge_shards"] >= 1
        assert found["rlx_edge_upload_bytes"] > 0
        assert found["rlx_edge_runs"] == found["rlx_edge_tensor_bytes"] == 0
        assert found['rlx_edge_requests_total{method="GET",status="401"}'] >= 1
    gateway.wait_for("closed", sum(line["event"] == "connected" for line in gateway.lines))
    _, found = metrics(gateway)
    assert [found[f"rlx_edge_{name}"] for name in ("clients", "shards", "upload_bytes")] == [0] * 3
    for event in ("connected", "hello", "ready", "done", "closed"):
        logged = sum(line["event"] == event for line in gateway.lines)
        assert found[f'rlx_edge_events_total{{event="{event}"}}'] == logged > 0
    assert found['rlx_edge_events_total{event="refused",code="peer.token"}'] == 1


def test_clients_do_not_disturb_each_other(gateway: LiveGateway, digits: Path) -> None:
    feeds = [sample_inputs.digits(seed, batch=3) for seed in range(4)]
    with InferenceSession(str(digits)) as whole:
        expected = [whole.run(None, item) for item in feeds]
    problems: list[object] = []

    def work(number: int) -> None:
        try:
            with OffloadSession(str(digits), gateway.url, TOKEN, mode="remote") as parts:
                for _ in range(10):
                    if not same_bits(parts.run(None, feeds[number]), expected[number]):
                        problems.append(number)
        except RlxError as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def test_a_client_that_vanishes_in_mid_run_is_freed(gateway: LiveGateway, digits: Path) -> None:
    before = sum(line["event"] == "closed" for line in gateway.lines)
    parts = OffloadSession(str(digits), gateway.url, TOKEN, mode="remote")
    parts.connection.start(0, {"batch": 1})
    parts.connection._socket.socket.close()
    line = gateway.wait_for("closed", before + 1)
    assert line["session"] == parts.connection.welcome.session
    with OffloadSession(str(digits), gateway.url, TOKEN, mode="remote") as others:
        others.run(None, sample_inputs.digits(0))


def test_a_gateway_that_restarts(digits: Path) -> None:
    feeds = sample_inputs.digits(0)
    with live_gateway() as first:
        parts = OffloadSession(str(digits), first.url, TOKEN, mode="remote")
        expected = parts.run(None, feeds)
        assert first.stop() == 0
        with pytest.raises(RlxError) as absent:
            parts.run(None, feeds)
        assert absent.value.code == "gateway.unreachable"
        port = first.port
        assert [line["event"] for line in first.lines][-2:] == ["closed", "stopped"]
    with live_gateway(port=port), parts:
        assert same_bits(parts.run(None, feeds), expected)
        assert parts.compile_count == 1


def test_a_run_that_takes_too_long_is_stopped() -> None:
    text = """rlx.module version = "1.0"

func @endless(%x: f32[1]) -> (f32[1]) {
  %big = tensor::splat() { value = 1.0 } : f32[1, 1000000, 2000]
  %sum = rlxc::reduce_sum(%big) { axes = [1, 2], keepdims = false } : f32[1]
  %y = rlxc::add(%x, %sum) : f32[1]
  return %y
}
"""
    with live_gateway(run_seconds=0.2) as live:
        with OffloadSession(parse_module(text), live.url, TOKEN, mode="remote") as parts:
            start = time.monotonic()
            with pytest.raises(RlxError) as late:
                parts.run(None, {"x": np.zeros(1, np.float32)})
            assert late.value.code == "run.timeout"
            assert time.monotonic() - start < 10
        assert live.refused() == ["run.timeout"]


def test_the_command_line(gateway: LiveGateway, digits: Path, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [RLX, "run", str(digits), "--input", "image=random:3x1x8x8", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    link = ("--gateway", gateway.url, "--token", TOKEN)
    modes = {
        "local": ("--device", "local", *link),
        "remote": ("--device", "remote", *link),
        "split": ("--device", "split", "--split-after", "%block2_relu", *link),
    }
    outputs = {}
    for name, words in modes.items():
        done = run(*words, "--output", str(tmp_path / f"{name}.npz"), "--json")
        with np.load(tmp_path / f"{name}.npz") as file:
            outputs[name] = [file[key] for key in sorted(file.files)]
        report = json.loads(done.stdout)
        assert (f"bytes_from_{HOME}" in report) == (name != "local")
        assert (f"segments_on_{GATEWAY}" in report) == (name != "local")
    assert same_bits(outputs["local"], outputs["remote"])
    assert same_bits(outputs["local"], outputs["split"])
    assert "401" in run("--gateway", gateway.url, "--token", "other", code=1).stderr
    assert "--split-after" in run("--device", "split", *link, code=1).stderr
    assert "need a gateway" in run("--device", "remote", code=1).stderr
    assert "%block1_relu" in run("--split-after", "%nothing", *link, code=1).stderr
    assert "no gateway" in run("--gateway", "http://127.0.0.1:1", "--token", "x", code=1).stderr


def test_urls_that_are_none() -> None:
    with pytest.raises(RlxError) as error:
        GatewayConnection("ftp://x", "token")
    assert error.value.code == "gateway.url"
    with pytest.raises(DeviceError):
        GatewayConnection("http://127.0.0.1:1", "token")
