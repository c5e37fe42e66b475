"""Splitting a function that is placed on one device between two devices, at one place.

The cut is a prefix of the operations in printed order: those up to and including the one that
defines ``after`` run on ``first``, which also has the parameters and gets the results; the rest
runs on ``second``. Constants, and what is computed from constants alone, are made on every device
that reads them. A value that crosses is converted to plain storage in front of its ``comm::send``
and back to the form that its readers expect behind its ``comm::recv``: conversions change no
value, so any cut gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from rlx_edge.compile.passes.graph import copy_module, replace_returns
from rlx_edge.compile.passes.place import COMPILE, EXECUTE
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.compile.physical import NO_BORDER
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.ir.ops.communication import BULK_BYTES, RECV, SEND
from rlx_edge.ir.transfer_rules import devices, devices_of

SYNC = "sync"
CONVERT = "rlxc::convert_layout"

Border = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Split:
    """``after`` is a value's name, ``""`` puts everything on ``second``."""

    name: str = "split"
    after: str = ""
    first: str = "browser:0"
    second: str = "cpu:0@gateway"
    protocol: str = "websocket"
    bulk_protocol: str = "http"
    bulk_bytes: int = BULK_BYTES

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        """``DeviceError`` ``split.device`` for one device twice, ``split.placed`` for a module that
        has several already, ``InputError`` ``split.after`` where nothing has that name."""
        module = copy_module(module)
        first, second = (str(parse_device(name)) for name in (self.first, self.second))
        if first == second:
            raise DeviceError("split.device", "a cut has two different devices", found=first)
        cut = cut_position(module.function, self.after)
        if _is_cut(module.function, cut, first, second):
            return module
        _check_one_device(module.function)
        work = _Cut(Builder(module.function, []), first, second, self)
        work.run(cut)
        if log is not None:
            log.extend(Applied(self.name, "", str(op)) for op in work.inserted)
        return module


def cut_position(function: Function, after: str) -> int:
    """How many operations the prefix has that ends with the definition of ``after``."""
    if not after:
        return 0
    for position, op in enumerate(function.ops):
        if any(result.name == after for result in op.results):
            return position + 1
    raise InputError(
        "split.after",
        "no operation of the placed IR defines this value",
        found=f"%{after}",
        allowed=[f"%{op.results[0].name}" for op in function.ops if _runs(op)],
        hint="`rlx ir dump --stage placed` prints the placed IR",
    )


def crossing(function: Function, cut: int) -> tuple[Value, ...]:
    """Values that operations behind the first ``cut`` ones read from before, in order."""
    before = {*function.params}
    before.update(result for op in function.ops[:cut] if _runs(op) for result in op.results)
    read = dict.fromkeys(
        operand
        for op in function.ops[cut:]
        if _runs(op)
        for operand in op.operands
        if operand in before
    )
    return tuple(value for value in function.values() if value in read)


def _runs(op: Op) -> bool:
    return op.attrs.get("phase") != COMPILE


def _is_cut(function: Function, cut: int, first: str, second: str) -> bool:
    """Whether the function is cut there already: a pass that ran before changes nothing."""
    if devices(function) not in ((first, second), (second, first)):
        return False
    carried = {op.operands[0] for op in function.ops if op.name == SEND}
    carried.update(op.result for op in function.ops if op.name == RECV)
    for place, op in enumerate(function.ops):
        moves = op.name in (SEND, RECV) or (
            op.name == CONVERT and (op.result in carried or op.operands[0] in carried)
        )
        if _runs(op) and not moves and devices_of(op) != ((first if place < cut else second),):
            return False
    return True


def _check_one_device(function: Function) -> None:
    found = dict.fromkeys(op.attrs.get("target_device_set") for op in function.ops)
    if len(found) > 1 or None in found:
        raise DeviceError(
            "split.placed",
            "only a module that is placed on one device can be cut",
            found=[", ".join(map(str, names)) for names in found if isinstance(names, tuple)],
            allowed="one device set for all operations",
        )


@dataclass(slots=True)
class _Cut:
    """The state of one split."""

    builder: Builder
    first: str
    second: str
    options: Split
    inserted: list[Op] = field(default_factory=list)
    edges: int = 0

    def run(self, cut: int) -> None:
        function = self.builder.function
        crossed = crossing(function, cut)
        head, tail = function.ops[:cut], function.ops[cut:]
        for ops, device in ((head, self.first), (tail, self.second)):
            for op in ops:
                op.attrs["target_device_set"] = (device,)
        self.replicate()
        sends: list[Op] = []
        receives: list[Op] = []
        for value in crossed:
            received = self.carry(value, self.first, self.second, sends, receives)
            for op in filter(_runs, tail):
                op.operands = [received if item is value else item for item in op.operands]
        behind: list[Op] = []
        back: list[Op] = []
        defined = {result for op in filter(_runs, tail) for result in op.results}
        for value in dict.fromkeys(function.returns):
            if value in defined:
                received = self.carry(value, self.second, self.first, behind, back)
                replace_returns(function, value, received)
                assert value.producer is not None and received.producer is not None
                value.producer.attrs["sync_mode"] = "none"
                received.producer.attrs["sync_mode"] = "blocking"
        self.inserted = [*sends, *receives, *behind, *back]
        function.ops = [*head, *sends, *receives, *tail, *behind, *back]

    def replicate(self) -> None:
        """Operations of phase ``compile`` stand on every device that reads their results."""
        function = self.builder.function
        needed: dict[Value, dict[str, None]] = {
            value: {self.first: None} for value in function.returns
        }
        for op in reversed(function.ops):
            names = op.attrs["target_device_set"]
            if not _runs(op):
                found = {name for value in op.results for name in needed.get(value, {})}
                order = [name for name in (self.first, self.second) if name in found]
                names = op.attrs["target_device_set"] = tuple(order or [self.first])
            assert isinstance(names, tuple)
            for operand in op.operands:
                needed.setdefault(operand, {}).update(dict.fromkeys(map(str, names)))

    def carry(
        self, value: Value, source: str, target: str, sends: list[Op], receives: list[Op]
    ) -> Value:
        """Append the transfer of ``value``; the value that its readers on ``target`` read."""
        layout, border = _stored(value)
        is_plain = (layout, border) == ("NCHW", NO_BORDER)
        plain = value if is_plain else self.convert(value, sends, source, "NCHW", NO_BORDER)
        received = self.builder.value(value.name, value.type)
        sends.append(Op(SEND, [plain], self.send_attributes(source, target), []))
        recv = Op(RECV, [], self.receive_attributes(source, target), [received])
        received.producer = recv
        receives.append(recv)
        self.edges += 1
        return received if is_plain else self.convert(received, receives, target, layout, border)

    def send_attributes(self, source: str, target: str) -> dict[str, Attribute]:
        return {
            "edge": self.edges,
            "to_device_set": (target,),
            "protocol": self.options.protocol,
            "bulk_protocol": self.options.bulk_protocol,
            "bulk_bytes": self.options.bulk_bytes,
            "phase": SYNC,
            "target_device_set": (source,),
            "sync_mode": "async_barrier",
        }

    def receive_attributes(self, source: str, target: str) -> dict[str, Attribute]:
        return {
            "edge": self.edges,
            "from_device_set": (source,),
            "phase": SYNC,
            "target_device_set": (target,),
            "memory_layout": "NCHW",
            "sync_mode": "async_barrier",
        }

    def convert(
        self, value: Value, ops: list[Op], device: str, layout: str, border: Border
    ) -> Value:
        """Append a conversion of ``value`` on ``device``."""
        self.builder.ops = ops
        result = self.builder.op(CONVERT, [value], {}, hint=value.name)
        assert result.producer is not None
        result.producer.attrs.update(
            phase=EXECUTE, target_device_set=(device,), memory_layout=layout, sync_mode="none"
        )
        if border != NO_BORDER:
            result.producer.attrs["border"] = border
        return result


def _stored(value: Value) -> tuple[str, Border]:
    """Layout and border of a value as its producer stores it."""
    if value.producer is None:
        return "NCHW", NO_BORDER
    attrs = value.producer.attrs
    border = cast("Border", tuple(attrs.get("border", NO_BORDER)))  # type: ignore[arg-type]
    return str(attrs.get("memory_layout", "NCHW")), border
