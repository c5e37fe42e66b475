"""Runs jobs interleaved under wasmtime or node and returns their speeds."""

from __future__ import annotations

import base64
import json
import statistics
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import wasmtime

from bench.kernels.jobs import Job
from bench.timing import interleave

NODE_SCRIPT = Path(__file__).with_name("node_host.cjs")


@dataclass(frozen=True)
class Speed:
    """Operations per second (in 10^9) of each round, and the result's checksum."""

    name: str
    rounds: tuple[float, ...]
    checksum: int

    @property
    def best(self) -> float:
        """The fastest round."""
        return max(self.rounds)

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.rounds)

    def median_share(self, limit: Speed) -> float:
        """The median of this speed over another's, round by round."""
        pairs = zip(self.rounds, limit.rounds, strict=True)
        return statistics.median(speed / other for speed, other in pairs)


def fill_values(count: int) -> np.ndarray:
    """What `node_host.cjs` writes too: small numbers of both signs, none of them zero for long."""
    index = np.arange(count, dtype=np.int64)
    return (((index * 7919) % 1013) / 1013 - 0.5).astype(np.float32)


def run_wasmtime(jobs: Sequence[Job], rounds: int) -> list[Speed]:
    """Cranelift at its default optimisation level; one call of `run` a sample or more."""
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    calls, checksums = [], []
    for job in jobs:
        store = wasmtime.Store(engine)
        exports = wasmtime.Instance(store, wasmtime.Module(engine, job.wasm), []).exports(store)
        memory, run = exports["memory"], exports["run"]
        assert isinstance(memory, wasmtime.Memory)
        assert isinstance(run, wasmtime.Func)
        view = np.frombuffer(memory.get_buffer_ptr(store, memory.data_len(store)), np.float32)
        for address, count in job.fills:
            view[address // 4 : address // 4 + count] = fill_values(count)
        if "prepare" in exports:
            prepare = exports["prepare"]
            assert isinstance(prepare, wasmtime.Func)
            prepare(store)
        calls.append(lambda run=run, store=store: run(store))
        run(store)
        address, count = job.result
        checksums.append(zlib.crc32(view[address // 4 : address // 4 + count].tobytes()))
    times = interleave(calls, rounds)
    return [
        Speed(job.name, tuple(job.operations / second / 1e9 for second in time.seconds), checksum)
        for job, time, checksum in zip(jobs, times, checksums, strict=True)
    ]


def run_node(jobs: Sequence[Job], rounds: int) -> list[Speed]:
    """V8 in node, with relaxed SIMD switched on for the reference loop."""
    described = [
        {
            "wasm": base64.b64encode(job.wasm).decode(),
            "fills": job.fills,
            "result": job.result,
        }
        for job in jobs
    ]
    done = subprocess.run(
        ["node", "--experimental-wasm-relaxed-simd", str(NODE_SCRIPT)],
        input=json.dumps({"jobs": described, "rounds": rounds}),
        capture_output=True,
        text=True,
        check=True,
    )
    results = []
    for job, measured in zip(jobs, json.loads(done.stdout), strict=True):
        rounds = tuple(job.operations / time / 1e6 for time in measured["milliseconds"])
        results.append(Speed(job.name, rounds, zlib.crc32(base64.b64decode(measured["result"]))))
    return results


HOSTS = {"wasmtime": run_wasmtime, "node": run_node}
