"""Writes the reference pages that follow from the code, or says which of them are stale.

usage: python -m scripts.build_docs [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rlx_edge.ir.attributes import EPILOGUE, PLACEMENT, AttributeDef
from rlx_edge.ir.onnx.convert import support_table
from rlx_edge.ir.opdef import Decomposition, Expression, OpDef, OperandDef
from rlx_edge.ir.ops import OPS
from tests import scalar_behaviour

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "Written by `make docs` from the code; do not edit.\n"


def pages() -> dict[str, str]:
    return {
        "onnx.md": onnx_page(),
        "operators.md": operators_page(),
        "scalars.md": scalar_behaviour.page_text(),
    }


def onnx_page() -> str:
    """The operators that the importer takes."""
    lead = "What is not listed is refused at import, with the node's name, operator and opset."
    return f"# ONNX operators\n\n{NOTE}\n{lead}\n\n{support_table()}"


def operators_page() -> str:
    """Every operator of the IR: operands, attributes, and the kind of its definition."""
    lines = ["# Operators of the IR", "", NOTE]
    for definition in OPS.values():
        lines += [*operator(definition), ""]
    lines += ["## Attributes of any placed or fused operator", ""]
    lines += [attribute(item) for item in (EPILOGUE, *PLACEMENT)]
    return "\n".join(lines) + "\n"


def operator(definition: OpDef) -> Iterator[str]:
    yield f"## {definition.name}"
    yield ""
    if definition.doc:
        yield definition.doc
        yield ""
    yield f"Definition: {form(definition)}."
    if definition.traits:
        yield f"Traits: {', '.join(sorted(definition.traits))}."
    if definition.operands or definition.attrs:
        yield ""
    for item in definition.operands:
        yield operand(item)
    for entry in definition.attrs:
        yield attribute(entry)


def form(definition: OpDef) -> str:
    if isinstance(definition.define, Expression):
        return "expression"
    return "decomposition" if isinstance(definition.define, Decomposition) else "storage"


def operand(item: OperandDef) -> str:
    types = ", ".join(str(dtype) for dtype in item.dtypes)
    notes = [word for word, on in (("optional", item.optional), ("repeated", item.variadic)) if on]
    return f"* operand `{item.name}`: {types}" + "".join(f"; {note}" for note in notes)


def attribute(item: AttributeDef) -> str:
    text = f"* attribute `{item.name}`: {item.kind}"
    if item.choices:
        text += f" ({', '.join(f'`{choice}`' for choice in item.choices)})"
    return text + ("; optional" if item.optional else "")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on stale pages")
    check = parser.parse_args(arguments).check
    stale = []
    for name, text in pages().items():
        path = REFERENCE / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(name)
        else:
            REFERENCE.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/reference/{name}")
    if stale:
        print(f"stale in docs/reference: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
