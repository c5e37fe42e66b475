"""Loop kernels by rows: reductions of a row by several invocations, then its elements.

The algorithm is that of the CUDA kernels (``codegen/cuda/rows_text.py``). Where the order is free,
every invocation reduces a share; else elements pass through workgroup memory in pieces, of each
team's piece four invocations of the first team add up one partial each. ``stage`` is written before
a reduction's first barrier and read after it, ``parts`` the other way round, so that reductions may
follow each other.
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
from rlx_edge.compile.workgroups import PIECE, PITCH, ROW_THREADS, TEAM, TEAMS, Spread
from rlx_edge.ir.dims import product
from rlx_edge.ir.expression import Expr, reduce_parts
from rlx_edge.ir.ordered_reduction import CHUNK
from rlx_edge.ir.types import U32, DType

Element: TypeAlias = Callable[[Region, int], int]
"""``element(region, item)``: the value of element ``item``, computed in ``region``."""
STAGE = TEAMS * PITCH
PARTS = TEAMS * PARTIALS
AT_ONCE = 8
"""Elements of a partial that are loaded before the first of them is added."""


def can_share(spread: Spread, shared: Shared) -> bool:
    """Whether the device has the workgroup memory and invocations for a kernel by rows."""
    types = dict.fromkeys(node.dtype for node in spread.shared)
    need = sum(max(dtype.bytes, 4) * (STAGE + PARTS) for dtype in types)
    target = shared.target
    return spread.rows and need <= target.shared and spread.threads <= target.most_invocations


@dataclass(slots=True)
class Rows:
    """Emits one kernel. ``several``: each team has a row; else the workgroup has one.

    ``local`` is this invocation's number in the workgroup, ``team`` its team, ``place`` its number
    there.
    """

    em: Emission
    several: bool
    local: int
    team: int
    place: int

    @property
    def first(self) -> int:
        """This invocation's first item."""
        return self.place if self.several else self.local

    @property
    def width(self) -> int:
        return TEAM if self.several else ROW_THREADS

    def strided(
        self, region: Region, carried: list[tuple[DType, int]]
    ) -> tuple[StructuredLoop, Region]:
        """Items of this invocation; ``end`` closes the loop."""
        s = Scalars(region.code)
        starts = [(s.type(U32), self.first), *((s.type(t), v) for t, v in carried)]
        loop = StructuredLoop(region.code, starts)
        return loop, Region(loop.body, region)

    def end(self, loop: StructuredLoop, count: int, following: Sequence[int]) -> None:
        item = loop.carried[0]
        step = Words(loop.body).plus(item, self.width)
        loop.close(Words(loop.check).below(item, count), [step, *following])

    def decode(self, code: Code, item: int, axes: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Variables from a row-major item."""
        w, names = Words(code), {}
        for name, extent in reversed(axes[1:]):
            item, names[name] = w.divided(item, extent)
        if axes:
            names[axes[0][0]] = item
        return names

    # ---- reductions --------------------------------------------------------------------------

    def reduce(self, node: Expr, row: Region) -> int:
        """The value of a reduction, the same in all invocations of the row."""
        kind, names, extents, body = reduce_parts(node)
        axes = [
            (name, emit_index(self.em.io, extent, row))
            for name, extent in zip(names, extents, strict=True)
        ]
        count = emit_index(self.em.io, product(extents), row)

        def element(inner: Region, item: int) -> int:
            inner.names.update(self.decode(inner.code, item, axes))
            return self.em.value(body, inner)

        way = self.freely if is_order_free(kind, node.dtype) else self.in_order
        return way(_Sum(self, kind, node.dtype), row, count, element)

    def freely(self, sums: _Sum, row: Region, count: int, element: Element) -> int:
        """Any order gives the same bits: each invocation its share, then the shares."""
        dtype, start = sums.dtype, sums.start(row.code)
        loop, inner = self.strided(row, [(dtype, start)])
        value = element(inner, loop.carried[0])
        self.end(loop, count, [sums.join(inner.code, loop.carried[1], value)])
        sums.put_stage(row.code, self.team, self.place, loop.carried[1])
        barrier(row.code)
        adder = Conditional(row.code, Words(row.code).below(self.local, Words(row.code).c(PARTS)))
        team, lane = Words(adder.body).split(self.local, PARTIALS)
        part = sums.add(adder.body, team, lane, range(0, TEAM, PARTIALS), start)
        sums.put_parts(adder.body, self.local, part)
        adder.close()
        barrier(row.code)
        if self.several:
            return sums.joined(row.code, self.team)
        totals = [sums.joined(row.code, Words(row.code).c(team)) for team in range(TEAMS)]
        total = totals[0]
        for other in totals[1:]:
            total = sums.join(row.code, total, other)
        return total

    def in_order(self, sums: _Sum, row: Region, count: int, element: Element) -> int:
        """Chunks in order, in each four partials in order."""
        s, start = Scalars(row.code), sums.start(row.code)
        outer = StructuredLoop(
            row.code, [(s.type(U32), s.const(0, U32)), (s.type(sums.dtype), start)]
        )
        first, total = outer.carried
        chunk = Region(outer.body, row)
        w = Words(chunk.code)
        left = w.sub(count, first)
        pieces = StructuredLoop(
            chunk.code, [(s.type(U32), s.const(0, U32)), (s.type(sums.dtype), start)]
        )
        inside = Region(pieces.body, chunk)
        piece, part = pieces.carried
        self.stage_piece(sums, inside, first, piece, left, element)
        barrier(inside.code)
        part = self.add_piece(sums, inside.code, piece, left, part)
        writer = Conditional(inside.code, Words(inside.code).below(self.local, s.const(PARTS, U32)))
        sums.put_parts(writer.body, self.local, part)
        writer.close()
        barrier(inside.code)
        c = Words(pieces.check)
        following = Words(inside.code).plus(piece, PIECE)
        pieces.close(c.below(piece, c.least(left, c.c(CHUNK))), [following, part])
        w = Words(chunk.code)
        is_first = w.s.test("IEqual", first, w.c(0))
        for team in range(1 if self.several else TEAMS):
            joined = sums.joined(chunk.code, self.team if self.several else w.c(team))
            more = sums.join(chunk.code, total, joined)
            if team == 0:
                total = w.s.select(sums.dtype, is_first, joined, more)
            else:
                total = w.s.select(sums.dtype, w.below(w.c(team * CHUNK), left), more, total)
        following = w.plus(first, CHUNK if self.several else TEAMS * CHUNK)
        outer.close(Words(outer.check).below(first, count), [following, total])
        return outer.carried[1]

    def stage_piece(
        self, sums: _Sum, region: Region, first: int, piece: int, left: int, element: Element
    ) -> None:
        """The next elements of each team's chunk into workgroup memory; ``left`` from ``first``."""
        w = Words(region.code)
        loop, inner = self.strided(region, [])
        item = loop.carried[0]
        if self.several:
            length = w.least(w.sub(left, piece), w.c(PIECE))
            value = element(inner, Words(inner.code).add(first, piece, item))
            sums.put_stage(inner.code, self.team, item, value)
            self.end(loop, length, [])
            return
        chunks = w.least(w.ceildiv(left, CHUNK), w.c(TEAMS))
        v = Words(inner.code)
        team, place = v.split(item, PIECE)
        at = v.add(v.scaled(team, CHUNK), piece, place)
        present = Conditional(inner.code, v.below(at, left))
        within = Region(present.body, inner)
        value = element(within, Words(within.code).add(first, at))
        sums.put_stage(within.code, team, place, value)
        present.close()
        self.end(loop, w.scaled(chunks, PIECE), [])

    def add_piece(self, sums: _Sum, code: Code, piece: int, left: int, part: int) -> int:
        """A partial of a team's piece, for the first ``PARTS`` invocations; the others add none."""
        w = Words(code)
        team, lane = w.split(self.local, PARTIALS)
        begin = piece if self.several else w.add(w.scaled(team, CHUNK), piece)
        rest = w.kept(w.below(begin, left), w.sub(left, begin))
        length = w.kept(w.below(self.local, w.c(PARTS)), w.least(rest, w.c(PIECE)))
        for count in (AT_ONCE, 1):
            reach = PARTIALS * (count - 1)
            loop = StructuredLoop(code, [(w.s.type(U32), lane), (w.s.type(sums.dtype), part)])
            item, part = loop.carried
            steps = range(0, PARTIALS * count, PARTIALS)
            added = sums.add(loop.body, team, item, steps, part)
            following = Words(loop.body).plus(item, PARTIALS * count)
            c = Words(loop.check)
            loop.close(c.below(c.plus(item, reach), length), [following, added])
            lane, w = loop.carried[0], Words(code)
        return part


@dataclass(frozen=True, slots=True)
class _Sum:
    """One reduction's operator, and its places in workgroup memory."""

    rows: Rows
    kind: str
    dtype: DType

    def start(self, code: Code) -> int:
        return Scalars(code).const(identity(self.kind, self.dtype), self.dtype)

    def join(self, code: Code, a: int, b: int) -> int:
        return scalar_rule(COMBINE[self.kind], self.dtype)(Scalars(code), self.dtype, (a, b))

    def joined(self, code: Code, team: int) -> int:
        """The partials of a team."""
        w = Words(code)
        base = w.scaled(team, PARTIALS)
        p0, p1, p2, p3 = (
            self._get(code, "parts", PARTS, w.plus(base, lane)) for lane in range(PARTIALS)
        )
        return self.join(code, self.join(code, p0, p2), self.join(code, p1, p3))

    def add(self, code: Code, team: int, item: int, steps: Sequence[int], part: int) -> int:
        """``part`` with elements ``item + step`` of a team's piece, in order."""
        w = Words(code)
        base = w.add(w.scaled(team, PITCH), item)
        loaded = [self._get(code, "stage", STAGE, w.plus(base, step)) for step in steps]
        for value in loaded:
            part = self.join(code, part, value)
        return part

    def put_stage(self, code: Code, team: int, item: int, value: int) -> None:
        w = Words(code)
        self._put(code, "stage", STAGE, w.add(w.scaled(team, PITCH), item), value)

    def put_parts(self, code: Code, at: int, value: int) -> None:
        self._put(code, "parts", PARTS, at, value)

    def _place(self, code: Code, name: str, length: int, at: int) -> int:
        io, kind = self.rows.em.io, Scalars(code).type(self.dtype)
        variables, module = io.shared.variables, io.module
        key = f"{name}_{'u' if self.dtype.is_integer else 'f'}{8 * max(self.dtype.bytes, 4)}"
        if key not in variables:
            variables[key] = module.variable("Workgroup", module.array(kind, length))
            module.name(variables[key], key)
        return code.op("AccessChain", module.pointer("Workgroup", kind), variables[key], at)

    def _get(self, code: Code, name: str, length: int, at: int) -> int:
        return Scalars(code).op("Load", self.dtype, self._place(code, name, length, at))

    def _put(self, code: Code, name: str, length: int, at: int, value: int) -> None:
        code.do("Store", self._place(code, name, length, at), value)


def emit_rows(
    em: Emission, spread: Spread, value: Expr, shared: Sequence[Expr], extents: Sequence[int]
) -> None:
    """The code of a kernel by rows; ``value`` and ``shared`` are in primitive operators.

    Every invocation of a workgroup goes over the rows as often, whatever its row is: there are
    barriers inside.
    """
    io, form, root = em.io, spread.kernel, em.io.root
    local = io.input("LocalInvocationId")
    rows = Rows(em, spread.several, local, *Words(root.code).split(local, TEAM))
    outer, inner = form.loops[: spread.outer], form.loops[spread.outer :]
    w = Words(root.code)
    total, together = _product(w, extents[: spread.outer]), TEAMS if spread.several else 1
    start = w.scaled(io.input("WorkgroupId"), together)
    step = w.scaled(io.input("NumWorkgroups"), together)
    loop = StructuredLoop(root.code, [(w.s.type(U32), start)])
    b = Words(loop.body)
    at, present = loop.carried[0], None
    if spread.several:
        own = b.add(at, rows.team)
        present = b.below(own, total)
        at = b.s.select(U32, present, own, b.sub(total, b.c(1)))
    axes = [(item.var, extent) for item, extent in zip(outer, extents, strict=False)]
    row = Region(loop.body, root, rows.decode(loop.body, at, axes) or {"": at})
    for node in shared:
        # A row's reductions belong to the row, also those that are the same in all of them.
        em.free[node] = em.variables(node) | frozenset(row.names)
    for node in shared:
        row.known[node] = rows.reduce(node, row)
    count = _product(Words(row.code), extents[spread.outer :])
    if present is not None:
        count = Words(row.code).kept(present, count)
    items, region = rows.strided(row, [])
    axes = [(item.var, extent) for item, extent in zip(inner, extents[spread.outer :], strict=True)]
    region.names.update(rows.decode(region.code, items.carried[0], axes))
    result = em.value(value, region)
    place = emit_index(io, form.offset, region)
    io.store(region.code, 0, place, result)
    rows.end(items, count, [])
    following = Words(loop.body).add(loop.carried[0], step)
    loop.close(Words(loop.check).below(loop.carried[0], total), [following])


def _product(w: Words, extents: Sequence[int]) -> int:
    total = w.c(1)
    for position, extent in enumerate(extents):
        total = w.mul(total, extent) if position else extent
    return total
