"""A task graph as pictures: Graphviz source, and SVG with one lane a device. The same bytes every
time."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from rlx_edge.ir.dot import KIND_COLORS, UNPLACED
from rlx_edge.ir.task_graph import CommunicationEdge, ExecutionTask, TaskGraph

LANE_WIDTH = 260
TASK_HEIGHT = 46
GAP = 34
MARGIN = 24
HEAD = 34
LINES = (16, 32)
"""Where the two lines of a task stand below its upper edge."""


def task_graph_dot(graph: TaskGraph) -> str:
    """Graphviz source: one cluster a device, its tasks in order, edges with value and bytes."""
    return "\n".join(_dot(graph)) + "\n"


def _dot(graph: TaskGraph) -> Iterator[str]:
    yield "digraph tasks {"
    yield '  node [shape = box, style = "filled,rounded", fontname = "Helvetica", fontsize = 10];'
    yield '  edge [fontname = "Helvetica", fontsize = 8];'
    for number, device in enumerate(graph.devices):
        yield f"  subgraph cluster_{number} {{"
        yield f"    label = {_quote(device)};"
        before = ""
        for task in _tasks_of(graph, number):
            label = "\\n".join(_escape(line) for line in _lines(graph, task))
            yield f'    t{task} [label = "{label}", fillcolor = "{_color(device)}"];'
            if before:
                yield f'    {before} -> t{task} [color = "#999999", style = dotted];'
            before = f"t{task}"
        yield "  }"
    for edge in graph.edges:
        yield f"  t{edge.source} -> t{edge.target} [label = {_quote(_edge_text(edge))}];"
    yield "}"


def task_graph_svg(graph: TaskGraph) -> str:
    """SVG: lanes from left to right, tasks from top to bottom, an arrow for each edge."""
    return "\n".join(_svg(graph)) + "\n"


def _svg(graph: TaskGraph) -> Iterator[str]:
    width = 2 * MARGIN + LANE_WIDTH * len(graph.devices)
    height = HEAD + MARGIN + (TASK_HEIGHT + GAP) * len(graph.tasks)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    )
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>'
    )
    for number, device in enumerate(graph.devices):
        center = _left(number) + LANE_WIDTH // 2
        yield f'<text x="{center}" y="20" text-anchor="middle">{escape(device)}</text>'
        yield f'<path d="M{center} {HEAD}V{height - MARGIN}" stroke="#ccc"/>'
    for number, task in enumerate(graph.tasks):
        yield from _task_svg(graph, number, task)
    for edge in graph.edges:
        yield from _edge_svg(graph, edge)
    yield "</svg>"


def _task_svg(graph: TaskGraph, number: int, task: ExecutionTask) -> Iterator[str]:
    left, top = _left(task.device) + 12, _top(number)
    yield (
        f'<rect x="{left}" y="{top}" width="{LANE_WIDTH - 24}" height="{TASK_HEIGHT}" rx="6" '
        f'fill="{_color(graph.devices[task.device])}" stroke="#555"/>'
    )
    for place, line in zip(LINES, _lines(graph, number), strict=True):
        yield f'<text x="{left + 8}" y="{top + place + 2}">{escape(line)}</text>'


def _edge_svg(graph: TaskGraph, edge: CommunicationEdge) -> Iterator[str]:
    source, target = graph.tasks[edge.source].device, graph.tasks[edge.target].device
    start = _left(source) + LANE_WIDTH // 2
    end = _left(target) + LANE_WIDTH // 2
    top, bottom = _top(edge.source) + TASK_HEIGHT, _top(edge.target)
    yield (
        f'<path d="M{start} {top}C{start} {top + GAP} {end} {bottom - GAP} {end} {bottom}" '
        f'fill="none" stroke="#444" marker-end="url(#head)"/>'
    )
    middle = (start + end) // 2
    yield (
        f'<text x="{middle}" y="{(top + bottom) // 2}" text-anchor="middle" fill="#444">'
        f"{escape(_edge_text(edge))}</text>"
    )


def _left(device: int) -> int:
    return MARGIN + LANE_WIDTH * device


def _top(number: int) -> int:
    return HEAD + MARGIN // 2 + (TASK_HEIGHT + GAP) * number


def _tasks_of(graph: TaskGraph, device: int) -> list[int]:
    return [number for number, task in enumerate(graph.tasks) if task.device == device]


def _lines(graph: TaskGraph, number: int) -> tuple[str, str]:
    task = graph.tasks[number]
    count = sum(end - begin for begin, end in task.ops)
    outputs = ", ".join(f"%{name}" for name in task.outputs[:2])
    more = f" and {len(task.outputs) - 2} more" if len(task.outputs) > 2 else ""
    return f"task {number}, {task.phase}: {count} operations", f"{outputs}{more}"


def _edge_text(edge: CommunicationEdge) -> str:
    return f"edge {edge.edge}: {edge.type}, {edge.nbytes} bytes"


def _color(device: str) -> str:
    kind, _, rest = device.partition(":")
    index = rest.partition("@")[0]
    colors = KIND_COLORS.get(kind, (UNPLACED,))
    return colors[int(index) % len(colors)] if index.isdigit() else colors[0]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'
