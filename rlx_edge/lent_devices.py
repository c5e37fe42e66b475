"""The devices of this process that a gateway lends, and the roles that they play.

Naming a device loads nothing: its driver is opened when the first client compiles for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from rlx_edge.compile.targets.target import Target
from rlx_edge.devices import resolve_device
from rlx_edge.engines import provider_of
from rlx_edge.gateway.workers import Workers
from rlx_edge.ir.devices import Device, parse_device
from rlx_edge.ir.errors import DeviceError
from rlx_edge.runtime.units import ExecutionUnit

KINDS = ("cpu", "cuda", "vulkan")
HOST = "gateway"
DEFAULT = ("cpu:0",)

_OPENING = threading.Lock()


def find_workers(names: Sequence[str], seconds: float | None = None) -> Workers:
    """The devices of ``names``. ``seconds`` bounds the kernels of one call on devices that can be
    interrupted.

    ``DeviceError`` ``device.absent`` for one that this machine does not have, ``gateway.worker``
    for a kind that no gateway lends or one that is named twice.
    """
    found: list[Device] = []
    for name in names:
        device = parse_device(name)
        if device.kind not in KINDS or device in found:
            raise DeviceError(
                "gateway.worker",
                "not a device that a gateway lends, or one that it lends already",
                found=name,
                allowed=[f"{kind}:N" for kind in KINDS],
            )
        found.append(resolve_device(name))

    def unit(role: str) -> ExecutionUnit:
        device = parse_device(role)
        return provider_of(device).make_unit(device, True, seconds)

    return Workers(tuple(role_of(device) for device in found), _target, unit)


def role_of(device: Device) -> str:
    """The name of a gateway's device in texts that clients cut."""
    return str(replace(device, host=HOST))


def _target(role: str) -> Target:
    device = replace(parse_device(role), host="")
    with _OPENING:  # drivers are opened once, whoever asks first
        return provider_of(device).make_target(device, "cranelift")
