"""The stored models against onnxruntime-web, in one page of Chromium on one thread.

Two questions. How long does a run take, both sides in the same page, interleaved? And how long
does it take a visitor who has nothing in the cache to get the first result, and with how many
bytes? For the second, every measurement starts a fresh profile, ours and theirs in turn. Ours is
stated twice: a bundle that was compiled ahead of time, and the page that compiles with Pyodide.

usage: python -m bench.page [--rounds N] [--visits N] [--output DIR] [--page FILE]
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import brotli
import numpy as np
import numpy.typing as npt

from bench.report import conditions
from bench.timing import Times
from rlx_edge.model_store import model_path
from tests import sample_inputs
from tests.browser.chromium import AppPage, chromium
from tests.browser.gateway import require_site, running_gateway

ROOT = Path(__file__).resolve().parent.parent
ORT = ROOT / "node_modules" / "onnxruntime-web"
ORT_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
SCRIPT = Path(__file__).with_name("page.js")
QUALITY = 9
"""Of brotli, for every file alike: what a server can do in reasonable time."""
RUNS_MS = 60
"""Milliseconds that one measurement of a run lasts at least; short runs are repeated."""
CLOSE = 1e-4
"""Largest difference, relative to the largest value, at which the two sides still agree."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Subject:
    """A model with an input, and what its bundle needs to be told."""

    model: str
    title: str
    feeds: Callable[[], dict[str, Array]]
    flags: tuple[str, ...] = ()


SUBJECTS = (
    Subject("digits", "digits", partial(sample_inputs.digits, 0)),
    Subject("orientation", "orientation", partial(sample_inputs.orientation, 0)),
    Subject("ppocr_rec", "ppocr_rec, width 320", partial(sample_inputs.ppocr_rec, 0)),
    Subject(
        "silero_vad",
        "silero_vad, 16 kHz",
        partial(sample_inputs.silero_vad, 0),
        ("--value", "sr=16000"),
    ),
)


@dataclass(frozen=True)
class Side:
    """What one side costs: seconds a run, milliseconds to the first result, bytes to fetch."""

    run: Times
    first_ms: tuple[float, ...]
    bytes: int
    compressed: int

    @property
    def first(self) -> float:
        return statistics.median(self.first_ms)


@dataclass(frozen=True)
class Row:
    """Both sides of one model; `in_page_ms` is the first result through Pyodide."""

    model: str
    title: str
    ours: Side
    theirs: Side
    in_page_ms: tuple[float, ...]
    difference: float

    @property
    def ratio(self) -> float:
        """How many times as fast a run of ours is (medians)."""
        return self.theirs.run.median / self.ours.run.median


def make_site(folder: Path) -> Path:
    """The built site with onnxruntime-web, the script of this benchmark, and the bundles."""
    site = folder / "site"
    shutil.copytree(require_site(), site)
    (site / "ort").mkdir()
    for name in ORT_FILES:
        shutil.copyfile(ORT / "dist" / name, site / "ort" / name)
    shutil.copyfile(SCRIPT, site / "bench.js")
    (site / "blank.html").write_text("<!doctype html><meta charset=utf-8><title>bench</title>")
    for subject in SUBJECTS:
        rlx = Path(sys.executable).with_name("rlx")
        bundle = site / "bundles" / subject.model
        bundle.parent.mkdir(exist_ok=True)
        command = [str(rlx), "compile", str(model_path(subject.model)), "-o", str(bundle)]
        subprocess.run([*command, *subject.flags], check=True, capture_output=True)
        # The bundle brings a runtime of its own; here it is the site's.
        shutil.rmtree(bundle / "runtime")
    compress(path for part in ("ort", "bundles") for path in (site / part).rglob("*"))
    return site


def compress(paths: Iterator[Path]) -> None:
    """`FILE.br` beside what both sides fetch, as the gateway serves it."""
    for path in list(paths):
        if path.is_file() and path.suffix in (".mjs", ".wasm", ".json", ".js"):
            content = brotli.compress(path.read_bytes(), quality=QUALITY)
            path.with_name(path.name + ".br").write_bytes(content)


def fetched(site: Path, urls: Sequence[str]) -> tuple[int, int]:
    """Bytes of the files behind these paths: as they are, and under brotli."""
    plain = compressed = 0
    for url in urls:
        name = url.partition("?")[0]
        path = site / name
        content = path.read_bytes() if path.is_file() else model_file(name).read_bytes()
        plain += len(content)
        compressed += len(brotli.compress(content, quality=QUALITY))
    return plain, compressed


def model_file(name: str) -> Path:
    """The model behind `models/NAME.onnx`."""
    return model_path(Path(name).stem)


def packed(feeds: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Feeds for JavaScript."""
    return [
        {
            "name": name,
            "type": array.dtype.name,
            "dims": list(array.shape),
            "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
        }
        for name, array in feeds.items()
    ]


@dataclass
class Visit:
    """A fresh profile on a blank page of the site."""

    browser: Any
    url: str

    def evaluate(self, call: str, argument: object) -> tuple[Any, list[str]]:
        """The result of a function of `bench.js`, and the paths that were fetched for it."""
        app = AppPage(self.browser, self.url)
        paths: list[str] = []
        try:
            app.page.goto(f"{self.url}blank.html")
            app.page.on("request", lambda request: paths.append(request.url[len(self.url) :]))
            script = f"async (argument) => (await import('/bench.js')).{call}(argument)"
            result = app.page.evaluate(script, argument)
            if app.problems.unexpected:
                raise RuntimeError(f"{call}: {app.problems.unexpected}")
        finally:
            app.close()
        return result, [path for path in dict.fromkeys(paths) if path != "bench.js"]


def measure(visit: Visit, site: Path, subject: Subject, rounds: int, visits: int) -> Row:
    """One model: runs in one page, then visits in turn."""
    job = {"model": subject.model, "feeds": packed(subject.feeds())}
    runs, _ = visit.evaluate("compareRuns", {**job, "rounds": rounds, "least": RUNS_MS})
    if not runs["difference"] <= CLOSE:
        raise RuntimeError(f"{subject.title}: the two sides differ by {runs['difference']:.1e}")
    first: dict[str, list[float]] = {"firstOfOurs": [], "firstOfTheirs": [], "firstInPage": []}
    paths: dict[str, list[str]] = {}
    for _ in range(visits):
        for call, times in first.items():
            milliseconds, paths[call] = visit.evaluate(call, job)
            times.append(milliseconds)
    ours, theirs = (
        Side(
            Times(tuple(t / 1e3 for t in runs[key])),
            tuple(first[call]),
            *fetched(site, paths[call]),
        )
        for key, call in (("ours", "firstOfOurs"), ("theirs", "firstOfTheirs"))
    )
    in_page = tuple(first["firstInPage"])
    return Row(subject.model, subject.title, ours, theirs, in_page, runs["difference"])


def as_json(facts: Mapping[str, str], rows: Sequence[Row]) -> str:
    content = {
        "conditions": dict(facts),
        "models": [{**asdict(row), "ratio": row.ratio} for row in rows],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_markdown(facts: Mapping[str, str], rows: Sequence[Row]) -> str:
    lines = ["# In the page, beside onnxruntime-web", "", "Written by `make bench-page`.", ""]
    lines += [f"* {key}: {value}" for key, value in facts.items()]
    lines += ["", "## A run", ""]
    lines += ["| model | ms | onnxruntime-web, ms | times as fast | spread | difference |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {row.title} | {row.ours.run.median * 1e3:.3f} | {row.theirs.run.median * 1e3:.3f} "
        f"| {row.ratio:.2f} | {row.ours.run.spread:.0%}, {row.theirs.run.spread:.0%} "
        f"| {row.difference:.1e} |"
        for row in rows
    ]
    lines += ["", "## A first visit", "", "Milliseconds to the first result, nothing cached:", ""]
    lines += ["| model | bundle | onnxruntime-web | compiled in the page |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {row.title} | {row.ours.first:.0f} | {row.theirs.first:.0f} "
        f"| {statistics.median(row.in_page_ms):.0f} |"
        for row in rows
    ]
    lines += ["", f"Megabytes to fetch, model included (brotli, quality {QUALITY}):", ""]
    lines += ["| model | bundle | under brotli | onnxruntime-web | under brotli |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {row.title} | {row.ours.bytes / 1e6:.2f} | {row.ours.compressed / 1e6:.2f} "
        f"| {row.theirs.bytes / 1e6:.2f} | {row.theirs.compressed / 1e6:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("build/bench"))
    parser.add_argument("--page", type=Path, help="also write the Markdown here")
    options = parser.parse_args(arguments)
    release = json.loads((ORT / "package.json").read_text(encoding="utf-8"))["version"]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        site = make_site(Path(scratch))
        with running_gateway("--site", str(site)) as url, chromium() as browser:
            facts = conditions(None) | {
                "chromium": browser.version,
                "onnxruntime-web": release,
                "visits": f"{options.visits}, medians, from the same machine",
                "silero_vad": "the bundle is for one sampling rate, the ONNX file has both",
                "method": f"{options.rounds} interleaved rounds, medians, wall clock",
            }
            for name in ("wasmtime", "onnxruntime"):
                facts.pop(name)
            for subject in SUBJECTS:
                visit = Visit(browser, url)
                rows.append(measure(visit, site, subject, options.rounds, options.visits))
                print(f"{subject.title}: {rows[-1].ratio:.2f}", file=sys.stderr, flush=True)
    text = as_markdown(facts, rows)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "page.json").write_text(as_json(facts, rows), encoding="utf-8")
    (options.output / "page.md").write_text(text, encoding="utf-8")
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
