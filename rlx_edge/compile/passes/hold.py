"""Constants that lie on another device than the one that computes with them.

The module is placed on one device. The named constants move to ``device``, which sends them once a
run; everything that read them reads what arrives. The rest stays as it is: the same operations run
in the same order, so the results are the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from rlx_edge.compile.passes.graph import CONST, copy_module
from rlx_edge.compile.passes.place import COMPILE, EXECUTE
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.compile.passes.split import SYNC
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.ir.ops.communication import RECV, SEND
from rlx_edge.ir.transfer_rules import devices, devices_of


@dataclass(frozen=True, slots=True)
class Hold:
    """``values`` are names of constants, percent-encoded and joined by ``+``."""

    name: str = "hold"
    values: str = ""
    device: str = "vulkan:0"
    protocol: str = "memcpy"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        """``InputError`` ``hold.value`` for a name that is no constant, ``DeviceError``
        ``hold.placed`` for a module that is not placed on one other device."""
        module = copy_module(module)
        function = module.function
        holder = str(parse_device(self.device))
        placed = devices(function)
        if self._is_held(function, holder):
            return module
        if len(placed) != 1 or placed == (holder,):
            raise DeviceError(
                "hold.placed",
                "constants are held for a module that is placed on one other device",
                found=placed,
                allowed=f"one device that is not {holder}",
            )
        known = {op.result.name: op for op in function.ops if op.name == CONST}
        sends: list[Op] = []
        receives: list[Op] = []
        for edge, name in enumerate(unquote(item) for item in self.values.split("+")):
            if name not in known:
                raise InputError(
                    "hold.value",
                    "no such constant",
                    found=f"%{name}",
                    allowed=[f"%{item}" for item in known],
                )
            value = known[name].result
            known[name].attrs["target_device_set"] = (holder,)
            received = Builder(function, []).value(name, value.type)
            sends.append(self.send(value, edge, holder, placed[0]))
            receives.append(self.receive(received, edge, holder, placed[0]))
            late = {received}
            for op in function.ops:
                op.operands = [received if item is value else item for item in op.operands]
                if op.attrs["phase"] == COMPILE and not late.isdisjoint(op.operands):
                    op.attrs["phase"] = EXECUTE  # what is packed of it is packed each run
                    late.update(op.results)
        first = [op for op in function.ops if op.name == CONST]
        rest = [op for op in function.ops if op.name != CONST]
        function.ops = [*first, *sends, *receives, *rest]
        if log is not None:
            log.extend(Applied(self.name, "", str(op)) for op in (*sends, *receives))
        return module

    def _is_held(self, function: Function, holder: str) -> bool:
        """Whether the pass ran already: the constants stand on the holder, which sends them."""
        sent = {
            op.operands[0].name for op in function.ops
            if op.name == SEND and devices_of(op) == (holder,) and op.operands[0].producer
            and op.operands[0].producer.name == CONST
        }  # fmt: skip
        return bool(sent) and {unquote(item) for item in self.values.split("+")} == sent

    def send(self, value: Value, edge: int, source: str, target: str) -> Op:
        attrs: dict[str, Attribute] = {
            "edge": edge,
            "to_device_set": (target,),
            "protocol": self.protocol,
            "bulk_protocol": self.protocol,
            "bulk_bytes": 0,
            "phase": SYNC,
            "target_device_set": (source,),
            "sync_mode": "async_barrier",
        }
        return Op(SEND, [value], attrs, [])

    def receive(self, value: Value, edge: int, source: str, target: str) -> Op:
        attrs: dict[str, Attribute] = {
            "edge": edge,
            "from_device_set": (source,),
            "phase": SYNC,
            "target_device_set": (target,),
            "memory_layout": "NCHW",
            "sync_mode": "async_barrier",
        }
        value.producer = Op(RECV, [], attrs, [value])
        return value.producer
