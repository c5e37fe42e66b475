"""Layouts: NCHW or NCHW4c for every image, with the fewest bytes spent on conversions.

Each operation that can work in both layouts is a node of a cut graph (``min_cut.py``): the
source's side is NCHW, the sink's NCHW4c. A value costs one conversion when any reader wants
another layout than its producer stores, however many readers want it; operations cost what they
lose in a layout (pad lanes of ragged channels, strided windows and transposed stores in NCHW). The
minimum cut is the cheapest assignment, exactly. Conversions become ``rlxc::convert_layout``
operations in front of the first reader, shared by all.

One text serves all sizes, so costs count every symbol as ``nominal``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx_edge.compile.min_cut import UNLIMITED, CutGraph
from rlx_edge.compile.passes.graph import copy_module, replace_returns
from rlx_edge.compile.passes.layout_demands import (
    ANY,
    BLOCKED,
    OWN,
    PLAIN,
    WINDOW_POOLS,
    Demand,
    demand_of,
)
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.compile.physical import Physical
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.ops import root_name

CONVERSION_BYTES = 2048
"""What a conversion costs beside its bytes: one more launch."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Choose ``memory_layout`` for every operation of a placed module and insert conversions."""

    name: str = "layout"
    nominal: int = 32

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        function = module.function
        demands = {op: demand_of(op) for op in function.ops}
        chosen = _choose(function, demands, self.nominal)
        for op in function.ops:
            op.attrs["memory_layout"] = chosen[op]
            if log is not None and chosen[op] == BLOCKED:
                log.append(Applied(self.name, str(op), BLOCKED))
        for conversion in _insert_conversions(function, demands, chosen):
            if log is not None:
                log.append(Applied(self.name, "", str(conversion)))
        return module


# ---- choice ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Costs:
    """Bytes at nominal sizes."""

    nominal: int

    def number(self, dim: Dim) -> int:
        try:
            return max(1, dim.evaluate(dict.fromkeys(dim.symbols(), self.nominal)))
        except ZeroDivisionError:  # a size that does not exist at nominal sizes
            return 1

    def plain(self, value: Value) -> int:
        return self.number(Physical(value.type).nbytes)

    def blocked(self, value: Value) -> int:
        return self.number(Physical(value.type, BLOCKED).nbytes)

    def conversion(self, value: Value) -> int:
        return CONVERSION_BYTES + self.plain(value) + self.blocked(value)

    def in_plain(self, op: Op) -> int:
        """What ``op`` loses in NCHW: stores across lanes, windows with a stride."""
        root = root_name(op.name)
        if root == "rlxc::conv2d":
            return self.plain(op.result) // 2
        return 2 * self.plain(op.operands[0]) if root in WINDOW_POOLS else 0

    def in_blocks(self, op: Op) -> int:
        """What ``op`` loses in NCHW4c: the pad lanes that it stores."""
        return self.blocked(op.result) - self.plain(op.result)


def _choose(function: Function, demands: dict[Op, Demand], nominal: int) -> dict[Op, str]:
    costs = _Costs(nominal)
    graph = CutGraph()
    ends = {PLAIN: graph.SOURCE, BLOCKED: graph.SINK}
    free = {op: graph.node() for op in function.ops if demands[op].result == OWN}
    nodes = {op: free[op] if op in free else ends[demands[op].result] for op in function.ops}
    for op, node in free.items():
        graph.pay(graph.SOURCE, node, costs.in_blocks(op))
        graph.pay(node, graph.SINK, costs.in_plain(op))
    for value, wanted in _wanted(function, demands, nodes).items():
        producer = value.producer
        own = graph.SOURCE if producer is None else nodes[producer]
        _pay_conversion(graph, own, wanted, costs, value)
    side = graph.solve()[1]
    return {op: PLAIN if side[nodes[op]] else BLOCKED for op in function.ops}


def _wanted(
    function: Function, demands: dict[Op, Demand], nodes: dict[Op, int]
) -> dict[Value, list[int]]:
    """Image value → nodes whose side its readers want, each once; the caller wants NCHW."""
    ends = {PLAIN: CutGraph.SOURCE, BLOCKED: CutGraph.SINK}
    table: dict[Value, dict[int, None]] = {}
    for op in function.ops:
        for operand, layout in zip(op.operands, demands[op].operands, strict=True):
            if operand.type.rank == 4 and layout != ANY:
                node = nodes[op] if layout == OWN else ends[layout]
                table.setdefault(operand, {})[node] = None
    for value in function.returns:
        if value.type.rank == 4:
            table.setdefault(value, {})[CutGraph.SOURCE] = None
    return {value: list(wanted) for value, wanted in table.items()}


def _pay_conversion(
    graph: CutGraph, own: int, wanted: list[int], costs: _Costs, value: Value
) -> None:
    """One conversion if ``own`` and any of ``wanted`` fall on different sides."""
    others = [node for node in wanted if node != own]
    if not others:
        return
    cost = costs.conversion(value)
    any_blocked, any_plain = graph.node(), graph.node()
    graph.pay(own, any_blocked, cost)
    graph.pay(any_plain, own, cost)
    for node in others:
        graph.pay(any_blocked, node, UNLIMITED)
        graph.pay(node, any_plain, UNLIMITED)


# ---- conversions -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Conversions:
    """Converted values by source and layout, and the operations in front of each reader."""

    builder: Builder
    made: dict[tuple[Value, str], Value] = field(default_factory=dict)

    def get(self, value: Value, layout: str, like: Op) -> Value:
        found = self.made.get((value, layout))
        if found is None:
            found = convert(self.builder, value, like, {"memory_layout": layout})
            self.made[value, layout] = found
        return found


def convert(builder: Builder, value: Value, like: Op, storage: dict[str, Attribute]) -> Value:
    """Append a ``convert_layout`` of ``value`` placed as ``like``, its result in ``storage``."""
    source = value.producer.attrs["phase"] if value.producer is not None else like.attrs["phase"]
    result = builder.op("rlxc::convert_layout", [value], {}, hint=value.name)
    assert result.producer is not None
    result.producer.attrs.update(
        phase=source,
        target_device_set=like.attrs["target_device_set"],
        sync_mode="none",
        **storage,
    )
    return result


def _insert_conversions(
    function: Function, demands: dict[Op, Demand], chosen: dict[Op, str]
) -> list[Op]:
    conversions = _Conversions(Builder(function, []))
    builder = conversions.builder
    inserted: list[Op] = []
    ops: list[Op] = []
    for op in function.ops:
        builder.ops = []
        for slot, (operand, layout) in enumerate(
            zip(op.operands, demands[op].operands, strict=True)
        ):
            wanted = chosen[op] if layout == OWN else layout
            if operand.type.rank == 4 and wanted not in (ANY, _stored(operand, chosen)):
                op.operands[slot] = conversions.get(operand, wanted, op)
        inserted += builder.ops
        ops += [*builder.ops, op]
    builder.ops = []
    for value in list(dict.fromkeys(function.returns)):
        if value.producer is not None and _stored(value, chosen) != PLAIN:
            plain = conversions.get(value, PLAIN, value.producer)
            hand_over_return(function, value, plain)
    function.ops = ops + builder.ops
    return inserted + builder.ops


def hand_over_return(function: Function, old: Value, new: Value) -> None:
    """Return ``new`` instead of ``old``; the host waits for it and no longer for ``old``."""
    replace_returns(function, old, new)
    assert old.producer is not None and new.producer is not None
    new.producer.attrs["sync_mode"] = old.producer.attrs["sync_mode"]
    old.producer.attrs["sync_mode"] = "none"


def _stored(value: Value, chosen: dict[Op, str]) -> str:
    return PLAIN if value.producer is None else chosen[value.producer]
