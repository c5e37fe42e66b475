"""Running a session for the command line: timed runs, outputs to a file, a report."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.cli.outputs import OutputFile
from rlx_edge.cli.progress import tracked

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: until the model could run, and for each run."""

    load: float
    runs: tuple[float, ...]


def output_file(options: argparse.Namespace) -> AbstractContextManager[OutputFile | None]:
    """The file of ``--output``, opened before the work; nothing where it is not given."""
    return nullcontext() if options.output is None else OutputFile(options.output)


def timed_runs(run: Callable[[], Sequence[Array]], count: int) -> tuple[list[Array], list[float]]:
    """The outputs of the last run, and the seconds of each."""
    outputs: Sequence[Array] = ()
    seconds: list[float] = []
    for _ in tracked(range(count), "runs", count):
        start = time.perf_counter()
        outputs = run()
        seconds.append(time.perf_counter() - start)
    return list(outputs), seconds


def report(
    options: argparse.Namespace,
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Array],
    timing: Timing,
    counts: Mapping[str, int],
) -> None:
    """Print what came out: JSON with ``--json``, else a table."""
    if options.json:
        document = {
            "model": options.model,
            "device": options.device,
            "inputs": {name: _described(array) for name, array in feeds.items()},
            "outputs": {name: _described(array) | _range(array) for name, array in outputs.items()},
            "seconds": {"load": timing.load, "runs": list(timing.runs)},
            **counts,
            "output": options.output,
        }
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    width = max((len(name) for name in outputs), default=0)
    for name, array in outputs.items():
        shape = "x".join(map(str, array.shape)) or "scalar"
        print(f"{name:<{width}}  {array.dtype.name} {shape}  {_range_text(array)}")
    first, *rest = timing.runs
    later = f", then {statistics.median(rest) * 1e3:.2f} ms (median of {len(rest)})" if rest else ""
    print(f"ready after {timing.load:.2f} s; first run {first * 1e3:.2f} ms{later}")
    if options.output is not None:
        print(f"outputs in {options.output}")


def _described(array: Array) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def _range(array: Array) -> dict[str, Any]:
    """Smallest and largest finite value and how many are not finite; ``None`` where none is."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.ravel()
    smallest, largest = (finite.min().item(), finite.max().item()) if finite.size else (None, None)
    return {"min": smallest, "max": largest, "not_finite": int(array.size - finite.size)}


def _range_text(array: Array) -> str:
    found = _range(array)
    if found["min"] is None:
        return "no finite value"
    shown = f"{found['min']:.6g} to {found['max']:.6g}"
    return shown + (f", {found['not_finite']} not finite" if found["not_finite"] else "")
