"""Targets as plain fields, so that one process can ask another to compile for a device it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.compile.targets.target import Target
from rlx_edge.compile.targets.vulkan import VulkanTarget
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.errors import RlxError

RECORDS: dict[str, type[CudaTarget] | type[VulkanTarget] | type[WasmTarget]] = {
    "cuda": CudaTarget,
    "vulkan": VulkanTarget,
    "wasm": WasmTarget,
}
"""Kind of target → its record."""


def target_fields(target: Target) -> dict[str, Any]:
    """What ``target_of`` makes an equal target of: the kind, and what its record is made from."""
    given = [item.name for item in fields(RECORDS[target.kind]) if item.init]
    return {"kind": target.kind, **{name: getattr(target, name) for name in given}}


def target_of(told: Mapping[str, Any]) -> Target:
    """The target of such fields; ``RlxError`` ``target.kind`` or what its record refuses."""
    record = RECORDS.get(told["kind"])
    if record is None:
        raise RlxError(
            "target.kind", "no such kind of target", found=told["kind"], allowed=list(RECORDS)
        )
    return cast(Target, record(**{key: value for key, value in told.items() if key != "kind"}))
