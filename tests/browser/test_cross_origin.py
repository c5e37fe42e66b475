"""A page that is served elsewhere uses a gateway that knows its origin, and none that does not."""

# covers R35

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench.offload_page import MEASURE, compiled
from tests.browser.gateway import require_site, running_gateway

pytestmark = pytest.mark.browser

TOKEN = "a-token_for.tests"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *words: Any) -> None:
        del format, words


@contextmanager
def served_elsewhere(folder: Path) -> Iterator[str]:
    """The origin of a server that is no gateway."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_page_that_is_served_elsewhere(browser: Any, tmp_path: Path, transport: str) -> None:
    site, log = require_site(), tmp_path / "log"
    job: dict[str, Any] = {"part": compiled(0 if transport == "http" else 1 << 40), "token": TOKEN}
    job |= {"nbytes": 300 << 10, "rounds": 2, "seconds": 60}
    page = browser.new_page()
    try:
        with served_elsewhere(site / "runtime") as origin:
            page.goto(f"{origin}/")
            source = MEASURE.replace("/runtime/index.js", "/index.js")
            serve = ("--offload", "--token", TOKEN, "--models", "digits")
            with running_gateway(*serve, "--origin", origin) as url:
                found = page.evaluate(source, {**job, "url": url})
                assert len(found["beyond"]) == 2, "the bytes are compared in the page"
            with running_gateway(*serve, log=log) as url:
                error = page.evaluate(
                    f"job => ({source})(job).then(() => '', ({{ code }}) => code)",
                    {**job, "url": url},
                )
                assert error == "peer.lost"
    finally:
        page.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["code"] for line in lines if line["event"] == "refused"] == ["peer.origin"]
