"""Loop kernels by rows: reductions of a row by several invocations, then its elements.

The algorithm is that of the CUDA kernels (``codegen/cuda/rows_text.py``). Where the order is free,
every invocation reduces a share; else elements pass through workgroup memory in pieces, of each
team's piece four invocations add up one partial each. ``stage`` and ``shares`` are written before a
reduction's first barrier and read after it, ``parts`` the other way round, so that reductions may
follow each other. What an invocation has staged of its own row is there until it stages the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.compile.codegen.kernel_form import COMBINE, PARTIALS, identity
from rlx_edge.compile.codegen.row_passes import Pass, row_passes
from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.emit_expression import Emission
from rlx_edge.compile.codegen.spirv.emit_index import emit_index
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.region import Conditional, Region, StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars, scalar_rule
from rlx_edge.compile.codegen.spirv.words import Words, barrier
from rlx_edge.compile.workgroups import SHARES, TEAM, Spread
from rlx_edge.ir.dims import product
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.ordered_reduction import CHUNK
from rlx_edge.ir.types import U32, DType

Element: TypeAlias = Callable[[Region, int], int]
"""``element(region, item)``: the value of element ``item``, computed in ``region``."""
Items: TypeAlias = Callable[[Sequence[Region], Sequence[int], list[int]], list[int]]
ITEMS_AT_ONCE = 4
"""Items of an invocation whose operands are loaded before the first of them is stored."""
AT_ONCE = 8
"""Elements of a partial that are loaded before the first of them is added."""


def row_teams(spread: Spread, shared: Shared) -> int:
    """Teams of a workgroup that the device has the memory and invocations for; 0 for flat."""
    if not spread.rows:
        return 0
    most = min(spread.teams, shared.target.most_invocations // TEAM)
    return min(most, shared.target.shared // spread.team_bytes)


@dataclass(slots=True)
class Rows:
    """Emits one kernel with ``teams`` in a workgroup.

    ``local`` is this invocation's number in the workgroup, ``team`` its team, ``place`` its number
    there.
    """

    em: Emission
    spread: Spread
    teams: int
    local: int
    team: int
    place: int

    @property
    def several(self) -> bool:
        """Whether each team has a row of its own."""
        return self.spread.several

    @property
    def first(self) -> int:
        """This invocation's first item."""
        return self.place if self.several else self.local

    @property
    def width(self) -> int:
        return TEAM if self.several else TEAM * self.teams

    @property
    def parts(self) -> int:
        return PARTIALS * self.teams

    def each_item(
        self, region: Region, count: int, carried: Sequence[tuple[DType, int]], emit: Items
    ) -> list[int]:
        """Items of this invocation, a few at once; what ``carried`` became.

        ``emit(regions, items, values)`` writes the code for some items, each with a region of its
        own, and gives the carried values that follow. All but the first may be ``count`` or more.
        """
        s = Scalars(region.code)
        starts = [(s.type(U32), self.first), *((s.type(dtype), value) for dtype, value in carried)]
        loop = StructuredLoop(region.code, starts)
        item, *values = loop.carried
        w = Words(loop.body)
        items = [w.plus(item, place * self.width) for place in range(ITEMS_AT_ONCE)]
        following = emit([Region(loop.body, region) for _ in items], items, values)
        step = w.plus(item, ITEMS_AT_ONCE * self.width)
        loop.close(Words(loop.check).below(item, count), [step, *following])
        return values

    def decode(self, code: Code, item: int, axes: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Variables from a row-major item."""
        w, names = Words(code), {}
        for name, extent in reversed(axes[1:]):
            item, names[name] = w.divided(item, extent)
        if axes:
            names[axes[0][0]] = item
        return names

    # ---- reductions --------------------------------------------------------------------------

    def reduce(self, item: Pass, row: Region) -> int:
        """The value of a reduction, the same in all invocations of the row."""
        axes = [
            (name, emit_index(self.em.io, extent, row))
            for name, extent in zip(item.names, item.extents, strict=True)
        ]
        count = emit_index(self.em.io, product(item.extents), row)
        sums = _Sum(self, item.kind, item.node.dtype)

        def element(inner: Region, place: int) -> int:
            inner.names.update(self.decode(inner.code, place, axes))
            self.take_held(item.held, inner, place)
            return self.em.value(item.body, inner)

        if item.is_free:
            return self.freely(sums, row, count, element, item.keeps)
        return self.in_order(sums, row, count, element)

    def take_held(self, held: Sequence[Expr], region: Region, place: int) -> None:
        """Values of item ``place`` from where they are staged."""
        for node in held:
            region.known[node] = _Sum(self, "", node.dtype).staged(region.code, self.team, place)

    def freely(self, sums: _Sum, row: Region, count: int, element: Element, keeps: bool) -> int:
        """Any order gives the same bits: each invocation its share, then the shares."""
        start = sums.start(row.code)
        last = Words(row.code).sub(count, Words(row.code).c(1))

        def join(regions: Sequence[Region], items: Sequence[int], share: list[int]) -> list[int]:
            (total,), w = share, Words(regions[0].code)
            values = [
                element(inner, w.least(item, last))
                for inner, item in zip(regions, items, strict=True)
            ]
            for item, value in zip(items, values, strict=True):
                inside = w.s.select(sums.dtype, w.below(item, count), value, start)
                total = sums.join(w.code, total, inside)
                if keeps:
                    sums.put_stage(w.code, self.team, item, value)
            return [total]

        (share,) = self.each_item(row, count, [(sums.dtype, start)], join)
        sums.put_share(row.code, self.team, self.place, share)
        barrier(row.code)
        w = Words(row.code)
        adder = Conditional(row.code, w.below(self.local, w.c(self.parts)))
        team, lane = Words(adder.body).split(self.local, PARTIALS)
        part = sums.add_shares(adder.body, team, lane, start)
        sums.put_parts(adder.body, self.local, part)
        adder.close()
        barrier(row.code)
        if self.several:
            return sums.joined(row.code, self.team)
        totals = [sums.joined(row.code, Words(row.code).c(team)) for team in range(self.teams)]
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
        writer = Conditional(
            inside.code, Words(inside.code).below(self.local, s.const(self.parts, U32))
        )
        sums.put_parts(writer.body, self.local, part)
        writer.close()
        barrier(inside.code)
        c = Words(pieces.check)
        following = Words(inside.code).plus(piece, self.spread.piece)
        pieces.close(c.below(piece, c.least(left, c.c(CHUNK))), [following, part])
        w = Words(chunk.code)
        is_first = w.s.test("IEqual", first, w.c(0))
        for team in range(1 if self.several else self.teams):
            joined = sums.joined(chunk.code, self.team if self.several else w.c(team))
            more = sums.join(chunk.code, total, joined)
            if team == 0:
                total = w.s.select(sums.dtype, is_first, joined, more)
            else:
                total = w.s.select(sums.dtype, w.below(w.c(team * CHUNK), left), more, total)
        following = w.plus(first, CHUNK if self.several else self.teams * CHUNK)
        outer.close(Words(outer.check).below(first, count), [following, total])
        return outer.carried[1]

    def stage_piece(
        self, sums: _Sum, region: Region, first: int, piece: int, left: int, element: Element
    ) -> None:
        """The next elements of each team's chunk into workgroup memory; ``left`` from ``first``."""
        w, size = Words(region.code), self.spread.piece
        last = w.sub(left, w.c(1))

        def place(code: Code, item: int) -> tuple[int, int, int]:
            """Team and place there of an item, and where its element is from ``first`` on. Beyond
            the row any element will do: nobody adds it."""
            v = Words(code)
            team, at = (self.team, item) if self.several else v.split(item, size)
            begin = piece if self.several else v.add(v.scaled(team, CHUNK), piece)
            return team, at, v.least(v.add(begin, at), last)

        def stage(regions: Sequence[Region], items: Sequence[int], none: list[int]) -> list[int]:
            code = regions[0].code
            places = [place(code, item) for item in items]
            values = [
                element(inner, Words(code).add(first, at))
                for inner, (_, _, at) in zip(regions, places, strict=True)
            ]
            for (team, at, _), value in zip(places, values, strict=True):
                sums.put_stage(code, team, at, value)
            return none

        if self.several:
            count = w.least(w.sub(left, piece), w.c(size))
        else:
            count = w.scaled(w.least(w.ceildiv(left, CHUNK), w.c(self.teams)), size)
        self.each_item(region, count, [], stage)

    def add_piece(self, sums: _Sum, code: Code, piece: int, left: int, part: int) -> int:
        """A partial of a team's piece, for the first ``parts`` invocations; the others add none."""
        w = Words(code)
        team, lane = w.split(self.local, PARTIALS)
        begin = piece if self.several else w.add(w.scaled(team, CHUNK), piece)
        rest = w.kept(w.below(begin, left), w.sub(left, begin))
        length = w.kept(w.below(self.local, w.c(self.parts)), w.least(rest, w.c(self.spread.piece)))
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
        base = Words(code).scaled(team, PARTIALS)
        p0, p1, p2, p3 = self._loaded(code, "parts", base, range(PARTIALS))
        return self.join(code, self.join(code, p0, p2), self.join(code, p1, p3))

    def add(self, code: Code, team: int, item: int, steps: Sequence[int], part: int) -> int:
        """``part`` with elements ``item + step`` of a team's piece, in order."""
        return self._added(code, "stage", self._staged(code, team, item), steps, part)

    def add_shares(self, code: Code, team: int, lane: int, part: int) -> int:
        w = Words(code)
        base = w.add(w.scaled(team, SHARES), lane)
        return self._added(code, "shares", base, range(0, TEAM, PARTIALS), part)

    def staged(self, code: Code, team: int, item: int) -> int:
        return self._get(code, "stage", self._staged(code, team, item))

    def put_stage(self, code: Code, team: int, item: int, value: int) -> None:
        self._put(code, "stage", self._staged(code, team, item), value)

    def put_share(self, code: Code, team: int, place: int, value: int) -> None:
        w = Words(code)
        self._put(code, "shares", w.add(w.scaled(team, SHARES), place), value)

    def put_parts(self, code: Code, at: int, value: int) -> None:
        self._put(code, "parts", at, value)

    def _staged(self, code: Code, team: int, item: int) -> int:
        w = Words(code)
        return w.add(w.scaled(team, self.rows.spread.pitch), item)

    def _added(self, code: Code, name: str, base: int, steps: Sequence[int], part: int) -> int:
        for value in self._loaded(code, name, base, steps):
            part = self.join(code, part, value)
        return part

    def _loaded(self, code: Code, name: str, base: int, steps: Sequence[int]) -> list[int]:
        return [self._get(code, name, Words(code).plus(base, step)) for step in steps]

    def _place(self, code: Code, name: str, at: int) -> int:
        io, kind, rows = self.rows.em.io, Scalars(code).type(self.dtype), self.rows
        pitch = {"stage": rows.spread.pitch, "shares": SHARES, "parts": PARTIALS}[name]
        variables, module, length = io.shared.variables, io.module, rows.teams * pitch
        letter = "u" if self.dtype.is_integer else "f"
        key = f"{name}_{letter}{8 * max(self.dtype.bytes, 4)}_{length}"
        if key not in variables:
            variables[key] = module.variable("Workgroup", module.array(kind, length))
            module.name(variables[key], key)
        return code.op("AccessChain", module.pointer("Workgroup", kind), variables[key], at)

    def _get(self, code: Code, name: str, at: int) -> int:
        return Scalars(code).op("Load", self.dtype, self._place(code, name, at))

    def _put(self, code: Code, name: str, at: int, value: int) -> None:
        code.do("Store", self._place(code, name, at), value)


def emit_rows(
    em: Emission,
    spread: Spread,
    teams: int,
    value: Expr,
    shared: Sequence[Expr],
    extents: Sequence[int],
) -> None:
    """The code of a kernel by rows; ``value`` and ``shared`` are in primitive operators.

    Every invocation of a workgroup goes over the rows as often, whatever its row is: there are
    barriers inside.
    """
    io, form, root = em.io, spread.kernel, em.io.root
    local = io.input("LocalInvocationId")
    rows = Rows(em, spread, teams, local, *Words(root.code).split(local, TEAM))
    passes, held = row_passes(spread, shared, value)
    outer, inner = form.loops[: spread.outer], form.loops[spread.outer :]
    w = Words(root.code)
    total, together = _product(w, extents[: spread.outer]), teams if spread.several else 1
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
    for item in passes:
        row.known[item.node] = rows.reduce(item, row)
    count = _product(Words(row.code), extents[spread.outer :])
    if present is not None:
        count = Words(row.code).kept(present, count)
    axes = [(item.var, extent) for item, extent in zip(inner, extents[spread.outer :], strict=True)]
    last = Words(row.code).sub(count, Words(row.code).c(1))

    def put(regions: Sequence[Region], items: Sequence[int], none: list[int]) -> list[int]:
        results = []
        w = Words(regions[0].code)
        for region, item in zip(regions, items, strict=True):
            known = w.least(item, last)
            region.names.update(rows.decode(region.code, known, axes))
            rows.take_held(held, region, known)
            place = emit_index(io, form.offset, region)
            results.append((place, em.value(value, region)))
        for item, (place, result) in zip(items, results, strict=True):
            inside = Conditional(w.code, w.below(item, count))
            io.store(inside.body, 0, place, result)
            inside.close()
        return none

    rows.each_item(row, count, [], put)
    following = Words(loop.body).add(loop.carried[0], step)
    loop.close(Words(loop.check).below(loop.carried[0], total), [following])


def _product(w: Words, extents: Sequence[int]) -> int:
    total = w.c(1)
    for position, extent in enumerate(extents):
        total = w.mul(total, extent) if position else extent
    return total
