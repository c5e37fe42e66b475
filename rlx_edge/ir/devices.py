"""Device names: ``kind:index[@host]``.

``wasm:0`` is the local f32x4 engine, ``browser:N`` a page as others see it, ``cpu:0`` a worker's
WebAssembly engine, ``cuda:0`` and ``vulkan:0`` GPUs. ``gpu:0`` is read as ``cuda:0``. In a graph
that spans hosts the names are roles; which peer plays a role is decided outside the IR.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlx_edge.ir.errors import DeviceError

KINDS = ("wasm", "browser", "cpu", "cuda", "vulkan")
ALIASES = {"gpu": "cuda"}
RESERVED = ("webgpu",)
MAX_INDEX = 9999
FORM = "kind:index[@host]"

_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]*):([0-9]{1,9})(?:@([A-Za-z0-9][A-Za-z0-9_.-]{0,252}))?")


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """One device; ``host`` is ``""`` for the machine at hand."""

    kind: str
    index: int = 0
    host: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}@{self.host}" if self.host else f"{self.kind}:{self.index}"


def parse_device(text: str, *, where: str | None = None) -> Device:
    """The device of its name, aliases made canonical.

    ``DeviceError`` ``device.name`` for another form, ``device.kind`` for an unknown kind,
    ``device.reserved`` for a kind that has no backend yet.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise DeviceError(
            "device.name",
            "not a device name",
            found=repr(text),
            allowed=f"{FORM} with one of {', '.join(KINDS)}, for example wasm:0",
            where=where,
        )
    kind = ALIASES.get(match[1], match[1])
    if kind in RESERVED:
        raise DeviceError(
            "device.reserved",
            f"the device kind {kind} is reserved and has no backend",
            found=text,
            allowed=KINDS,
            where=where,
        )
    if kind not in KINDS:
        raise DeviceError(
            "device.kind", "unknown device kind", found=text, allowed=KINDS, where=where
        )
    index = int(match[2])
    if index > MAX_INDEX or str(index) != match[2]:
        raise DeviceError(
            "device.name",
            "not a device index",
            found=text,
            allowed=f"0 to {MAX_INDEX} without leading zeros",
            where=where,
        )
    return Device(kind, index, match[3] or "")


@dataclass(frozen=True, slots=True)
class DeviceSet:
    """Devices in order (position is the shard's rank), without repetition."""

    devices: tuple[Device, ...]

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)

    def __contains__(self, device: object) -> bool:
        return device in self.devices

    def __str__(self) -> str:
        return ", ".join(self.names())

    def names(self) -> tuple[str, ...]:
        """The value of a ``target_device_set`` attribute."""
        return tuple(str(device) for device in self.devices)


def device_set(names: Iterable[str], *, where: str | None = None) -> DeviceSet:
    """The set of device names; ``DeviceError`` ``device.set`` when empty or with a repetition."""
    devices = tuple(parse_device(name, where=where) for name in names)
    if not devices:
        raise DeviceError(
            "device.set", "a device set names at least one device", found="none", where=where
        )
    for position, device in enumerate(devices):
        if device in devices[:position]:
            raise DeviceError(
                "device.set", "a device set names each device once", found=str(device), where=where
            )
    return DeviceSet(devices)
