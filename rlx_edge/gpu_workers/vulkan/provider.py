"""What a session and the device table need of Vulkan."""

from __future__ import annotations

import os
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rlx_edge.compile import VulkanTarget, precisions
from rlx_edge.gpu_workers.vulkan.physical import VulkanDevice, device, devices
from rlx_edge.gpu_workers.vulkan.unit import VulkanUnit
from rlx_edge.ir.devices import Device

MANIFESTS = (
    "/usr/share/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/etc/vulkan/icd.d",
    "~/.local/share/vulkan/icd.d",
)
"""Where drivers say that they are installed: looking there loads nothing."""
NAMED_BY = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""Environment variables that name drivers elsewhere."""


def absent_reason(index: int) -> str:
    """Why ``vulkan:index`` cannot be used, as far as that shows without loading a driver.

    How many devices there are only the driver says: beyond the first, one is looked for on a
    machine that has so many device nodes.
    """
    if find_spec("vulkan") is None:
        return "the package vulkan is not installed (pip install rlx-edge[vulkan])"
    folders = [Path(folder).expanduser() for folder in MANIFESTS]
    named = any(os.environ.get(name) for name in NAMED_BY)
    if not named and not any(any(folder.glob("*.json")) for folder in folders):
        return "no Vulkan driver is installed (mesa-vulkan-drivers has one in software)"
    if index > len([*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev/dri").glob("renderD*")]):
        return "there is no such Vulkan device"
    return ""


def make_target(place: Device, style: str) -> VulkanTarget:
    """The target of a real device, whose driver is asked; ``style`` may name a driver of the table
    of quirks that is to be taken for the device's."""
    return device(place.index).target.forced(style)


def make_unit(place: Device, cache: bool | Path, seconds: float | None = None) -> VulkanUnit:
    """A unit; pipelines are made anew. Kernels cannot be interrupted."""
    del cache, seconds
    return VulkanUnit(str(place), holder=str(place))


def make_assembler(device: Device, cache: bool | Path) -> None:
    """Nothing tells before a launch whether a kernel fits."""
    del device, cache


def describe() -> dict[str, object]:
    """Limits of every device; loads the driver."""
    return {"devices": [_row(found) for found in devices()]}


def _row(found: VulkanDevice) -> dict[str, object]:
    target = asdict(found.target)
    del target["quirks"]
    return {
        "index": found.index,
        "name": found.title,
        "kind": found.kind,
        "vendor": f"{found.vendor:#06x}",
        "driver_id": found.driver,
        "version": ".".join(map(str, found.version)),
        "memory": found.memory,
        "groups": found.groups,
        "shares_memory": found.shares_memory,
        "uuid": found.uuid.hex(),
        "exports": found.exports,
        "precisions": list(precisions(found.target)),
        "limits": target,
    }
