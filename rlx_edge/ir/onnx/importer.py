"""From an ONNX model to a module of graph IR with symbolic sizes.

Nodes are converted in file order. For each one the content of its outputs is worked out first
(``fold.py``); only what is not known that way becomes operations (``convert/``). Declared types of
inputs are trusted, those of intermediate values are not read.

Integer inputs whose content shapes or branches depend on become value symbols with a binding in
the function. A branch on such a symbol is taken for the value the caller gives and recorded as a
guard, so the module says for which values it holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import ModelError, RlxError
from rlx_edge.ir.onnx.assumptions import Assumptions
from rlx_edge.ir.onnx.bytes import ByteSource, MemorySource
from rlx_edge.ir.onnx.conditions import Compare, Condition, Every, Some
from rlx_edge.ir.onnx.context import NodeContext, qualified
from rlx_edge.ir.onnx.convert import CONTROL_FLOW, CONVERTERS, FOLDED_ONLY, is_supported
from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.onnx.fold import fold
from rlx_edge.ir.onnx.model import (
    Graph,
    ModelFunction,
    Node,
    OnnxModel,
    check_opset,
)
from rlx_edge.ir.onnx.names import identifier
from rlx_edge.ir.onnx.parameters import Parameters
from rlx_edge.ir.onnx.prune import prune
from rlx_edge.ir.onnx.reader import open_model, read_model
from rlx_edge.ir.onnx.scopes import Scope, all_nodes, live_nodes
from rlx_edge.ir.onnx.state import ImportState
from rlx_edge.ir.onnx.unify import Unify

MAX_CALL_DEPTH = 64
_MAX_RESTARTS = 256

Source = str | os.PathLike[str] | bytes | ByteSource | OnnxModel


def import_model(
    source: Source,
    *,
    values: Mapping[str, Sequence[int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
) -> Module:
    """The module of an ONNX model: a path, bytes, a ``ByteSource`` or records read before.

    ``values`` gives the content of integer inputs that the model branches on, row-major by input
    name; ``shapes`` the concrete shapes of inputs, needed only where the model branches on sizes.
    Neither is baked in: what was decided by them stands in ``function.guards``.

    Errors: ``ModelError`` with codes ``import.*`` and ``op.*`` naming file, node, operator and
    opset; ``InputError`` for ``values`` and ``shapes`` that do not belong to the model.
    """
    model = as_model(source)
    return _import(model, values or {}, shapes or {}, name)


def value_inputs(model: OnnxModel) -> tuple[str, ...]:
    """Integer inputs whose content, not only their shape, decides what is computed or how large
    it is, in the order of the model's inputs."""
    needed: list[str] = []
    try:
        module = _import(model, {}, {}, None, needed)
    except ModelError:
        if not needed:
            raise
    else:
        needed.extend(binding.parameter for binding in module.function.bindings)
    return tuple(info.name for info in model.graph.inputs if info.name in needed)


def dim_names(model: OnnxModel) -> dict[str, str]:
    """Size symbol → the name of that dim in the ONNX file, for dims that have one there."""
    state = ImportState(model, Function("f", [], [], []), Assumptions())
    Parameters(state, {}).declare({}, {})
    return state.symbols.originals()


def declared_parameters(model: OnnxModel) -> tuple[Value, ...]:
    """The parameters as the file declares them, before anything is converted: every import of
    the model has these, or some of their sizes turn out to be the same."""
    state = ImportState(model, Function("f", [], [], []), Assumptions())
    Parameters(state, {}).declare({}, {})
    return tuple(state.function.params)


def as_model(source: Source) -> OnnxModel:
    """Records of a path, bytes or a source; records are passed through."""
    if isinstance(source, OnnxModel):
        return source
    if isinstance(source, bytes):
        return read_model(MemorySource(source))
    if isinstance(source, (str, os.PathLike)):
        return open_model(source)
    return read_model(source)


def _import(
    model: OnnxModel,
    values: Mapping[str, Sequence[int]],
    shapes: Mapping[str, Sequence[int]],
    name: str | None,
    undecided: list[str] | None = None,
) -> Module:
    """Import, starting again each time two sizes turn out to be the same one."""
    title = identifier(name or model.graph.name, "model")
    replaced: dict[str, Dim] = {}
    for _ in range(_MAX_RESTARTS):
        function = Function(title, [], [], [])
        state = ImportState(model, function, Assumptions(undecided=undecided))
        try:
            entries = Parameters(state, replaced).declare(values, shapes)
            _Importer(state).run(entries)
        except Unify as same:
            replaced = {
                key: dim.substitute({same.symbol: same.dim}) for key, dim in replaced.items()
            }
            replaced[same.symbol] = same.dim
            continue
        prune(function, state.assume)
        used = {op.attrs["digest"] for op in function.ops if op.name == "tensor::const"}
        constants = {key: item for key, item in state.constants.items() if key in used}
        return Module(title, function, constants)
    raise ModelError("import.sizes", "too many sizes turn out to be the same", where=model.source)


class _Importer:
    def __init__(self, state: ImportState) -> None:
        self.state = state
        self.model = state.model

    def run(self, parameters: Mapping[str, Entry]) -> None:
        graph = self.model.graph
        names = [info.name for info in graph.outputs]
        if not names or len(set(names)) < len(names):
            raise ModelError(
                "import.graph",
                "a graph has outputs, each with a name of its own",
                found=names or "no outputs",
                where=self.model.source,
            )
        scope = Scope(self.model.opsets)
        scope.names.update(parameters)
        entries = self.graph(graph, scope)
        function = self.state.function
        for info, entry in zip(graph.outputs, entries, strict=True):
            where = f"{self.model.source}: output {info.name!r}"
            function.returns.append(self.state.materialize(entry, where))
        if names != [value.name for value in function.returns]:
            function.output_names = names

    # ---- graphs and nodes --------------------------------------------------------------------

    def graph(self, graph: Graph, scope: Scope) -> list[Entry]:
        """Convert a graph in ``scope``; the entries of its outputs."""
        for tensor in graph.initializers:
            scope.names[tensor.name] = Entry(tensor.name, tensor=tensor)
        outputs = [info.name for info in graph.outputs]
        return self.nodes(graph.nodes, outputs, scope, f"graph {graph.name!r}")

    def nodes(
        self, nodes: Sequence[Node], outputs: Sequence[str], scope: Scope, what: str
    ) -> list[Entry]:
        self._check_names(nodes, scope, what)
        for node, used in live_nodes(nodes, outputs):
            self.node(scope.resolved(node), used, scope)
        found = [scope.find(name) for name in outputs]
        missing = [name for name, entry in zip(outputs, found, strict=True) if entry is None]
        if missing:
            raise ModelError(
                "import.graph",
                f"nothing produces an output of {what}",
                found=missing,
                where=self.model.source,
            )
        return [entry for entry in found if entry is not None]

    def _check_names(self, nodes: Sequence[Node], scope: Scope, what: str) -> None:
        """Every value of a graph is defined once: by an input, an initializer or one node."""
        defined = set(scope.names)
        for node in nodes:
            for name in filter(None, node.outputs):
                if name in defined:
                    raise ModelError(
                        "import.graph",
                        f"{what} defines a value twice",
                        found=repr(name),
                        where=f"{self.model.source}: node {node.label!r} ({qualified(node)})",
                    )
                defined.add(name)

    def node(self, node: Node, used: Sequence[bool], scope: Scope) -> None:
        """Convert one node and put its outputs into ``scope``."""
        if scope.depth > MAX_CALL_DEPTH:
            raise ModelError("import.graph", "graphs nested too deeply", where=self.model.source)
        context = self._context(node, used, scope)
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            outputs: Sequence[Entry | None] = self._call(function, context, scope)
        else:
            context.check_attributes()
            is_if = node.domain == "" and node.op_type in CONTROL_FLOW
            outputs = self._if(context, scope) if is_if else self._convert(context)
        for position, (name, read) in enumerate(zip(node.outputs, used, strict=True)):
            entry = outputs[position] if position < len(outputs) else None
            if name and entry is not None:
                scope.names[name] = entry
            elif read:
                context.fail("import.node", f"output {position} is not computed", found=repr(name))

    def _context(self, node: Node, used: Sequence[bool], scope: Scope) -> NodeContext:
        opset = scope.opsets.get(node.domain, 0)
        inputs: list[Entry | None] = []
        for name in node.inputs:
            entry = scope.find(name) if name else None
            if name and entry is None:
                raise ModelError(
                    "import.graph",
                    "a node reads a value that nothing before it produces",
                    found=repr(name),
                    where=f"{self.model.source}: node {node.label!r} ({qualified(node)})",
                )
            inputs.append(entry)
        return NodeContext(self.state, node, inputs, opset, used)

    def _convert(self, n: NodeContext) -> list[Entry | None]:
        """Known content where there is any, operations otherwise; content that depends on the
        value of an input gets both, so that plain data does not become part of the plan."""
        names = n.node.outputs
        contents = fold(n)
        if contents is None:
            return self._emit(n)
        entries: list[Entry | None] = [
            Entry(name, content=content) for name, content in zip(names, contents, strict=False)
        ]
        if any(self.state.depends_on_values(content) for content in contents):
            try:
                emitted = self._emit(n)
            except RlxError:
                return entries  # the content is enough, or is made a tensor where one is needed
            for entry, computed in zip(entries, emitted, strict=False):
                if entry is not None and computed is not None:
                    entry.value = computed.value
        return entries

    def _emit(self, n: NodeContext) -> list[Entry | None]:
        converter = CONVERTERS.get((n.node.domain, n.node.op_type))
        if converter is None:
            self._unsupported(n)
        results = converter(n)
        outputs = results if isinstance(results, tuple) else (results,)
        return [
            Entry(n.node.outputs[position], value=output) if isinstance(output, Value) else output
            for position, output in enumerate(outputs[: len(n.node.outputs)])
        ]

    def _unsupported(self, n: NodeContext) -> NoReturn:
        name = qualified(n.node)
        if n.node.domain == "" and n.node.op_type in FOLDED_ONLY:
            n.fail(
                "import.data_dependent",
                f"the operator {name} is supported only where its inputs are known at import",
                found="a tensor that is computed at run time",
            )
        others = {
            qualified(node)
            for node in all_nodes(self.model.graph.nodes)
            if not is_supported(node.domain, node.op_type)
            and (node.domain, node.op_type, node.overload) not in self.model.functions
        }
        raise ModelError(
            "import.unsupported_op",
            f"the operator {name} is not supported",
            where=n.where,
            hint=f"unsupported operators in this model: {', '.join(sorted(others))}",
        )

    # ---- functions and branches --------------------------------------------------------------

    def _call(self, function: ModelFunction, n: NodeContext, scope: Scope) -> list[Entry]:
        """The body of a model-local function in place of the node."""
        inner = scope.called(function, scope.resolved(n.node))
        check_opset(inner.opsets.get("", self.model.opset), n.where)
        if len(n.inputs) > len(function.inputs):
            n.fail("import.node", "more inputs than the function has", found=len(n.inputs))
        for name, entry in zip(function.inputs, n.inputs, strict=False):
            if entry is not None:
                inner.names[name] = entry
        return self.nodes(function.nodes, function.outputs, inner, f"function {function.name!r}")

    def _if(self, n: NodeContext, scope: Scope) -> list[Entry]:
        """The branch that the condition selects; what it depends on becomes a guard."""
        content = self.state.content_of(n.entry(0))
        truth = content.items[0] if content is not None and content.size == 1 else None
        if not isinstance(truth, (bool, Compare, Every, Some)):
            n.unsupported(
                "its condition is computed at run time",
                allowed="conditions on sizes and on integer inputs",
            )
        taken = self._decide(truth, n)
        branch = n.graph_attr("then_branch" if taken else "else_branch")
        return self.graph(branch, scope.inner())

    def _decide(self, truth: bool | Condition, n: NodeContext) -> bool:
        return self.state.assume.decide(truth, f"If {n.node.label}", n.where)
