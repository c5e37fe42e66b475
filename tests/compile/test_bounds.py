"""What index bounds claim holds for every value of the variables and sizes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.compile.bounds import Ranges, is_nonnegative, simplify_dim
from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min

RANGES = Ranges({"_i": as_dim("n"), "_j": as_dim(3)}, frozenset({"v"}))


def test_a_loop_variable_inside_a_quotient_may_be_zero() -> None:
    assert not is_nonnegative(as_dim("(4 * _i + 6) // 8 - 1"), RANGES)
    assert is_nonnegative(as_dim("(4 * _i + 6) // 8"), RANGES)
    assert is_nonnegative(as_dim("n - 1 - _i"), RANGES)
    assert is_nonnegative(as_dim("(n - 1) // 2"), RANGES)
    assert not is_nonnegative(as_dim("v"), RANGES)


@st.composite
def dims(draw: st.DrawFn) -> Dim:
    dim = as_dim(draw(st.sampled_from(["_i", "_j", "n", "m", "v", "1"])))
    for _ in range(draw(st.integers(0, 5))):
        other = as_dim(draw(st.sampled_from(["_i", "_j", "n", "m", "1", "2", "3"])))
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


@settings(max_examples=300)
@given(
    dims(), st.integers(1, 9), st.integers(1, 9), st.integers(-9, 9), st.integers(0, 8), st.data()
)
def test_claims_hold(dim: Dim, n: int, m: int, v: int, i: int, data: st.DataObject) -> None:
    env = {"n": n, "m": m, "v": v, "_i": i % n, "_j": data.draw(st.integers(0, 2))}
    if is_nonnegative(dim, RANGES):
        assert dim.evaluate(env) >= 0
    assert simplify_dim(dim, RANGES).evaluate(env) == dim.evaluate(env)
