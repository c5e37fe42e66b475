"""Compiled layers as plain files that every engine can run: bytes, addresses and ranges.

A job is a WebAssembly module that exports `memory` and `run(block, begin, end, thread)`, what to
write into memory before the first call, the launches that run once, and the launches that are
timed. The reference loop is a job too; its `run` takes no arguments.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import reference_loop
from bench.layers import Layer
from rlx_edge.compile import WasmTarget, compile_module
from rlx_edge.ir.onnx.importer import import_model
from rlx_edge.ir.plan import evaluate
from rlx_edge.ir.program import Program
from rlx_edge.runtime.feeds import FeedChecker

Range = tuple[int, int]

REFERENCE_ITERATIONS = 100_000


@dataclass(frozen=True)
class Job:
    """`writes` are (address, offset in `data`, bytes); `setup` and `timed` are launch ranges."""

    name: str
    operations: int
    wasm: str
    data: str
    memory: int
    block: int
    writes: tuple[tuple[int, int, int], ...]
    setup: tuple[Range, ...]
    timed: tuple[Range, ...]


def reference_jobs(folder: Path) -> list[Job]:
    """The loop with relaxed multiply-add, and with separate multiplication and addition."""
    jobs = []
    for name, fused in (("fma loop", True), ("mul+add loop", False)):
        wasm, operations = reference_loop.build(fused, REFERENCE_ITERATIONS)
        path = folder / f"{name.replace(' ', '_')}.wasm"
        path.write_bytes(wasm)
        jobs.append(Job(name, operations, path.name, "", 0, 0, (), (), ()))
    return jobs


def layer_job(layer: Layer, style: str, folder: Path) -> Job:
    """Compiles the layer for an engine family and writes its files into `folder`."""
    module = import_model(layer.model, name="layer")
    compiled = compile_module(module, WasmTarget(style))
    program = compiled.program
    bound = FeedChecker(program.inputs, program.bindings).bind(layer.inputs)
    plan = evaluate(program.plan, bound.symbols)
    parts = [(program.plan.block_address, plan.words.tobytes())]
    for upload in program.uploads:
        parts.append((upload.address, compiled.placed.constants[upload.digest].read()))
    for place, array in zip(plan.inputs, bound.arrays, strict=True):
        parts.append((place.address, array.tobytes()))
    stem = "".join(c if c.isalnum() else "_" for c in f"{layer.name}_{style}")
    writes, data = [], bytearray()
    for address, content in parts:
        writes.append((address, len(data), len(content)))
        data += content
    (folder / f"{stem}.wasm").write_bytes(program.code)
    (folder / f"{stem}.bin").write_bytes(data)
    ranges = [(run.begin, run.end) for run in (*program.prepare, *program.execute)]
    memory = max([plan.peak, *(address + size for address, _, size in writes)])
    return Job(
        layer.name,
        layer.operations,
        f"{stem}.wasm",
        f"{stem}.bin",
        memory,
        program.plan.block_address,
        tuple(writes),
        tuple(ranges),
        timed_ranges(program, layer.op),
    )


def timed_ranges(program: Program, op: str) -> tuple[Range, ...]:
    """The launches of the layer itself, packing of its activations included."""
    begin = min(run.begin for run in program.execute)
    found = [
        (index, index + 1)
        for index, launch in enumerate(program.launches)
        if index >= begin and (op in launch.op or launch.op == "pack")
    ]
    if not any(op in launch.op for launch in program.launches[begin:]):
        raise LookupError(f"no launch of '{op}' among {[x.op for x in program.launches]}")
    return tuple(found)


def write_jobs(jobs: list[Job], folder: Path) -> Path:
    path = folder / "jobs.json"
    path.write_text(json.dumps([asdict(job) for job in jobs], indent=1), encoding="utf-8")
    return path
