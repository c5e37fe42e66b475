"""What the device can do, measured in the same run: rates of large products, a large copy."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from bench.gpu.peers import set_precision
from bench.gpu.timing import Work, interleave

SIDE = 8192
COPIED = 4 << 30
"""Bytes: far beyond the cache."""
ROUNDS = 3


@dataclass(frozen=True)
class Peaks:
    """Operations a second by precision, bytes a second read plus written."""

    flops: dict[str, float]
    bandwidth: float

    def bound(self, precision: str, flops: int, nbytes: int) -> tuple[float, str]:
        """Seconds that no implementation can beat, and what sets them."""
        rate = self.flops["fp32" if precision in ("fixed", "relaxed") else precision]
        arithmetic, memory = flops / rate, nbytes / self.bandwidth
        return max((arithmetic, "arithmetic"), (memory, "memory"))


def measure_peaks() -> Peaks:
    """PyTorch's largest rates on random data."""
    torch = import_module("torch")
    found = {}
    for precision in ("fp32", "tf32", "fp16"):
        set_precision(precision)
        dtype = torch.float16 if precision == "fp16" else torch.float32
        a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=dtype) for _ in range(2))
        (times,) = interleave([Work(lambda a=a, b=b: a @ b, torch.cuda.synchronize)], ROUNDS)  # type: ignore[misc]
        found[precision] = 2.0 * SIDE**3 / times.median
    source = torch.empty(COPIED // 2, dtype=torch.uint8, device="cuda").fill_(1)
    target = torch.empty_like(source).fill_(2)
    (times,) = interleave([Work(lambda: target.copy_(source), torch.cuda.synchronize)], ROUNDS)
    return Peaks(found, COPIED / times.median)
