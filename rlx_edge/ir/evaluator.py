"""Scalar expressions evaluated over many elements at once, with the numerics contract's bits.

An expression is compiled into steps of closures over registers; a register holds one value a
*lane*. Lanes run over the output elements, or, for a reduction whose value is the same for every
lane, over the reduced elements. Every node is evaluated once a set of the loop variables that it
depends on; parts that only depend on some variables of a reduction are remembered.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.element_access import Gather, Pattern, outside, row_major_strides
from rlx_edge.ir.errors import LimitError, RlxError
from rlx_edge.ir.expression import Expr, index_dim, reduce_parts, walk
from rlx_edge.ir.lanes import Lanes, compiled_dim, remember
from rlx_edge.ir.ordered_reduction import (
    CHUNK,
    OPERATOR,
    folded,
    identity,
    joined_chunks,
    joined_stream,
)
from rlx_edge.ir.scalar_arithmetic import Vector, vector_function
from rlx_edge.ir.tensor import ARRAY_CODE, Elements
from rlx_edge.ir.types import BOOL, DType

BLOCK = CHUNK
"""Lanes evaluated together; lanes over reduced elements are a chunk of the reduction."""
ENOUGH = 512
"""Lanes that make the cost of a step small beside that of its elements."""
FEW = 64
"""With fewer outputs than this, lanes may run over reduced elements instead."""
WORK_LIMIT = 1 << 33
"""Scalar operations that one expression may take; beyond, the interpreter refuses."""

Source = tuple[Elements, tuple[int, ...], DType]
"""A loaded operand: elements, shape, element type."""


def evaluate(
    expr: Expr, variables: Sequence[tuple[str, int]], operands: Sequence[Source]
) -> Elements:
    """Values of ``expr`` for every combination of ``variables`` (name, extent), row-major.

    ``expr`` has only primitive operators and no size symbols; loads refer to ``operands``. Codes
    ``interpreter.work`` when it would take more than ``WORK_LIMIT`` operations and
    ``interpreter.symbol`` for a free symbol.
    """
    count = math.prod(extent for _, extent in variables)
    nodes = list(walk(expr))
    _check_work(expr, nodes, count)
    split = len(variables) if _reduces_more(nodes, count) else _lane_split(variables)
    outer, lanes = variables[:split], variables[split:]
    frame = Frame(expr, lanes, operands, {})
    unknown = frame.free[expr] - {name for name, _ in variables}
    if unknown:
        raise RlxError(
            "interpreter.symbol", "an expression mentions unknown sizes", found=sorted(unknown)
        )
    code = ARRAY_CODE[expr.dtype.name]
    results = array(code, bytes(count * array(code).itemsize))
    row = math.prod(extent for _, extent in lanes)
    names = [name for name, _ in outer]
    for start in range(0, row, BLOCK):
        stop = min(start + BLOCK, row)
        # Outer variables run inside blocks of lanes, so that what only lanes decide is kept.
        for position, values in enumerate(product(*(range(extent) for _, extent in outer))):
            frame.env.update(zip(names, values, strict=True))
            begin = position * row
            results[begin + start : begin + stop] = array(code, frame.run(start, stop))
    return results


def _lane_split(variables: Sequence[tuple[str, int]]) -> int:
    """Where the lanes begin: the fewest trailing variables that fill a vector well."""
    filled = 1
    for position in range(len(variables) - 1, -1, -1):
        filled *= variables[position][1]
        if filled >= ENOUGH:
            return position
    return 0


def _reduces_more(nodes: Sequence[Expr], count: int) -> bool:
    """Whether lanes are better used for reduced elements than for the few output elements."""
    extents = [_extent_product(node) for node in nodes if node.op == "reduce"]
    return count < FEW and any(extent > count for extent in extents)


def _extent_product(node: Expr) -> int:
    return math.prod(_constant(extent) for extent in reduce_parts(node)[2])


def _check_work(expr: Expr, nodes: Sequence[Expr], count: int) -> None:
    """Refuse what would take hours: operations of one element times elements."""
    known = dict.fromkeys(nodes, 1)
    for node in nodes:
        if node.op == "reduce":
            body = outside_reductions(reduce_parts(node)[3])
            known[node] = _extent_product(node) * sum(known[part] for part in body)
    work = count * sum(known[node] for node in outside_reductions(expr))
    if work > WORK_LIMIT:
        raise LimitError(
            "interpreter.work",
            "this takes too long in the interpreter",
            found=f"{work} scalar operations",
            allowed=f"at most {WORK_LIMIT}",
            hint="run it on a device such as wasm:0",
        )


def outside_reductions(expr: Expr) -> list[Expr]:
    """Nodes of ``expr`` in evaluation order, reductions as leaves, loads at plain indices too."""
    seen: set[Expr] = set()
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        if node.op == "reduce" or _is_plain_load(node):
            continue
        stack.extend((arg, False) for arg in reversed(node.args) if arg not in seen)
    return order


def _is_plain_load(node: Expr) -> bool:
    return node.op == "load" and all(arg.op == "index" for arg in node.args)


def _constant(dim: Dim) -> int:
    if not dim.is_constant:
        raise RlxError(
            "interpreter.extent",
            "a reduction's extent changes between elements",
            found=dim,
            allowed="a size",
        )
    return dim.value


class Scope:
    """Steps that run once for each combination of ``variables``; the outermost has none."""

    def __init__(self, variables: tuple[str, ...]) -> None:
        self.variables = variables
        self.steps: list[tuple[int, Callable[[], Vector]]] = []
        self.placed: dict[Expr, int] = {}


class Frame:
    """One expression compiled for one set of lanes."""

    def __init__(
        self,
        expr: Expr,
        lanes: Sequence[tuple[str, int]],
        operands: Sequence[Source],
        env: dict[str, int],
    ) -> None:
        self.lanes = Lanes(lanes, env)
        self.operands = operands
        self.env = env
        self.registers: list[Any] = []
        self.free: dict[Expr, frozenset[str]] = {}
        self.scopes: list[Scope] = [Scope(())]
        self.result = self.place(expr)

    def run(self, start: int, stop: int) -> Vector:
        """Values for lanes ``start`` … ``stop - 1``."""
        self.lanes.move(start, stop)
        self.execute(self.scopes[0])
        return self.registers[self.result]  # type: ignore[no-any-return]

    def execute(self, scope: Scope) -> None:
        registers = self.registers
        for register, step in scope.steps:
            registers[register] = step()

    # ---- placement of nodes ------------------------------------------------------------------

    def variables_of(self, expr: Expr) -> frozenset[str]:
        """Loop variables, lanes included, that a node's value depends on."""
        found = self.free.get(expr)
        if found is not None:
            return found
        for node in walk(expr):
            if node in self.free:
                continue
            dim = index_dim(node)
            if dim is not None:
                names = frozenset(dim.symbols())
            else:
                names = frozenset().union(*(self.free[arg] for arg in node.args))
            if node.op == "reduce":
                names -= frozenset(reduce_parts(node)[1])
            self.free[node] = names
        return self.free[expr]

    def place(self, expr: Expr) -> int:
        """Compile ``expr`` into the open scopes; the register that will hold it."""
        self.variables_of(expr)
        order = outside_reductions(expr)
        inner = self.scopes[-1]
        partial = self.partial_nodes(order, inner)
        wanted = {arg for node in order if node not in partial for arg in node.args}
        wanted.add(expr)
        for node in order:
            if self.register_of(node) is not None:
                continue
            if node not in partial:
                self.append(self.scope_of(node), node)
            elif node in wanted:
                self.append_remembered(inner, node)
        register = self.register_of(expr)
        assert register is not None
        return register

    def partial_nodes(self, order: Sequence[Expr], scope: Scope) -> set[Expr]:
        """Nodes that depend on some, but not all, variables of a scope."""
        if len(scope.variables) < 2:
            return set()
        every = frozenset(scope.variables)
        return {
            node
            for node in order
            if (used := self.free[node] & every) and used != every and not _is_plain_load(node)
        }

    def scope_of(self, node: Expr) -> Scope:
        used = self.free[node]
        for scope in reversed(self.scopes):
            if not used.isdisjoint(scope.variables):
                return scope
        return self.scopes[0]

    def register_of(self, node: Expr) -> int | None:
        for scope in reversed(self.scopes):
            if node in scope.placed:
                return scope.placed[node]
        return None

    def new_register(self, scope: Scope, node: Expr) -> int:
        self.registers.append(None)
        scope.placed[node] = len(self.registers) - 1
        return len(self.registers) - 1

    def append(self, scope: Scope, node: Expr) -> None:
        step = self.step(node)
        scope.steps.append((self.new_register(scope, node), step))

    def append_remembered(self, scope: Scope, node: Expr) -> None:
        """A node, with all it needs, that is kept for each combination of the variables it uses."""
        names = tuple(sorted(self.free[node] - self.lanes.names))
        private = Scope(tuple(name for name in names if name in scope.variables))
        self.scopes.append(private)
        register = self.place(node)
        self.scopes.pop()
        cache = self.lanes.new_cache()
        env = self.env

        def step() -> Vector:
            key = tuple(env[name] for name in names)
            value = cache.get(key)
            if value is None:
                self.execute(private)
                value = self.registers[register]
                remember(cache, key, value)
            return value  # type: ignore[no-any-return]

        scope.steps.append((self.new_register(scope, node), step))

    # ---- one step a node ---------------------------------------------------------------------

    def step(self, node: Expr) -> Callable[[], Vector]:
        if node.op == "const":
            value = node.attr
            return lambda: [value] * self.lanes.count
        if node.op == "index":
            assert isinstance(node.attr, Dim)
            return self.index_step(node.attr)
        if node.op == "load":
            return self.plain_load(node) if _is_plain_load(node) else self.gathered_load(node)
        if node.op == "reduce":
            uniform = self.free[node].isdisjoint(self.lanes.names)
            return self.uniform_reduce(node) if uniform else self.lane_reduce(node)
        sources = [self.register_of(arg) for arg in node.args]
        function = vector_function(
            node.op, node.args[-1].dtype if node.op == "select" else node.args[0].dtype, node.dtype
        )
        return self.call(function, [source for source in sources if source is not None])

    def call(self, function: Callable[..., Vector], sources: Sequence[int]) -> Callable[[], Vector]:
        registers = self.registers
        if len(sources) == 1:
            (a,) = sources
            return lambda: function(registers[a])
        if len(sources) == 2:
            a, b = sources
            return lambda: function(registers[a], registers[b])
        a, b, c = sources
        return lambda: function(registers[a], registers[b], registers[c])

    def index_step(self, dim: Dim) -> Callable[[], Vector]:
        def step() -> Vector:
            value = self.lanes.dim_value(dim)
            return value if isinstance(value, list) else [value] * self.lanes.count

        return step

    def plain_load(self, node: Expr) -> Callable[[], Vector]:
        """Element at a flat offset: a part that differs between lanes and a common shift."""
        elements, shape, dtype = self.operand(node)
        flat = as_dim(0)
        for arg, stride in zip(node.args, row_major_strides(shape), strict=True):
            dim = index_dim(arg)
            assert dim is not None
            flat = flat + dim * stride
        moving, shift = self.lanes.split(flat)
        names = tuple(sorted(frozenset(moving.symbols()) - self.lanes.names))
        cache = self.lanes.new_cache()
        env = self.env
        gather = Gather(elements, dtype is BOOL)
        evaluate_shift = compiled_dim(shift)

        def step() -> Vector:
            key = tuple(env[name] for name in names)
            pattern = cache.get(key)
            if pattern is None:
                pattern = Pattern(self.lanes.dim_value(moving), self.lanes.count)
                remember(cache, key, pattern)
            return gather(pattern, evaluate_shift(env))

        return step

    def gathered_load(self, node: Expr) -> Callable[[], Vector]:
        """Element at indices that are data."""
        elements, shape, dtype = self.operand(node)
        sources = [self.register_of(arg) for arg in node.args]
        strides = row_major_strides(shape)
        gather = Gather(elements, dtype is BOOL)
        registers = self.registers

        def step() -> Vector:
            flat = [0] * self.lanes.count
            for source, stride, extent in zip(sources, strides, shape, strict=True):
                assert source is not None
                indices = registers[source]
                if min(indices) < 0 or max(indices) >= extent:
                    raise outside(min(indices), max(indices), extent)
                flat = [at + stride * index for at, index in zip(flat, indices, strict=True)]
            return gather(Pattern(flat, self.lanes.count), 0)

        return step

    def operand(self, node: Expr) -> Source:
        assert isinstance(node.attr, int)
        return self.operands[node.attr]

    def lane_reduce(self, node: Expr) -> Callable[[], Vector]:
        """Reduction whose value differs between lanes: one pass over the reduced elements."""
        kind, names, extents, body = reduce_parts(node)
        scope = Scope(names)
        self.scopes.append(scope)
        register = self.place(body)
        self.scopes.pop()
        ranges = [range(_constant(extent)) for extent in extents]

        def values() -> Iterator[Vector]:
            env, registers = self.env, self.registers
            for combination in product(*ranges):
                env.update(zip(names, combination, strict=True))
                self.execute(scope)
                yield registers[register]

        if kind == "chain":
            add = vector_function("add", node.dtype, node.dtype)

            def chain() -> Vector:
                total: Vector = [identity("sum", node.dtype)] * self.lanes.count
                for value in values():
                    total = add(total, value)
                return total

            return chain
        function = vector_function(OPERATOR[kind], node.dtype, node.dtype)
        start = identity(kind, node.dtype)
        return lambda: joined_stream(function, [start] * self.lanes.count, values())

    def uniform_reduce(self, node: Expr) -> Callable[[], Vector]:
        """Reduction with one value for all lanes: its own variables become lanes."""
        kind, names, extents, body = reduce_parts(node)
        sizes = [_constant(extent) for extent in extents]
        count = math.prod(sizes)
        frame = Frame(body, list(zip(names, sizes, strict=True)), self.operands, self.env)

        def step() -> Vector:
            chunks = (frame.run(at, min(at + BLOCK, count)) for at in range(0, count, BLOCK))
            if kind == "chain":
                total = identity("sum", node.dtype)
                for chunk in chunks:
                    total = folded("add", node.dtype, total, chunk)
            else:
                total = joined_chunks(kind, node.dtype, chunks)
            return [total] * self.lanes.count

        return step
