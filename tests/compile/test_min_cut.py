"""Minimum cuts against every possible cut of small graphs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.compile.min_cut import UNLIMITED, CutGraph

Arc = tuple[int, int, int]


def build(nodes: int, arcs: list[Arc]) -> CutGraph:
    graph = CutGraph()
    for _ in range(nodes):
        graph.node()
    for left, right, cost in arcs:
        graph.pay(left, right, cost)
    return graph


def cost_of(side: list[bool], arcs: list[Arc]) -> int:
    return sum(cost for left, right, cost in arcs if side[left] and not side[right])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Arc]]:
    nodes = draw(st.integers(0, 5))
    places = st.integers(0, nodes + 1)
    arcs = draw(st.lists(st.tuples(places, places, st.integers(0, 9)), max_size=14))
    return nodes, [arc for arc in arcs if arc[0] != arc[1]]


@given(graphs())
def test_cost_is_that_of_the_best_cut(case: tuple[int, list[Arc]]) -> None:
    nodes, arcs = case
    cost, side = build(nodes, arcs).solve()
    every = [cost_of([True, False, *rest], arcs) for rest in product([True, False], repeat=nodes)]
    assert cost == min(every)
    assert side[CutGraph.SOURCE] and not side[CutGraph.SINK]
    assert cost_of(side, arcs) == cost


@given(graphs())
def test_same_graph_same_cut(case: tuple[int, list[Arc]]) -> None:
    assert build(*case).solve() == build(*case).solve()


def test_of_equal_cuts_the_smallest_source_side_is_returned() -> None:
    graph = build(1, [(CutGraph.SOURCE, 2, 3), (2, CutGraph.SINK, 3)])
    assert graph.solve() == (3, [True, False, False])


def test_unlimited_keeps_nodes_together() -> None:
    arcs = [(0, 2, UNLIMITED), (2, 3, UNLIMITED), (3, 1, 7), (2, 1, 100)]
    assert build(2, arcs).solve() == (107, [True, False, True, True])


def test_negative_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="negative cost -1"):
        CutGraph().pay(0, 1, -1)


def test_long_chains() -> None:
    arcs = [(0, 2, 5), *((node, node + 1, 4 + node % 3) for node in range(2, 3000)), (3000, 1, 9)]
    assert build(2999, arcs).solve()[0] == 4
