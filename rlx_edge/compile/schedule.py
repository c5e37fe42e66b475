"""From a placed module to its task graph.

A device works through its operations in the order of the text. A new task begins where it has to
wait (a ``comm::recv`` behind anything else) and behind what it sent, so that a task starts as soon
as its edges have arrived and what it produces leaves when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from rlx_edge.compile.passes.place import COMPILE
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.ops.communication import RECV, SEND, TRANSPORTS
from rlx_edge.ir.task_graph import CommunicationEdge, ExecutionTask, TaskGraph
from rlx_edge.ir.transfer_rules import devices, devices_of, home, transfers


@dataclass(slots=True)
class _Task:
    device: int
    phase: str
    positions: list[int] = field(default_factory=list)


def schedule(placed: Module) -> TaskGraph:
    """The task graph of a verified placed module.

    ``DeviceError`` ``comm.transport`` where an edge names a protocol that nothing carries.
    """
    function = placed.function
    names = devices(function)
    tasks = sorted(_tasks(function, names), key=lambda task: (task.phase, task.positions[0]))
    return TaskGraph(
        module_digest(placed),
        names,
        tuple(_record(function, task, tasks, names) for task in tasks),
        tuple(_edges(function, tasks)),
    )


def _tasks(function: Function, names: Sequence[str]) -> Iterator[_Task]:
    for number, name in enumerate(names):
        own = [place for place, op in enumerate(function.ops) if name in devices_of(op)]
        prepared = [place for place in own if function.ops[place].attrs.get("phase") == COMPILE]
        if prepared:
            yield _Task(number, COMPILE, prepared)
        task = _Task(number, "execute")
        last = ""
        for place in own:
            op = function.ops[place]
            if op.attrs.get("phase") == COMPILE:
                continue
            waits = op.name == RECV and last not in ("", RECV)
            if waits or (last == SEND and op.name != SEND):
                yield task
                task = _Task(number, "execute")
            task.positions.append(place)
            last = op.name
        if task.positions:
            yield task


def _record(
    function: Function, task: _Task, tasks: Sequence[_Task], names: Sequence[str]
) -> ExecutionTask:
    ops = [function.ops[place] for place in task.positions]
    inside = {result for op in ops for result in op.results}
    read = dict.fromkeys(value for op in ops for value in op.operands if value not in inside)
    outside = {
        value
        for other in tasks
        if other is not task and other.device == task.device
        for place in other.positions
        for value in function.ops[place].operands
    }
    if names[task.device] in home(function):
        outside.update(function.returns)
    outside.update(op.operands[0] for op in ops if op.name == SEND)
    return ExecutionTask(
        task.device,
        task.phase,
        tuple(_ranges(task.positions)),
        tuple(value.name for value in read),
        tuple(value.name for op in ops for value in op.results if value in outside),
        tuple(cast("int", op.attrs["edge"]) for op in ops if op.name == RECV),
    )


def _ranges(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    begin = end = positions[0]
    for place in positions:
        if place > end:
            yield begin, end
            begin = place
        end = place + 1
    yield begin, end


def _edges(function: Function, tasks: Sequence[_Task]) -> Iterator[CommunicationEdge]:
    places = {op: place for place, op in enumerate(function.ops)}

    def task_of(op: Op) -> int:
        return next(number for number, task in enumerate(tasks) if places[op] in task.positions)

    for transfer in transfers(function):
        attrs = transfer.send.attrs
        for name in ("protocol", "bulk_protocol"):
            if attrs[name] not in TRANSPORTS:
                raise DeviceError(
                    "comm.transport",
                    f"edge {transfer.edge} has a protocol that nothing carries here",
                    found=attrs[name],
                    allowed=TRANSPORTS,
                )
        value: Value = transfer.recv.result
        yield CommunicationEdge(
            transfer.edge,
            value.name,
            task_of(transfer.send),
            task_of(transfer.recv),
            str(attrs["protocol"]),
            str(attrs["bulk_protocol"]),
            cast("int", attrs["bulk_bytes"]),
            value.type,
        )
