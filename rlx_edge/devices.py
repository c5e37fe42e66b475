"""The devices of this machine and build: what can run a graph, and why the rest cannot.

Looking never loads a driver: a device whose backend is absent is known to be absent from the
build, not from trying.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from rlx_edge.ir.devices import Device, parse_device
from rlx_edge.ir.errors import DeviceError

ENGINE = "wasmtime"
LOCAL = {"wasm": "the local f32x4 engine", "cpu": "a worker's f32x4 engine, the same one here"}
"""Kinds that run in this process, with index 0 only."""
ABSENT = {
    "cuda": "this build has no CUDA backend",
    "vulkan": "this build has no Vulkan backend",
    "browser": "pages connect to a gateway, and none runs here",
}


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One line of the table: ``available`` devices can be given as providers."""

    name: str
    available: bool
    engine: str
    note: str


def list_devices() -> tuple[DeviceInfo, ...]:
    """Every kind of device, available ones first."""
    here = f"{platform.machine()}, {os.cpu_count() or 1} cores, one used"
    present = [
        DeviceInfo(f"{kind}:0", True, ENGINE, f"{title} ({here})") for kind, title in LOCAL.items()
    ]
    absent = [DeviceInfo(f"{kind}:0", False, "", reason) for kind, reason in ABSENT.items()]
    return (*present, *absent)


def resolve_device(name: str) -> Device:
    """The available device called ``name``.

    ``DeviceError`` as of ``parse_device``, ``device.provider`` for one of onnxruntime's provider
    names, ``device.absent`` for a device that this machine or build does not have.
    """
    usable = [info.name for info in list_devices() if info.available]
    if name.endswith("ExecutionProvider"):
        raise DeviceError(
            "device.provider", "providers are device names here", found=repr(name), allowed=usable
        )
    device = parse_device(name)
    if str(device) in usable:
        return device
    reason = ABSENT.get(device.kind, "there is no such index")
    if device.host:
        reason = "it is on another host"
    raise DeviceError(
        "device.absent", f"the device {name} is not available: {reason}", allowed=usable
    )
