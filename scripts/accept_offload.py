"""The acceptance list of offloading, a figure a line.

usage: python -m scripts.accept_offload [--only N ...] [--sample N]

Half of it runs in Chromium (`accept_offload_page.py`).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession
from rlx_edge.compile import place_module
from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import RlxError
from rlx_edge.model_source import deciding_values, open_source
from rlx_edge.model_store import model_path
from rlx_edge.offload import GATEWAY, HOME, OffloadSession
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.trace import TraceEvent
from scripts.accept_offload_page import page_clients, page_cuts
from scripts.acceptance import Line, Verdict, list_parser, run_lines
from tests import sample_inputs
from tests.compile.parts import bound, cuts, run_cut, run_whole
from tests.gateway.live import TOKEN, LiveGateway, live_gateway
from tests.oracles import same_bits

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

ROOT = Path(__file__).resolve().parent.parent
SEED = 4
MOST_CROSSING = 3
RUNS_AT_ONCE = 12

INPUTS: dict[str, Callable[[], Feeds]] = {
    "digits": lambda: sample_inputs.digits(0, batch=2),
    "orientation": lambda: sample_inputs.orientation(0, batch=1),
    "ppocr_rec": lambda: sample_inputs.ppocr_rec(0, 1, 48),
    "silero_vad": lambda: sample_inputs.silero_vad(0, rate=16000),
}


def placed(name: str, feeds: Feeds) -> Module:
    """The model's placed IR for what the inputs decide."""
    source = open_source(str(model_path(name)))
    ports = source.ports()
    loose = FeedChecker(ports).bind(feeds)
    shapes = {port.name: array.shape for port, array in zip(ports, loose.arrays, strict=True)}
    return place_module(source.module(deciding_values(ports, loose.arrays), shapes))


@dataclass
class ModelCuts:
    """What became of a model's cuts in one process: those that at most three values cross, those
    of them where both sides ran kernels (where one has views alone it proves little), and those
    whose outputs are not those of one device."""

    count: int
    allowed: list[str] = field(default_factory=list)
    working: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def sample(self, size: int) -> list[str]:
        """A seeded choice of those where both sides have kernels; all where there are no more."""
        if len(self.working) <= size:
            return self.working
        return random.Random(SEED).sample(self.working, size)


def cut_everywhere(module: Module, feeds: Feeds) -> ModelCuts:
    """Run every cut of the module with both sides in this process."""
    given = bound(module, feeds)
    whole = run_whole(module, given)
    every = list(cuts(module, 1 << 30))
    found = ModelCuts(len(every))
    for after, crossed in every:
        if crossed > MOST_CROSSING:
            continue
        found.allowed.append(after)
        outputs, traces = run_cut(module, after, given)
        if not (same_bits(whole, outputs) and has_both_sides(traces)):
            found.wrong.append(after)
        elif len(traces) == 2 and all(ran_kernels(trace) for trace in traces.values()):
            found.working.append(after)
    return found


def check_cuts(sample: int) -> Verdict:
    """Every prefix in one process; a seeded sample of those with kernels on both sides over sockets
    to a live gateway, and in Chromium."""
    passed, details = True, list[str]()
    chosen: dict[str, list[str]] = {}
    total = over_sockets = 0
    with live_gateway(models=tuple(model_path(name) for name in INPUTS)) as gateway:
        for name, make in INPUTS.items():
            feeds = make()
            found = cut_everywhere(placed(name, feeds), feeds)
            chosen[name] = found.sample(sample)
            astray = [
                after for after in chosen[name] if not over_socket(gateway, name, feeds, after)
            ]
            total += len(found.allowed)
            over_sockets += len(chosen[name])
            passed &= not found.wrong and not astray
            passed &= len(chosen[name]) == min(sample, len(found.working)) > 0
            details.append(
                f"{name:12} {len(found.allowed)} cuts of {found.count} cross at most "
                f"{MOST_CROSSING} values: {len(found.allowed) - len(found.wrong)} equal under "
                f"wasmtime on both sides, {len(found.working)} with kernels on both sides, the "
                "others (views alone on one) are no evidence; of those with kernels "
                f"{len(chosen[name])} are taken (all, or {sample}): over sockets "
                f"{len(chosen[name]) - len(astray)} of {len(chosen[name])} equal"
                + "".join(f"; differs after %{after}" for after in [*found.wrong, *astray])
            )
            print(f"       {details[-1]}", flush=True)
    in_page, figure, lines = page_cuts(INPUTS, chosen)
    figure = f"{total} cuts in one process, {over_sockets} over sockets, {figure}, bit for bit"
    return Verdict(passed and in_page, figure, tuple(lines))


def ran_kernels(trace: Iterable[TraceEvent]) -> bool:
    return any(event.kind == "run" and event.phase == "execute" for event in trace)


def has_both_sides(traces: Mapping[str, Iterable[TraceEvent]]) -> bool:
    """Each side that has a part took part: it ran something, or passed something on."""
    return all(any(e.kind in ("run", "send") for e in trace) for trace in traces.values())


def over_socket(gateway: LiveGateway, name: str, feeds: Feeds, after: str) -> bool:
    """Whether a cut over sockets has the bits of one device, with kernels on both sides."""
    path = str(model_path(name))
    with (
        InferenceSession(path) as whole,
        OffloadSession(path, gateway.url, TOKEN, split_after=after) as parts,
    ):
        outputs = parts.run(None, feeds)
        sides = [[e for e in parts.last_profile if e.device == side] for side in (HOME, GATEWAY)]
        return all(map(ran_kernels, sides)) and same_bits(whole.run(None, feeds), outputs)


def check_clients() -> Verdict:
    """Two sessions and one `rlx run` at once, one that vanishes, a gateway that restarts; the same
    with pages."""
    path, feeds = str(model_path("digits")), sample_inputs.digits(1, batch=4)
    with InferenceSession(path) as session:
        expected = session.run(None, feeds)
    equal = runs = 0
    lock = threading.Lock()
    problems: list[str] = []

    def client(url: str) -> None:
        nonlocal equal, runs
        try:
            with OffloadSession(path, url, TOKEN, split_after="block1_pool") as parts:
                for _ in range(RUNS_AT_ONCE):
                    same = same_bits(parts.run(None, feeds), expected)
                    with lock:
                        equal, runs = equal + same, runs + 1
        except RlxError as error:
            problems.append(str(error))

    with live_gateway() as gateway, tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=client, args=(gateway.url,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        command = command_line(gateway, path, feeds, Path(folder))
        for thread in threads:
            thread.join()
        vanished = OffloadSession(path, gateway.url, TOKEN, mode="remote")
        vanished.connection.start(0, {"batch": 1})
        name = vanished.connection.welcome.session
        vanished.connection._socket.socket.close()
        freed = freed_within(gateway, name, 10)
        survivor = OffloadSession(path, gateway.url, TOKEN, mode="remote")
        before = same_bits(survivor.run(None, feeds), expected)
        ended, port = gateway.stop() == 0, gateway.port
    with live_gateway(port=port), survivor:
        after = same_bits(survivor.run(None, feeds), expected)
        compiled = survivor.compile_count
    passed = equal == runs == 2 * RUNS_AT_ONCE and not problems and same_bits(command, expected)
    passed &= freed and ended and before and after and compiled == 1
    in_page, pages = page_clients()
    passed &= in_page
    return Verdict(
        passed,
        f"{equal} of {runs} runs of two sessions and one `rlx run` at once equal; a client that "
        f"vanished in mid-run freed: {freed}; after a restart the same session goes on: {after}",
        (*problems, pages),
    )


def command_line(gateway: LiveGateway, path: str, feeds: Feeds, folder: Path) -> list[Array]:
    """The outputs of ``rlx run`` on the gateway."""
    words = [str(Path(sys.executable).with_name("rlx")), "run", path, "--json"]
    for name, array in feeds.items():
        np.save(folder / f"{name}.npy", array)
        words += ["--input", f"{name}={folder / f'{name}.npy'}"]
    words += ["--gateway", gateway.url, "--token", TOKEN, "--device", "split"]
    words += ["--split-after", "%block2_relu", "--output", str(folder / "out.npz")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    report = json.loads(done.stdout)
    if not (report[f"segments_on_{HOME}"] and report[f"segments_on_{GATEWAY}"]):
        raise RuntimeError("a side ran nothing")
    with np.load(folder / "out.npz") as file:
        return [file[key] for key in sorted(file.files)]


def freed_within(gateway: LiveGateway, session: str, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(x["event"] == "closed" and x.get("session") == session for x in gateway.lines):
            return True
        time.sleep(0.05)
    return False


CASES = {
    "garbage": ("test_garbage", "frame.magic"),
    "a header of 2 GB": ("test_a_header_that_states_2_gigabytes", "frame.limit"),
    "a WebSocket frame of 2 GB": ("test_a_websocket_frame_that_states_2_gigabytes", "frame.limit"),
    "an unknown digest": ("test_an_unknown_digest", "upload.unasked"),
    "a wrong Origin": ("test_wrong_origin", "peer.origin"),
    "a wrong token": ("test_wrong_token", "peer.token"),
    "IR that fails verification": ("test_ir_that_fails_verification", "comm.edge"),
    "IR that asks for 1 TB": ("test_ir_that_asks_for_a_terabyte", "plan.memory"),
    "IR with weights of 1 TB": ("test_ir_with_weights_of_a_terabyte", "plan.memory"),
    "IR that loops the compiler": ("test_ir_that_loops_the_compiler", "compile.timeout"),
    "a stale graph digest": ("test_a_stale_graph_digest", "digest.mismatch"),
    "a half-open socket": ("test_a_half_open_socket", "peer.silent"),
    "a slow reader": ("test_a_slow_reader", "peer.slow"),
    "a reader of a body that stands still": ("test_a_reader_of_a_body", "peer.slow"),
    "a body that stands still": ("test_a_body_that_stands_still", "peer.silent"),
    "bodies without end": ("test_bodies_under_way_are_bounded", "upload.limit"),
    "a foreign page's tensors": ("test_other_pages_may_not", "peer.origin"),
}
"""What a bad peer does → the test that does it, and a code that it must be refused with."""


def check_bad_peers() -> Verdict:
    """The tests assert codes, one line a refusal, other clients' bits and bounded memory; here it
    is asserted that each case ran, and what was measured is told."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/gateway/test_bad_peers.py",
             f"--junitxml={report}", "-o", "junit_family=xunit1"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        rows = test_rows(report) if report.is_file() else []
    passed = done.returncode == 0 and bool(rows)
    details, growth = list[str](), 0
    for what, (test, code) in CASES.items():
        found = [row for row in rows if row.name.startswith(test)]
        codes = [item for row in found for item in row.codes]
        holds = bool(found) and all(row.passed for row in found) and code in codes
        passed &= holds
        growth = max([growth, *(row.growth for row in found)])
        told = ", ".join(f"{item} × {codes.count(item)}" for item in dict.fromkeys(codes))
        details.append(
            f"{'ok  ' if holds else 'FAIL'} {what}: {told or 'nothing refused'}; the gateway "
            f"grew by at most {max([0, *(row.growth for row in found)]) / 2**20:.0f} MiB"
        )
    if not passed:
        details += done.stdout.splitlines()[-20:]
    figure = (
        f"{len(CASES)} cases in {len(rows)} tests, each refusal logged once, another client's bits "
        f"right before and after each; the gateway grew by at most {growth / 2**20:.0f} MiB"
    )
    return Verdict(passed, figure, tuple(details))


@dataclass(frozen=True)
class TestRow:
    """A test of bad peers: the codes that were logged, and bytes that the gateway grew by."""

    name: str
    passed: bool
    codes: list[str]
    growth: int


def test_rows(report: Path) -> list[TestRow]:
    """The tests that pytest reports (JUnit)."""
    rows = []
    for case in ElementTree.parse(report).iter("testcase"):
        told = {item.get("name"): item.get("value", "") for item in case.iter("property")}
        bad = any(case.find(word) is not None for word in ("failure", "error", "skipped"))
        codes, growth = told.get("codes", "").split(), int(told.get("growth", "0"))
        rows.append(TestRow(case.get("name", ""), not bad, codes, growth))
    return rows


def check_bench() -> Verdict:
    """Both transports from 1 KiB to 64 MiB, from the command line's client and from a page."""
    passed, details, figures = True, list[str](), list[str]()
    for who, module in (("client", "offload"), ("page", "offload_page")):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", f"bench.{module}", "--output", folder],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                figures.append(f"{who}: the bench ended with {done.returncode}")
                details.append(done.stderr[-500:])
                passed = False
                continue
            rows = json.loads((Path(folder) / f"{module}.json").read_text(encoding="utf-8"))
        small = next(row for row in rows if row["transport"] == "websocket")
        best = {
            name: max(row["mb_per_second"] for row in rows if row["transport"] == name)
            for name in ("websocket", "http")
        }
        sizes = {row["nbytes"] for row in rows}
        passed &= min(sizes) == 1 << 10 and max(sizes) == 64 << 20
        details += done.stdout.splitlines()
        figures.append(
            f"{who}: 1 KiB p50 {small['p50_ms']:.2f} ms, p99 {small['p99_ms']:.2f} ms beyond "
            f"kernels, best {best['websocket']:.0f} MB/s on the WebSocket, {best['http']:.0f} MB/s "
            "over HTTP"
        )
    return Verdict(passed, "; ".join(figures), tuple(details))


TITLES = {
    1: "every cut gives the bits of one device",
    2: "several clients, reloads, restarts",
    3: "bad peers",
    4: "latency and throughput",
}


def main(arguments: list[str] | None = None) -> int:
    parser = list_parser(__doc__, TITLES)
    parser.add_argument(
        "--sample", type=int, default=20, help="cuts a model over sockets and in a page"
    )
    options = parser.parse_args(arguments)
    checks: dict[int, Callable[[], Verdict]] = {
        1: partial(check_cuts, options.sample),
        2: check_clients,
        3: check_bad_peers,
        4: check_bench,
    }
    lines: dict[int, Line] = {number: (TITLES[number], checks[number]) for number in TITLES}
    return run_lines("accept-offload", lines, options.only)


if __name__ == "__main__":
    sys.exit(main())
