"""ONNX files as frozen records (onnx.proto3).

Records follow the file: nothing is interpreted beyond what the format itself says. Weights are
``TensorProto`` records that point at their bytes. ``reader.py`` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.tensors import TensorProto

MIN_OPSET, MAX_OPSET = 6, 28
ONNX_DOMAINS = ("", "ai.onnx")

AttributeValue: TypeAlias = Union[
    int,
    float,
    str,
    TensorProto,
    "Graph",
    tuple[int, ...],
    tuple[float, ...],
    tuple[str, ...],
    tuple[TensorProto, ...],
    tuple["Graph", ...],
]


@dataclass(frozen=True, slots=True)
class Attribute:
    """``kind`` is the name of ``AttributeProto.type`` in lower case (``"ints"``).

    ``reference`` names the attribute of the surrounding function that supplies the value.
    """

    name: str
    kind: str
    value: AttributeValue | None
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator; an empty input or output name means "not given"."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    overload: str = ""

    @property
    def label(self) -> str:
        """How messages name the node: its own name, or its first output."""
        return self.name or next((output for output in self.outputs if output), self.op_type)


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """Name and declared type. A dim is an integer, a name, or ``None`` where it is unknown;
    ``dims`` is ``None`` where even the rank is. ``kind`` is ``tensor``, ``sequence``, ``map``,
    ``optional``, ``sparse_tensor`` or ``""`` (no type given).
    """

    name: str
    kind: str
    data_type: int
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in file order with what they read and declare."""

    name: str
    nodes: tuple[Node, ...]
    initializers: tuple[TensorProto, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]


@dataclass(frozen=True, slots=True)
class ModelFunction:
    """A model-local function: the body that replaces a node of the same domain and name."""

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: Mapping[str, Attribute]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A whole file. ``opsets`` maps domain to version, ``""`` being the standard operators."""

    source: str
    ir_version: int
    opsets: Mapping[str, int]
    producer: str
    graph: Graph
    functions: Mapping[tuple[str, str, str], ModelFunction]
    metadata: Mapping[str, str]

    @property
    def opset(self) -> int:
        return self.opsets[""]


def check_opset(version: int | None, where: str) -> None:
    """``ModelError`` ``import.opset`` unless the standard opset is one that is known."""
    if version is None or not MIN_OPSET <= version <= MAX_OPSET:
        raise ModelError(
            "import.opset",
            "the version of the standard operators is not supported",
            found="none" if version is None else version,
            allowed=f"{MIN_OPSET} to {MAX_OPSET}",
            where=where,
        )
