"""One device's part of a placed module: what it lowers, and the transfers it takes part in.

A pure function of the placed text and a device's name, so every participant derives the same parts
and nobody has to be told what the others do.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import drop_unread_constants
from rlx_edge.compile.passes.place import COMPILE
from rlx_edge.ir.core import Function, Module, Op
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.ops.communication import RECV, SEND
from rlx_edge.ir.transfer_rules import devices, devices_of, home


@dataclass(frozen=True, slots=True)
class Shard:
    """``module`` has the operations of ``device`` alone, in the order of the whole.

    It keeps the signature's parameters, whose sizes its types speak of; they are read, and results
    returned, only where ``is_home``. A module of a part is lowered, never printed: the whole text
    is what devices exchange.
    """

    device: str
    module: Module
    is_home: bool
    sends: tuple[int, ...]
    receives: tuple[int, ...]


def shard(placed: Module, device: str) -> Shard:
    """The part of ``device`` of a verified placed module.

    ``DeviceError``: ``shard.device`` if it has none, ``shard.strategy`` where an operation that
    runs stands on several devices.
    """
    function = placed.function
    known = devices(function)
    if device not in known:
        raise DeviceError(
            "shard.device", "the module has no part for this device", found=device, allowed=known
        )
    ops = [op for op in function.ops if device in devices_of(op)]
    for op in ops:
        if op.attrs.get("phase") != COMPILE and len(devices_of(op)) > 1:
            raise DeviceError(
                "shard.strategy",
                "an operation that runs stands on one device",
                found=f"{op} on {', '.join(devices_of(op))}",
            )
    is_home = device in home(function)
    part = Function(
        function.name,
        function.params,
        ops,
        function.returns if is_home else [],
        function.bindings,
        function.guards,
        function.output_names if is_home else [],
    )
    module = Module(placed.name, part, dict(placed.constants), placed.version)
    drop_unread_constants(module)
    return Shard(device, module, is_home, _edges(ops, SEND), _edges(ops, RECV))


def _edges(ops: list[Op], name: str) -> tuple[int, ...]:
    return tuple(
        edge for op in ops if op.name == name and isinstance(edge := op.attrs["edge"], int)
    )
