"""Node, and bundles run by it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
RUN_BUNDLE = Path(__file__).with_name("run_bundle.js")
TYPES = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}

Array = npt.NDArray[Any]
Feeds = dict[str, Array]


def node() -> str:
    """The path of node; a missing one fails the test."""
    found = shutil.which("node")
    if found is None:
        pytest.fail("node is missing; `make setup` says how to get it", pytrace=False)
    return found


@dataclass(frozen=True)
class BundleRun:
    """What node made of a bundle: outputs by name for every feed, and facts of the session."""

    outputs: list[Feeds]
    facts: dict[str, Any] = field(default_factory=dict)


def run_bundle(
    bundle: Path, feeds: Sequence[Feeds], scratch: Path, options: dict[str, Any] | None = None
) -> BundleRun:
    """The outputs of one session for each of `feeds`, in order."""
    names = {dtype: name for name, dtype in TYPES.items()}
    runs = []
    for number, item in enumerate(feeds):
        rows = []
        for position, (name, array) in enumerate(item.items()):
            file = scratch / f"feed-{number}-{position}"
            file.write_bytes(np.ascontiguousarray(array).tobytes())
            rows.append(
                {
                    "name": name,
                    "type": names[array.dtype],
                    "dims": list(array.shape),
                    "file": str(file),
                }
            )
        runs.append({"feeds": rows, "output": str(scratch / f"output-{number}")})
    jobs = scratch / "jobs.json"
    jobs.write_text(json.dumps([{"bundle": str(bundle), "options": options or {}, "runs": runs}]))
    done = subprocess.run(
        [node(), str(RUN_BUNDLE), str(jobs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    *reports, facts = json.loads(done.stdout)
    outputs = [
        {
            row["name"]: np.fromfile(row["file"], TYPES[row["type"]]).reshape(row["dims"])
            for row in rows
        }
        for rows in reports
    ]
    return BundleRun(outputs, facts)
