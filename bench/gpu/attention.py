"""Attention in one kernel beside its parts, and beside PyTorch's own, by numbers of queries and of
keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import sqrt

import numpy as np

from bench.gpu.ours import Ours
from bench.gpu.peaks import Peaks
from bench.gpu.peers import captured, set_precision
from bench.gpu.timing import Work, interleave
from bench.timing import Times
from rlx_edge.compile.pipeline import NATIVE_PIPELINE, run_passes, with_options
from rlx_edge.compile.workgroups import REDUCTIONS
from rlx_edge.ir.core import Module
from rlx_edge.ir.parser import parse_module

LENGTHS = ((1, 1), (16, 16), (128, 128), (512, 512), (2048, 2048), (1, 2048), (16, 2048))
"""Queries and keys; the last two are steps of decoding."""
HEADS = ((12, 32), (12, 64))
"""Heads and the size of one: d = 384 and 768."""
PRECISIONS = ("relaxed", "tf32", "fp16")
TEXT = """\
rlx.module version = "1.0"

func @attention(%q: f32[h, t, {d}], %k: f32[h, {d}, s], %v: f32[h, s, {d}]) -> (f32[h, t, {d}]) {{
  %c = tensor::splat() {{ value = {scale} }} : f32[]
  %s = rlxc::matmul(%q, %k) : f32[h, t, s]
  %x = rlxc::mul(%s, %c) : f32[h, t, s]
  %w = rlxc::softmax(%x) {{ axis = 2 }} : f32[h, t, s]
  %r = rlxc::matmul(%w, %v) : f32[h, t, {d}]
  return %r
}}
"""


@dataclass(frozen=True)
class AttentionRow:
    """Queries, keys, width of all heads, precision; ``torch`` is
    ``scaled_dot_product_attention``, ``ways`` are what the unit measured."""

    queries: int
    keys: int
    width: int
    precision: str
    fused: Times
    parts: Times
    torch: Times
    bound: float
    bound_by: str
    error: float
    ways: Sequence[Mapping[str, object]] = ()

    @property
    def gain(self) -> float:
        """How many times as fast as the parts."""
        return self.parts.median / self.fused.median


def measure_attention(peaks: Peaks, rounds: int) -> Iterator[AttentionRow]:
    """Every length, head size and precision."""
    for heads, size in HEADS:
        module = parse_module(TEXT.format(d=size, scale=1 / sqrt(size)))
        for queries, keys in LENGTHS:
            rng = np.random.default_rng(keys)
            shapes = {"q": (heads, queries, size), "k": (heads, size, keys)}
            shapes["v"] = (heads, keys, size)
            feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
            for precision in PRECISIONS:
                fused = Ours(module, "cuda:0", precision, feeds)
                parts = Ours(parts_of(module, precision), "cuda:0", "fixed", feeds)
                peer = torch_attention(feeds, precision)
                times = interleave([fused.work, parts.work, peer], rounds)
                amount = fused.amount
                bound, by = peaks.bound(precision, amount.flops, amount.nbytes)
                yield AttentionRow(
                    queries,
                    keys,
                    heads * size,
                    precision,
                    times[0],
                    times[1],
                    times[2],
                    bound,
                    by,
                    error_of(fused.outputs["r"], feeds, size),
                    fused.measurements,
                )
                fused.close()
                parts.close()


def parts_of(module: Module, precision: str) -> Module:
    """The module placed with its parts apart, each in ``precision``."""
    pipeline = NATIVE_PIPELINE.format(device=f"cuda:0,precision={precision}")
    pipeline = with_options(pipeline, "fuse", reductions=REDUCTIONS)
    return run_passes(module, pipeline)


def error_of(found: np.ndarray, feeds: dict[str, np.ndarray], size: int) -> float:
    """The largest difference from f64, of the largest value."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = q @ k / sqrt(size)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ v / weights.sum(-1, keepdims=True)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def torch_attention(feeds: dict[str, np.ndarray], precision: str) -> Work:
    """On the same numbers, in f16 storage where the precision is fp16; replayed as a graph."""
    torch = import_module("torch")
    set_precision(precision)
    dtype = torch.float16 if precision == "fp16" else torch.float32
    rows = np.ascontiguousarray(feeds["k"].swapaxes(1, 2))
    arrays = (feeds["q"], rows, feeds["v"])
    q, keys, v = (torch.from_numpy(array[None].copy()).cuda().to(dtype) for array in arrays)

    def run() -> object:
        with torch.inference_mode():
            return torch.nn.functional.scaled_dot_product_attention(q, keys, v)

    return Work(captured(run), torch.cuda.synchronize)
