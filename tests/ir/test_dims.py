"""Dims: the canonical form means what the arithmetic means, and equal dims are one object."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir.dims import (
    MAX_TERMS,
    ONE,
    ZERO,
    Dim,
    align,
    as_dim,
    ceildiv,
    dim_max,
    dim_min,
    parse_dim,
    product,
    symbol,
)
from rlx_edge.ir.errors import RlxError

NAMES = ("a", "b", "c")
ENVIRONMENTS = st.fixed_dictionaries({name: st.integers(1, 40) for name in NAMES})

Pair = tuple[Dim, Callable[[dict[str, int]], int]]
"""A dim and the same arithmetic on plain integers."""


def leaf(value: int | str) -> Pair:
    if isinstance(value, str):
        return symbol(value), lambda env: env[value]
    return as_dim(value), lambda env: value


def combine(name: str, left: Pair, right: Pair) -> Pair:
    (a, f), (b, g) = left, right
    operations: dict[str, tuple[Dim, Callable[[dict[str, int]], int]]] = {
        "+": (a + b, lambda env: f(env) + g(env)),
        "-": (a - b, lambda env: f(env) - g(env)),
        "*": (a * b, lambda env: f(env) * g(env)),
        "max": (dim_max(a, b), lambda env: max(f(env), g(env))),
        "min": (dim_min(a, b), lambda env: min(f(env), g(env))),
    }
    return operations[name]


def divide(name: str, left: Pair, divisor: Pair) -> Pair:
    (a, f), (b, g) = left, divisor
    if name == "//":
        return a // b, lambda env: f(env) // g(env)
    return a % b, lambda env: f(env) % g(env)


LEAVES = (st.integers(-9, 9) | st.sampled_from(NAMES)).map(leaf)
DIVISORS = (st.integers(1, 7) | st.sampled_from(NAMES)).map(leaf)
PAIRS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(combine, st.sampled_from(["+", "-", "*", "max", "min"]), inner, inner)
        | st.builds(divide, st.sampled_from(["//", "%"]), inner, DIVISORS)
    ),
    max_leaves=8,
)


@given(PAIRS, ENVIRONMENTS)
def test_a_dim_evaluates_as_the_arithmetic_it_was_built_by(pair: Pair, env: dict[str, int]) -> None:
    dim, reference = pair
    assert dim.evaluate(env) == reference(env)


@given(PAIRS)
def test_text_is_read_back_as_the_same_object(pair: Pair) -> None:
    assert parse_dim(str(pair[0])) is pair[0]


@given(PAIRS, ENVIRONMENTS, st.sampled_from(NAMES), PAIRS)
def test_substitution_is_evaluation_of_the_replacement(
    pair: Pair, env: dict[str, int], name: str, other: Pair
) -> None:
    inner = dim_max(other[0], 1)
    replaced = pair[0].substitute({name: inner})
    assert replaced.evaluate(env) == pair[0].evaluate({**env, name: inner.evaluate(env)})
    assert name not in pair[0].symbol_set() or replaced.symbol_set() <= (
        pair[0].symbol_set() | inner.symbol_set()
    )


@given(PAIRS, PAIRS)
def test_terms_are_in_one_order_whatever_the_way(left: Pair, right: Pair) -> None:
    a, b = left[0], right[0]
    assert a + b is b + a
    assert a * b is b * a
    assert (a + b) - b is a
    assert ZERO - (-a) is a
    assert a * 3 is a + a + a
    assert a * 0 is ZERO
    for dim in (a + b, a * b, a * -2):
        assert Dim.make(dict(reversed(dim.terms))) is dim


@given(PAIRS, st.integers(1, 9), ENVIRONMENTS)
def test_divisibility_is_never_claimed_wrongly(pair: Pair, n: int, env: dict[str, int]) -> None:
    if pair[0].divisible_by(n):
        assert pair[0].evaluate(env) % n == 0


def test_sizes_of_a_strided_window_have_one_form() -> None:
    w = symbol("w")
    assert str((w + 2 - 3) // 2 + 1) == "(w + 1) // 2"
    assert (w * 6 + 5) // 3 is w * 2 + 1
    assert (w // 2) // 3 is w // 6
    assert (w * 4 + 3) % 4 is as_dim(3)
    assert (w * symbol("h") * 2) // (w * 2) is symbol("h")
    assert ceildiv(w, 4) is (w + 3) // 4
    assert align(w * 8, 8) is w * 8
    assert product(["w", 2, "h"]) is w * symbol("h") * 2
    assert dim_max(w + 2, w) is w + 2 and dim_min(w + 2, w) is w
    assert as_dim(True) is ONE


@pytest.mark.parametrize(
    "text", ["", "a +", "a b", "1 / 2", "a // 0", "max(a)", "(a", "$a", "a" * 5000, "(" * 90 + "a"]
)
def test_text_that_is_no_dim_is_refused(text: str) -> None:
    with pytest.raises(RlxError) as failure:
        parse_dim(text)
    assert failure.value.code.startswith("dim.")


def test_products_cannot_grow_without_bound() -> None:
    wide = product([sum((symbol(f"s{n}") for n in range(70)), ZERO)])
    with pytest.raises(RlxError, match=f"at most {MAX_TERMS}"):
        wide * wide


def test_a_dim_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(symbol("a"))
    with pytest.raises(ValueError, match="symbolic"):
        _ = symbol("a").value
