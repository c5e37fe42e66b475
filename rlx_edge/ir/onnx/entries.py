"""What the importer knows about one ONNX value: a graph value, its content, or a weight."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.ir.core import Value
from rlx_edge.ir.onnx.shape_values import ShapeValue
from rlx_edge.ir.onnx.tensors import TensorProto


@dataclass(eq=False, slots=True)
class Entry:
    """At least one of ``value`` (a tensor in the function), ``content`` and ``tensor`` is there."""

    name: str
    value: Value | None = None
    content: ShapeValue | None = None
    tensor: TensorProto | None = None
