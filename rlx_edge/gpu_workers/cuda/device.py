"""CUDA devices: one context for each, once a process, opened when first used."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from rlx_edge.compile import CudaTarget
from rlx_edge.gpu_workers.cuda.library import cupy, device_count, runtime
from rlx_edge.gpu_workers.cuda.memory import device_error, errors
from rlx_edge.ir.errors import DeviceError


@dataclass(frozen=True, slots=True)
class Properties:
    """What the driver says of a device; memory in bytes, ``target`` is what code is made for."""

    index: int
    name: str
    target: CudaTarget
    capability: tuple[int, int]
    processors: int
    memory: int
    shared_block: int
    shared_processor: int
    registers_block: int
    registers_processor: int
    threads_block: int
    threads_processor: int
    warp: int
    l2: int
    clock_khz: int
    bus: str
    uuid: str
    """Of the physical device, the same for every driver; hexadecimal."""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """An open device: its primary context, which every unit of this process shares."""

    properties: Properties

    @property
    def name(self) -> str:
        return f"cuda:{self.properties.index}"

    def use(self) -> Any:
        """Make it the calling thread's device for a ``with`` block."""
        return cupy().cuda.Device(self.properties.index)

    def free_memory(self) -> tuple[int, int]:
        """Bytes free and in all."""
        with self.use():
            free, total = runtime().memGetInfo()
        return int(free), int(total)


_LOCK = threading.Lock()
_OPEN: dict[int, CudaDevice] = {}
_PROCESS: list[int] = []


def open_device(index: int) -> CudaDevice:
    """The device, opened once however often it is asked for.

    ``DeviceError``: ``cuda.package``, ``cuda.driver``, ``cuda.index`` for an index that is not
    there, what ``device_error`` says of one that cannot be opened, ``cuda.fork`` in a child of a
    process that used CUDA (a context does not survive a fork).
    """
    with _LOCK:
        if _PROCESS and _PROCESS[0] != os.getpid():
            raise DeviceError(
                "cuda.fork",
                "CUDA was opened before this process was forked",
                found=f"opened in process {_PROCESS[0]}",
                allowed="a worker process started afresh (spawn)",
            )
        found = _OPEN.get(index)
        if found is None:
            count = device_count()
            if index >= count:
                raise DeviceError(
                    "cuda.index",
                    f"there is no device cuda:{index}",
                    allowed=[f"cuda:{number}" for number in range(count)] or "none",
                )
            try:
                found = CudaDevice(read_properties(index))
                with found.use():
                    runtime().free(0)  # makes the primary context
            except errors() as error:
                raise device_error(error, f"cuda:{index}") from None
            _OPEN[index] = found
            _PROCESS[:] = [os.getpid()]
        return found


def read_properties(index: int) -> Properties:
    """The properties of a device that exists."""
    raw = runtime().getDeviceProperties(index)
    capability = int(raw["major"]), int(raw["minor"])
    return Properties(
        index,
        raw["name"].decode("utf-8", "replace"),
        CudaTarget.for_capability(*capability),
        capability,
        int(raw["multiProcessorCount"]),
        int(raw["totalGlobalMem"]),
        int(raw["sharedMemPerBlock"]),
        int(raw["sharedMemPerMultiprocessor"]),
        int(raw["regsPerBlock"]),
        int(raw["regsPerMultiprocessor"]),
        int(raw["maxThreadsPerBlock"]),
        int(raw["maxThreadsPerMultiProcessor"]),
        int(raw["warpSize"]),
        int(raw["l2CacheSize"]),
        int(raw.get("clockRate", 0)),
        f"{int(raw['pciDomainID']):04x}:{int(raw['pciBusID']):02x}:{int(raw['pciDeviceID']):02x}",
        bytes(raw["uuid"])[:16].hex(),
    )


def peer_access() -> list[list[bool]]:
    """Whether device i can read the memory of device j; a device can read its own."""
    count = device_count()
    return [
        [i == j or bool(runtime().deviceCanAccessPeer(i, j)) for j in range(count)]
        for i in range(count)
    ]
