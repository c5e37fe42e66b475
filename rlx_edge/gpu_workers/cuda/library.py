"""CuPy, loaded when a device is used, and its errors in our words."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from rlx_edge.ir.errors import DeviceError

EXTRAS = "pip install 'rlx-edge[cuda13]' or 'rlx-edge[cuda12]'"


@cache
def cupy() -> Any:
    """The module; ``DeviceError`` ``cuda.package`` where it is not installed or cannot load."""
    try:
        return import_module("cupy")
    except ImportError as error:
        raise DeviceError(
            "cuda.package",
            "CUDA devices need CuPy",
            found=str(error).splitlines()[0],
            allowed=EXTRAS,
        ) from None


def runtime() -> Any:
    """CUDA's runtime interface."""
    return cupy().cuda.runtime


def driver() -> Any:
    """CUDA's driver interface."""
    return cupy().cuda.driver


def device_count() -> int:
    """How many CUDA devices there are; ``DeviceError`` ``cuda.driver`` where no driver works."""
    try:
        return int(runtime().getDeviceCount())
    except runtime().CUDARuntimeError as error:
        raise DeviceError(
            "cuda.driver",
            "no CUDA device can be used on this machine",
            found=reason(error),
            allowed="an NVIDIA GPU with its driver",
        ) from None


def reason(error: BaseException) -> str:
    """One line of an error of CuPy."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
