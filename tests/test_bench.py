"""The measurements run and are written down; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench import reference_loop
from bench.engines import node_command, run_node, run_wasmtime
from bench.jobs import layer_job, reference_jobs
from bench.layers import conv, layers, matmul
from bench.models import ModelResult
from bench.report import as_json, as_markdown, layer_results
from bench.timing import Times

SMALL = [matmul(24, 16, 12), conv(8, 6, 3, 12), conv(8, 6, 3, 8, groups=8)]


@pytest.mark.parametrize("fused", [False, True])
def test_reference_loop_is_valid(fused: bool, tmp_path: Path, wasm_validate: str) -> None:
    wasm, operations = reference_loop.build(fused, iterations=10)
    assert operations == 10 * reference_loop.UNROLL * reference_loop.CHAINS * 4 * 2
    path = tmp_path / "loop.wasm"
    path.write_bytes(wasm)
    flags = ["--enable-relaxed-simd"] if fused else []
    subprocess.run([wasm_validate, *flags, str(path)], check=True)


@pytest.mark.parametrize(("engine", "style"), [("wasmtime", "cranelift"), ("node", "v8")])
def test_jobs_run_and_rates_are_relative_to_the_loop(
    engine: str, style: str, tmp_path: Path
) -> None:
    jobs = reference_jobs(tmp_path) + [layer_job(layer, style, tmp_path) for layer in SMALL]
    if engine == "wasmtime":
        times = run_wasmtime(jobs, tmp_path, rounds=2)
    else:
        command = node_command()
        assert command is not None, "node is missing; `make setup` says how to get it"
        times = run_node(command, jobs, tmp_path, rounds=2)
    assert all(len(t.seconds) == 2 and t.best > 0 for t in times)
    measured = {job.name: (job.operations, t) for job, t in zip(jobs, times, strict=True)}
    rows = layer_results(engine, SMALL, measured)
    assert [row.name for row in rows] == [job.name for job in jobs]
    assert rows[0].share == 1.0
    assert not any(row.large for row in rows)


def test_reports_state_conditions_and_every_row() -> None:
    slow, fast = Times((4.0, 2.0, 3.0)), Times((1.0, 1.0, 1.0))
    layer = matmul(512, 512, 512)
    rows = layer_results("node", [layer], {"fma loop": (8, fast), layer.name: (8, slow)})
    models = [ModelResult("digits", ours=slow, onnxruntime=fast)]
    found = json.loads(as_json({"precision": "fixed"}, rows, models))
    assert found["conditions"] == {"precision": "fixed"}
    assert [(row["large"], round(row["share"], 3)) for row in found["layers"]] == [
        (False, 1.0),
        (True, 0.333),
    ]
    assert found["models"][0]["ratio"] == pytest.approx(1 / 3)
    text = as_markdown({"precision": "fixed"}, rows, models)
    assert "* precision: fixed" in text
    assert "| matmul 512x512x512 | 0.0 | 33% |" in text
    assert "| digits | 3000.000 | 1000.000 | 0.33 |" in text


def test_large_layers_are_those_that_the_threshold_is_for() -> None:
    large = [layer.name for layer in layers() if layer.is_large]
    assert "matmul 512x512x512" in large
    assert not any(name.startswith("depthwise") for name in large)
    assert len(large) >= 8
