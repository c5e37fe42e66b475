"""Minimum s-t cuts: two-way choices with pairwise costs, decided exactly.

Dinic's algorithm on integer capacities. Deterministic: arcs are walked in the order they were
added, and of all minimum cuts the one with the smallest source side is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

UNLIMITED = 1 << 62
"""A capacity that no cut pays: the two ends stay together."""


@dataclass(slots=True)
class CutGraph:
    """Nodes 0 … n-1 beside a source and a sink; ``side`` True means the source's side."""

    heads: list[int] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)
    arcs: list[list[int]] = field(default_factory=lambda: [[], []])

    SOURCE: ClassVar[int] = 0
    SINK: ClassVar[int] = 1

    def node(self) -> int:
        """A new node."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def pay(self, left: int, right: int, cost: int) -> None:
        """``cost`` when ``left`` ends on the source's side and ``right`` on the sink's."""
        if cost < 0:
            raise ValueError(f"a cut cannot have the negative cost {cost}")
        if cost == 0 or left == right:
            return
        for tail, head, capacity in ((left, right, cost), (right, left, 0)):
            self.arcs[tail].append(len(self.heads))
            self.heads.append(head)
            self.capacities.append(capacity)

    def solve(self) -> tuple[int, list[bool]]:
        """``(cost, side)``: the cost of a minimum cut and the side of every node."""
        total = 0
        while True:
            levels = self._levels()
            if levels[self.SINK] < 0:
                return total, [level >= 0 for level in levels]
            total += self._blocking_flow(levels)

    def _levels(self) -> list[int]:
        levels = [-1] * len(self.arcs)
        levels[self.SOURCE] = 0
        queue = [self.SOURCE]
        for node in queue:
            for arc in self.arcs[node]:
                head = self.heads[arc]
                if self.capacities[arc] > 0 and levels[head] < 0:
                    levels[head] = levels[node] + 1
                    queue.append(head)
        return levels

    def _blocking_flow(self, levels: list[int]) -> int:
        total = 0
        position = [0] * len(self.arcs)
        path: list[int] = []
        node = self.SOURCE
        while True:
            if node == self.SINK:
                total += self._augment(path)
                node = self._retreat(path)
                continue
            arc = self._next_arc(node, levels, position)
            if arc is not None:
                path.append(arc)
                node = self.heads[arc]
            elif path:
                levels[node] = -1
                node = self.heads[path.pop() ^ 1]
            else:
                return total

    def _next_arc(self, node: int, levels: list[int], position: list[int]) -> int | None:
        arcs = self.arcs[node]
        while position[node] < len(arcs):
            arc = arcs[position[node]]
            if self.capacities[arc] > 0 and levels[self.heads[arc]] == levels[node] + 1:
                return arc
            position[node] += 1
        return None

    def _augment(self, path: list[int]) -> int:
        flow = min(self.capacities[arc] for arc in path)
        for arc in path:
            self.capacities[arc] -= flow
            self.capacities[arc ^ 1] += flow
        return flow

    def _retreat(self, path: list[int]) -> int:
        """Shorten ``path`` to its first saturated arc; the node where it continues."""
        for index, arc in enumerate(path):
            if self.capacities[arc] == 0:
                del path[index:]
                return self.heads[arc ^ 1]
        raise AssertionError("an augmented path has a saturated arc")
