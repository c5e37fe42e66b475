"""``rlx devices``: what can run a graph here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlx_edge.compile.targets.cuda import ARCHITECTURES
from rlx_edge.devices import DeviceInfo, list_devices
from rlx_edge.gpu_workers.cuda.provider import describe as describe_cuda
from rlx_edge.gpu_workers.vulkan.provider import describe as describe_vulkan
from rlx_edge.ir.errors import DeviceError
from rlx_edge.runtime.carriers import COPY, EXTERNAL_MEMORY, SHARED_ARENA

DESCRIBED: dict[str, Callable[[], dict[str, object]]] = {
    "cuda": describe_cuda,
    "vulkan": describe_vulkan,
}
"""Kinds whose driver is asked for limits."""


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx devices``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(options: argparse.Namespace) -> int:
    """Print one line a device, then what the drivers of the GPUs say."""
    found = list_devices()
    described = {kind: _described(kind) for kind in DESCRIBED if _has(found, kind)}
    if options.json:
        # The limits that code is made for are known without any device.
        known = {"cuda_architectures": {arch: asdict(row) for arch, row in ARCHITECTURES.items()}}
        ways = {"sharing": list(sharing(described))}
        table = {"devices": [asdict(info) for info in found], **described, **ways, **known}
        print(json.dumps(table, indent=2))
        return 0
    for info in found:
        state = info.engine if info.available else "not available"
        print(f"{info.name:<10} {state:<14} {info.note}")
    for kind, document in described.items():
        for line in _lines(kind, document):
            print(line)
    for way in sharing(described):
        print(f"{way['one']} and {way['other']} pass tensors by {way['way']}")
    return 0


def _has(found: Sequence[DeviceInfo], kind: str) -> bool:
    return any(info.available and info.name.startswith(f"{kind}:") for info in found)


def _described(kind: str) -> dict[str, object]:
    """What the driver says, or why it cannot be asked."""
    try:
        return DESCRIBED[kind]()
    except DeviceError as error:
        return {"error": str(error)}


def sharing(described: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """How parts of one program in one process pass tensors: a row a pair of a GPU and another
    device; what a driver refuses when it is tried is a copy all the same."""
    rows = {kind: document.get("devices", ()) for kind, document in described.items()}
    for cuda in rows.get("cuda", ()):
        yield {"one": f"cuda:{cuda['index']}", "other": "cpu:0", "way": SHARED_ARENA}
        for vulkan in rows.get("vulkan", ()):
            is_same = vulkan["exports"] and vulkan["uuid"] == cuda["uuid"]
            way = EXTERNAL_MEMORY if is_same else COPY
            other = f"vulkan:{vulkan['index']}"
            yield {"one": f"cuda:{cuda['index']}", "other": other, "way": way}
    for vulkan in rows.get("vulkan", ()):
        yield {"one": f"vulkan:{vulkan['index']}", "other": "cpu:0", "way": COPY}


def _lines(kind: str, document: Mapping[str, Any]) -> Iterator[str]:
    if "error" in document:
        yield f"{kind}: {document['error']}"
    for row in document.get("devices", ()):
        facts = {key: value for key, value in row.items() if key not in ("index", "name")}
        limits = facts.pop("limits", {})
        shown = ", ".join(f"{key} {value}" for key, value in {**facts, **limits}.items())
        yield f"{kind}:{row['index']} is {row['name']}: {shown}"
    for name, version in document.get("libraries", {}).items():
        yield f"{kind}: {name} {version}"
