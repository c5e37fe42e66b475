"""The table of operators that can be imported: ``(domain, operator) → converter``."""

from __future__ import annotations

from rlx_edge.ir.onnx.convert import (
    attention,
    constants,
    elementwise,
    layers,
    losses,
    movement,
    padding,
    pooling,
    positions,
    reductions,
    resizing,
    selection,
    windows,
)
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.onnx.fold import FOLDS

CONVERTERS: dict[tuple[str, str], Converter] = {
    ("", name): converter
    for family in (
        attention,
        constants,
        elementwise,
        layers,
        losses,
        movement,
        padding,
        pooling,
        positions,
        reductions,
        resizing,
        selection,
        windows,
    )
    for name, converter in family.CONVERTERS.items()
}

FOLDED_ONLY = tuple(name for name in FOLDS if ("", name) not in CONVERTERS)
"""Operators that exist in shape arithmetic alone: their operands must be known at import."""

CONTROL_FLOW = ("If",)
"""Operators with subgraphs that the importer itself resolves."""


def is_supported(domain: str, op_type: str) -> bool:
    if (domain, op_type) in CONVERTERS:
        return True
    return domain == "" and (op_type in FOLDED_ONLY or op_type in CONTROL_FLOW)


def support_table() -> str:
    """The operators of the importer as a Markdown table, for the documentation."""
    rows = [
        *((name, "tensors" + (" and shapes" if name in FOLDS else "")) for _, name in CONVERTERS),
        *((name, "shapes") for name in FOLDED_ONLY),
        *((name, "on a condition that is known at import") for name in CONTROL_FLOW),
    ]
    lines = ["| operator | works on |", "| --- | --- |"]
    lines += [f"| `{name}` | {kind} |" for name, kind in sorted(rows)]
    return "\n".join(lines) + "\n"
