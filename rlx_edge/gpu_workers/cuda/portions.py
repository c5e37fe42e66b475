"""A source of many kernels as several sources, which compilers take at the same time."""

from __future__ import annotations

import re
from dataclasses import dataclass

KERNEL = re.compile(r"^struct K\d+ \{", re.MULTILINE)
"""The struct of a launch record begins the text of its kernel (``codegen/cuda/emit.py``)."""
ENTRY = re.compile(r'^extern "C" __global__ .*\n(\w+)\(', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Portion:
    """A source and the names of its entries."""

    source: str
    entries: tuple[str, ...]


def split_source(source: str, kernels: int) -> list[Portion]:
    """Sources of about ``kernels`` kernels each, of about equal lengths, in order.

    Each begins with what comes before the first kernel: types and functions that kernels share.
    Together they have every kernel once; none calls another.
    """
    starts = [found.start() for found in KERNEL.finditer(source)]
    count = -(-len(starts) // kernels)
    if count <= 1:
        return [_portion(source)]
    shared, length = source[: starts[0]], len(source) - starts[0]
    portions, begin = list[Portion](), starts[0]
    for end in (*starts[1:], len(source)):
        is_last = end == len(source)
        if is_last or end - starts[0] >= length * (len(portions) + 1) / count:
            portions.append(_portion(shared + source[begin:end]))
            begin = end
    return portions


def _portion(source: str) -> Portion:
    return Portion(source, tuple(ENTRY.findall(source)))
