"""Fused names, regions' ends and what a fused operation reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from rlx_edge.compile.passes.regions import fused_name
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.opdef import Expression
from rlx_edge.ir.ops import OPS, epilogue_slots, lookup, root_name, root_operand_count
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.tensor import from_values
from rlx_edge.ir.types import BOOL, F32
from tests.compile.passes.test_preserves_values import difference
from tests.network_strategies import networks

ROOTS = [
    name
    for name, item in OPS.items()
    if isinstance(item.define, Expression)
    and name.startswith("rlxc::")
    and "view" not in item.traits
]
LASTS = [name for name in ROOTS if "elementwise" in OPS[name].traits]


def test_every_fused_name_leads_back_to_its_root() -> None:
    for root in ROOTS:
        for last in LASTS:
            assert root_name(fused_name(root, last)) == root


def test_a_name_that_reads_as_another_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPS, "rlxc::relu_exp", OPS["rlxc::relu"])
    with pytest.raises(RlxError, match="does not lead back to its root") as caught:
        fused_name("rlxc::relu", "rlxc::exp")
    assert caught.value.code == "pass.fused_name"


@settings(max_examples=60)
@given(networks())
def test_epilogues_load_exactly_the_extra_operands(module: Module) -> None:
    after = run_passes(module, "canonicalize,decompose,fuse", check=True)
    for op in after.function.ops:
        epilogue = op.attrs.get("epilogue")
        if not isinstance(epilogue, Expr):
            continue
        count = root_operand_count(lookup(op.name), len(op.operands), epilogue)
        assert epilogue_slots(epilogue) == frozenset(range(count, len(op.operands)))
        extras = op.operands[count:]
        assert len(set(extras)) == len(extras)


SAME_SIDES = """rlx.module version = "1.0"

func @f(%b: f32[n], %c: bool[n]) -> (f32[n]) {
  %chosen = rlxc::where(%c, %b, %b) : f32[n]
  %largest = rlxc::reduce_max(%chosen) { axes = [0], keepdims = true } : f32[1]
  %moved = rlxc::sub(%b, %largest) : f32[n]
  %again = rlxc::where(%c, %moved, %moved) : f32[n]
  return %again
}
"""


@pytest.mark.parametrize("reductions", [1, 8])
def test_a_choice_between_equal_values_is_that_value(reductions: int) -> None:
    module = parse_module(SAME_SIDES)
    after = run_passes(module, f"decompose,fuse{{reductions={reductions}}}", check=True)
    assert any("fused" in op.name for op in after.function.ops)
    inputs = {
        "b": from_values(F32, (3,), [1.0, -2.0, 4.0]),
        "c": from_values(BOOL, (3,), [True, False, True]),
    }
    assert difference(interpret(module, inputs), interpret(after, inputs)) is None
