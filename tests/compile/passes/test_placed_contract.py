"""What lowering may rely on in a placed module, and that the layout is the cheapest one."""

from __future__ import annotations

from itertools import product

from hypothesis import assume, given, settings

from rlx_edge.compile.passes.layout import _Costs
from rlx_edge.compile.passes.layout_demands import ANY, BLOCKED, OWN, PLAIN, Demand, demand_of
from rlx_edge.compile.pipeline import NATIVE_PIPELINE, run_passes
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.ops import lookup, root_name
from tests.network_strategies import networks

PIPELINE = NATIVE_PIPELINE.format(device="wasm:0")
NO_BORDER = (0, 0, 0, 0)


def layout_of(value: Value) -> object:
    return PLAIN if value.producer is None else value.producer.attrs["memory_layout"]


def border_of(value: Value) -> tuple[int, ...]:
    border = NO_BORDER if value.producer is None else value.producer.attrs.get("border", NO_BORDER)
    assert isinstance(border, tuple)
    return tuple(int(str(item)) for item in border)


def check_operation(op: Op) -> None:
    assert op.attrs["phase"] in ("compile", "execute")
    assert op.attrs["target_device_set"] == ("wasm:0",)
    assert op.attrs["sync_mode"] in ("none", "blocking")
    demand = demand_of(op)
    own = op.attrs["memory_layout"]
    assert own in ((PLAIN, BLOCKED) if demand.result == OWN else (demand.result,))
    for operand, layout in zip(op.operands, demand.operands, strict=True):
        wanted = own if layout == OWN else layout
        assert wanted in (ANY, layout_of(operand)), f"{op}: {operand} is in {layout_of(operand)}"


def check_borders(op: Op) -> None:
    if "view" in lookup(op.name).traits:
        assert border_of(op.operands[0]) == border_of(op.result) == NO_BORDER
    if root_name(op.name) == "rlxc::conv2d" and op.attrs["phase"] == "execute":
        padding = op.attrs["padding"]
        assert isinstance(padding, tuple)
        found = border_of(op.operands[0])
        assert all(have >= int(str(need)) for have, need in zip(found, padding, strict=True))


@settings(max_examples=120)
@given(networks())
def test_placed_modules_keep_the_contract(module: Module) -> None:
    placed = run_passes(module, PIPELINE, check=True)
    function = placed.function
    for op in function.ops:
        check_operation(op)
        check_borders(op)
        if op.attrs["phase"] == "compile":
            phases = [item.producer.attrs["phase"] for item in op.operands if item.producer]
            assert phases == ["compile"] * len(op.operands)
    for value in function.returns:
        assert layout_of(value) == PLAIN
        assert border_of(value) == NO_BORDER
        assert value.producer is None or value.producer.attrs["sync_mode"] == "blocking"
    blocking = {op.result for op in function.ops if op.attrs["sync_mode"] == "blocking"}
    assert blocking <= set(function.returns)
    names = [value.name for value in module.function.returns]
    assert (function.output_names or [value.name for value in function.returns]) == (
        module.function.output_names or names
    )


def cost_of(function: Function, demands: dict[Op, Demand], chosen: dict[Op, str]) -> int:
    """What the pass's cost model says of one assignment, counted without a cut graph."""
    costs = _Costs(32)
    total = 0
    for op, demand in demands.items():
        if demand.result == OWN:
            total += costs.in_blocks(op) if chosen[op] == BLOCKED else costs.in_plain(op)
    wanted: dict[Value, set[str]] = {value: set() for value in function.values()}
    for op, demand in demands.items():
        for operand, layout in zip(op.operands, demand.operands, strict=True):
            if operand.type.rank == 4 and layout != ANY:
                wanted[operand].add(chosen[op] if layout == OWN else layout)
    for value in function.returns:
        if value.type.rank == 4:
            wanted[value].add(PLAIN)
    for value, layouts in wanted.items():
        stored = PLAIN if value.producer is None else chosen[value.producer]
        total += costs.conversion(value) * len(layouts - {stored})
    return total


@settings(max_examples=60)
@given(networks(max_ops=10))
def test_no_other_layout_is_cheaper(module: Module) -> None:
    before = run_passes(module, PIPELINE.removesuffix(",layout,borders"))
    demands = {op: demand_of(op) for op in before.function.ops}
    free = [op for op, demand in demands.items() if demand.result == OWN]
    assume(len(free) <= 9)
    after = run_passes(before, "layout")
    found = {op.result.name: str(op.attrs["memory_layout"]) for op in after.function.ops}
    fixed = {op: demand.result for op, demand in demands.items() if demand.result != OWN}
    best = min(
        cost_of(before.function, demands, {**fixed, **dict(zip(free, choice, strict=True))})
        for choice in product((PLAIN, BLOCKED), repeat=len(free))
    )
    chosen = {op: found[op.result.name] for op in before.function.ops}
    assert cost_of(before.function, demands, chosen) == best
