"""``rlx devices``: what can run a graph here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from rlx_edge.devices import list_devices
from rlx_edge.gpu_workers.cuda.provider import describe as describe_cuda


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx devices``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Print one line a device."""
    found = list_devices()
    if options.json:
        document: dict[str, object] = {"devices": [asdict(info) for info in found]}
        if any(info.available and info.name.startswith("cuda:") for info in found):
            document["cuda"] = describe_cuda()
        print(json.dumps(document, indent=2))
        return 0
    for info in found:
        state = info.engine if info.available else "not available"
        print(f"{info.name:<10} {state:<14} {info.note}")
    return 0
