"""A bundle in Chromium, from a static host with a strict policy: the bits of wasmtime, no request
to anywhere else, and mistakes that are told on the page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.cli.main import main
from tests import sample_inputs
from tests.browser.chromium import ACTION
from tests.oracles import same_bits

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]

POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
POLICY += "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
RUN = """
async ([feeds, options]) => {
  const { InferenceSession, Tensor } = await import("/runtime/index.js");
  const session = await InferenceSession.create("/", options);
  const results = [];
  for (const item of feeds) {
    const tensors = Object.fromEntries(
      item.map(([name, dims, data]) => [name, new Tensor("float32", new Float32Array(data), dims)]),
    );
    const outputs = Object.values(await session.run(tensors));
    results.push(outputs.map(({ dims, data }) => [dims, Array.from(new Uint32Array(data.buffer))]));
  }
  await session.release();
  return results;
}
"""


class Handler(SimpleHTTPRequestHandler):
    """Static files with a policy; nothing is printed."""

    extensions_map: ClassVar = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose requests may not leave this machine; errors that it logs are kept."""
    context = browser.new_context()
    context.set_default_timeout(ACTION)
    found = context.new_page()
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    found.on("request", lambda request: problems.extend(strays(request.url)))
    found.problems = problems
    yield found
    context.close()


def strays(url: str) -> list[str]:
    inside = url.startswith(("http://127.0.0.1:", "data:", "blob:"))
    return [] if inside else [f"a request to {url}"]


def compiled(model: Path, folder: Path) -> Path:
    assert main(["compile", str(model), "-o", str(folder / "bundle")]) == 0
    return folder / "bundle"


def test_the_bits_of_wasmtime(page: Any, model_file: ModelFile, tmp_path: Path) -> None:
    # covers R11 R33
    model = model_file("ppocr_rec")
    feeds = [sample_inputs.ppocr_rec(seed, 1, width) for seed, width in enumerate((64, 97, 128))]
    given = [
        [[name, list(array.shape), array.ravel().tolist()] for name, array in item.items()]
        for item in feeds
    ]
    with served(compiled(model, tmp_path)) as url:
        page.goto(url)
        results = page.evaluate(RUN, [given, {"verify": "weights"}])
    with InferenceSession(model, style="v8") as session:
        for item, outputs in zip(feeds, results, strict=True):
            found = [
                np.array(bits, np.uint32).view(np.float32).reshape(dims) for dims, bits in outputs
            ]
            assert same_bits(session.run(None, item), found)
    assert page.problems == []


def test_the_example_runs_and_tells_mistakes(
    page: Any, model_file: ModelFile, tmp_path: Path
) -> None:
    bundle = compiled(model_file("digits"), tmp_path)
    with served(bundle) as url:
        page.goto(url)
        page.get_by_role("status").get_by_text("loaded in").wait_for()
        assert page.get_by_role("heading").text_content() == "digits.onnx"
        page.get_by_role("button", name="Run").click()
        page.get_by_role("status").get_by_text("of memory").wait_for()
        row = page.locator("#outputs tr")
        assert row.locator("td").nth(2).text_content() == "1 × 10"
        page.locator("input[name='image.0']").fill("0")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("status").get_by_text("axis 0 is empty").wait_for()
        page.locator("input[name='image.0']").fill("3")
        page.get_by_role("button", name="Run").click()
        page.locator("#outputs").get_by_text("3 × 10").wait_for()
        assert page.problems == []
        [kernels] = bundle.glob("kernels-*.wasm")
        kernels.write_text("<!doctype html><title>Not here</title>")
        page.reload()
        page.get_by_role("status").get_by_text("a web page in place of the kernels").wait_for()
        assert page.locator("#status[data-failed]").count() == 1
    assert page.problems == []
