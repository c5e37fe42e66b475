"""The task graph: which device does what, and what travels between them.

One pure function of a placed module (``compile/schedule.py``) makes it, so every participant has
the same graph, and its digest says so. It holds integers, names and dims only; what a link can do
and what a run took are measurements and lie outside.

The document is JSON, one task and one edge a line; ``_body`` gives the fields in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from rlx_edge.ir.digest import bytes_digest, check_digest
from rlx_edge.ir.dims import Dim, parse_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.ops.communication import PROTOCOLS
from rlx_edge.ir.token_reader import parse_type
from rlx_edge.ir.types import TensorType

HEADER = "rlx.task_graph"
VERSION = "1.0"
MAX_TEXT = 16 << 20
MAX_INTEGER = (1 << 53) - 1
PHASES = ("compile", "execute")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExecutionTask:
    """Operations that one device runs without waiting for another.

    ``device`` is a position in the graph's devices, ``ops`` are half-open ranges of positions in
    the placed function, ``inputs`` and ``outputs`` names of values that come from outside the task
    and that others read. ``receives`` are the edges that it waits for.
    """

    device: int
    phase: str
    ops: tuple[tuple[int, int], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    receives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CommunicationEdge:
    """Value ``name`` travels from task ``source`` to task ``target``.

    ``nbytes`` is a dim of the sizes that a run gives; payloads of more than ``bulk_bytes`` bytes
    go by ``bulk_protocol``.
    """

    edge: int
    name: str
    source: int
    target: int
    protocol: str
    bulk_protocol: str
    bulk_bytes: int
    type: TensorType

    @property
    def nbytes(self) -> Dim:
        return self.type.nbytes

    def protocol_for(self, nbytes: int) -> str:
        """Which protocol carries a payload of this many bytes."""
        return self.bulk_protocol if nbytes > self.bulk_bytes else self.protocol


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks in an order that no device has to leave, edges in the order of their sends."""

    ir_digest: str
    devices: tuple[str, ...]
    tasks: tuple[ExecutionTask, ...]
    edges: tuple[CommunicationEdge, ...]

    @property
    def digest(self) -> str:
        """Of the canonical document without its digest."""
        return _digest(_body(self))


# ---- writing ---------------------------------------------------------------------------------


def dump_task_graph(graph: TaskGraph) -> str:
    """The canonical document: JSON, one task or edge a line, the same bytes everywhere."""
    body = _body(graph)
    content: dict[str, object] = {HEADER: VERSION, "digest": _digest(body), **body}
    lines = [f"{_json(key)}: {_shown(value)}" for key, value in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _shown(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(map(_json, value)) + "\n]"
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _digest(body: dict[str, object]) -> str:
    return bytes_digest(_json(body).encode("ascii"))


def _body(graph: TaskGraph) -> dict[str, object]:
    return {
        "ir_digest": graph.ir_digest,
        "devices": list(graph.devices),
        "tasks": [
            [
                task.device,
                task.phase,
                [list(item) for item in task.ops],
                list(task.inputs),
                list(task.outputs),
                list(task.receives),
            ]
            for task in graph.tasks
        ],
        "edges": [
            [
                edge.edge,
                edge.name,
                edge.source,
                edge.target,
                edge.protocol,
                edge.bulk_protocol,
                edge.bulk_bytes,
                str(edge.type),
                str(edge.nbytes),
            ]
            for edge in graph.edges
        ],
    }


# ---- reading ---------------------------------------------------------------------------------


def load_task_graph(text: str, name: str = "<task graph>") -> TaskGraph:
    """The graph of its document; ``ModelError`` ``graph.syntax`` for another document or a value
    that cannot be, ``DigestError`` where digest and content do not belong together."""
    return _Reader(name).graph(text)


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, field: str, found: object, allowed: object) -> NoReturn:
        text = found if isinstance(found, str) else repr(found)
        raise failure(
            "graph.syntax", where=self.name, field=field, found=text[:120], allowed=allowed
        )

    def graph(self, text: str) -> TaskGraph:
        if len(text) > MAX_TEXT:
            self.fail("the document", f"{len(text)} characters", f"at most {MAX_TEXT}")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            self.fail("the document", str(error), "JSON")
        if not isinstance(content, dict) or content.get(HEADER) != VERSION:
            self.fail("the document", type(content).__name__, f'"{HEADER}": "{VERSION}"')
        fields = ("ir_digest", "devices", "tasks", "edges")
        if sorted(content) != sorted((HEADER, "digest", *fields)):
            self.fail("the document", sorted(content), fields)
        devices = tuple(self.text(item) for item in self.items(content["devices"]))
        tasks = tuple(self.task(item, len(devices)) for item in self.items(content["tasks"]))
        edges = tuple(self.edge(item, len(tasks)) for item in self.items(content["edges"]))
        graph = TaskGraph(self.text(content["ir_digest"]), devices, tasks, edges)
        numbers = [edge.edge for edge in edges]
        for task in tasks:
            if any(edge not in numbers for edge in task.receives):
                self.fail("a task's edges", task.receives, numbers)
        what = "the task graph's digest and its content"
        check_digest(what, self.text(content["digest"]), graph.digest, where=self.name)
        return graph

    def task(self, value: object, devices: int) -> ExecutionTask:
        device, phase, ops, inputs, outputs, receives = self.row(value, 6)
        ranges: list[tuple[int, int]] = []
        for item in self.items(ops):
            begin, end = (self.number(number) for number in self.row(item, 2))
            if begin >= end or (ranges and begin <= ranges[-1][1]):
                self.fail("a task's operations", ops, "ascending ranges that do not touch")
            ranges.append((begin, end))
        return ExecutionTask(
            self.number(device, devices),
            self.choice(phase, PHASES),
            tuple(ranges),
            tuple(self.text(item) for item in self.items(inputs)),
            tuple(self.text(item) for item in self.items(outputs)),
            tuple(self.number(item) for item in self.items(receives)),
        )

    def edge(self, value: object, tasks: int) -> CommunicationEdge:
        edge, name, source, target, protocol, bulk, limit, type, nbytes = self.row(value, 9)
        text = self.text(type)
        read = self.placed(lambda: parse_type(text))
        size = self.text(nbytes)
        if self.placed(lambda: parse_dim(size)) != read.nbytes:
            self.fail("an edge's bytes", nbytes, str(read.nbytes))
        return CommunicationEdge(
            self.number(edge),
            self.text(name),
            self.number(source, tasks),
            self.number(target, tasks),
            self.choice(protocol, PROTOCOLS),
            self.choice(bulk, PROTOCOLS),
            self.number(limit),
            read,
        )

    def placed(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (RlxError, ZeroDivisionError) as error:
            self.fail("a text", str(error), "a type or dim")

    def items(self, value: object) -> Sequence[object]:
        if not isinstance(value, list):
            self.fail("a list", value, "a list")
        return value

    def row(self, value: object, count: int) -> Sequence[object]:
        items = self.items(value)
        if len(items) != count:
            self.fail("a row", value, f"a list of {count}")
        return items

    def text(self, value: object) -> str:
        if not isinstance(value, str):
            self.fail("a text", value, "a text")
        return value

    def choice(self, value: object, choices: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in choices:
            self.fail("a word", value, choices)
        return value

    def number(self, value: object, limit: int = MAX_INTEGER) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limit:
            self.fail("a number", value, f"0 to {limit - 1}")
        return value
