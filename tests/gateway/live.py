"""A gateway in a process of its own on loopback, with what it logs and how much memory it took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlx_edge.gateway.access import Access
from rlx_edge.gateway.limits import Limits
from rlx_edge.gateway.offload import Offload
from rlx_edge.gateway.registry import Registry
from rlx_edge.gateway.server import serve
from rlx_edge.gateway.settings import Settings
from rlx_edge.lent_devices import DEFAULT, find_workers

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token of the tests"
ORIGIN = "https://pages.example"
START_SECONDS = 60


class LiveGateway:
    """Lines that it logged, its address, its memory. It logs into a file, which never makes it
    wait as a pipe would that nobody reads."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.port = int(url.rstrip("/").rpartition(":")[2])
        self._log = log
        self._lines: list[dict[str, Any]] = []
        self._read = 0
        self._lock = threading.Lock()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        with self._lock, self._log.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
            self._read += len(whole + newline)
            for line in whole.splitlines():
                try:
                    self._lines.append(json.loads(line))
                except ValueError:
                    text = line.decode("utf-8", "replace")
                    self._lines.append({"event": "unstructured", "level": "error", "text": text})
            return self._lines

    def refused(self) -> list[str]:
        """Codes of all refusals so far, in order."""
        return [str(line["code"]) for line in self.lines if line["event"] == "refused"]

    def wait_for(self, event: str, count: int = 1, seconds: float = 20.0) -> dict[str, Any]:
        """The line of the ``count``-th such event."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [line for line in self.lines if line["event"] == event]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.02)
        raise AssertionError(f"no {event} number {count} in {self.lines[-10:]}")

    def from_here(self) -> int:
        """Resident memory now; ``peak_bytes`` counts from here on (proc(5), ``clear_refs``)."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")
        return self._status("VmRSS")

    def peak_bytes(self) -> int:
        """The largest resident memory (``VmHWM``)."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in text.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) << 10

    def stop(self) -> int:
        """SIGTERM, and how the process ended."""
        self.process.terminate()
        return self.process.wait(30)


@contextmanager
def live_gateway(
    *,
    port: int = 0,
    models: tuple[Path, ...] = (),
    workers: tuple[str, ...] = DEFAULT,
    **limits: float,
) -> Iterator[LiveGateway]:
    """A gateway with these limits, models and devices until the block ends."""
    words = [str(port), json.dumps(limits), json.dumps(workers), *map(str, models)]
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "log").open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.gateway.live", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as process,
    ):
        log = Path(errors.name)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                process.wait(10)
                raise AssertionError(f"the gateway did not start: {log.read_text('utf-8')}")
            yield LiveGateway(process, url, log)
        finally:
            if process.poll() is None:
                process.kill()


def main(words: list[str]) -> None:
    """The process: serves until SIGTERM, prints its URL first."""
    port, limits, workers, *models = words
    given = Limits(**json.loads(limits))
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        (site / "index.html").write_text("<!doctype html>", encoding="ascii")
        offload = Offload(
            Access(TOKEN, frozenset({ORIGIN})),
            given,
            Registry([Path(model) for model in models]),
            find_workers(json.loads(workers), given.run_seconds),
        )
        serve(Settings(site=site, port=int(port)), lambda url: print(url, flush=True), offload)


if __name__ == "__main__":
    main(sys.argv[1:])
