"""Reductions in the order of the numerics contract.

``chain``: one accumulator from +0, element by element. Others: element i of the row-major sequence
goes to partial i mod 4; the partials of each chunk of 4096 elements are joined as
(p0 op p2) op (p1 op p3); chunks are combined in order.

The partials are kept *rotated*: the accumulator at position 0 is the one that the next element goes
to. Four elements at once leave the rotation as it is, a single element rotates by one. The join is
symmetric under rotation (its operators commute), so no rotation has to be undone.

Forms: *row* (the last reduction variable is the lanes, one vector holds the four partials),
*vector* (four outputs are the lanes, four vectors are the partials), *scalar*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from itertools import product as positions

from rlx_edge.compile.codegen.kernel_form import (
    CHUNK,
    COMBINE,
    MAX_UNROLLED_NODES,
    PARTIALS,
    identity,
    is_order_free,
)
from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_address import index_local, push_index
from rlx_edge.compile.codegen.wasm.emit_cost import is_row
from rlx_edge.compile.codegen.wasm.emit_expression import push_scalar, push_vector, settle
from rlx_edge.compile.codegen.wasm.emit_extremum import Extremum
from rlx_edge.compile.codegen.wasm.emit_region import Emission, Family, Region
from rlx_edge.compile.codegen.wasm.loop_assembly import (
    bound,
    close,
    control,
    enter,
    prepare,
    run_guarded,
)
from rlx_edge.compile.codegen.wasm.scalar_table import emit_const, scalar_rule, value_type
from rlx_edge.compile.codegen.wasm.vector_table import (
    VECTOR_RULES,
    emit_extract_lane,
    emit_rotate,
    emit_splat_const,
)
from rlx_edge.ir.dims import ONE, Dim, DimLike, product, symbol
from rlx_edge.ir.expression import Expr, reduce_parts, substitute, walk
from rlx_edge.ir.kernel import BAKED_EXTENT
from rlx_edge.ir.types import F32

SCALAR, VECTOR, ROW = "scalar", "vector", "row"


def reduce_scalar(em: Emission, node: Expr, region: Region) -> None:
    """Push the reduction's value (one element)."""
    _Reduction.of(em, node, region, ROW if is_row(em, node) else SCALAR).push()


def reduce_vector(em: Emission, node: Expr, region: Region) -> None:
    """Push the reduction's values for the four lanes of the region's vector variable."""
    _Reduction.of(em, node, region, VECTOR).push()


@dataclass(eq=False, slots=True)
class _Reduction:
    em: Emission
    region: Region
    form: str
    kind: str
    axes: tuple[tuple[str, Dim], ...]
    value: Expr
    partials: list[int]
    extremum: Extremum | None = None
    total: int | None = None
    left: int | None = None

    @staticmethod
    def of(em: Emission, node: Expr, region: Region, form: str) -> _Reduction:
        kind, names, extents, body = reduce_parts(node)
        axes = tuple(
            (name, extent) for name, extent in zip(names, extents, strict=True) if extent is not ONE
        )
        unit = {name: 0 for name, extent in zip(names, extents, strict=True) if extent is ONE}
        if unit:
            body = substitute(body, unit)
            em.count_uses(body)
        return _Reduction(em, region, form, kind, axes, body, [])

    # ---- the whole ---------------------------------------------------------------------------

    def push(self) -> None:
        em, body = self.em, self.region.body
        if self.form != SCALAR and self.kind in ("max", "min") and self.value.dtype is F32:
            self.push_extremum()
            return
        count = 1 if self.form == ROW or self.kind == "chain" else PARTIALS
        self.partials = [em.temp(self.local_type) for _ in range(count)]
        for local in self.partials:
            self.push_identity(body)
            body.local_set(local)
        if self.is_chunked:
            self.total, self.left = em.temp(self.joined_type), em.counter()
            self.push_identity(body, joined=True)
            body.local_set(self.total).i32_const(CHUNK).local_set(self.left)
        self.nest(self.region, 0)
        if self.total is not None:
            body.local_get(self.total)
        self.push_joined(body)
        if self.total is not None:
            self.combine(body, joined=True)

    def push_extremum(self) -> None:
        """Maxima and minima do not depend on the order: one set of results for all elements."""
        body = self.region.body
        self.extremum = Extremum.of(self.em, self.kind)
        self.extremum.start(body, identity(self.kind, F32))
        self.nest(self.region, 0)
        self.extremum.push_result(body)
        if self.form == ROW:
            self.partials = [self.em.temp(encoder.V128)]
            body.local_set(self.partials[0])
            self.push_joined(body)

    def nest(self, parent: Region, depth: int) -> None:
        """The loops from axis ``depth`` inwards."""
        elements = self.unrolled(depth)
        if elements is not None:
            self.add_elements(parent, elements)
            self.rotate(parent.body, len(elements))
            return
        name, extent = self.axes[depth]
        family = Family(name, parent)
        count = index_local_of(self.em, extent, parent)
        if depth + 1 < len(self.axes):
            inner = Region(parent, name, family, parent.vector)
            self.nest(inner, depth + 1)
            prepare(self.em, family, [(inner, 1)])
            parent.body.local_get(count).i32_const(0).i32_gt_s().if_()
            close(self.em, family, [(inner, 1)], count, nonempty=True)
            parent.body.end()
            return
        stages = self.last_axis(family)
        if self.left is None:
            prepare(self.em, family, stages)
            parent.body.local_get(count).i32_const(0).i32_gt_s().if_()
            close(self.em, family, stages, count, nonempty=True)
            parent.body.end()
        else:
            self.run_chunked(family, stages, count)

    def unrolled(self, depth: int) -> list[Expr] | None:
        """The elements over the axes from ``depth`` on, if they are few and chunks allow it."""
        axes = self.axes[depth:]
        total = product(extent for _, extent in axes)
        constant = all(extent.is_constant for _, extent in axes)
        if self.left is not None or self.form == ROW or not constant:
            return None
        size = sum(1 for node in walk(self.value) if node.op not in ("const", "index"))
        if total.value > BAKED_EXTENT or total.value * size > MAX_UNROLLED_NODES:
            return None
        return [self.placed(step) for step in unrolled_steps(axes)]

    def placed(self, step: Mapping[str, DimLike]) -> Expr:
        """The element at a step of some variables."""
        placed = substitute(self.value, step)
        self.em.count_uses(placed)
        return placed

    def rotate(self, body: encoder.Body, count: int) -> None:
        """Bring the partial that follows ``count`` elements to the front."""
        number = len(self.partials)
        turns = count % number if number else 0
        if turns:
            for local in self.partials:
                body.local_get(local)
            for position in range(number - 1, -1, -1):
                body.local_set(self.partials[(position - turns) % number])

    def last_axis(self, family: Family) -> list[tuple[Region, int]]:
        """Bodies over the last axis: four elements at once, then one."""
        name, parent = family.variable, family.parent
        tail = Region(parent, name, family, "" if self.form == ROW else parent.vector)
        if self.kind == "chain":
            self.add_elements(tail, [self.value])
            return [(tail, 1)]
        wide = Region(parent, name, family, name if self.form == ROW else parent.vector)
        if self.form == ROW:
            self.add_row(wide)
        else:
            steps = [{name: symbol(name) + step} for step in range(PARTIALS)]
            self.add_elements(wide, [self.value, *(self.placed(step) for step in steps[1:])])
        self.add_single(tail)
        return [(wide, PARTIALS), (tail, 1)]

    # ---- elements ----------------------------------------------------------------------------

    def add_elements(self, region: Region, elements: Sequence[Expr]) -> None:
        """Element k joins partial k mod the number of partials."""
        body = region.body
        if self.extremum is not None:
            for element in elements:
                self.extremum.add(body, partial(self.push_element, region, element))
            return
        for position, element in enumerate(elements):
            local = self.partials[position % len(self.partials)]
            body.local_get(local)
            self.push_element(region, element)
            self.combine(body)
            body.local_set(local)

    def add_row(self, region: Region) -> None:
        """Four elements join their partials, the lanes of one vector."""
        settle(self.em, self.value, region, push_vector)
        push = partial(push_vector, self.em, self.value, region)
        if self.extremum is not None:
            self.extremum.add(region.body, push)
            return
        region.body.local_get(self.partials[0])
        push()
        self.combine(region.body)
        region.body.local_set(self.partials[0])

    def add_single(self, region: Region) -> None:
        """One element joins partial 0, then all rotate by one."""
        body = region.body
        push = partial(
            self.push_lane if self.form == ROW else self.push_element, region, self.value
        )
        if self.extremum is not None:
            self.extremum.add(body, push)
            return
        first, *others = self.partials
        body.local_get(first)
        push()
        self.combine(body)
        if self.form == ROW:
            body.local_set(first)
            emit_rotate(body, first)
            return
        for target, source in pairwise(self.partials):
            body.local_get(source).local_set(target)
        body.local_set(others[-1])

    def push_lane(self, region: Region, element: Expr) -> None:
        """One element in lane 0, the identity in the others."""
        self.push_identity(region.body)
        push_scalar(self.em, element, region)
        self.replace_first_lane(region.body)

    def push_element(self, region: Region, element: Expr) -> None:
        push = push_vector if self.form == VECTOR else push_scalar
        settle(self.em, element, region, push)
        push(self.em, element, region)

    # ---- chunks ------------------------------------------------------------------------------

    @property
    def is_chunked(self) -> bool:
        if self.kind == "chain" or is_order_free(self.kind, self.value.dtype):
            return False
        total = product(extent for _, extent in self.axes)
        return not (total.is_constant and total.value <= CHUNK)

    def run_chunked(self, family: Family, stages: Sequence[tuple[Region, int]], count: int) -> None:
        """The last axis in pieces that end where a chunk ends."""
        em, body = self.em, family.parent.body
        assert self.left is not None and self.total is not None
        test = control(em, family)
        todo, piece = em.counter(), em.counter()
        prepare(em, family, stages)
        body.local_get(count).i32_const(0).i32_gt_s().if_()
        enter(family)
        body.local_get(count).local_set(todo).loop("chunk")
        body.local_get(todo).local_get(self.left).local_get(todo).local_get(self.left)
        body.i32_lt_u().select().local_set(piece)
        ends = [bound(em, family, test, piece, steps, relative=True) for _, steps in stages]
        for stage, end in zip(stages, ends, strict=True):
            run_guarded(em, family, test, end, stage)
        body.local_get(todo).local_get(piece).i32_sub().local_set(todo)
        body.local_get(self.left).local_get(piece).i32_sub().local_tee(self.left).i32_eqz().if_()
        body.local_get(self.total)
        self.push_joined(body)
        self.combine(body, joined=True)
        body.local_set(self.total)
        for local in self.partials:
            self.push_identity(body)
            body.local_set(local)
        body.i32_const(CHUNK).local_set(self.left).end()
        body.local_get(todo).br_if("chunk").end().end()

    # ---- values ------------------------------------------------------------------------------

    @property
    def local_type(self) -> int:
        return encoder.V128 if self.form != SCALAR else value_type(self.value.dtype)

    @property
    def joined_type(self) -> int:
        return encoder.V128 if self.form == VECTOR else value_type(self.value.dtype)

    def push_identity(self, body: encoder.Body, joined: bool = False) -> None:
        value, dtype = identity(self.kind, self.value.dtype), self.value.dtype
        if self.form == SCALAR or (joined and self.form == ROW):
            emit_const(body, value, dtype)
        else:
            emit_splat_const(body, value, dtype)

    def combine(self, body: encoder.Body, joined: bool = False) -> None:
        op, dtype = COMBINE[self.kind], self.value.dtype
        if self.form == SCALAR or (joined and self.form == ROW):
            scalar_rule(op, dtype)(body, self.em.temp)
        else:
            VECTOR_RULES[(op, dtype)](body, self.em.temp)

    def replace_first_lane(self, body: encoder.Body) -> None:
        if self.value.dtype.is_float:
            body.f32x4_replace_lane(0)
        else:
            body.i32x4_replace_lane(0)

    def push_joined(self, body: encoder.Body) -> None:
        """(p0 op p2) op (p1 op p3) of the current chunk."""
        if self.kind == "chain":
            body.local_get(self.partials[0])
            return
        if self.form != ROW:
            p0, p1, p2, p3 = self.partials
            for first, second in ((p0, p2), (p1, p3)):
                body.local_get(first).local_get(second)
                self.combine(body)
            self.combine(body)
            return
        (lanes,) = self.partials
        pairs = self.em.temp(encoder.V128)
        body.local_get(lanes).local_get(lanes).local_get(lanes)
        body.i32x4_shuffle((2, 3, 0, 1))
        self.combine(body)
        body.local_set(pairs)
        for lane in (0, 1):
            body.local_get(pairs)
            emit_extract_lane(body, self.value.dtype, lane)
        self.combine(body, joined=True)


def unrolled_steps(axes: Sequence[tuple[str, Dim]]) -> Iterator[dict[str, DimLike]]:
    """Every step of constant axes, row-major."""
    for position in positions(*(range(extent.value) for _, extent in axes)):
        yield {name: at for (name, _), at in zip(axes, position, strict=True)}


def index_local_of(em: Emission, extent: Dim, region: Region) -> int:
    """A local with an extent, constant or not."""
    if not extent.is_constant:
        return index_local(em, extent, region)
    key = ("constant", extent)
    found = region.find(key)
    if found is None:
        push_index(em, extent, region)
        found = em.counter()
        region.body.local_set(found)
        region.memo[key] = found
    return found
