"""Runs jobs under wasmtime in this process, and under node in another one."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import wasmtime

from bench import reference_loop
from bench.jobs import Job, write_jobs
from bench.timing import Times, interleave
from rlx_edge.wasm_runtime.engine import SETTINGS
from rlx_edge.wasm_runtime.fast_call import FastCall

PAGE = 1 << 16
NODE_SCRIPT = Path(__file__).with_name("run_jobs.mjs")
RELAXED_FLAG = "--experimental-wasm-relaxed-simd"


def run_wasmtime(jobs: list[Job], folder: Path, rounds: int) -> list[Times]:
    """With the settings of the runtime, and relaxed SIMD switched on for the reference loop."""
    config = wasmtime.Config()
    for name, value in SETTINGS:
        setattr(config, name, value)
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    return interleave([_wasmtime_call(engine, job, folder) for job in jobs], rounds)


def _wasmtime_call(engine: wasmtime.Engine, job: Job, folder: Path) -> Callable[[], object]:
    store = wasmtime.Store(engine)
    module = wasmtime.Module(engine, (folder / job.wasm).read_bytes())
    exports = wasmtime.Instance(store, module, []).exports(store)
    function, memory = exports["run"], exports["memory"]
    assert isinstance(function, wasmtime.Func)
    assert isinstance(memory, wasmtime.Memory)
    if not job.timed:
        return partial(function, store)
    missing = -(-job.memory // PAGE) - memory.size(store)
    if missing > 0:
        memory.grow(store, missing)
    data = (folder / job.data).read_bytes()
    for address, offset, size in job.writes:
        memory.write(store, data[offset : offset + size], address)
    call = FastCall(store, function, 4)

    def launch(ranges: tuple[tuple[int, int], ...]) -> None:
        for begin, end in ranges:
            call(job.block, begin, end, 0)

    launch(job.setup)
    return partial(launch, job.timed)


def node_command() -> list[str] | None:
    """How to start node so that relaxed SIMD works; None if node is not installed."""
    node = shutil.which("node")
    if node is None:
        return None
    probe = "process.exit(WebAssembly.validate(require('fs').readFileSync(0)) ? 0 : 1)"
    wasm, _ = reference_loop.build(fused=True, iterations=1)
    for flags in ([], [RELAXED_FLAG]):
        done = subprocess.run(
            [node, *flags, "-e", probe], input=wasm, capture_output=True, check=False
        )
        if done.returncode == 0:
            return [node, *flags]
    return None


def run_node(command: list[str], jobs: list[Job], folder: Path, rounds: int) -> list[Times]:
    """The same jobs in V8, timed there in the same way."""
    path = write_jobs(jobs, folder)
    done = subprocess.run(
        [*command, str(NODE_SCRIPT), str(path), str(rounds)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"node ended with {done.returncode}: {done.stderr.strip()}")
    return [Times(tuple(seconds)) for seconds in json.loads(done.stdout)]
