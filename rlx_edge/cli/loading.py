"""Graphs and programs from the files that commands are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.module_file import load_module
from rlx_edge.ir.onnx.bytes import FileSource
from rlx_edge.ir.program import Program
from rlx_edge.ir.program_text import load_program
from rlx_edge.model_source import TEXT_SUFFIX, open_source


def graph_of(
    path: str,
    values: Mapping[str, Sequence[int]],
    shapes: Mapping[str, Sequence[int]],
    *,
    needs_weights: bool = True,
) -> Module:
    """The graph IR of an ONNX model or of IR text.

    Where a model branches on a value that is not given, the error says which option gives it.
    IR text is also read without its weights file unless ``needs_weights``.
    """
    if not needs_weights and Path(path).suffix == TEXT_SUFFIX:
        return load_module(path, weights="optional")
    try:
        return open_source(path).module(values, shapes)
    except ModelError as error:
        if error.code != "import.value_needed":
            raise
        raise ModelError(
            error.code,
            error.what,
            found=error.found,
            allowed=error.allowed,
            where=error.where,
            hint="give it with --value NAME=V, or sizes with --shape NAME=1x3x48x320",
        ) from None


def read_program(path: str) -> Program:
    """The compiled program of a file; ``ModelError`` where it is none."""
    source = FileSource(path)
    try:
        text = source.read(0, source.size).decode("ascii")
    except UnicodeDecodeError:
        raise ModelError(
            "program.syntax",
            "not a compiled program",
            where=path,
            hint="programs are written by `rlx plan MODEL -o P`",
        ) from None
    return load_program(text, path)
