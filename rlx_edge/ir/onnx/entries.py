"""What the importer knows about one ONNX value: a graph value, its content, or a weight."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx_edge.ir.core import Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.onnx.shape_values import ShapeValue
from rlx_edge.ir.onnx.tensors import TensorProto


@dataclass(eq=False, slots=True)
class Entry:
    """At least one of ``value`` (a tensor in the function), ``content`` and ``tensor`` is there.

    ``failure`` is why a value whose content is known could not also be computed as a tensor; it
    matters only if the content turns out not to be enough.
    """

    name: str
    value: Value | None = None
    content: ShapeValue | None = None
    tensor: TensorProto | None = None
    failure: RlxError | None = field(default=None, repr=False)
