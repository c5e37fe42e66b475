"""The compiler gives the same bytes under CPython and in the page."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlx_edge.compile.page import PageModel, compile_for_page
from tests.browser.chromium import AppPage
from tests.browser.gateway import SITE

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]
Record = Callable[[str, object], None]

PARTS = ("kernels", "program", "ir", "placed", "extra")
CASES: dict[str, tuple[str, dict[str, list[int]]]] = {
    "digits": ("digits", {}),
    "orientation": ("orientation", {}),
    "ppocr_rec": ("ppocr_rec", {}),
    "silero_vad at 16 kHz": ("silero_vad", {"sr": [16000]}),
    "silero_vad at 8 kHz": ("silero_vad", {"sr": [8000]}),
}
COMPILE = """
async ([cases, parts]) => {
  const worker = new Worker("compiler/worker.js", { type: "module" });
  const ask = (message) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.kind === "failed") reject(new Error(data.message));
      else if (data.kind !== "progress") resolve(data);
    };
    worker.postMessage({ id: 1, kind: "compile", ...message });
  });
  const digest = async (value) => {
    const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  };
  const found = {};
  for (const [title, [model, values]] of Object.entries(cases)) {
    const file = await (await fetch(`models/${model}.onnx`)).blob();
    const answer = await ask({ file, name: model, values });
    const rows = parts.map(async (part) => [part, await digest(answer[part])]);
    found[title] = Object.fromEntries(await Promise.all(rows));
    found[title].constants = answer.constants;
    found[title].milliseconds = answer.milliseconds;
  }
  worker.terminate();
  return found;
}
"""


def compiled(path: Path, name: str, values: dict[str, list[int]]) -> PageModel:
    content = path.read_bytes()
    return compile_for_page(lambda at, n: content[at : at + n], len(content), name, values)


def part_digest(model: PageModel, part: str) -> str:
    value = getattr(model, part)
    return hashlib.sha256(value if isinstance(value, bytes) else value.encode()).hexdigest()


def test_kernels_program_and_text_are_the_same(
    app: AppPage, model_file: ModelFile, record_property: Record
) -> None:
    # covers R11
    app.wait_state("digits", "ready")
    found = app.page.evaluate(COMPILE, [CASES, PARTS])
    same = []
    for title, (name, values) in CASES.items():
        model = compiled(model_file(name), name, values)
        ours = {part: part_digest(model, part) for part in PARTS}
        theirs = {part: found[title][part] for part in PARTS}
        assert theirs == ours, title
        same.append(title)
        record_property(f"compiled in the page: {title}", f"{found[title]['milliseconds']:.0f} ms")
    record_property("identical", f"{', '.join(same)} under CPython {platform.python_version()}")
    assert len({found[title]["kernels"] for title in CASES}) == len(CASES)


def test_the_start_without_a_snapshot(browser: Any, gateway: str, model_file: ModelFile) -> None:
    app = AppPage(browser, gateway)
    try:
        app.start_without_snapshot(SITE)
        fetched: list[str] = []
        app.page.on("request", lambda request: fetched.append(request.url))
        app.goto()
        app.wait_state("digits", "ready")
        assert any(url.endswith(".whl") for url in fetched)
        assert not [url for url in fetched if url.endswith("snapshot.bin")]
        found = app.page.evaluate(COMPILE, [{"digits": CASES["digits"]}, PARTS])["digits"]
        model = compiled(model_file("digits"), "digits", {})
        assert {part: found[part] for part in PARTS} == {
            part: part_digest(model, part) for part in PARTS
        }
        assert app.problems.unexpected == []
    finally:
        app.close()
