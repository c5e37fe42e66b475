"""Programs: guards of operators, segments, and addresses that never collide."""

# covers R4, R14, R20

from __future__ import annotations

from itertools import pairwise

import pytest

from rlx_edge.compile import compile_module
from rlx_edge.ir.commands import Run
from rlx_edge.ir.errors import GuardError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.plan import evaluate

SLICE = """rlx.module version = "1.0"

func @tail(%x: f32[n, m]) -> (f32[n, 3]) {
  %y = rlxc::slice(%x) { starts = [4], ends = [7], axes = [1], steps = [1] } : f32[n, 3]
  return %y
}
"""

RESHAPE = """rlx.module version = "1.0"

func @fold(%x: f32[n, m]) -> (f32[k, 2]) {
  %y = rlxc::reshape(%x) { shape = [k, 2] } : f32[k, 2]
  %z = rlxc::relu(%y) : f32[k, 2]
  return %z
}
"""


def test_a_slice_from_text_cannot_read_outside_its_operand() -> None:
    program = compile_module(parse_module(SLICE, "slice.rlx")).program
    evaluate(program.plan, {"n": 2, "m": 7})
    with pytest.raises(GuardError, match="7 <= m"):
        evaluate(program.plan, {"n": 2, "m": 6})


def test_a_reshape_from_text_keeps_all_elements() -> None:
    text = RESHAPE.replace("%x: f32[n, m]", "%x: f32[n, m], %s: f32[k]")
    program = compile_module(parse_module(text, "reshape.rlx")).program
    evaluate(program.plan, {"n": 4, "m": 3, "k": 6})
    with pytest.raises(GuardError, match="a reshape keeps all elements"):
        evaluate(program.plan, {"n": 4, "m": 3, "k": 600})


def test_long_work_is_cut_into_segments_and_short_work_is_not() -> None:
    def runs(side: int) -> list[Run]:
        text = f"""rlx.module version = "1.0"

func @chain(%x: f32[{side}, {side}]) -> (f32[{side}, {side}]) {{
  %a = rlxc::matmul(%x, %x) : f32[{side}, {side}]
  %b = rlxc::matmul(%a, %x) : f32[{side}, {side}]
  %c = rlxc::matmul(%b, %x) : f32[{side}, {side}]
  return %c
}}
"""
        program = compile_module(parse_module(text, "chain.rlx")).program
        return [command for command in program.execute if isinstance(command, Run)]

    short, long = runs(16), runs(1024)
    assert len(short) == 1
    assert len(long) >= 3
    assert all(first.end == second.begin for first, second in pairwise(long))
