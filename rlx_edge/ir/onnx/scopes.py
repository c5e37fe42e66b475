"""Names in sight of a node, and which nodes matter at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.onnx.model import Attribute, Graph, ModelFunction, Node


@dataclass(slots=True)
class Scope:
    """Names of one graph over those of the graph around it; a function body has no outer scope.

    ``arguments`` are the attribute values that a function body refers to.
    """

    opsets: Mapping[str, int]
    outer: Scope | None = None
    names: dict[str, Entry] = field(default_factory=dict)
    arguments: Mapping[str, Attribute] = field(default_factory=lambda: MappingProxyType({}))
    depth: int = 0

    def find(self, name: str) -> Entry | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def inner(self) -> Scope:
        """A scope for a subgraph."""
        return Scope(self.opsets, self, {}, self.arguments, self.depth + 1)

    def called(self, function: ModelFunction, node: Node) -> Scope:
        """A scope for the body of ``function`` called by ``node``."""
        arguments = dict(function.defaults)
        arguments.update(
            {name: item for name, item in node.attributes.items() if not item.reference}
        )
        opsets = function.opsets or self.opsets
        return Scope(opsets, None, {}, MappingProxyType(arguments), self.depth + 1)

    def resolved(self, node: Node) -> Node:
        """The node with references to function attributes replaced by their values."""
        if not any(item.reference for item in node.attributes.values()):
            return node
        attributes: dict[str, Attribute] = {}
        for name, item in node.attributes.items():
            if not item.reference:
                attributes[name] = item
            elif item.reference in self.arguments:
                attributes[name] = replace(self.arguments[item.reference], name=name)
        return replace(node, attributes=MappingProxyType(attributes))


def live_nodes(nodes: Sequence[Node], outputs: Iterable[str]) -> list[tuple[Node, list[bool]]]:
    """The nodes that ``outputs`` depend on, in file order, each with which outputs are read."""
    wanted = set(outputs)
    kept: list[tuple[Node, list[bool]]] = []
    for node in reversed(nodes):
        used = [name in wanted for name in node.outputs]
        if any(used):
            wanted.update(reads(node))
            kept.append((node, used))
    return kept[::-1]


def reads(node: Node) -> Iterator[str]:
    """Names that a node or the graphs inside it may read."""
    yield from (name for name in node.inputs if name)
    for graph in subgraphs(node):
        for inner in graph.nodes:
            yield from reads(inner)
        yield from (output.name for output in graph.outputs)


def subgraphs(node: Node) -> Iterator[Graph]:
    for attribute in node.attributes.values():
        values = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
        yield from (value for value in values if isinstance(value, Graph))


def all_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes and those of the graphs inside them."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.nodes)
