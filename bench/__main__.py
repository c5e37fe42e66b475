"""Runs the measurements, prints them and writes them down.

usage: python -m bench [--rounds N] [--output DIR] [--page FILE] [--skip layers|models ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.engines import node_command, run_node, run_wasmtime
from bench.jobs import layer_job, reference_jobs
from bench.layers import layers
from bench.models import ModelResult, measure_models
from bench.report import LayerResult, as_json, as_markdown, conditions, layer_results

STYLES = {"wasmtime": "cranelift", "node": "v8"}
"""The emit style that each engine gets."""


def measure_layers(rounds: int, node: list[str] | None) -> list[LayerResult]:
    subjects = layers()
    results: list[LayerResult] = []
    for engine, style in STYLES.items():
        if engine == "node" and node is None:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            jobs = reference_jobs(folder) + [layer_job(s, style, folder) for s in subjects]
            if engine == "wasmtime":
                times = run_wasmtime(jobs, folder, rounds)
            else:
                assert node is not None
                times = run_node(node, jobs, folder, rounds)
        measured = {job.name: (job.operations, t) for job, t in zip(jobs, times, strict=True)}
        results += layer_results(engine, subjects, measured)
    return results


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("build/bench"))
    parser.add_argument("--page", type=Path, help="also write the Markdown here")
    parser.add_argument("--skip", nargs="+", choices=("layers", "models"), default=())
    options = parser.parse_args(arguments)
    node = node_command()
    if node is None:
        print("node is not installed: its column is left out", file=sys.stderr)
    layer_rows: list[LayerResult] = []
    model_rows: list[ModelResult] = []
    if "layers" not in options.skip:
        layer_rows = measure_layers(options.rounds, node)
    if "models" not in options.skip:
        model_rows = measure_models(options.rounds)
    facts = conditions(node)
    text = as_markdown(facts, layer_rows, model_rows)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(
        as_json(facts, layer_rows, model_rows), encoding="utf-8"
    )
    (options.output / "results.md").write_text(text, encoding="utf-8")
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
