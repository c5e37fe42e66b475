"""Scalar expressions to instructions, each value once, in the region where it belongs."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlx_edge.compile.codegen.kernel_form import COMBINE, identity, is_order_free
from rlx_edge.compile.codegen.spirv.emit_index import emit_index, variables
from rlx_edge.compile.codegen.spirv.interface import Interface
from rlx_edge.compile.codegen.spirv.region import Region, StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars, convert, scalar_rule
from rlx_edge.ir.dims import Dim, product
from rlx_edge.ir.expression import Expr, index_dim, reduce_parts
from rlx_edge.ir.ordered_reduction import CHUNK
from rlx_edge.ir.types import U32, DType

PARTIALS = 4


@dataclass(eq=False, slots=True)
class Emission:
    """Emits the values of one kernel; ``expressions`` are in canonical form (``kernel_form``)."""

    io: Interface
    free: dict[Expr, frozenset[str]] = field(default_factory=dict)

    # ---- where values belong -----------------------------------------------------------------

    def variables(self, node: Expr) -> frozenset[str]:
        """The loop variables that a value depends on."""
        found = self.free.get(node)
        if found is None:
            for inner in _postorder(node, self.free):
                self.free[inner] = self._own(inner)
            found = self.free[node]
        return found

    def _own(self, node: Expr) -> frozenset[str]:
        dim = index_dim(node)
        if dim is not None:
            return variables(dim)
        names = frozenset[str]().union(*(self.free[arg] for arg in node.args))
        return names - frozenset(reduce_parts(node)[1]) if node.op == "reduce" else names

    # ---- values ------------------------------------------------------------------------------

    def value(self, expr: Expr, region: Region) -> int:
        """The id of a value that is available in ``region``."""
        stack = [expr]
        while stack:
            node = stack[-1]
            home = region.home(self.variables(node))
            if node in home.known:
                stack.pop()
                continue
            inputs = () if node.op in ("reduce", "index") else node.args
            missing = [arg for arg in inputs if arg not in region.home(self.variables(arg)).known]
            if missing:
                stack += missing
                continue
            home.known[node] = self._compute(node, home)
            stack.pop()
        return region.home(self.variables(expr)).known[expr]

    def _compute(self, node: Expr, home: Region) -> int:
        s = Scalars(home.code)
        dim = index_dim(node)
        if dim is not None:
            return emit_index(self.io, dim, home)
        if node.op == "const":
            return s.const(node.attr, node.dtype)  # type: ignore[arg-type]
        if node.op == "reduce":
            return self._reduce(node, home)
        args = [home.home(self.variables(arg)).known[arg] for arg in node.args]
        if node.op == "load":
            assert isinstance(node.attr, int)
            return self.io.load(home.code, node.attr, args[0])
        if node.op == "select":
            return s.select(node.dtype, *args)
        source = node.args[0].dtype
        if node.op == "cast":
            return convert(s, args[0], source, node.dtype)
        if node.op == "bitcast":
            same = s.type(source) == s.type(node.dtype)
            return args[0] if same else s.op("Bitcast", node.dtype, args[0])
        return scalar_rule(node.op, source)(s, source, args)

    # ---- reductions --------------------------------------------------------------------------

    def _reduce(self, node: Expr, home: Region) -> int:
        kind, names, extents, body = reduce_parts(node)
        start = Scalars(home.code).const(identity(kind, node.dtype), node.dtype)
        if kind == "chain" or is_order_free(kind, node.dtype):
            axes = list(zip(names, extents, strict=True))
            return self._ascending(kind, axes, body, home, start)
        return self._chunks(kind, names, extents, body, home, start)

    def _ascending(
        self, kind: str, axes: list[tuple[str, Dim]], body: Expr, region: Region, total: int
    ) -> int:
        """``total op element …`` in row-major order, a loop an axis."""
        if not axes:
            return self._combine(kind, body.dtype, region, total, self.value(body, region))
        (name, extent), *rest = axes
        loop, inner = self._count(
            region, name, emit_index(self.io, extent, region), [(body.dtype, total)]
        )
        value = self._ascending(kind, rest, body, inner, loop.carried[1])
        self._close(loop, emit_index(self.io, extent, region), [value])
        return loop.carried[1]

    def _chunks(
        self,
        kind: str,
        names: tuple[str, ...],
        extents: tuple[Dim, ...],
        body: Expr,
        home: Region,
        start: int,
    ) -> int:
        """The contract's order: four partials a chunk, chunks joined in order."""
        dtype, size = body.dtype, product(extents)
        count = emit_index(self.io, size, home)
        if size.is_constant and size.value <= CHUNK:
            return self._chunk(kind, names, extents, body, home, start, None, count)
        s = Scalars(home.code)
        last = s.op("IAdd", U32, count, s.const(CHUNK - 1, U32))
        chunks = s.op("ShiftRightArithmetic", U32, last, s.const(CHUNK.bit_length() - 1, U32))
        loop, inner = self._count(home, "", chunks, [(dtype, start)])
        t = Scalars(inner.code)
        first = t.op("IMul", U32, loop.carried[0], t.const(CHUNK, U32))
        left = t.op("ISub", U32, count, first)
        few = t.test("ULessThan", left, t.const(CHUNK, U32))
        length = t.select(U32, few, left, t.const(CHUNK, U32))
        joined = self._chunk(kind, names, extents, body, inner, start, first, length)
        total = self._combine(kind, dtype, inner, loop.carried[1], joined)
        t = Scalars(inner.code)
        is_first = t.test("IEqual", loop.carried[0], t.const(0, U32))
        self._close(loop, chunks, [t.select(dtype, is_first, joined, total)])
        return loop.carried[1]

    def _chunk(
        self,
        kind: str,
        names: tuple[str, ...],
        extents: tuple[Dim, ...],
        body: Expr,
        region: Region,
        start: int,
        first: int | None,
        length: int,
    ) -> int:
        """Elements ``first`` … of one chunk.

        The partials rotate by one an element, so that the next one is always in front. Addition
        and multiplication commute, hence the pairs (0, 2) and (1, 3) may be joined wherever the
        rotation has stopped.
        """
        dtype = body.dtype
        loop, inner = self._count(region, "", length, [(dtype, start)] * PARTIALS)
        place = loop.carried[0]
        s = Scalars(inner.code)
        if first is not None:
            place = s.op("IAdd", U32, first, place)
        for position in range(len(names) - 1, 0, -1):
            extent = emit_index(self.io, extents[position], region)
            inner.names[names[position]] = s.op("UMod", U32, place, extent)
            place = s.op("UDiv", U32, place, extent)
        inner.names[names[0]] = place
        front, *others = loop.carried[1:]
        value = self._combine(kind, dtype, inner, front, self.value(body, inner))
        self._close(loop, length, [*others, value])
        p0, p1, p2, p3 = loop.carried[1:]
        even = self._combine(kind, dtype, region, p0, p2)
        odd = self._combine(kind, dtype, region, p1, p3)
        return self._combine(kind, dtype, region, even, odd)

    def _combine(self, kind: str, dtype: DType, region: Region, a: int, b: int) -> int:
        return scalar_rule(COMBINE[kind], dtype)(Scalars(region.code), dtype, (a, b))

    def _count(
        self, region: Region, name: str, count: int, carried: list[tuple[DType, int]]
    ) -> tuple[StructuredLoop, Region]:
        """A loop of a counter (bound to ``name`` if there is one) and other carried values."""
        s = Scalars(region.code)
        starts = [(s.type(U32), s.const(0, U32)), *((s.type(t), v) for t, v in carried)]
        loop = StructuredLoop(region.code, starts)
        # The empty name makes the region the home of nothing but what its loop computes.
        inner = Region(loop.body, region, {name: loop.carried[0]} if name else {})
        return loop, inner

    def _close(self, loop: StructuredLoop, count: int, following: list[int]) -> None:
        check, body = Scalars(loop.check), Scalars(loop.body)
        condition = check.test("SLessThan", loop.carried[0], count)
        step = body.op("IAdd", U32, loop.carried[0], body.const(1, U32))
        loop.close(condition, [step, *following])


def _postorder(root: Expr, known: dict[Expr, frozenset[str]]) -> list[Expr]:
    """Nodes that are not known yet, operands first."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in known and node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(arg, False) for arg in node.args]
    return order
