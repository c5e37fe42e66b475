"""What a session needs of the WebAssembly engine: a target and units."""

from __future__ import annotations

from pathlib import Path

from rlx_edge.compile import WasmTarget
from rlx_edge.ir.devices import Device
from rlx_edge.wasm_runtime.module_cache import ModuleCache, cache_folder
from rlx_edge.wasm_runtime.unit import WasmUnit


def absent_reason(index: int) -> str:
    """Why the device is not there, empty where it is."""
    return "" if index == 0 else "there is no such index"


def make_target(device: Device, style: str) -> WasmTarget:
    del device
    return WasmTarget(style)


def make_unit(device: Device, cache: bool | Path, seconds: float | None = None) -> WasmUnit:
    """A unit; machine code is kept in the folder ``cache``. Launches end after ``seconds``."""
    folder = cache_folder() if cache is True else cache or None
    return WasmUnit(str(device), ModuleCache(folder), seconds=seconds)


def make_assembler(device: Device, cache: bool | Path) -> None:
    """Nothing tells before a launch whether a kernel fits."""
    del device, cache
