"""Scalar expressions evaluated over many elements at once, with the numerics contract's bits.

An expression is compiled into steps of closures over registers; a register holds one value a
*lane*. Lanes run over the output elements, or, for a reduction whose value is the same for every
lane, over the reduced elements. Every node is evaluated once a set of the loop variables that it
depends on; parts that only depend on some variables of a reduction are remembered.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product, repeat
from operator import itemgetter
from typing import Any

from rlx_edge.ir.dims import Atom, Dim, as_dim
from rlx_edge.ir.errors import LimitError, RlxError
from rlx_edge.ir.expression import INDEX, Expr, index_dim, reduce_parts, walk
from rlx_edge.ir.scalar_arithmetic import (
    Vector,
    limits,
    packed,
    scalar_binary,
    vector_function,
)
from rlx_edge.ir.tensor import ARRAY_CODE, Elements
from rlx_edge.ir.types import BOOL, DType

BLOCK = 4096
"""Lanes evaluated together; also the chunk of a reduction."""
FEW = 64
"""With fewer outputs than this, lanes may run over reduced elements instead."""
REMEMBERED = 128
"""Values kept of a part that depends on some variables of a reduction."""
WORK_LIMIT = 1 << 33
"""Scalar operations that one expression may take; beyond, the interpreter refuses."""

Source = tuple[Elements, tuple[int, ...], DType]
"""A loaded operand: elements, shape, element type."""

_PARTIAL_OPERATOR = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


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
    frame = Frame(expr, () if _reduces_more(nodes, count) else variables, operands, {})
    unknown = frame.free[expr] - {name for name, _ in variables}
    if unknown:
        raise RlxError(
            "interpreter.symbol", "an expression mentions unknown sizes", found=sorted(unknown)
        )
    code = ARRAY_CODE[expr.dtype.name]
    results = array(code)
    if frame.lanes:
        for start in range(0, count, BLOCK):
            results.extend(array(code, frame.run(start, min(start + BLOCK, count))))
        return results
    names = [name for name, _ in variables]
    for values in product(*(range(extent) for _, extent in variables)):
        frame.env.update(zip(names, values, strict=True))
        results.extend(array(code, frame.run(0, 1)))
    return results


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
        self.lanes = tuple(lanes)
        self.lane_names = frozenset(name for name, _ in lanes)
        self.operands = operands
        self.env = env
        self.registers: list[Any] = []
        self.caches: list[dict[tuple[int, ...], Any]] = []
        self.atoms: dict[Atom, dict[tuple[int, ...], Any]] = {}
        self.lane_vectors: dict[str, list[int]] = {}
        self.count = 1
        self.start = 0
        self.free: dict[Expr, frozenset[str]] = {}
        self.scopes: list[Scope] = [Scope(())]
        self.result = self.place(expr)

    def run(self, start: int, stop: int) -> Vector:
        """Values for lanes ``start`` … ``stop - 1``."""
        if (start, stop - start) != (self.start, self.count):
            self.start, self.count = start, stop - start
            self.lane_vectors.clear()
            for cache in self.caches:
                cache.clear()
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
        names = tuple(sorted(self.free[node] - self.lane_names))
        private = Scope(tuple(name for name in names if name in scope.variables))
        self.scopes.append(private)
        register = self.place(node)
        self.scopes.pop()
        cache = self.new_cache()
        env = self.env

        def step() -> Vector:
            key = tuple(env[name] for name in names)
            value = cache.get(key)
            if value is None:
                self.execute(private)
                value = self.registers[register]
                _remember(cache, key, value)
            return value  # type: ignore[no-any-return]

        scope.steps.append((self.new_register(scope, node), step))

    # ---- one step a node ---------------------------------------------------------------------

    def step(self, node: Expr) -> Callable[[], Vector]:
        if node.op == "const":
            value = node.attr
            return lambda: [value] * self.count
        if node.op == "index":
            assert isinstance(node.attr, Dim)
            return self.index_step(node.attr)
        if node.op == "load":
            return self.plain_load(node) if _is_plain_load(node) else self.gathered_load(node)
        if node.op == "reduce":
            uniform = self.free[node].isdisjoint(self.lane_names)
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
            value = self.dim_value(dim)
            return value if isinstance(value, list) else [value] * self.count

        return step

    def plain_load(self, node: Expr) -> Callable[[], Vector]:
        """Element at a flat offset: a part that differs between lanes and a common shift."""
        elements, shape, dtype = self.operand(node)
        flat = as_dim(0)
        for arg, stride in zip(node.args, _strides(shape), strict=True):
            dim = index_dim(arg)
            assert dim is not None
            flat = flat + dim * stride
        moving, shift = self.split(flat)
        names = tuple(sorted(frozenset(moving.symbols()) - self.lane_names))
        cache = self.new_cache()
        env = self.env
        gather = _Gather(elements, dtype is BOOL)
        evaluate_shift = _compiled(shift)

        def step() -> Vector:
            key = tuple(env[name] for name in names)
            pattern = cache.get(key)
            if pattern is None:
                pattern = _Pattern(self.dim_value(moving), self.count)
                _remember(cache, key, pattern)
            return gather(pattern, evaluate_shift(env))

        return step

    def gathered_load(self, node: Expr) -> Callable[[], Vector]:
        """Element at indices that are data."""
        elements, shape, dtype = self.operand(node)
        sources = [self.register_of(arg) for arg in node.args]
        strides = _strides(shape)
        gather = _Gather(elements, dtype is BOOL)
        registers = self.registers

        def step() -> Vector:
            flat = [0] * self.count
            for source, stride, extent in zip(sources, strides, shape, strict=True):
                assert source is not None
                indices = registers[source]
                if min(indices) < 0 or max(indices) >= extent:
                    raise _outside(min(indices), max(indices), extent)
                flat = [at + stride * index for at, index in zip(flat, indices, strict=True)]
            return gather(_Pattern(flat, self.count), 0)

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
                total: Vector = [identity("sum", node.dtype)] * self.count
                for value in values():
                    total = add(total, value)
                return total

            return chain
        function = vector_function(_PARTIAL_OPERATOR[kind], node.dtype, node.dtype)
        start = identity(kind, node.dtype)
        return lambda: _joined(function, [start] * self.count, values())

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
                total = _joined_chunks(kind, node.dtype, chunks)
            return [total] * self.count

        return step

    # ---- dims --------------------------------------------------------------------------------

    def split(self, dim: Dim) -> tuple[Dim, Dim]:
        """Terms that differ between lanes, and the others."""
        moving: dict[Any, int] = {}
        common: dict[Any, int] = {}
        for mono, coefficient in dim.terms:
            names = {name for atom in mono for name in _atom_symbols(atom)}
            (common if names.isdisjoint(self.lane_names) else moving)[mono] = coefficient
        return Dim.make(moving), Dim.make(common)

    def lane_vector(self, name: str) -> list[int]:
        """Values of a lane variable in this block."""
        found = self.lane_vectors.get(name)
        if found is None:
            stride = 1
            for lane, extent in reversed(self.lanes):
                if lane == name:
                    stop = self.start + self.count
                    found = [at // stride % extent for at in range(self.start, stop)]
                    break
                stride *= extent
            assert found is not None
            self.lane_vectors[name] = found
        return found

    def dim_value(self, dim: Dim) -> int | list[int]:
        """A dim in this block: one integer, or one a lane."""
        total: int | list[int] = 0
        for mono, coefficient in dim.terms:
            value: int | list[int] = coefficient
            for atom in mono:
                value = _lanewise(lambda a, b: a * b, value, self.atom_value(atom))
            total = _lanewise(lambda a, b: a + b, total, value)
        return total

    def atom_value(self, atom: Atom) -> int | list[int]:
        if atom.op == "symbol":
            if atom.name in self.lane_names:
                return self.lane_vector(atom.name)
            return self.env[atom.name]
        names = [name for name in _atom_symbols(atom) if name not in self.lane_names]
        cache = self.atoms.get(atom)
        if cache is None:
            cache = self.atoms[atom] = self.new_cache()
        key = tuple(self.env[name] for name in names)
        value = cache.get(key)
        if value is None:
            a, b = (self.dim_value(arg) for arg in atom.args)
            value = _lanewise(_ATOM_FUNCTIONS[atom.op], a, b)
            _remember(cache, key, value)
        return value  # type: ignore[no-any-return]

    def new_cache(self) -> dict[tuple[int, ...], Any]:
        """Values by loop variables, forgotten with the block."""
        cache: dict[tuple[int, ...], Any] = {}
        self.caches.append(cache)
        return cache


_ATOM_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


def _lanewise(
    function: Callable[[int, int], int], a: int | list[int], b: int | list[int]
) -> int | list[int]:
    if isinstance(a, int):
        if isinstance(b, int):
            return function(a, b)
        return list(map(function, repeat(a), b))
    return list(map(function, a, repeat(b) if isinstance(b, int) else b))


def _atom_symbols(atom: Atom) -> tuple[str, ...]:
    if atom.op == "symbol":
        return (atom.name,)
    return tuple(name for arg in atom.args for name in arg.symbols())


def _compiled(dim: Dim) -> Callable[[Mapping[str, int]], int]:
    """A dim as a function of the loop variables."""
    if dim.is_constant:
        value = dim.value
        return lambda env: value
    linear: list[tuple[str, int]] = []
    for mono, coefficient in dim.terms:
        if len(mono) > 1 or (mono and mono[0].op != "symbol"):
            return dim.evaluate
        if mono:
            linear.append((mono[0].name, coefficient))
    base = dim.constant_term
    return lambda env: base + sum(coefficient * env[name] for name, coefficient in linear)


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def _remember(cache: dict[tuple[int, ...], Any], key: tuple[int, ...], value: Any) -> None:
    if len(cache) >= REMEMBERED:
        cache.clear()
    cache[key] = value


# ---- loads -----------------------------------------------------------------------------------


class _Pattern:
    """Offsets of all lanes relative to the least one, and how to read them fastest."""

    __slots__ = ("base", "get", "kind", "last", "length")

    def __init__(self, offsets: int | list[int], count: int) -> None:
        self.length = count
        self.get: Callable[[Any], Any] | None = None
        if isinstance(offsets, int) or count == 1:
            self.kind = "same"
            self.base = offsets if isinstance(offsets, int) else offsets[0]
            self.last = 0
            return
        self.base = min(offsets)
        self.last = max(offsets) - self.base
        if self.last == 0:
            self.kind = "same"
        elif self.last == count - 1 and offsets == list(range(self.base, self.base + count)):
            self.kind = "run"
        else:
            self.kind = "any"
            base = self.base
            self.get = itemgetter(*(offset - base for offset in offsets))


class _Gather:
    """Reads elements by pattern and shift; nothing outside the operand is ever read."""

    def __init__(self, elements: Elements, as_bool: bool) -> None:
        self.elements = elements
        self.view = memoryview(elements).cast("B").cast("?") if as_bool else memoryview(elements)
        self.as_bool = as_bool
        self.size = len(elements)

    def __call__(self, pattern: _Pattern, shift: int) -> Vector:
        first = pattern.base + shift
        if first < 0 or first + pattern.last >= self.size:
            raise _outside(first, first + pattern.last, self.size)
        if pattern.kind == "same":
            return [self.view[first]] * pattern.length
        if pattern.get is not None:
            return pattern.get(self.view[first:])  # type: ignore[no-any-return]
        if self.as_bool:
            return self.view[first : first + pattern.length].tolist()
        return self.elements[first : first + pattern.length]


def _outside(low: int, high: int, extent: int) -> RlxError:
    return RlxError(
        "interpreter.bounds",
        "an expression reads outside its operand",
        found=f"{low} to {high}",
        allowed=f"0 to {extent - 1}",
    )


# ---- reductions ------------------------------------------------------------------------------


def identity(kind: str, dtype: DType) -> float | int:
    """What a reduction starts from."""
    if kind in ("sum", "prod"):
        number = 0 if kind == "sum" else 1
        return float(number) if dtype.is_float else number
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    low, high = limits(dtype) if dtype is not INDEX else (-(1 << 31), (1 << 31) - 1)
    return low if kind == "max" else high


def folded(name: str, dtype: DType, start: Any, values: Vector) -> Any:
    """``start op v0 op v1 …`` with one rounding (or wrap) a step."""
    function = scalar_binary(name, dtype)
    if dtype.name == "f32":
        cell = array("f", [start])
        for value in values:
            cell[0] = function(cell[0], value)
        return cell[0]
    if dtype.is_float:
        total = start
        for value in values:
            total = function(total, value)
        return total
    pack = packed(dtype)
    total = start
    for value in values:
        total = pack((function(total, value),))[0]
    return total


def _joined_chunks(kind: str, dtype: DType, chunks: Iterator[Vector]) -> Any:
    """The contract's order over whole chunks of consecutive elements."""
    name = _PARTIAL_OPERATOR[kind]
    start = identity(kind, dtype)
    total: Any = None
    for chunk in chunks:
        p0, p1, p2, p3 = (folded(name, dtype, start, chunk[lane::4]) for lane in range(4))
        joined = folded(
            name, dtype, folded(name, dtype, p0, (p2,)), (folded(name, dtype, p1, (p3,)),)
        )
        total = joined if total is None else folded(name, dtype, total, (joined,))
    return start if total is None else total


def _joined(function: Callable[..., Vector], start: Vector, values: Iterator[Vector]) -> Vector:
    """The contract's order, lane by lane, over a stream of elements."""
    total: Vector | None = None
    partials = [start] * 4
    position = 0

    def join() -> Vector:
        p0, p1, p2, p3 = partials
        chunk = function(function(p0, p2), function(p1, p3))
        return chunk if total is None else function(total, chunk)

    for value in values:
        if position == BLOCK:
            total = join()
            partials = [start] * 4
            position = 0
        lane = position & 3
        partials[lane] = function(partials[lane], value)
        position += 1
    return join() if position else start


__all__ = ["BLOCK", "WORK_LIMIT", "Frame", "Source", "evaluate", "folded", "identity"]
