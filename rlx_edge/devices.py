"""The devices of this machine and build: what can run a graph, and why the rest cannot.

Looking never loads a driver: whether a GPU is there is seen from its device node, and whether it
works when it is used.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from rlx_edge.engines import provider
from rlx_edge.ir.devices import Device, parse_device
from rlx_edge.ir.errors import DeviceError

LOCAL = {
    "wasm": ("wasmtime", "the local f32x4 engine"),
    "cpu": ("wasmtime", "a worker's f32x4 engine, the same one here"),
    "cuda": ("CUDA", "kernels by NVRTC, through CuPy"),
    "vulkan": ("Vulkan", "compute shaders"),
}
"""Kinds that run in this process: engine and what it is."""
ABSENT = {
    "browser": "pages connect to a gateway, and none runs here",
}
"""Kinds that no engine here runs, unless ``engines.ENGINES`` has them."""
INDICES = 16
"""Devices of a kind that are looked for."""


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
    present: list[DeviceInfo] = []
    absent: list[DeviceInfo] = []
    for kind, (engine, title) in LOCAL.items():
        found = provider(kind)
        if found is None:
            continue
        reasons = [found.absent_reason(index) for index in range(INDICES)]
        note = f"{title} ({here})" if engine == "wasmtime" else title
        usable = [index for index, reason in enumerate(reasons) if not reason]
        present += [DeviceInfo(f"{kind}:{index}", True, engine, note) for index in usable]
        if not usable:
            absent.append(DeviceInfo(f"{kind}:0", False, "", reasons[0]))
    absent += [
        DeviceInfo(f"{kind}:0", False, "", reason)
        for kind, reason in ABSENT.items()
        if provider(kind) is None
    ]
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
    if device.host:
        reason = "it is on another host"
    else:
        found = provider(device.kind)
        reason = ABSENT[device.kind] if found is None else found.absent_reason(device.index)
    raise DeviceError(
        "device.absent", f"the device {name} is not available: {reason}", allowed=usable
    )
