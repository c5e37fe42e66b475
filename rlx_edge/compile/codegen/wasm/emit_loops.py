"""Loop kernels to functions: the loop nest, its vector and scalar bodies, the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_address import (
    index_local,
    note_access,
    push_address,
    push_index,
    split_linear,
)
from rlx_edge.compile.codegen.wasm.emit_cost import moving_size, scalar_cost, vector_cost
from rlx_edge.compile.codegen.wasm.emit_expression import push_scalar, push_vector
from rlx_edge.compile.codegen.wasm.emit_reduce import reduce_scalar, reduce_vector
from rlx_edge.compile.codegen.wasm.emit_region import Emission, Family, Region, lane_index
from rlx_edge.compile.codegen.wasm.kernel_form import canonical
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
    _Nest(em, form).emit(em.root, 0)
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

    @property
    def dtype(self) -> DType:
        return self.kernel.buffers[0]

    def emit(self, parent: Region, depth: int) -> None:
        """The loops from ``depth`` inwards."""
        kernel = self.kernel
        store = Store(kernel.offset, kernel.value)
        if depth == len(kernel.loops):
            self.store_scalar(store, parent)
        elif depth + 1 == len(kernel.loops):
            self.innermost(store, parent)
        else:
            loop = kernel.loops[depth]
            family = Family(loop.var, parent)
            inner = Region(parent, loop.var, family)
            self.emit(inner, depth + 1)
            close(self.em, family, [(inner, 1)], self.count(loop, parent), nonempty=True)

    def count(self, loop: Loop, region: Region) -> int:
        if not loop.extent.is_constant:
            return index_local(self.em, loop.extent, region)
        local = self.em.counter()
        push_index(self.em, loop.extent, region)
        region.body.local_set(local)
        return local

    def innermost(self, store: Store, parent: Region) -> None:
        em, loop = self.em, self.kernel.loops[-1]
        lanes = self.kernel.lanes and vector_cost(em, [store.value], loop.var) is not None
        if lanes and self.dtype in LANE_TYPES:
            region = Region(parent, loop.var, None, loop.var)
            self.store_vector(store, region)
            parent.body.raw(bytes(region.body.code))
            return
        family = Family(loop.var, parent)
        stages: list[Stage] = []
        if self.is_vector(store, loop.var):
            for copies in self.unrolled(store, loop.var):
                wide = Region(parent, loop.var, family, loop.var)
                for copy in range(copies):
                    self.store_vector(self.moved(store, loop.var, copy * LANES), wide)
                stages.append((wide, copies * LANES))
        single = Region(parent, loop.var, family)
        self.store_scalar(store, single)
        stages.append((single, 1))
        close(em, family, stages, self.count(loop, parent), nonempty=True)

    def moved(self, store: Store, variable: str, distance: int) -> Store:
        if distance == 0:
            return store
        there = {variable: symbol(variable) + distance}
        moved = Store(store.offset.substitute(there), substitute(store.value, there))
        self.em.count_uses(moved.value)
        return moved

    def is_vector(self, store: Store, variable: str) -> bool:
        em = self.em
        cost = vector_cost(em, [store.value], variable)
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
        offset = push_address(self.em, 0, store.offset, self.dtype.bytes, region)
        push_scalar(self.em, store.value, region)
        emit_store(region.body, self.dtype, offset)

    def store_vector(self, store: Store, region: Region) -> None:
        em, body, size = self.em, region.body, self.dtype.bytes
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
