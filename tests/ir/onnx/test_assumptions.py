"""Bounds, comparisons, conditions and equalities hold for every value of the symbols."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.ir.core import Binding, Guard
from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min
from rlx_edge.ir.onnx import conditions
from rlx_edge.ir.onnx.assumptions import Assumptions
from rlx_edge.ir.onnx.conditions import Compare, Every, Some, Truth
from rlx_edge.ir.onnx.equalities import Equalities

RELATIONS = tuple(conditions.NEGATED)


def assumptions(known: dict[str, int] | None = None) -> Assumptions:
    made = Assumptions(known)
    made.bindings["v"] = Binding("v", "input", 0)
    return made


@st.composite
def dims(draw: st.DrawFn, symbols: str = "nmv") -> Dim:
    dim = as_dim(draw(st.sampled_from([*symbols, "1", "5"])))
    for _ in range(draw(st.integers(0, 5))):
        other = as_dim(draw(st.sampled_from([*symbols, "1", "2", "3"])))
        match draw(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"])):
            case "+":
                dim = dim + other
            case "-":
                dim = dim - other
            case "*":
                dim = dim * other
            case "//":
                dim = dim // draw(st.integers(1, 8))
            case "%":
                dim = dim % draw(st.integers(1, 8))
            case "max":
                dim = dim_max(dim, other)
            case "min":
                dim = dim_min(dim, other)
    return dim


ENV = st.fixed_dictionaries(
    {"n": st.integers(1, 20), "m": st.integers(1, 20), "v": st.integers(-20, 20)}
)


@settings(max_examples=400)
@given(dims(), dims(), ENV)
def test_bounds_and_comparisons(a: Dim, b: Dim, env: dict[str, int]) -> None:
    assume = assumptions()
    value = a.evaluate(env)
    low, high = assume.lower(a), assume.upper(a)
    assert low is None or low <= value
    assert high is None or high >= value
    assert assume.largest(a, b).evaluate(env) == max(value, b.evaluate(env))
    assert assume.smallest(a, b).evaluate(env) == min(value, b.evaluate(env))
    for relation in RELATIONS:
        truth = assume.compare(a, relation, b)
        if isinstance(truth, bool):
            assert truth == Guard(a, relation, b).holds(env)


@settings(max_examples=200)
@given(dims(), dims(), st.integers(-3, 3), ENV)
def test_bounds_after_a_guard(a: Dim, b: Dim, minimum: int, env: dict[str, int]) -> None:
    assume = assumptions()
    assume.require_at_least(a, minimum, "test")
    if a.is_constant or not all(guard.holds(env) for guard in assume.guards):
        return
    assert a.evaluate(env) >= minimum
    low = assume.lower(b)
    assert low is None or low <= b.evaluate(env)


def truths() -> st.SearchStrategy[Truth]:
    leaves = st.booleans() | st.builds(Compare, dims(), st.sampled_from(RELATIONS), dims())
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(conditions.both, inner, inner)
            | st.builds(conditions.either, inner, inner)
            | st.builds(conditions.negate, inner)
        ),
        max_leaves=4,
    )


def holds(truth: Truth, env: dict[str, int]) -> bool:
    return truth if isinstance(truth, bool) else conditions.holds(truth, env)


@settings(max_examples=200)
@given(truths(), truths(), ENV)
def test_conditions_follow_logic(a: Truth, b: Truth, env: dict[str, int]) -> None:
    assert holds(conditions.negate(a), env) == (not holds(a, env))
    assert holds(conditions.both(a, b), env) == (holds(a, env) and holds(b, env))
    assert holds(conditions.either(a, b), env) == (holds(a, env) or holds(b, env))


@settings(max_examples=200)
@given(truths(), ENV, ENV)
def test_a_decision_holds_wherever_its_guards_hold(
    truth: Truth, known: dict[str, int], env: dict[str, int]
) -> None:
    assume = assumptions(known)
    decided = assume.decide(truth, "test", "here")
    assert decided == holds(truth, known)
    assert all(guard.holds(known) for guard in assume.guards)
    if all(guard.holds(env) for guard in assume.guards):
        assert decided == holds(truth, env)


@settings(max_examples=300)
@given(st.lists(st.tuples(dims("nm"), dims("nm")), max_size=3), dims("nm"), ENV)
def test_equalities_keep_the_value(
    pairs: list[tuple[Dim, Dim]], dim: Dim, env: dict[str, int]
) -> None:
    rules = Equalities()
    for a, b in pairs:
        if a.evaluate(env) == b.evaluate(env):
            rules.learn(a, b)
    assert rules.simplified(dim).evaluate(env) == dim.evaluate(env)


@settings(max_examples=400)
@given(
    st.lists(st.tuples(dims("nm"), st.sampled_from(RELATIONS), dims("nm")), max_size=4),
    st.lists(dims("nm"), max_size=2),
    ENV,
)
def test_guards_that_are_left_out_follow_from_the_others(
    wanted: list[tuple[Dim, str, Dim]], divided: list[Dim], env: dict[str, int]
) -> None:
    assume = assumptions()
    guards = [Guard(dim % 4, "==", as_dim(0)) for dim in divided]
    guards += [Guard(*parts) for parts in wanted]
    for guard in guards:
        assume.require(guard)
    if all(guard.holds(env) for guard in assume.guards):
        assert [str(guard) for guard in guards if not guard.holds(env)] == []


def test_what_guards_say_is_not_asked_again() -> None:
    assume = Assumptions()
    half, h = as_dim("h // 2"), as_dim("h")
    assume.require(Guard(h, "==", half * 2))
    assume.require(Guard(h * 3, "==", half * 6))
    assume.require(Guard(half * 4 + 1, "==", h * 2 + 1))
    assert len(assume.guards) == 1


def test_conditions_read_well() -> None:
    leaf = Compare(as_dim("n"), "==", as_dim(1))
    assert str(Every((leaf, leaf))) == "(n == 1) and (n == 1)"
    assert str(Some((leaf, Every((leaf,))))) == "(n == 1) or ((n == 1))"
