"""What offloading costs on loopback: latency beyond kernels, and throughput of both transports.

usage: python -m bench.offload [--rounds N] [--output DIR]

The gateway runs in a process of its own, as `rlx serve --offload` starts it. One operation
(`relu`) runs there on a tensor of each size; kernels are timed by the gateway's own trace. Latency
is the whole run less those kernels. Throughput counts the bytes both ways over the same difference,
so it contains the copies into and out of linear memory on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rlx_edge.ir.parser import parse_module
from rlx_edge.offload import GATEWAY, OffloadSession

TRANSPORTS = {"websocket": 1 << 40, "http": 0}
"""Transport → the threshold that makes every tensor take it."""
SIZES = tuple(1 << power for power in (10, 12, 14, 16, 18, 20, 22, 24, 26))
SECONDS = 4.0
"""Rounds of one size stop after this, three at least."""
MODEL = """rlx.module version = "1.0"

func @copy(%x: f32[n]) -> (f32[n]) {
  %y = rlxc::relu(%x) : f32[n]
  return %y
}
"""


@dataclass(frozen=True)
class Row:
    """Milliseconds beyond kernels, and megabytes (10^6) a second both ways, at one size."""

    transport: str
    nbytes: int
    rounds: int
    p50_ms: float
    p99_ms: float
    kernel_ms: float
    mb_per_second: float


@contextmanager
def gateway() -> Iterator[tuple[str, str]]:
    """URL and token of a gateway that runs until the block ends."""
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "index.html").write_text("<!doctype html>", encoding="ascii")
        words = ["serve", "--offload", "--port", "0", "--site", folder, "--models", "digits"]
        process = subprocess.Popen(
            [sys.executable, "-m", "rlx_edge.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "RLX_TOKEN": token, "PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " at http" not in line:
                raise RuntimeError(f"the gateway did not start: {line!r}")
            yield line.split()[-1], token
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()


def measure(url: str, token: str, transport: str, rounds: int) -> Iterator[Row]:
    """One row a size."""
    with OffloadSession(
        parse_module(MODEL), url, token, mode="remote", bulk_bytes=TRANSPORTS[transport]
    ) as session:
        for nbytes in SIZES:
            feeds = {"x": np.arange(nbytes // 4, dtype=np.float32)}
            for _ in range(2):
                (found,) = session.run(None, feeds)
            if found.tobytes() != feeds["x"].tobytes():
                raise RuntimeError("the gateway returned other bytes")
            beyond: list[float] = []
            kernels: list[float] = []
            end = time.perf_counter() + SECONDS
            while len(beyond) < rounds and (len(beyond) < 3 or time.perf_counter() < end):
                start = time.perf_counter_ns()
                session.run(None, feeds)
                wall = time.perf_counter_ns() - start
                kernel = sum(
                    event.duration
                    for event in session.last_profile
                    if event.kind == "run" and event.device == GATEWAY
                )
                kernels.append(kernel / 1e6)
                beyond.append((wall - kernel) / 1e6)
            p50 = statistics.median(beyond)
            yield Row(
                transport,
                nbytes,
                len(beyond),
                p50,
                sorted(beyond)[min(len(beyond) - 1, int(0.99 * len(beyond)))],
                statistics.median(kernels),
                2 * nbytes / 1e3 / p50,
            )


def markdown(rows: Sequence[Row]) -> str:
    """A table, one line a size and transport."""
    lines = [
        f"Offloading on loopback ({platform.machine()}, {os.cpu_count()} cores shared by client "
        "and gateway): `relu` on the gateway, milliseconds beyond its kernels.",
        "",
        "| transport | bytes | rounds | p50 ms | p99 ms | kernel ms | MB/s both ways |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.transport} | {row.nbytes} | {row.rounds} | {row.p50_ms:.2f} | {row.p99_ms:.2f} "
        f"| {row.kernel_ms:.3f} | {row.mb_per_second:.1f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--output", type=Path, default=Path("build/bench"))
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    with gateway() as (url, token):
        for transport in TRANSPORTS:
            rows += measure(url, token, transport, options.rounds)
    text = markdown(rows)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "offload.md").write_text(text, encoding="utf-8")
    content = json.dumps([asdict(row) for row in rows], indent=1)
    (options.output / "offload.json").write_text(content + "\n", encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
