"""Whole models: each precision of ours beside PyTorch's ways to run the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from bench.gpu.ours import Ours
from bench.gpu.peaks import Peaks
from bench.gpu.peers import callables, fixed_graph, inputs_of, set_precision, torch_module
from bench.gpu.subjects import Feeds, Subject
from bench.gpu.timing import Work, interleave
from bench.timing import Times
from rlx_edge.engines import device_precisions
from rlx_edge.ir.devices import parse_device
from tests.oracles import Oracle

BATCHES = (1, 32)
PRECISIONS = {"fp32": ("fixed", "relaxed"), "tf32": ("tf32",), "fp16": ("fp16",)}
"""PyTorch's precision, and ours that stand beside it."""
VULKAN = "vulkan:0"


@dataclass(frozen=True)
class Row:
    """One model at one batch in one precision on one device."""

    model: str
    batch: int
    device: str
    precision: str
    times: Times
    peers: dict[str, Times]
    bound: float
    bound_by: str
    error: float
    """The largest difference from onnxruntime, of the largest value."""
    ways: list[Mapping[str, object]] = field(default_factory=list)

    @property
    def best_peer(self) -> float:
        return min((times.median for times in self.peers.values()), default=float("nan"))


def measure_models(
    found: list[Subject], peaks: Peaks, rounds: int, *, compiled: bool, vulkan: bool
) -> Iterator[Row]:
    """Every subject, batch and precision, one after another; within a precision in turns."""
    for subject in found:
        for batch in BATCHES:
            feeds = subject.feeds(batch)
            expected = Oracle(subject.model, threads=0).run(feeds)
            graph = fixed_graph(subject.model, feeds)
            for peer, precisions in PRECISIONS.items():
                devices = [("cuda:0", name) for name in precisions]
                offered = device_precisions(parse_device(VULKAN)) if vulkan else ()
                devices += [(VULKAN, name) for name in precisions if name in offered]
                ours = [Ours(subject.model, device, name, feeds) for device, name in devices]
                ways = peers_of(graph, feeds, peer, compiled)
                times = interleave([*(item.work for item in ours), *ways.values()], rounds)
                peer_times = dict(zip(ways, times[len(ours) :], strict=True))
                for (device, precision), item, taken in zip(devices, ours, times, strict=False):
                    amount = item.amount
                    bound, by = peaks.bound(precision, amount.flops, amount.nbytes)
                    yield Row(
                        subject.name,
                        batch,
                        device,
                        precision,
                        taken,
                        peer_times,
                        bound,
                        by,
                        difference(item.outputs, expected),
                        item.measurements,
                    )
                for item in ours:
                    item.close()


def peers_of(graph: Any, feeds: Feeds, precision: str, compiled: bool) -> dict[str, Work]:
    """PyTorch's ways in this precision."""
    torch = import_module("torch")
    half = precision == "fp16"
    set_precision(precision)
    runs = callables(torch_module(graph, half), inputs_of(graph, feeds, half), compiled)
    found = {}
    for name, make in runs.items():
        try:
            found[name] = Work(make(), torch.cuda.synchronize)
        except Exception as error:  # the other ways are still worth measuring
            print(f"PyTorch, {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return found


def difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Over all outputs."""
    return max(
        float(np.abs(np.float64(found[name]) - value).max() / np.abs(value).max())
        for name, value in expected.items()
    )
