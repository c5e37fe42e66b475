"""The type of a fold; the table itself is in ``fold.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.shape_values import ShapeValue

Fold: TypeAlias = Callable[[NodeContext], tuple[ShapeValue, ...]]
"""The content of a node's outputs; ``Unknown`` where it is not known."""
