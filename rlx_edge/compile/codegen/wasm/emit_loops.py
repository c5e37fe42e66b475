"""Loop kernels to functions: the loop nest, its vector and scalar bodies, the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.kernel_form import canonical
from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_address import (
    index_local,
    note_access,
    push_address,
    push_index,
    split_linear,
)
from rlx_edge.compile.codegen.wasm.emit_cost import moving_size, scalar_cost, vector_cost
from rlx_edge.compile.codegen.wasm.emit_expression import push_scalar, push_vector, settle
from rlx_edge.compile.codegen.wasm.emit_reduce import reduce_scalar, reduce_vector
from rlx_edge.compile.codegen.wasm.emit_region import Emission, Family, Region, Tile, lane_index
from rlx_edge.compile.codegen.wasm.emit_tile import is_transposed
from rlx_edge.compile.codegen.wasm.loop_assembly import Stage, close
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.codegen.wasm.scalar_table import emit_store, value_type
from rlx_edge.compile.codegen.wasm.vector_table import (
    LANE_TYPES,
    LANES,
    emit_extract_lane,
    emit_vector_store,
)
from rlx_edge.ir.dims import ONE, ZERO, Dim, symbol
from rlx_edge.ir.expression import Expr, substitute, walk
from rlx_edge.ir.kernel import Loop, LoopKernel
from rlx_edge.ir.types import DType

SCATTER = 5
"""Cost of storing four lanes one by one; a vector store costs 1."""
UNROLL = ((4, 4), (12, 2))
"""``(operators in a body, vectors an iteration)``: small bodies are repeated."""


@dataclass(frozen=True, slots=True)
class Store:
    """One element to store: its offset in slot 0 and its value."""

    offset: Dim
    value: Expr


def emit_loop_kernel(module: ModuleBuilder, kernel: LoopKernel, name: str) -> FunctionBuilder:
    """Add the function of a loop kernel. ``RlxError`` where a type or operator has no code."""
    form = canonical(kernel)
    function = module.function(name, [("args", encoder.I32), ("thread", encoder.I32)])
    em = Emission(function, Region(None), len(form.buffers), reduce_scalar, reduce_vector)
    em.count_uses(form.value)
    for dtype in form.buffers:
        value_type(dtype)
    _return_if_empty(em, form.loops)
    store = Store(form.offset, form.value)
    nest = _Nest(em, form)
    nest.tile = nest.choose_tile(store)
    nest.emit(em.root, 0, [store])
    function.raw(bytes(em.root.body.code))
    return function


def _return_if_empty(em: Emission, loops: Sequence[Loop]) -> None:
    """Leave before anything is read if there is nothing to store."""
    body = em.root.body
    tests = 0
    for loop in loops:
        if loop.extent.is_constant and loop.extent.value > 0:
            continue
        push_index(em, loop.extent, em.root)
        body.i32_const(0).i32_le_s()
        if tests:
            body.i32_or()
        tests += 1
    if tests:
        body.if_().return_().end()


@dataclass(eq=False, slots=True)
class _Nest:
    em: Emission
    kernel: LoopKernel
    tile: str = ""

    @property
    def dtype(self) -> DType:
        return self.kernel.buffers[0]

    def emit(self, parent: Region, depth: int, stores: Sequence[Store]) -> None:
        """The loops from ``depth`` inwards; ``stores`` are the steps of a tile, else one."""
        loops = self.kernel.loops
        if depth == len(loops):
            self.store_scalar(stores[0], parent)
            return
        if depth + 1 == len(loops):
            self.innermost(stores, parent)
            return
        loop = loops[depth]
        family = Family(loop.var, parent)
        stages: list[Stage] = []
        if loop.var == self.tile:
            steps = [self.moved(stores[0], loop.var, step) for step in range(LANES)]
            wide = Region(parent, loop.var, family)
            self.emit(wide, depth + 1, steps)
            stages.append((wide, LANES))
        single = Region(parent, loop.var, family)
        self.emit(single, depth + 1, stores)
        stages.append((single, 1))
        close(self.em, family, stages, self.count(loop, parent), nonempty=True)

    def count(self, loop: Loop, region: Region) -> int:
        if not loop.extent.is_constant:
            return index_local(self.em, loop.extent, region)
        local = self.em.counter()
        push_index(self.em, loop.extent, region)
        region.body.local_set(local)
        return local

    def innermost(self, stores: Sequence[Store], parent: Region) -> None:
        em, loop = self.em, self.kernel.loops[-1]
        lanes = self.kernel.lanes and vector_cost(em, [stores[0].value], loop.var) is not None
        if lanes and self.dtype in LANE_TYPES:
            region = Region(parent, loop.var, None, loop.var)
            self.store_steps(stores, loop.var, 0, region)
            parent.body.raw(bytes(region.body.code))
            return
        family = Family(loop.var, parent)
        stages: list[Stage] = []
        if len(stores) > 1 or self.is_vector(stores[0], loop.var):
            for copies in [1] if len(stores) > 1 else self.unrolled(stores[0], loop.var):
                wide = Region(parent, loop.var, family, loop.var)
                for copy in range(copies):
                    self.store_steps(stores, loop.var, copy * LANES, wide)
                stages.append((wide, copies * LANES))
        single = Region(parent, loop.var, family)
        for store in stores:
            self.store_scalar(store, single)
        stages.append((single, 1))
        close(em, family, stages, self.count(loop, parent), nonempty=True)

    def store_steps(
        self, stores: Sequence[Store], variable: str, distance: int, region: Region
    ) -> None:
        """One vector of every store."""
        for step, store in enumerate(stores):
            self.em.tile = Tile(self.tile, step) if len(stores) > 1 else None
            self.store_vector(self.moved(store, variable, distance), region)
        self.em.tile = None

    def moved(self, store: Store, variable: str, distance: int) -> Store:
        if distance == 0:
            return store
        there = {variable: symbol(variable) + distance}
        moved = Store(store.offset.substitute(there), substitute(store.value, there))
        self.em.count_uses(moved.value)
        return moved

    def choose_tile(self, store: Store) -> str:
        """The outer variable that goes four steps at once: along it some load is contiguous that
        the lanes would gather, or the nest is a channel block whose one vector is a short body."""
        loops = self.kernel.loops
        if not loops or self.dtype not in LANE_TYPES:
            return ""
        innermost = loops[-1].var
        if not _is_contiguous(store.offset, innermost):
            return ""
        nodes = walk(store.value)
        reductions = [node for node in nodes if node.op == "reduce"]
        if any(innermost in self.em.free(node) for node in reductions):
            return ""
        for loop in loops[-2::-1]:
            if any(is_transposed(node, innermost, loop.var) for node in nodes):
                return loop.var if self.is_vector(store, innermost, loop.var) else ""
        small = moving_size(self.em, [store.value], innermost) <= UNROLL[-1][0]
        return loops[-2].var if self.kernel.lanes and len(loops) > 1 and small else ""

    def is_vector(self, store: Store, variable: str, tile: str = "") -> bool:
        em = self.em
        cost = vector_cost(em, [store.value], variable, tile)
        if cost is None or self.dtype not in LANE_TYPES:
            return False
        cost += 1 if _is_contiguous(store.offset, variable) else SCATTER
        return cost < scalar_cost(em, [store.value], variable) + LANES

    def unrolled(self, store: Store, variable: str) -> list[int]:
        """Vectors an iteration of each vector loop, largest first."""
        reductions = (node for node in walk(store.value) if node.op == "reduce")
        if any(variable in self.em.free(node) for node in reductions):
            return [1]
        size = moving_size(self.em, [store.value], variable)
        for limit, copies in UNROLL:
            if size <= limit:
                return [copies, 1]
        return [1]

    # ---- stores ------------------------------------------------------------------------------

    def store_scalar(self, store: Store, region: Region) -> None:
        settle(self.em, store.value, region, push_scalar)
        offset = push_address(self.em, 0, store.offset, self.dtype.bytes, region)
        push_scalar(self.em, store.value, region)
        emit_store(region.body, self.dtype, offset)

    def store_vector(self, store: Store, region: Region) -> None:
        em, body, size = self.em, region.body, self.dtype.bytes
        settle(em, store.value, region, push_vector)
        if _is_contiguous(store.offset, region.vector):
            offset = push_address(em, 0, store.offset, size, region)
            push_vector(em, store.value, region)
            emit_vector_store(body, self.dtype, offset)
            return
        push_vector(em, store.value, region)
        value = em.temp(encoder.V128)
        body.local_set(value)
        offsets = [
            store.offset.substitute({region.vector: lane_index(region, lane)})
            for lane in range(LANES)
        ]
        note_access(em, 0, offsets[0])
        for lane, offset_dim in enumerate(offsets):
            offset = push_address(em, 0, offset_dim, size, region)
            body.local_get(value)
            if size == 4:
                body.v128_store32_lane(lane, offset)
            else:
                emit_extract_lane(body, self.dtype, lane)
                emit_store(body, self.dtype, offset)


def _is_contiguous(offset: Dim, variable: str) -> bool:
    _, coefficient, nonlinear = split_linear(offset, variable)
    return coefficient is ONE and nonlinear is ZERO
