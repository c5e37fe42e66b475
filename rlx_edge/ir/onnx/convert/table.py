"""The type of a converter; the table itself is in the package's ``__init__``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rlx_edge.ir.core import Value
from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.entries import Entry

Output: TypeAlias = Value | Entry
Converter: TypeAlias = Callable[[NodeContext], Output | tuple[Output | None, ...]]
"""Builds a node's operations and returns its outputs in order; ``None`` for outputs that are
never read and were not computed."""
