"""Runs the node suite and rewrites the list of what passes, and its reference page.

usage: python -m tests.conformance
"""

from __future__ import annotations

import os
import sys
from multiprocessing import Pool

from tests.conformance.devices import DEVICES
from tests.conformance.node_suite import (
    LIST,
    PAGE,
    Line,
    list_text,
    node_cases,
    outcome,
    page_text,
    read_list,
)


def _now(line: Line) -> Line:
    return outcome(line, DEVICES[0])


def main() -> int:
    _, before = read_list()
    node_cases()
    with Pool(os.cpu_count()) as pool:
        after = pool.map(_now, before, chunksize=16)
    LIST.write_text(list_text(after), encoding="utf-8")
    PAGE.write_text(page_text(*read_list()), encoding="utf-8")
    for old, new in zip(before, after, strict=True):
        if old.outcome != new.outcome:
            print(f"{old.outcome} -> {new.outcome}: {new.name} {new.reason}".rstrip())
    print(f"{sum(line.outcome == 'pass' for line in after)} of {len(after)} pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
