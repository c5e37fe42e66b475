"""Regions and loops under construction: where code goes, what is known there, what moves.

A ``Region`` is a stretch of straight-line code with its own byte buffer: the function's start, or
one loop body. While a loop body is being emitted, its enclosing region is still open, so values
that do not depend on the loop are appended there, in front of the loop: hoisting needs no
analysis. ``Emission`` is the state of one kernel function.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from rlx_edge.compile.codegen.wasm.encoder import I32, Body
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder
from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.expression import Expr, index_dim, reduce_parts, substitute, walk
from rlx_edge.ir.kernel import is_variable


@dataclass(eq=False, slots=True)
class Induction:
    """A local that follows a loop: ``start`` at entry (0 if ``None``), ``step`` an iteration."""

    local: int
    start: int | None
    step: Dim


@dataclass(eq=False, slots=True)
class Family:
    """The loops over one variable (vector body, tail): they share inductions and run in turn."""

    variable: str
    parent: Region
    inductions: dict[Hashable, Induction] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Region:
    """``variable`` is bound here (``""``: none), by a loop of ``family`` or, without one, by lanes.

    ``vector`` names the variable whose four consecutive values are the lanes of vector code in this
    region. A ``conditional`` region is an arm that does not always run.
    """

    parent: Region | None
    variable: str = ""
    family: Family | None = None
    vector: str = ""
    conditional: bool = False
    body: Body = field(default_factory=Body)
    memo: dict[Hashable, int] = field(default_factory=dict)

    def find(self, key: Hashable) -> int | None:
        """The local that holds ``key`` here or in an enclosing region."""
        region: Region | None = self
        while region is not None:
            found = region.memo.get(key)
            if found is not None:
                return found
            region = region.parent
        return None

    def home(self, names: frozenset[str]) -> Region:
        """The outermost region where every variable of ``names`` is bound."""
        region, arm = self, None
        while True:
            if region.conditional and arm is None:
                arm = region
            elif region.variable:
                if region.variable in names:
                    return arm or region
                arm = None
            if region.parent is None:
                return arm or region
            region = region.parent

    @property
    def binder(self) -> Region:
        """The loop, lanes or function region that this region's code belongs to."""
        region = self
        while region.conditional and region.parent is not None:
            region = region.parent
        return region


@dataclass(frozen=True, slots=True)
class Tile:
    """The outer loop that takes four steps at once, and which of them is being emitted."""

    variable: str
    step: int


@dataclass(eq=False, slots=True)
class Emission:
    """The state of one kernel function.

    ``reduce_scalar`` and ``reduce_vector`` push the result of a reduce node; they are set by
    ``emit_loops`` because reductions contain expressions and expressions contain reductions.
    """

    function: FunctionBuilder
    root: Region
    slots: int
    reduce_scalar: Callable[[Emission, Expr, Region], None]
    reduce_vector: Callable[[Emission, Expr, Region], None]
    uses: dict[Expr, int] = field(default_factory=dict)
    variables: dict[Expr, frozenset[str]] = field(default_factory=dict)
    groups: dict[Hashable, Dim] = field(default_factory=dict)
    tile: Tile | None = None

    def temp(self, value_type: int) -> int:
        """A fresh local."""
        return self.function.local(value_type)

    def counter(self) -> int:
        return self.temp(I32)

    def free(self, expr: Expr) -> frozenset[str]:
        """Loop and reduction variables that the value depends on."""
        found = self.variables.get(expr)
        if found is None:
            for node in walk(expr):
                if node not in self.variables:
                    self.variables[node] = self._free(node)
            found = self.variables[expr]
        return found

    def _free(self, node: Expr) -> frozenset[str]:
        dim = index_dim(node)
        if dim is not None:
            return moving_variables(dim)
        names = frozenset[str]().union(*(self.variables[arg] for arg in node.args))
        return names - frozenset(reduce_parts(node)[1]) if node.op == "reduce" else names

    def count_uses(self, expr: Expr) -> None:
        """Count ``expr`` as used once more, and the operands of nodes not met before."""
        pending = [expr]
        while pending:
            node = pending.pop()
            met = node in self.uses
            self.uses[node] = self.uses.get(node, 0) + 1
            if not met:
                pending.extend(node.args)

    def at_lane(self, expr: Expr, region: Region, lane: int) -> Expr:
        """``expr`` at the region's vector variable plus ``lane``."""
        moved = substitute(expr, {region.vector: lane_index(region, lane)})
        self.count_uses(moved)
        return moved


def lane_index(region: Region, lane: int) -> Dim:
    """The vector variable's value in a lane."""
    while region.variable != region.vector:
        assert region.parent is not None
        region = region.parent
    return as_dim(lane) + (as_dim(region.vector) if region.family is not None else 0)


def moving_variables(dim: Dim) -> frozenset[str]:
    """Loop and reduction variables in a dim."""
    return frozenset(name for name in dim.symbols() if is_variable(name))
