"""`rlx serve` as a process: one line with the URL, a line of JSON an event, a clean end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from rlx_edge.cli.main import main
from rlx_edge.gateway.server import url_of

SECONDS = 30


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    root.mkdir()
    (root / "index.html").write_text("<!doctype html><title>page</title>")
    return root


@contextmanager
def started(site: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [str(Path(sys.executable).with_name("rlx")), "serve", "--site", str(site)]
    process = subprocess.Popen(
        [*command, "--models", "digits", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("rlx-edge serves 1 models at http://127.0.0.1:"), line
        yield process, line.split()[-1]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    process.send_signal(number)
    output, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, log
    return output, log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_ends_cleanly(site: Path, number: signal.Signals) -> None:
    # covers R35
    with started(site, "--port", "0") as (process, url):
        with urlopen(url) as page:
            assert b"<title>page</title>" in page.read()
        with urlopen(f"{url}models") as models:
            [row] = json.load(models)
        assert row["name"] == "digits" and row["bytes"] > 10_000
        with pytest.raises(HTTPError) as refusal:
            urlopen(f"{url}models/none.onnx")
        refusal.value.close()
        output, log = ended(process, number)
    assert output == ""
    rows = [json.loads(line) for line in log.splitlines()]
    requests = {row["path"]: row for row in rows if row["event"] == "request"}
    assert {path: row["status"] for path, row in requests.items()} == {
        "/": 200,
        "/models": 200,
        "/models/none.onnx": 404,
    }
    page_row = requests["/"]
    assert page_row["bytes"] == (site / "index.html").stat().st_size and page_row["ms"] >= 0
    assert (page_row["method"], page_row["client"]) == ("GET", "127.0.0.1")
    assert rows[-1]["event"] == "stopped"


def test_a_port_that_is_taken(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        code = main(["serve", "--site", str(site), "--models", "digits", "--port", port])
    assert code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert f"cannot listen on 127.0.0.1 port {port}" in line
    assert "another program listens there" in line and "--port" in line


def test_without_a_port_a_free_one_is_found(site: Path) -> None:
    with started(site) as (first, one), started(site) as (second, other):
        assert one != other
        ended(first, signal.SIGINT)
        ended(second, signal.SIGTERM)


def test_mistakes_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--site", str(tmp_path), "--models", "digits"]) == 1
    assert "run `make web`" in capsys.readouterr().err
    assert main(["serve", "--site", str(tmp_path), "--models", "nothing.onnx"]) == 1
    assert "neither a sample model nor a file" in capsys.readouterr().err
    (tmp_path / "index.html").write_text("<!doctype html>")
    assert main(["serve", "--site", str(tmp_path), "--models", "digits", "--port", "70000"]) == 1
    assert "not a TCP port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/"),
        ("0.0.0.0", "http://127.0.0.1:80/"),
        ("::", "http://[::1]:80/"),
        ("::1", "http://[::1]:80/"),
        ("edge.local", "http://edge.local:80/"),
    ],
)
def test_the_url_can_be_opened(host: str, url: str) -> None:
    assert url_of(host, 80) == url
