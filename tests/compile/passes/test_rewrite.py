"""The driver of rewrite rules: order, uses, names, and its guards against bad rules."""

from __future__ import annotations

import pytest

from rlx_edge.compile.passes.rewrite import Applied, Rewriter, rewrite
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import function_lines


def module(body: str, result: str = "%out") -> Module:
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    return parse_module(
        f'rlx.module version = "1.0"\n\n'
        f"func @f(%x: f32[n]) -> (f32[n]) {{\n{lines}\n  return {result}\n}}\n"
    )


def body(item: Module) -> list[str]:
    return [line.strip() for line in function_lines(item.function)]


def exp_to_sqrt(op: Op, rewriter: Rewriter) -> Value | None:
    return rewriter.op("rlxc::sqrt", op.operands) if op.name == "rlxc::exp" else None


def sqrt_to_exp(op: Op, rewriter: Rewriter) -> Value | None:
    return rewriter.op("rlxc::exp", op.operands) if op.name == "rlxc::sqrt" else None


def drop_relu(op: Op, rewriter: Rewriter) -> Value | None:
    return op.operands[0] if op.name == "rlxc::relu" else None


def double_negation_when_read_once(op: Op, rewriter: Rewriter) -> Value | None:
    if op.name != "rlxc::neg":
        return None
    inner = op.operands[0].producer
    if inner is None or inner.name != "rlxc::neg" or not rewriter.read_once(op.operands[0]):
        return None
    return inner.operands[0]


def test_a_new_value_takes_the_old_name() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")
    log: list[Applied] = []
    assert rewrite(item, (exp_to_sqrt,), log) == 1
    assert body(item)[1:3] == ["%out = rlxc::sqrt(%x) : f32[n]", "return %out"]
    assert log == [Applied("exp_to_sqrt", "%out = rlxc::exp(%x)", "%out = rlxc::sqrt(%x)")]


def test_an_existing_value_keeps_its_name_and_the_output_its_own() -> None:
    item = module(
        """%a = rlxc::exp(%x) : f32[n]
        %out = rlxc::relu(%a) : f32[n]"""
    )
    rewrite(item, (drop_relu,))
    assert body(item) == [
        "func @f(%x: f32[n]) -> (out: f32[n]) {",
        "%a = rlxc::exp(%x) : f32[n]",
        "return %a",
        "}",
    ]


def test_what_became_dead_is_erased_and_readers_are_visited_again() -> None:
    # The relu's end leaves the outer negation as the only reader of the inner one.
    item = module(
        """%a = rlxc::neg(%x) : f32[n]
        %b = rlxc::neg(%a) : f32[n]
        %dead = rlxc::relu(%a) : f32[n]
        %twice = rlxc::exp(%b) : f32[n]
        %out = rlxc::mul(%twice, %twice) : f32[n]"""
    )
    dead = item.function.ops[2]

    def drop_dead(op: Op, rewriter: Rewriter) -> Value | None:
        return op.operands[0] if op is dead else None

    rewrite(item, (double_negation_when_read_once, drop_dead))
    assert body(item)[1:-2] == [
        "%twice = rlxc::exp(%x) : f32[n]",
        "%out = rlxc::mul(%twice, %twice) : f32[n]",
    ]


def test_the_first_rule_wins() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")

    def other(op: Op, rewriter: Rewriter) -> Value | None:
        return rewriter.op("rlxc::neg", op.operands) if op.name == "rlxc::exp" else None

    rewrite(item, (other, exp_to_sqrt))
    assert "rlxc::neg" in body(item)[1]


def test_operations_of_a_rule_that_gives_up_leave_no_trace() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")
    before = body(item)

    def hesitate(op: Op, rewriter: Rewriter) -> Value | None:
        rewriter.op("rlxc::relu", op.operands)
        return None

    assert rewrite(item, (hesitate,)) == 0
    assert body(item) == before


def test_rules_that_undo_each_other_are_named() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")
    with pytest.raises(RlxError, match="do not come to an end") as caught:
        rewrite(item, (exp_to_sqrt, sqrt_to_exp))
    assert caught.value.code == "pass.loop"
    assert "exp_to_sqrt, sqrt_to_exp" in str(caught.value.hint)


def test_endless_growth_meets_the_bound() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")

    def grow(op: Op, rewriter: Rewriter) -> Value | None:
        if op.name != "rlxc::exp":
            return None
        return rewriter.op("rlxc::exp", [rewriter.op("rlxc::neg", op.operands)])

    with pytest.raises(RlxError, match="at most 128 in all"):
        rewrite(item, (grow,))


def test_a_rule_must_keep_the_type() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")

    def widen(op: Op, rewriter: Rewriter) -> Value | None:
        if op.name != "rlxc::exp":
            return None
        return rewriter.op("rlxc::reduce_sum", op.operands, {"axes": (0,), "keepdims": True})

    with pytest.raises(RlxError, match="widen changes the type") as caught:
        rewrite(item, (widen,))
    assert caught.value.code == "pass.type"


def test_counters_of_derived_names_do_not_pile_up() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")

    def chain(op: Op, rewriter: Rewriter) -> Value | None:
        if op.name != "rlxc::exp":
            return None
        first = rewriter.op("rlxc::neg", op.operands, hint="x")
        second = rewriter.op("rlxc::neg", [first], hint=first.name)
        return rewriter.op("rlxc::sqrt", [second])

    rewrite(item, (chain,))
    assert [op.result.name for op in item.function.ops] == ["x_1", "x_2", "out"]


def test_new_operations_have_the_place_of_the_old_one() -> None:
    item = module("%out = rlxc::exp(%x) : f32[n]")
    place = item.function.ops[0].span
    rewrite(item, (exp_to_sqrt,))
    assert place is not None and item.function.ops[0].span is place
