"""The package ``vulkan``, loaded on first use, and its errors as the project's.

The package keeps what a struct points to alive through the struct's Python object only. A struct
that is passed by value inside another is copied without those references: keep it in a variable
until the call has returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from rlx_edge.ir.errors import DeviceError


@cache
def binding() -> Any:
    """The package. ``DeviceError`` ``vulkan.package`` or ``vulkan.loader`` where it cannot be."""
    try:
        return import_module("vulkan")
    except ImportError:
        raise DeviceError(
            "vulkan.package",
            "Vulkan needs a package that is not installed",
            hint="pip install rlx-edge[vulkan]",
        ) from None
    except OSError:
        raise DeviceError(
            "vulkan.loader",
            "the Vulkan loader is not installed",
            hint="install libvulkan1 and a driver, or mesa-vulkan-drivers for one in software",
        ) from None


@contextmanager
def guarded(device: str, doing: str) -> Iterator[None]:
    """Errors of the driver while ``doing`` something: ``DeviceError`` ``vulkan.lost`` for a device
    that is gone, ``vulkan.memory`` where memory does not suffice, else ``vulkan.failed``."""
    vk = binding()
    try:
        yield
    except (vk.VkError, vk.VkException) as error:
        name = type(error).__name__
        code, what = {
            "VkErrorDeviceLost": ("vulkan.lost", "the device was lost"),
            "VkErrorOutOfDeviceMemory": ("vulkan.memory", "the device is out of memory"),
            "VkErrorOutOfHostMemory": ("vulkan.memory", "the driver is out of memory"),
        }.get(name, ("vulkan.failed", "the driver refused"))
        raise DeviceError(code, f"{what} while {doing}", found=name, where=device) from None
