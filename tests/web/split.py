"""Parts compiled as for a page, run by node against a gateway on loopback."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.compile.page import PageModel, compile_for_page
from tests.web.node import ROOT, TYPES, node

Array = npt.NDArray[Any]
Json = dict[str, Any]

TOKEN = "a token for tests"
RUN_SPLIT = Path(__file__).with_name("run_split.js")
STOP_SECONDS = 20


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def offload_gateway(
    site: Path, *arguments: str, port: int = 0, models: Sequence[str] = ("digits",)
) -> Iterator[str]:
    """The URL of `rlx serve --offload` with a site of one page; it must stop cleanly."""
    site.mkdir(exist_ok=True)
    (site / "index.html").write_text("<!doctype html>\n")
    command = [str(Path(sys.executable).with_name("rlx")), "serve", "--offload", "--token", TOKEN]
    command += ["--port", str(port), "--site", str(site), "--models", *models, *arguments]
    log = site.with_suffix(".log")
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        try:
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(STOP_SECONDS) == 0, log.read_text()


def log_lines(site: Path) -> list[Json]:
    """What a gateway has logged."""
    return [json.loads(line) for line in site.with_suffix(".log").read_text().splitlines()]


def compiled(path: Path, device: str, after: str = "", name: str = "m") -> PageModel:
    """The page's part of a model file."""
    content = path.read_bytes()
    return compile_for_page(
        lambda at, n: content[at : at + n], len(content), name, device=device, split_after=after
    )


@dataclass(frozen=True)
class SplitRuns:
    """What node reported: a row a part, and the states of the connection."""

    report: list[Json]
    states: list[str]

    def outputs(self, number: int) -> list[Array]:
        rows = self.report[number].get("rows")
        assert rows is not None, self.report[number]
        types: Mapping[str, Any] = TYPES
        return [np.fromfile(row["file"], types[row["type"]]).reshape(row["dims"]) for row in rows]


def run_split(
    url: str,
    path: Path,
    parts: Sequence[PageModel],
    feeds: Mapping[str, Array],
    scratch: Path,
    **job: Any,
) -> SplitRuns:
    """One client runs every part once, in order."""
    names = {dtype: name for name, dtype in TYPES.items()}
    rows = []
    for position, (name, array) in enumerate(feeds.items()):
        file = scratch / f"feed-{position}"
        file.write_bytes(np.ascontiguousarray(array).tobytes())
        rows.append(
            {"name": name, "type": names[array.dtype], "dims": list(array.shape), "file": str(file)}
        )
    items = []
    for number, part in enumerate(parts):
        contents = {
            "program": part.program.encode(),
            "kernels": part.kernels,
            "constants": part.constants.encode(),
            "extra": part.extra,
            "placed": part.placed.encode(),
            "graph": part.task_graph.encode(),
        }
        files = {"model": str(path)}
        for kind, content in contents.items():
            file = scratch / f"part-{number}.{kind}"
            file.write_bytes(content)
            files[kind] = str(file)
        items.append(
            {
                "files": files,
                "device": part.peer,
                "irDigest": part.ir_digest,
                "feeds": rows,
                "output": str(scratch / f"output-{number}"),
            }
        )
    file = scratch / "job.json"
    file.write_text(json.dumps({"url": url, "token": TOKEN, "parts": items, "model": "", **job}))
    done = subprocess.run(
        [node(), str(RUN_SPLIT), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return SplitRuns(found["report"], found["states"])
