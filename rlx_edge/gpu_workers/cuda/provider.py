"""What a session and the device table need of CUDA."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

from rlx_edge.compile import Assembler, CudaTarget, precisions
from rlx_edge.gpu_workers.cuda.compiler import compile_source
from rlx_edge.gpu_workers.cuda.device import open_device, peer_access, read_properties
from rlx_edge.gpu_workers.cuda.libraries import describe_libraries
from rlx_edge.gpu_workers.cuda.library import EXTRAS, device_count
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.devices import Device

NODES = "/dev"
"""Where the driver's device nodes lie: looking there loads nothing."""


def absent_reason(index: int) -> str:
    """Why ``cuda:index`` cannot be used, as far as that shows without loading a driver."""
    if not (os.path.exists(f"{NODES}/nvidia{index}") or os.path.exists(f"{NODES}/dxg")):
        return "no such NVIDIA GPU on this machine"
    if find_spec("cupy") is None:
        return f"CuPy is not installed ({EXTRAS})"
    return ""


def make_target(device: Device, style: str) -> CudaTarget:
    """The target of a real device, which is opened."""
    del style
    return open_device(device.index).properties.target


def make_unit(device: Device, cache: bool | Path, seconds: float | None = None) -> CudaUnit:
    """A unit; machine code is kept in the folder ``cache``. Kernels cannot be interrupted."""
    del seconds
    return CudaUnit(str(device), cache_folder() if cache is True else cache or None)


def make_assembler(device: Device, cache: bool | Path) -> Assembler:
    """What NVRTC says of code for a real device, which is opened, and the device's own limits. The
    folder ``cache`` keeps the machine code for the unit."""
    place = open_device(device.index).properties
    folder = cache_folder() if cache is True else cache or None
    major, minor = place.capability

    def words(code: bytes) -> str:
        return compile_source(code, f"sm_{major}{minor}", folder).log

    limits = replace(
        place.target.limits,
        shared_block=place.shared_block,
        shared_processor=place.shared_processor,
        registers_processor=place.registers_processor,
        threads_block=place.threads_block,
        threads_processor=place.threads_processor,
    )
    return Assembler(words, limits)


def cache_folder() -> Path:
    """``$RLX_CACHE/cubin``, by default in the user's cache folder."""
    root = os.environ.get("RLX_CACHE")
    if root:
        return Path(root) / "cubin"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rlx-edge" / "cubin"


def describe() -> dict[str, object]:
    """Limits of every device, who can read whose memory, and the libraries that measured ways may
    use; loads the driver and the libraries."""
    count = device_count()
    found = [read_properties(index) for index in range(count)]
    rows = [asdict(item) for item in found]
    for item, row in zip(found, rows, strict=True):
        row["target"] = item.target.arch
        row["precisions"] = list(precisions(item.target))
    return {"devices": rows, "peer_access": peer_access(), "libraries": describe_libraries()}
