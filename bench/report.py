"""Results as JSON for machines and as Markdown for people, with what they depend on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.layers import Layer
from bench.models import ModelResult
from bench.timing import Times

REFERENCE = "fma loop"


@dataclass(frozen=True)
class LayerResult:
    """A layer (or a reference loop) in one engine; `share` is relative to the FMA loop."""

    engine: str
    name: str
    operations: int
    large: bool
    times: Times
    share: float

    @property
    def gigaflops(self) -> float:
        """10⁹ multiplications and additions a second, from the median."""
        return self.operations / self.times.median / 1e9


def layer_results(
    engine: str, layers: Iterable[Layer], measured: Mapping[str, tuple[int, Times]]
) -> list[LayerResult]:
    """Rates beside the reference loop of the same engine and the same rounds (medians)."""
    operations, times = measured[REFERENCE]
    limit = operations / times.median
    large = {layer.name for layer in layers if layer.is_large}
    return [
        LayerResult(engine, name, count, name in large, t, count / t.median / limit)
        for name, (count, t) in measured.items()
    ]


def conditions(node: list[str] | None) -> dict[str, str]:
    """Machine, versions and method."""
    found = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "wasmtime": version("wasmtime"),
        "onnxruntime": version("onnxruntime"),
        "precision": "fixed",
        "threads": "1",
        "method": "processor time of one thread, interleaved rounds, medians; "
        "the spread is the quartile range over the median",
    }
    if node is not None:
        done = subprocess.run([*node, "--version"], capture_output=True, text=True, check=True)
        found["node"] = " ".join([done.stdout.strip(), *node[1:]])
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def as_json(
    facts: Mapping[str, str], layers: Iterable[LayerResult], models: Iterable[ModelResult]
) -> str:
    rows: dict[str, Any] = {
        "conditions": dict(facts),
        "layers": [
            {**asdict(row), "gigaflops": row.gigaflops, "spread": row.times.spread}
            for row in layers
        ],
        "models": [{**asdict(row), "ratio": row.ratio} for row in models],
    }
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def as_markdown(
    facts: Mapping[str, str], layers: Iterable[LayerResult], models: Iterable[ModelResult]
) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench BENCH_ARGS='--page docs/benchmarks.md'`:",
        "",
    ]
    lines += [f"* {key}: {value}" for key, value in facts.items()]
    rows = list(layers)
    for engine in dict.fromkeys(row.engine for row in rows):
        lines += ["", f"## Layers under {engine}", ""]
        lines += [
            "| layer | GFLOP/s | share of the FMA loop | spread |",
            "| --- | ---: | ---: | ---: |",
        ]
        lines += [
            f"| {row.name} | {row.gigaflops:.1f} | {row.share:.0%} | {row.times.spread:.0%} |"
            for row in rows
            if row.engine == engine
        ]
    lines += ["", "## Models against onnxruntime", ""]
    lines += ["| model | ms | onnxruntime, ms | times as fast | spread |"]
    lines += ["| --- | ---: | ---: | ---: | ---: |"]
    lines += [
        f"| {row.name} | {row.ours.median * 1e3:.3f} | {row.onnxruntime.median * 1e3:.3f} "
        f"| {row.ratio:.2f} | {row.ours.spread:.0%}, {row.onnxruntime.spread:.0%} |"
        for row in models
    ]
    return "\n".join(lines) + "\n"
