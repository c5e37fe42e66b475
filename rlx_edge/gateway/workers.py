"""What a gateway needs to know of the devices that it lends to its clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_edge.compile.targets.target import Target
from rlx_edge.runtime.units import ExecutionUnit


@dataclass(frozen=True, slots=True)
class Workers:
    """Devices by the roles that they play for clients, in the order in which clients prefer them.

    ``target(role)`` opens the device, from any thread: ``DeviceError`` where its driver refuses.
    ``unit(role)`` is a fresh unit with the role's name.
    """

    roles: tuple[str, ...]
    target: Callable[[str], Target]
    unit: Callable[[str], ExecutionUnit]
