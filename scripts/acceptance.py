"""How the acceptance lists run: one verdict a line, printed with its figure; able to fail."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Line = tuple[str, Callable[[], "Verdict"]]
"""A line's title and its check."""


@dataclass(frozen=True)
class Verdict:
    """Whether a line holds, its figure, and details worth printing under it.

    `disturbed`: the machine was too busy for a measurement to count against anyone.
    """

    passed: bool
    figure: str
    details: tuple[str, ...] = ()
    disturbed: bool = False


def list_parser(doc: str | None, numbers: Mapping[int, object]) -> argparse.ArgumentParser:
    """A command line with `--only LINE …`."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--only", type=int, nargs="+", choices=numbers, default=list(numbers))
    return parser


def run_lines(name: str, lines: Mapping[int, Line], numbers: list[int]) -> int:
    """Check the lines in order and print each verdict; the exit code."""
    failed = []
    for number in numbers:
        title, check = lines[number]
        started = time.perf_counter()
        try:
            verdict = check()
        except Exception as error:  # a line that breaks is a line that fails; the others still run
            verdict = Verdict(False, f"{type(error).__name__}: {error}")
        seconds = time.perf_counter() - started
        word = "PASS" if verdict.passed else "FAIL"
        print(f"{word} {number} {title}: {verdict.figure} ({seconds:.0f} s)", flush=True)
        for line in verdict.details:
            print(f"       {line}", flush=True)
        if not verdict.passed:
            failed.append(number)
    print(f"{name}: {'all lines pass' if not failed else f'failed: {failed}'}")
    return 1 if failed else 0
