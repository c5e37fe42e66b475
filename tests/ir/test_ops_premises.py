"""Conditions on sizes that operators rest on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.ops import infer_type
from rlx_edge.ir.ops.premises import least, premises, proves
from rlx_edge.ir.types import F32, tensor_type
from tests.strategies import SIZES, dims

ALL = frozenset(SIZES)


def stated(name: str, shape: tuple[int | str, ...], sizes: str, /, **attrs: Attribute) -> list[str]:
    types = [tensor_type(F32, *shape)]
    result = infer_type(name, types, attrs)
    return [str(guard) for guard in premises(name, types, attrs, result, frozenset(sizes.split()))]


def part(start: int | str, end: int | str, step: int = 1) -> dict[str, Attribute]:
    return {
        "axes": (0,), "starts": (as_dim(start),), "ends": (as_dim(end),), "steps": (step,),
    }  # fmt: skip


def test_a_reshape_keeps_all_elements() -> None:
    assert stated("rlxc::reshape", ("n", 4), "n", shape=(as_dim("4 * n"),)) == []
    assert stated("rlxc::reshape", ("n", 4), "n m", shape=(as_dim("m"), as_dim(2))) == [
        "4 * n == 2 * m"
    ]
    assert stated("rlxc::reshape", (4,), "n", shape=(as_dim("k"), as_dim(1))) == [
        "4 == k", "0 <= k",
    ]  # fmt: skip


def test_a_slice_stays_inside() -> None:
    assert stated("rlxc::slice", ("n",), "n", **part(0, "n")) == []
    assert stated("rlxc::slice", ("n",), "n", **part(0, "min(n, 5)")) == []
    assert stated("rlxc::slice", ("n",), "n", **part(2, "n")) == ["2 <= n", "0 <= n - 2"]
    assert stated("rlxc::slice", ("n",), "n", **part("k", "n", -1)) == [
        "0 <= k", "k <= n", "0 <= -k + n",
    ]  # fmt: skip
    assert stated("rlxc::slice", ("n",), "n", **part("max(min(k, n), 0)", "n")) == [
        "0 <= -max(0, min(k, n)) + n"
    ]


def test_a_reflection_needs_elements() -> None:
    attrs: dict[str, Attribute] = {"mode": "reflect", "value": 0.0}
    pads = (as_dim(2), as_dim(0))
    assert stated("rlxc::pad", ("n",), "n", pads=pads, **attrs) == ["2 <= n - 1"]
    assert stated("rlxc::pad", ("n",), "n", pads=pads, mode="edge", value=0.0) == []


def test_a_window_fits() -> None:
    attrs: dict[str, Attribute] = {
        "kernel": (3, 1), "stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1),
        "ceil_mode": False,
    }  # fmt: skip
    assert stated("rlxc::max_pool2d", (1, 1, "h", "w"), "h w", **attrs) == ["0 <= h - 2"]
    attrs["padding"] = (1, 0, 1, 0)
    assert stated("rlxc::max_pool2d", (1, 1, "h", "w"), "h w", **attrs) == []


@pytest.mark.parametrize(
    ("low", "high", "proven"),
    [
        ("n", "2 * n", True),
        ("2 * n", "n", False),
        ("1", "n * m", True),
        ("2", "n", False),
        ("0", "k", False),
        ("0", "k % 4", True),
        ("0", "k % m", False),
        ("0", "(n + 3) // 4", True),
        ("1", "(n + 3) // 4", True),
        ("2", "(n + 3) // 4", False),
        ("0", "n // m", False),
        ("0", "max(k, 0)", True),
        ("0", "min(k, n)", False),
        ("1", "min(n, m)", True),
        ("min(k, n)", "n", True),
        ("max(k, n)", "n", False),
        ("n", "max(k, n)", True),
        ("max(n, 1)", "2 * n", True),
        ("min(n, k)", "max(n, m)", True),
        ("n", "min(n, k)", False),
        ("n * m", "k", False),
    ],
)
def test_proofs(low: str, high: str, proven: bool) -> None:
    assert proves(as_dim(low), as_dim(high), frozenset({"n", "m"})) is proven


@given(dims(), dims(), st.lists(st.integers(1, 9), min_size=len(SIZES), max_size=len(SIZES)))
def test_what_is_proven_holds(low: Dim, high: Dim, values: list[int]) -> None:
    env = dict(zip(SIZES, values, strict=True))
    try:
        a, b = low.evaluate(env), high.evaluate(env)
    except ZeroDivisionError:
        return
    if proves(low, high, ALL):
        assert a <= b
    bound = least(low, ALL)
    assert bound is None or bound <= a
