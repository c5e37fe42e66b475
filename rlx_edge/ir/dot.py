"""A module as a Graphviz picture, coloured by device and layout; the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.printer import attribute_order, attribute_text, value_text

KIND_COLORS = {
    "wasm": ("#d8ead3", "#b5d6ac", "#8fbf82"),
    "browser": ("#fff0c9", "#ffe29a", "#f6cf66"),
    "cpu": ("#e6e0f2", "#cbbfe6", "#ad9bd6"),
    "cuda": ("#f9d9cf", "#f2b6a2", "#e68f73"),
    "vulkan": ("#d3e5f5", "#a9cdeb", "#7db2de"),
}
"""Device kind → fill colours by device index (they repeat)."""
UNPLACED = "#f4f4f4"
LAYOUT_BORDERS = {"NCHW": "#555555", "NHWC": "#8a5a00", "NCHW4c": "#00518a"}
MAX_ATTRIBUTE = 40
HIDDEN = ("target_device_set", "memory_layout", "phase", "sync_mode", "digest")
"""Shown by colour, line style or not at all."""


def module_dot(module: Module) -> str:
    """Graphviz source: one box an operation, edges carry the value's type."""
    return "\n".join(_lines(module.function)) + "\n"


def _lines(function: Function) -> Iterator[str]:
    yield f"digraph {_quote(function.name)} {{"
    yield "  rankdir = TB;"
    yield '  node [shape = box, style = "filled,rounded", fontname = "Helvetica", fontsize = 10];'
    yield '  edge [fontname = "Helvetica", fontsize = 8, color = "#777777"];'
    names: dict[Value, str] = {}
    for position, param in enumerate(function.params):
        names[param] = f"in{position}"
        label = f"{_escape(value_text(param))}\\n{_escape(str(param.type))}"
        yield f'  in{position} [label = "{label}", shape = ellipse, fillcolor = "#ffffff"];'
    for position, op in enumerate(function.ops):
        names.update((result, f"op{position}") for result in op.results)
        yield f"  op{position} [{_op_style(op)}];"
    for position, op in enumerate(function.ops):
        for operand in op.operands:
            if operand in names:
                yield f"  {names[operand]} -> op{position} [label = {_quote(str(operand.type))}];"
    for position, value in enumerate(function.returns):
        name = function.output_names[position] if function.output_names else value.name
        yield f'  out{position} [label = {_quote(name)}, shape = ellipse, fillcolor = "#ffffff"];'
        if value in names:
            yield f"  {names[value]} -> out{position} [label = {_quote(str(value.type))}];"
    yield from _legend(function)
    yield "}"


def _op_style(op: Op) -> str:
    results = ", ".join(value_text(value) for value in op.results)
    lines = [f"{results} = {op.name}" if results else op.name]
    operands = [value.name for value in op.operands]
    for name in attribute_order(op):
        if name not in HIDDEN:
            text = attribute_text(op.attrs[name], operands)
            text = text if len(text) <= MAX_ATTRIBUTE else f"{text[:MAX_ATTRIBUTE]}…"
            lines.append(f"{name} = {text}")
    label = "\\n".join(_escape(line) for line in lines)
    layout = op.attrs.get("memory_layout")
    border = LAYOUT_BORDERS.get(layout, "#999999") if isinstance(layout, str) else "#999999"
    style = "filled,rounded,dashed" if op.attrs.get("phase") == "compile" else "filled,rounded"
    return (
        f'label = "{label}", fillcolor = "{device_color(op)}", color = "{border}", '
        f'style = "{style}"'
    )


def device_color(op: Op) -> str:
    """The colour of the first device an operation runs on."""
    devices = op.attrs.get("target_device_set")
    if not isinstance(devices, tuple) or not devices:
        return UNPLACED
    kind, _, rest = str(devices[0]).partition(":")
    index = rest.partition("@")[0]
    colors = KIND_COLORS.get(kind, (UNPLACED,))
    return colors[int(index) % len(colors)] if index.isdigit() else colors[0]


def _legend(function: Function) -> Iterator[str]:
    """One entry a device set and a layout that occurs, in order of appearance."""
    devices: dict[str, str] = {}
    layouts: dict[str, str] = {}
    for op in function.ops:
        names = op.attrs.get("target_device_set")
        if isinstance(names, tuple):
            devices.setdefault(", ".join(str(name) for name in names), device_color(op))
        layout = op.attrs.get("memory_layout")
        if isinstance(layout, str) and layout in LAYOUT_BORDERS:
            layouts.setdefault(layout, LAYOUT_BORDERS[layout])
    if not devices and not layouts:
        return
    yield "  subgraph cluster_legend {"
    yield '    label = "devices and layouts"; fontname = "Helvetica"; fontsize = 10;'
    for position, (name, color) in enumerate(devices.items()):
        yield f'    device{position} [label = {_quote(name)}, fillcolor = "{color}"];'
    for position, (name, color) in enumerate(layouts.items()):
        yield (
            f"    layout{position} [label = {_quote(name)}, "
            f'fillcolor = "#ffffff", color = "{color}"];'
        )
    yield "  }"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _quote(text: str) -> str:
    return f'"{_escape(text)}"'
