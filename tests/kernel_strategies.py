"""Random loop kernels with buffers that their offsets stay inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.expression import (
    INDEX,
    Expr,
    binary,
    cast,
    const,
    index,
    load,
    reduce,
    select,
    unary,
)
from rlx_edge.ir.kernel import Loop, LoopKernel
from rlx_edge.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from tests.kernel_oracle import NUMPY

ALL_TYPES = (F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
MOST_ELEMENTS = 1 << 18
EXTENTS = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 19, 33))
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38, 0.5, 2.5)


@dataclass(frozen=True)
class Case:
    """A kernel with constant sizes and its buffers (slot 0 is the output)."""

    kernel: LoopKernel
    buffers: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        shapes = [(b.dtype.name, b.size) for b in self.buffers]
        return (
            f"Case(loops={[(loop.var, str(loop.extent)) for loop in self.kernel.loops]}, "
            f"lanes={self.kernel.lanes}, offset={self.kernel.offset}, "
            f"value={self.kernel.value}, buffers={shapes})"
        )


class Builder:
    """Draws a kernel part by part; keeps each load inside a buffer that it sizes."""

    def __init__(self, draw: st.DrawFn, seed: int) -> None:
        self.draw = draw
        self.random = np.random.default_rng(seed)
        self.buffers: list[np.ndarray] = []
        self.extents: dict[str, int] = {}
        self.reductions = 0

    # ---- data --------------------------------------------------------------------------------

    def data(self, dtype: DType, count: int) -> np.ndarray:
        kind = NUMPY[dtype]
        if dtype is BOOL:
            return self.random.integers(0, 2, count).astype(np.bool_)
        if dtype.is_float:
            values = self.random.standard_normal(count).astype(kind)
            mask = self.random.random(count) < 0.1
            values[mask] = self.random.choice(np.array(SPECIAL), int(mask.sum())).astype(kind)
            return values
        limits = np.iinfo(kind)
        values = self.random.integers(-20, 20, count).astype(kind)
        extreme = self.random.random(count) < 0.1
        values[extreme] = self.random.choice(
            np.array([limits.min, limits.max, 0, 1], dtype=kind), int(extreme.sum())
        )
        return values

    def buffer(self, dtype: DType, count: int) -> int:
        self.buffers.append(self.data(dtype, count))
        return len(self.buffers) - 1

    # ---- offsets -----------------------------------------------------------------------------

    def shape_offset(self, names: list[str]) -> tuple[Dim, int]:
        """A row-major offset over some variables in some order, and the buffer's size."""
        order = self.draw(st.permutations(names)) if self.draw(st.booleans()) else names
        dim, stride = as_dim(0), 1
        gap = self.draw(st.sampled_from((0, 0, 1, 3)))
        for name in reversed(order):
            dim = dim + symbol(name) * stride
            stride = stride * self.extents[name] + gap
        start = self.draw(st.sampled_from((0, 0, 1, 5)))
        return dim + start, stride + start

    def load_offset(self) -> tuple[Dim, int]:
        """An offset of a load: broadcast, permuted, reversed, clamped or divided axes."""
        names = [name for name in self.extents if self.draw(st.integers(0, 3)) > 0]
        dim, size = self.shape_offset(names)
        form = self.draw(st.sampled_from(("plain",) * 5 + ("reverse", "half", "clamp", "mod")))
        if not names or form == "plain":
            return dim, size
        name = self.draw(st.sampled_from(names))
        extent, var = self.extents[name], symbol(name)
        changed = {
            "reverse": as_dim(extent - 1) - var,
            "half": var // 2,
            "clamp": dim_max(dim_min(var - 1, extent - 2), 0),
            "mod": var % 3,
        }[form]
        return dim.substitute({name: changed}), size

    # ---- expressions -------------------------------------------------------------------------

    def leaf(self, dtype: DType) -> Expr:
        choice = self.draw(st.integers(0, 9))
        if choice < 7:
            dim, size = self.load_offset()
            return load(self.buffer(dtype, size), dtype, [dim])
        if choice == 7 and self.extents and dtype in (F32, I32, I64, F64):
            name = self.draw(st.sampled_from(sorted(self.extents)))
            return cast(index(symbol(name) * self.draw(st.integers(1, 3)) + 1), dtype)
        if choice == 8 and self.extents:
            return self.gathered(dtype)
        if dtype.is_float:
            return const(self.draw(st.sampled_from(SPECIAL)), dtype)
        return const(self.draw(st.integers(0, 1 if dtype is BOOL else 3)), dtype)

    def gathered(self, dtype: DType) -> Expr:
        """A load whose offset is itself loaded."""
        which = self.draw(st.sampled_from((I32, I64)))
        dim, size = self.load_offset()
        slot = self.buffer(which, size)
        rows, columns = 6, max(self.extents.values())
        self.buffers[slot] = self.random.integers(0, rows, size).astype(NUMPY[which])
        name = self.draw(st.sampled_from(sorted(self.extents)))
        row = cast(load(slot, which, [dim]), INDEX)
        offset = binary("add", binary("mul", row, index(columns)), index(symbol(name)))
        return load(self.buffer(dtype, rows * columns), dtype, [offset])

    def expression(self, dtype: DType, depth: int) -> Expr:
        if depth == 0:
            return self.leaf(dtype)
        kind = self.draw(st.sampled_from(("leaf", "binary", "binary", "unary", "select", "cast")))
        if kind == "leaf":
            return self.leaf(dtype)
        if kind == "select":
            condition = self.condition(depth - 1)
            return select(
                condition, self.expression(dtype, depth - 1), self.expression(dtype, depth - 1)
            )
        if kind == "cast":
            source = self.draw(st.sampled_from(ALL_TYPES))
            return cast(self.expression(source, depth - 1), dtype)
        return self.operator(dtype, depth, kind)

    def operator(self, dtype: DType, depth: int, kind: str) -> Expr:
        if dtype is BOOL:
            return self.condition(depth - 1)
        a = self.expression(dtype, depth - 1)
        if kind == "unary":
            names = ["neg", "abs"]
            if dtype.is_float:
                names += ["sqrt", "floor", "ceil", "trunc", "nearest"]
            return unary(self.draw(st.sampled_from(names)), a)
        names = ["add", "sub", "mul", "div", "min", "max"]
        if not dtype.is_float:
            names += ["floordiv", "mod", "and", "or", "xor", "shl", "shr"]
        name = self.draw(st.sampled_from(names))
        if name in ("shl", "shr"):
            return binary(name, a, const(self.draw(st.integers(0, 8 * dtype.bytes - 1)), dtype))
        return binary(name, a, self.expression(dtype, depth - 1))

    def condition(self, depth: int) -> Expr:
        depth = max(depth, 0)
        form = self.draw(st.integers(0, 4))
        if form == 0:
            a, b = self.expression(BOOL, 0), self.expression(BOOL, 0)
            return binary(self.draw(st.sampled_from(("and", "or", "xor", "eq", "ne"))), a, b)
        if form == 1 and self.extents:
            name = self.draw(st.sampled_from(sorted(self.extents)))
            left = index(symbol(name) - self.draw(st.integers(0, 2)))
            return binary("ge", left, index(self.draw(st.integers(0, 3))))
        if form == 2:
            return unary("not", self.expression(BOOL, 0))
        dtype = self.draw(st.sampled_from((F32, F32, I32, U32, I64, U8, F64)))
        name = self.draw(st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")))
        return binary(name, self.expression(dtype, depth), self.expression(dtype, depth))

    def relu(self, x: Expr) -> Expr:
        return select(binary("lt", x, const(0.0, F32)), const(0.0, F32), x)

    def reduction(
        self, dtype: DType, kind: str, extents: list[int], body: Callable[[], Expr]
    ) -> Expr:
        names = [f"_r{self.reductions + position}" for position in range(len(extents))]
        self.reductions += len(extents)
        outer = dict(self.extents)
        self.extents.update(zip(names, extents, strict=True))
        inside = body()
        self.extents = outer
        return reduce(kind, names, extents, inside)

    def case(self, value: Expr, loops: list[tuple[str, int]], lanes: bool, dtype: DType) -> Case:
        dim, stride = as_dim(0), 1
        gap = 0 if lanes else self.draw(st.sampled_from((0, 0, 2)))
        transposed = not lanes and self.draw(st.integers(0, 5)) == 0
        for name, extent in loops if transposed else reversed(loops):
            dim = dim + symbol(name) * stride
            stride = stride * extent + gap
        self.buffers[0] = self.data(dtype, max(stride, 1))
        kernel = LoopKernel(
            tuple(Loop(name, as_dim(extent)) for name, extent in loops),
            tuple(_dtype(buffer) for buffer in self.buffers),
            dim,
            value,
            lanes=lanes,
        )
        return Case(kernel, tuple(self.buffers))


def _dtype(buffer: np.ndarray) -> DType:
    return next(dtype for dtype, kind in NUMPY.items() if buffer.dtype == kind)


def _start(
    draw: st.DrawFn, dtype: DType, budget: Budget
) -> tuple[Builder, list[tuple[str, int]], bool]:
    builder = Builder(draw, draw(st.integers(0, 2**32 - 1)))
    builder.buffers.append(np.zeros(1, NUMPY[dtype]))
    count = draw(st.integers(0, 3))
    lanes = draw(st.integers(0, 4)) == 0 and budget.take(4) == 4
    loops = [(f"_v{position}", budget.take(draw(EXTENTS))) for position in range(count)]
    if lanes:
        loops.append(("_l", 4))
    builder.extents = dict(loops)
    return builder, loops, lanes


@dataclass
class Budget:
    """How many elements may still be computed; the oracle holds all of them at once."""

    left: int

    def take(self, extent: int) -> int:
        """``extent``, or what is left of it."""
        taken = min(extent, self.left)
        self.left //= max(taken, 1)
        return taken


@st.composite
def elementwise_kernels(draw: st.DrawFn, types: tuple[DType, ...] = ALL_TYPES) -> Case:
    """Kernels without reductions."""
    dtype = draw(st.sampled_from(types))
    builder, loops, lanes = _start(draw, dtype, Budget(MOST_ELEMENTS))
    value = builder.expression(dtype, draw(st.integers(0, 4)))
    if dtype is F32 and draw(st.booleans()):
        value = builder.relu(value)
    return builder.case(value, loops, lanes, dtype)


@st.composite
def reduction_kernels(draw: st.DrawFn, lengths: st.SearchStrategy[int]) -> Case:
    """Kernels with a reduction, possibly nested or used by another one, and an expression on it."""
    dtype = draw(st.sampled_from((F32, F32, F32, F64, I32, U8, I64)))
    budget = Budget(MOST_ELEMENTS)
    length = budget.take(draw(lengths))
    builder, loops, lanes = _start(draw, dtype, budget)
    kinds = st.sampled_from(("chain", "sum", "prod", "max", "min"))

    def inner() -> Expr:
        body = builder.expression(dtype, draw(st.integers(0, 2)))
        if draw(st.integers(0, 3)) == 0:
            extent = budget.take(draw(st.integers(0, 20)))
            nested = builder.reduction(
                dtype, draw(kinds), [extent], lambda: builder.expression(dtype, 1)
            )
            body = binary(draw(st.sampled_from(("add", "mul", "max"))), body, nested)
        return body

    axes = draw(st.integers(1, 3))
    extents = [length, *(budget.take(draw(st.integers(0, 9))) for _ in range(axes - 1))]
    extents = draw(st.permutations(extents))
    value = builder.reduction(dtype, draw(kinds), extents, inner)
    if draw(st.booleans()):
        value = binary(draw(st.sampled_from(("add", "sub", "mul"))), builder.leaf(dtype), value)
    return builder.case(value, loops, lanes, dtype)
