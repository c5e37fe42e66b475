"""Writes the table of attribute names of the ONNX operators from the schemas of package `onnx`.

usage: python -m scripts.build_attributes
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import onnx.defs

from rlx_edge.ir.onnx.convert import CONTROL_FLOW, CONVERTERS, FOLDED_ONLY
from rlx_edge.ir.onnx.model import MAX_OPSET, MIN_OPSET

TARGET = Path(__file__).resolve().parent.parent / "rlx_edge/ir/onnx/attribute_names.py"
BEGIN, END = '_TABLE = """\\\n', '"""\n'

# Operators whose attributes are taken in every version. Constants are read before versions matter.
ANY_VERSION = ("Constant",)


def table() -> str:
    """A line an operator of the importer: its name, then its attributes."""
    names = sorted({*(name for _, name in CONVERTERS), *FOLDED_ONLY, *CONTROL_FLOW})
    history: dict[str, list[onnx.defs.OpSchema]] = {name: [] for name in names}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in history:
            history[schema.name].append(schema)
    return "".join(line + "\n" for item in history.items() for line in wrapped(row(*item)))


def wrapped(line: str) -> list[str]:
    """The lines of one row: all but the last end in a backslash."""
    parts = textwrap.wrap(line, 96, subsequent_indent="    ", break_long_words=False)
    return [*(part + " \\" for part in parts[:-1]), parts[-1]]


def row(name: str, schemas: list[onnx.defs.OpSchema]) -> str:
    """``ReduceSum axes<13 keepdims noop_with_empty_axes>=13``

    An operator that a model uses before its first version has the attributes of that version, as
    LayerNormalization in what onnxruntime optimised.
    """
    schemas = sorted(schemas, key=lambda schema: int(schema.since_version))
    words = [name]
    for attribute in sorted({item for schema in schemas for item in schema.attributes}):
        present = [attribute in schema.attributes for schema in schemas]
        first, last = present.index(True), len(present) - 1 - present[::-1].index(True)
        assert all(present[first : last + 1]), f"{name}: {attribute} came back"
        since = schemas[first].since_version
        until = schemas[last + 1].since_version if last + 1 < len(schemas) else MAX_OPSET + 1
        if until > MIN_OPSET:
            later = first > 0 and since > MIN_OPSET and name not in ANY_VERSION
            lower = f">={since}" if later else ""
            words.append(attribute + lower + (f"<{until}" if until <= MAX_OPSET else ""))
    return " ".join(words)


def main() -> None:
    head, rest = TARGET.read_text(encoding="utf-8").split(BEGIN)
    tail = rest.split(END, 1)[1]
    TARGET.write_text(head + BEGIN + table() + END + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
