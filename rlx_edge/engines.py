"""Which module runs which kind of device: a row a kind, imported when used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from rlx_edge.compile.backends import Assembler, precisions
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.devices import Device
from rlx_edge.runtime.units import ExecutionUnit

ENGINES = {
    "wasm": "rlx_edge.wasm_runtime.provider",
    "cpu": "rlx_edge.wasm_runtime.provider",
    "cuda": "rlx_edge.gpu_workers.cuda.provider",
    "vulkan": "rlx_edge.gpu_workers.vulkan.provider",
}
"""Kind of device → its provider. Importing a provider loads no driver."""


class Provider(Protocol):
    """What every row offers."""

    def absent_reason(self, index: int) -> str:
        """Why the device cannot be used, as far as that shows without loading a driver; empty
        where it can."""
        ...

    def make_target(self, device: Device, style: str) -> Target:
        """What kernels for the device are made for; ``DeviceError`` where it cannot be opened."""
        ...

    def make_unit(
        self, device: Device, cache: bool | Path, seconds: float | None = None
    ) -> ExecutionUnit:
        """A fresh unit; ``cache`` is the folder of machine code, the usual one (``True``), or
        none. ``seconds`` bounds the kernels of one call where the device can be interrupted."""
        ...

    def make_assembler(self, device: Device, cache: bool | Path) -> Assembler | None:
        """Who says whether kernels fit the device, ``None`` where nobody can."""
        ...


def provider(kind: str) -> Provider | None:
    """The row of a kind, ``None`` for one that nothing runs here."""
    place = ENGINES.get(kind)
    return None if place is None else cast(Provider, import_module(place))


def provider_of(device: Device) -> Provider:
    """The row of a device that ``devices.resolve_device`` found."""
    found = provider(device.kind)
    assert found is not None
    return found


def device_precisions(device: Device) -> tuple[str, ...]:
    """What contractions on a device may be asked for; ``DeviceError`` where it cannot be opened."""
    return precisions(provider_of(device).make_target(device, "cranelift"))
