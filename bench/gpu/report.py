"""What was measured, as JSON and as a page."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version

from bench.gpu.attention import AttentionRow
from bench.gpu.models import Row
from bench.gpu.peaks import Peaks
from rlx_edge.gpu_workers.cuda.provider import describe

PACKAGES = ("torch", "cupy-cuda13x", "onnxruntime", "numpy")


def conditions(peaks: Peaks, command: str) -> dict[str, str]:
    """Device, versions, method."""
    devices = describe()["devices"]
    assert isinstance(devices, list)
    rates = ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in peaks.flops.items())
    torch = import_module("torch")
    return {
        "device": f"{devices[0]['name']}, {devices[0]['target']}",
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        + f", CUDA {torch.version.cuda}, Python {platform.python_version()}",
        "command": command,
        "peaks": f"{rates} (products of 8192 by PyTorch), {peaks.bandwidth / 1e12:.2f} TB/s copied",
        "method": "wall-clock time of runs enqueued one after another and waited for once, inputs "
        "and results on the device, subjects in turns, medians; ours and PyTorch's graphs are "
        "replayed",
        "storage": "f32 in all our precisions; PyTorch's fp16 stores f16, half of the bytes",
        "bound": "the larger of operations over the peak of the precision and bytes that our "
        "launches touch over the bandwidth",
    }


def as_json(
    facts: Mapping[str, str], rows: Iterable[Row], attention: Iterable[AttentionRow]
) -> str:
    models = [
        {
            **asdict(row),
            "times": row.times.median,
            "spread": row.times.spread,
            "ways": [{**way, "microseconds": _rounded(way)} for way in row.ways],
            "peers": {name: times.median for name, times in row.peers.items()},
        }
        for row in rows
    ]
    lengths = [
        {
            **asdict(row),
            "ways": [{**way, "microseconds": _rounded(way)} for way in row.ways],
            "fused": row.fused.median,
            "parts": row.parts.median,
            "torch": row.torch.median,
        }
        for row in attention
    ]
    found = {"conditions": dict(facts), "models": models, "attention": lengths}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _rounded(way: Mapping[str, object]) -> dict[str, float | None]:
    times = way["microseconds"]
    assert isinstance(times, dict)
    return {name: time if time is None else round(time, 2) for name, time in times.items()}


def as_markdown(
    facts: Mapping[str, str], rows: Sequence[Row], attention: Sequence[AttentionRow]
) -> str:
    lines = ["# Benchmarks on a GPU", "", "Milliseconds a run; as they are.", ""]
    lines += [f"* {key}: {value}" for key, value in facts.items()]
    if rows:
        peers = list(dict.fromkeys(name for row in rows for name in row.peers))
        lines += ["", "## Models", ""]
        lines += [
            "Times as fast as the fastest of PyTorch's three ways in the same precision (fp32 for "
            "`fixed` and `relaxed`), and the share of the bound that is reached.",
            "",
            "| model | batch | device | precision | ms | "
            + " | ".join(f"{name}, ms" for name in peers)
            + " | times as fast | bound, ms | share | error | spread |",
            "| --- | ---: | --- | --- " + "| ---: " * (len(peers) + 6) + "|",
        ]
        lines += [_model(row, peers) for row in rows]
        lines += ["", *_vulkan(rows)]
    if attention:
        lines += ["", "## Attention", ""]
        lines += [
            "12 heads; the same products and softmax as one kernel and as parts; PyTorch's "
            "`scaled_dot_product_attention` beside them.",
            "",
            "| queries | keys | d | precision | one kernel, ms | parts, ms | times as fast "
            "| PyTorch, ms | bound, ms | share | error |",
            "| ---: | ---: | ---: | --- " + "| ---: " * 7 + "|",
        ]
        lines += [
            f"| {row.queries} | {row.keys} | {row.width} | {row.precision} "
            f"| {_ms(row.fused.median)} | {_ms(row.parts.median)} | {row.gain:.2f} "
            f"| {_ms(row.torch.median)} "
            f"| {_ms(row.bound)} {row.bound_by} | {row.bound / row.fused.median:.0%} "
            f"| {row.error:.1e} |"
            for row in attention
        ]
    return "\n".join(lines).rstrip() + "\n"


def _model(row: Row, peers: Sequence[str]) -> str:
    cells = [_ms(row.peers[name].median) if name in row.peers else "" for name in peers]
    return (
        f"| {row.model} | {row.batch} | {row.device} | {row.precision} | {_ms(row.times.median)} | "
        + " | ".join(cells)
        + f" | {row.best_peer / row.times.median:.2f} | {_ms(row.bound)} {row.bound_by} "
        f"| {row.bound / row.times.median:.0%} | {row.error:.1e} | {row.times.spread:.0%} |"
    )


def _vulkan(rows: Sequence[Row]) -> list[str]:
    """Vulkan's rate of CUDA's in the same precision."""
    cuda = {(row.model, row.batch, row.precision): row for row in rows if row.device == "cuda:0"}
    found = []
    for row in rows:
        if row.device.startswith("vulkan"):
            beside = cuda[row.model, row.batch, row.precision]
            share = beside.times.median / row.times.median
            what = f"{row.model}, batch {row.batch}, {row.precision}"
            found.append(f"* {what}: Vulkan at {share:.0%} of CUDA's rate")
    return found


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
