"""The stored models on a device: through sessions, `rlx run` and a gateway, against onnxruntime."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession
from rlx_edge.model_store import model_path
from rlx_edge.offload import OffloadSession
from tests import sample_inputs
from tests.gateway.live import TOKEN, LiveGateway, live_gateway
from tests.oracles import Comparison, Oracle

Feeds = dict[str, npt.NDArray[Any]]
TOLERANCE = 1e-4
"""Of the largest reference value."""
HINTS: dict[str, dict[str, int]] = {"silero_vad": {"sr": 16000}}


@dataclass(frozen=True)
class Subject:
    """A model and the inputs that one session of it runs."""

    name: str
    feeds: tuple[Callable[[], Feeds], ...]


def subjects() -> list[Subject]:
    """The four models; text lines at ten widths."""
    return [
        Subject("digits", tuple(lambda n=n: sample_inputs.digits(n, n) for n in (1, 4, 7))),
        Subject("orientation", (lambda: sample_inputs.orientation(0),)),
        Subject(
            "ppocr_rec",
            tuple(lambda w=w: sample_inputs.ppocr_rec(w, 1, w) for w in sample_inputs.WIDTHS),
        ),
        Subject("silero_vad", tuple(lambda n=n: sample_inputs.silero_vad(n) for n in (0, 1))),
    ]


@dataclass(frozen=True)
class Outcome:
    """How one model did; ``good`` is within the tolerance with one compile."""

    title: str
    comparison: Comparison
    compiles: int
    note: str = ""

    @property
    def good(self) -> bool:
        return self.comparison.worst <= TOLERANCE and self.compiles == 1

    def __str__(self) -> str:
        return (
            f"{self.title}: {self.comparison.inputs} inputs, {self.comparison.worst:.2e} of the "
            f"largest value, {self.compiles} compile{self.note}"
        )


def compared(
    title: str, subject: Subject, session: InferenceSession | OffloadSession, note: str = ""
) -> Outcome:
    """All inputs of ``subject`` through one session."""
    comparison, oracle = Comparison(), Oracle(model_path(subject.name))
    names = [item.name for item in session.get_outputs()]
    for make in subject.feeds:
        feeds = make()
        found = dict(zip(names, session.run(None, feeds), strict=True))
        comparison.add(found, oracle.run(feeds))
    return Outcome(title, comparison, session.compile_count, note)


def through_sessions(device: str) -> Iterator[Outcome]:
    """Each model with one session on ``device``."""
    for subject in subjects():
        path, hint = model_path(subject.name), HINTS.get(subject.name)
        with InferenceSession(path, [device], value_hint=hint) as session:
            yield compared(f"{device} {subject.name}", subject, session)


def through_command(device: str) -> Iterator[Outcome]:
    """Each model's first input with `rlx run --device`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for subject in subjects():
            feeds = subject.feeds[0]()
            words = ["run", str(model_path(subject.name)), "--json", "--device", device]
            report, outputs = rlx_run(words, feeds, folder)
            comparison = Comparison()
            comparison.add(outputs, Oracle(model_path(subject.name)).run(feeds))
            seconds = report["seconds"]
            note = f", first run {1e3 * seconds['runs'][0]:.1f} ms"
            title = f"rlx run --device {device} {subject.name}"
            yield Outcome(title, comparison, report["compile_count"], note)


def rlx_run(words: Sequence[str], feeds: Feeds, folder: Path) -> tuple[dict[str, Any], Feeds]:
    """Report and outputs of the command; its own words where it fails."""
    given, written = folder / "feeds.npz", folder / "outputs.npz"
    np.savez(given, **feeds)  # type: ignore[arg-type]
    command = [sys.executable, "-m", "rlx_edge.cli.main", *words]
    command += ["--input", str(given), "--output", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    with np.load(written) as file:
        return json.loads(done.stdout), {key: file[key] for key in file.files}


def through_gateway(worker: str) -> Iterator[Outcome]:
    """Each model wholly on a gateway that lends ``worker``, by a scripted client; nothing may be
    held when the gateway stops."""
    role = f"{worker}@gateway"
    with serving(worker) as gateway:
        for subject in subjects():
            path = model_path(subject.name)
            with OffloadSession(path, gateway.url, TOKEN, mode="remote", worker=worker) as session:
                outcome = compared(f"gateway with {worker}, {subject.name}", subject, session)
                if role not in {e.device for e in session.last_profile if e.kind == "run"}:
                    raise RuntimeError(f"{role} ran nothing")
                yield outcome
        with tempfile.TemporaryDirectory() as name:
            subject = subjects()[0]
            feeds = subject.feeds[0]()
            words = ["run", str(model_path(subject.name)), "--json", "--gateway", gateway.url]
            words += ["--token", TOKEN, "--device", "remote", "--worker", worker]
            report, outputs = rlx_run(words, feeds, Path(name))
            comparison = Comparison()
            comparison.add(outputs, Oracle(model_path(subject.name)).run(feeds))
            note = f", {report[f'segments_on_{role}']} segments there"
            title = f"rlx run --gateway … --worker {worker} {subject.name}"
            yield Outcome(title, comparison, report["compile_count"], note)


@contextmanager
def serving(worker: str) -> Iterator[LiveGateway]:
    """A gateway that lends one device; ``RuntimeError`` should it end with leaks."""
    with live_gateway(workers=(worker,)) as gateway:
        yield gateway
        code = gateway.stop()
        astray = [line for line in gateway.lines if line["event"] in ("leak", "unstructured")]
        if code != 0 or astray:
            raise RuntimeError(f"the gateway ended with {code}: {astray[:2]}")


def all_ways(device: str) -> Iterator[Outcome]:
    """Sessions, commands and a gateway."""
    yield from through_sessions(device)
    yield from through_command(device)
    yield from through_gateway(device)
