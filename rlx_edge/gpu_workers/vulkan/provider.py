"""What a session and the device table need of Vulkan."""

from __future__ import annotations

from ctypes.util import find_library
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from rlx_edge.compile import VulkanTarget
from rlx_edge.gpu_workers.vulkan.physical import VulkanDevice, device, devices
from rlx_edge.gpu_workers.vulkan.unit import VulkanUnit
from rlx_edge.ir.devices import Device


def absent_reason(index: int) -> str:
    """Why ``vulkan:index`` cannot be used, as far as that shows without loading a driver."""
    del index
    if find_spec("vulkan") is None:
        return "the package vulkan is not installed (pip install rlx-edge[vulkan])"
    if find_library("vulkan") is None and find_library("vulkan-1") is None:
        return "the Vulkan loader is not installed (libvulkan1)"
    return ""


def make_target(device_name: Device, style: str) -> VulkanTarget:
    """The target of a real device, whose driver is asked."""
    del style
    return device(device_name.index).target


def make_unit(device_name: Device, cache: Path | None) -> VulkanUnit:
    """A unit; pipelines are made anew."""
    del cache
    return VulkanUnit(str(device_name), holder=str(device_name))


def describe() -> dict[str, object]:
    """Limits of every device; loads the driver."""
    return {"devices": [_row(found) for found in devices()]}


def _row(found: VulkanDevice) -> dict[str, object]:
    target = asdict(found.target)
    del target["quirks"]
    return {
        "name": found.name,
        "title": found.title,
        "kind": found.kind,
        "vendor": f"{found.vendor:#06x}",
        "driver": found.driver,
        "version": ".".join(map(str, found.version)),
        "memory": found.memory,
        "groups": found.groups,
        "shares_memory": found.shares_memory,
        "limits": target,
    }
