"""The acceptance list of the page stage: one figure and one verdict a line.

`make accept-page` sets everything up and runs this from the root of the repository. The lines:

1. Chromium, the real page: digits through the canvas, a page turned by quarters, a dropped text
   recognizer at three widths with one compilation, all with the bits of wasmtime;
2. kernels, plan program and IR text are the same from CPython and from Pyodide;
3. Firefox runs the page with the same bits, node runs bundles with the same bits;
4. no request leaves 127.0.0.1, the content policy holds, and it runs without isolation;
5. what users, servers and networks do wrong gets a message, and the page still works;
6. the models beside onnxruntime-web in one page: time, bytes, time to the first inference;
7. screenshots, made by a script, are in the documentation.

usage: python -m scripts.accept_page [--only LINE ...]
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from scripts.acceptance import Line, Verdict, list_parser, run_lines
from scripts.screenshots import IMAGES, SHOTS, WIDTHS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "README.md"
BENCH = ROOT / "build" / "bench" / "page.json"
MODELS = ("digits", "orientation", "ppocr_rec", "silero_vad")
MISTAKES = 12
"""Tests of mistakes at least; fewer mean that some were left out."""


def pytest(*arguments: str, least: int = 1, wanted: tuple[str, ...] = ()) -> Verdict:
    """Run tests: all pass, none is skipped, at least `least` ran, and each of the figures
    `wanted` was recorded."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1"]
        command += [f"--junitxml={report}", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not report.is_file():
            return Verdict(False, f"pytest ended with {done.returncode}", (done.stderr[-500:],))
        root = ElementTree.parse(report).getroot()
    [suite] = root.iter("testsuite")
    counts = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    figures = {item.get("name"): item.get("value") for item in root.iter("property")}
    failed = tuple(
        f"failed: {case.get('name')}: {(bad.get('message') or '').splitlines()[:1]}"
        for case in root.iter("testcase")
        for bad in (*case.findall("failure"), *case.findall("error"))
    )
    missing = tuple(f"no figure: {name}" for name in wanted if name not in figures)
    good = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    passed = done.returncode == 0 and good == counts["tests"] >= least and not missing
    details = tuple(f"{name}: {value}" for name, value in figures.items())
    return Verdict(passed, f"{good} of {counts['tests']} tests", details + failed + missing)


def check_page() -> Verdict:
    wanted = ("digits right", "page turned", "dropped recognizer", "text read")
    return pytest("tests/browser/test_page.py", wanted=wanted)


def check_identity() -> Verdict:
    return pytest("tests/browser/test_identity.py", wanted=("identical",))


def check_other_engines() -> Verdict:
    firefox = pytest("tests/browser/test_firefox.py", wanted=("Firefox",))
    node = pytest("tests/web/test_models.py", least=4)
    return Verdict(
        firefox.passed and node.passed,
        f"Firefox {firefox.figure}; node {node.figure}",
        firefox.details + node.details,
    )


def check_network() -> Verdict:
    return pytest("tests/browser/test_network.py", least=4)


def check_mistakes() -> Verdict:
    return pytest("tests/browser/test_mistakes.py", "tests/browser/test_bundle.py", least=MISTAKES)


def check_bench() -> Verdict:
    """The figures are stated as they are; a missing one fails."""
    BENCH.unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.page", "--output", str(BENCH.parent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not BENCH.is_file():
        return Verdict(False, f"bench.page ended with {done.returncode}: {done.stderr[-500:]}")
    rows = json.loads(BENCH.read_text(encoding="utf-8"))["models"]
    measured = {row["model"] for row in rows}
    ratios = ", ".join(f"{row['title']} {row['ratio']:.2f}" for row in rows)
    return Verdict(
        measured == set(MODELS),
        f"times as fast as onnxruntime-web: {ratios}",
        tuple(done.stdout.splitlines()),
    )


def check_screenshots() -> Verdict:
    """The script works, every picture is committed in its width and shown in the documentation."""
    details = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "scripts.screenshots", "--output", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        fresh = {path.name: png_width(path) for path in Path(folder).glob("*.png")}
    expected = {f"{shot.name}-{width}.png": width for shot in SHOTS for width in WIDTHS}
    if done.returncode != 0 or fresh != expected:
        details.append(f"the script ended with {done.returncode}: {done.stderr[-300:]}")
    text = DOCS.read_text(encoding="utf-8") if DOCS.is_file() else ""
    shown = set(re.findall(r"\(images/([\w.-]+\.png)\)", text))
    for name, width in expected.items():
        path = IMAGES / name
        if not path.is_file() or png_width(path) != width:
            details.append(f"docs/images/{name} is missing or not {width} pixels wide")
        if name not in shown:
            details.append(f"docs/README.md does not show {name}")
    return Verdict(not details, f"{len(expected)} pictures at {WIDTHS} pixels", tuple(details))


def png_width(path: Path) -> int:
    """Pixels from left to right (RFC 2083, IHDR)."""
    (width,) = struct.unpack(">I", path.read_bytes()[16:20])
    return int(width)


LINES: dict[int, Line] = {
    1: ("the page in Chromium", check_page),
    2: ("CPython and Pyodide give the same bytes", check_identity),
    3: ("Firefox and node", check_other_engines),
    4: ("network and policy", check_network),
    5: ("mistakes", check_mistakes),
    6: ("beside onnxruntime-web", check_bench),
    7: ("screenshots", check_screenshots),
}


def main(arguments: list[str] | None = None) -> int:
    options = list_parser(__doc__, LINES).parse_args(arguments)
    return run_lines("accept-page", LINES, options.only)


if __name__ == "__main__":
    sys.exit(main())
