"""Loop kernels by rows: a workgroup computes the reductions of a row once, then its elements.

A reduction whose order is free is a tree over the workgroup's shares. Others keep the contract's
order: all invocations compute a chunk of elements, four of them add up one partial each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.compile.codegen.kernel_form import COMBINE, PARTIALS, identity, is_order_free
from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.emit_expression import Emission
from rlx_edge.compile.codegen.spirv.emit_index import emit_index
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.region import Conditional, Region, StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars, scalar_rule
from rlx_edge.compile.codegen.spirv.words import Words, barrier
from rlx_edge.compile.workgroups import Spread
from rlx_edge.ir.dims import product
from rlx_edge.ir.expression import Expr, reduce_parts
from rlx_edge.ir.ordered_reduction import CHUNK
from rlx_edge.ir.types import F32, I32, U32, DType

Element: TypeAlias = Callable[[Region, int], int]
"""``element(region, item)``: the value of element ``item``, computed in ``region``."""
STAGED = (F32, I32, U32)
"""Element types of reductions that a workgroup computes together."""


def can_share(spread: Spread, shared: Shared) -> bool:
    """Whether the device has the workgroup memory and invocations for a kernel by rows."""
    need = 4 * (CHUNK + PARTIALS + spread.threads)
    return (
        spread.rows
        and all(node.dtype in STAGED for node in spread.shared)
        and need <= shared.target.shared
        and spread.threads <= shared.target.most_invocations
    )


@dataclass(slots=True)
class Rows:
    """Emits one kernel; ``threads`` invocations a workgroup, ``local`` is this one's number."""

    em: Emission
    threads: int
    local: int

    def strided(
        self, region: Region, count: int, carried: list[tuple[DType, int]]
    ) -> tuple[StructuredLoop, Region]:
        """Items of this invocation, ``count`` in all; ``end`` closes the loop."""
        s = Scalars(region.code)
        starts = [(s.type(U32), self.local), *((s.type(t), v) for t, v in carried)]
        loop = StructuredLoop(region.code, starts)
        return loop, Region(loop.body, region)

    def end(self, loop: StructuredLoop, count: int, following: Sequence[int]) -> None:
        item = loop.carried[0]
        step = Words(loop.body).plus(item, self.threads)
        loop.close(Words(loop.check).below(item, count), [step, *following])

    def decode(self, code: Code, item: int, axes: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Variables from a row-major item."""
        w, names = Words(code), {}
        for name, extent in reversed(axes[1:]):
            names[name] = w.rem(item, extent)
            item = w.div(item, extent)
        if axes:
            names[axes[0][0]] = item
        return names

    # ---- reductions --------------------------------------------------------------------------

    def reduce(self, node: Expr, row: Region) -> int:
        """The value of a reduction, the same in all invocations."""
        kind, names, extents, body = reduce_parts(node)
        axes = [
            (name, emit_index(self.em.io, extent, row))
            for name, extent in zip(names, extents, strict=True)
        ]
        count = emit_index(self.em.io, product(extents), row)

        def element(inner: Region, item: int) -> int:
            inner.names.update(self.decode(inner.code, item, axes))
            return self.em.value(body, inner)

        way = self.tree if is_order_free(kind, node.dtype) else self.chunks
        return way(kind, node.dtype, row, count, element)

    def tree(self, kind: str, dtype: DType, row: Region, count: int, element: Element) -> int:
        start = Scalars(row.code).const(identity(kind, dtype), dtype)
        loop, inner = self.strided(row, count, [(dtype, start)])
        value = element(inner, loop.carried[0])
        self.end(loop, count, [self.join(kind, dtype, inner.code, loop.carried[1], value)])
        stage = self.stage("tree", dtype, self.threads)
        self.put(row.code, stage, dtype, self.local, loop.carried[1])
        barrier(row.code)
        half = self.threads // 2
        while half:
            w = Words(row.code)
            first = Conditional(row.code, w.below(self.local, w.c(half)))
            w = Words(first.body)
            mine = self.get(first.body, stage, dtype, self.local)
            other = self.get(first.body, stage, dtype, w.plus(self.local, half))
            joined = self.join(kind, dtype, first.body, mine, other)
            self.put(first.body, stage, dtype, self.local, joined)
            first.close()
            barrier(row.code)
            half //= 2
        total = self.get(row.code, stage, dtype, Words(row.code).c(0))
        barrier(row.code)
        return total

    def chunks(self, kind: str, dtype: DType, row: Region, count: int, element: Element) -> int:
        s = Scalars(row.code)
        start = s.const(identity(kind, dtype), dtype)
        stage, parts = self.stage("chunk", dtype, CHUNK), self.stage("parts", dtype, PARTIALS)
        outer = StructuredLoop(row.code, [(s.type(U32), s.const(0, U32)), (s.type(dtype), start)])
        first, total = outer.carried
        chunk = Region(outer.body, row)
        w = Words(chunk.code)
        length = w.least(w.sub(count, first), w.c(CHUNK))
        loop, inner = self.strided(chunk, length, [])
        value = element(inner, Words(inner.code).add(first, loop.carried[0]))
        self.put(inner.code, stage, dtype, loop.carried[0], value)
        self.end(loop, length, [])
        barrier(chunk.code)
        w = Words(chunk.code)
        adder = Conditional(chunk.code, w.below(self.local, w.c(PARTIALS)))
        a = Scalars(adder.body)
        adding = StructuredLoop(adder.body, [(a.type(U32), self.local), (a.type(dtype), start)])
        item, part = adding.carried
        part = self.join(kind, dtype, adding.body, part, self.get(adding.body, stage, dtype, item))
        following = Words(adding.body).plus(item, PARTIALS)
        adding.close(Words(adding.check).below(item, length), [following, part])
        self.put(adder.body, parts, dtype, self.local, adding.carried[1])
        adder.close()
        barrier(chunk.code)
        w = Words(chunk.code)
        p0, p1, p2, p3 = (self.get(chunk.code, parts, dtype, w.c(lane)) for lane in range(4))
        even, odd = (self.join(kind, dtype, chunk.code, *pair) for pair in ((p0, p2), (p1, p3)))
        joined = self.join(kind, dtype, chunk.code, even, odd)
        more = self.join(kind, dtype, chunk.code, total, joined)
        is_first = w.s.test("IEqual", first, w.c(0))
        following = Words(chunk.code).plus(first, CHUNK)
        total = w.s.select(dtype, is_first, joined, more)
        outer.close(Words(outer.check).below(first, count), [following, total])
        barrier(row.code)
        return outer.carried[1]

    def join(self, kind: str, dtype: DType, code: Code, a: int, b: int) -> int:
        return scalar_rule(COMBINE[kind], dtype)(Scalars(code), dtype, (a, b))

    # ---- workgroup memory --------------------------------------------------------------------

    def stage(self, name: str, dtype: DType, length: int) -> int:
        """An array that the reductions of one type use one after another."""
        variables, module = self.em.io.shared.variables, self.em.io.module
        kind = Scalars(self.em.io.root.code).type(dtype)
        key = f"{name}_{'f32' if dtype is F32 else 'u32'}_{length}"
        if key not in variables:
            variables[key] = module.variable("Workgroup", module.array(kind, length))
            module.name(variables[key], key)
        return variables[key]

    def _place(self, code: Code, array: int, dtype: DType, at: int) -> int:
        pointer = code.module.pointer("Workgroup", Scalars(code).type(dtype))
        return code.op("AccessChain", pointer, array, at)

    def get(self, code: Code, array: int, dtype: DType, at: int) -> int:
        return Scalars(code).op("Load", dtype, self._place(code, array, dtype, at))

    def put(self, code: Code, array: int, dtype: DType, at: int, value: int) -> None:
        code.do("Store", self._place(code, array, dtype, at), value)


def emit_rows(
    em: Emission, spread: Spread, value: Expr, shared: Sequence[Expr], extents: Sequence[int]
) -> None:
    """The code of a kernel by rows; ``value`` and ``shared`` are in primitive operators."""
    io, form = em.io, spread.kernel
    rows = Rows(em, spread.threads, io.input("LocalInvocationId"))
    outer, inner = form.loops[: spread.outer], form.loops[spread.outer :]
    root = io.root
    if outer:
        w = Words(root.code)
        total = _product(w, extents[: spread.outer])
        starts = [(w.s.type(U32), io.input("WorkgroupId"))]
        step = io.input("NumWorkgroups")
        loop = StructuredLoop(root.code, starts)
        axes = [(at.var, extent) for at, extent in zip(outer, extents, strict=False)]
        row = Region(loop.body, root, rows.decode(loop.body, loop.carried[0], axes))
    else:
        row = root
    for node in shared:
        # A row's reductions belong to the row, also those that are the same in all of them.
        em.free[node] = em.variables(node) | frozenset(row.names)
    for node in shared:
        row.known[node] = rows.reduce(node, row)
    count = _product(Words(row.code), extents[spread.outer :])
    items, region = rows.strided(row, count, [])
    axes = [(at.var, extent) for at, extent in zip(inner, extents[spread.outer :], strict=True)]
    region.names.update(rows.decode(region.code, items.carried[0], axes))
    result = em.value(value, region)
    at = emit_index(io, form.offset, region)
    io.store(region.code, 0, at, result)
    rows.end(items, count, [])
    if outer:
        following = Words(loop.body).add(loop.carried[0], step)
        loop.close(Words(loop.check).below(loop.carried[0], total), [following])


def _product(w: Words, extents: Sequence[int]) -> int:
    total = w.c(1)
    for position, extent in enumerate(extents):
        total = w.mul(total, extent) if position else extent
    return total
