"""What a loop kernel must compute: a direct evaluation with numpy, element types included.

It follows the numerics contract and the operator table of ``expression.py``, not the emitter:
values of all output points are arrays, reductions combine their elements in the stated order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from rlx_edge.ir.dims import Atom, Dim
from rlx_edge.ir.expression import INDEX, Expr, index_dim, reduce_parts
from rlx_edge.ir.kernel import LoopKernel
from rlx_edge.ir.scalar_functions import expand
from rlx_edge.ir.types import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)

NUMPY: dict[DType, type[np.generic]] = {
    F32: np.float32, F64: np.float64, I8: np.int8, I16: np.int16, I32: np.int32, I64: np.int64,
    U8: np.uint8, U16: np.uint16, U32: np.uint32, U64: np.uint64, BOOL: np.bool_,
    INDEX: np.int32,
}  # fmt: skip
Environment = Mapping[str, np.ndarray]
Step: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
CHUNK = 4096


def evaluate_kernel(kernel: LoopKernel, buffers: Sequence[np.ndarray]) -> np.ndarray:
    """``buffers[0]`` after the kernel, whose sizes are all constants."""
    output = buffers[0].copy()
    extents = [loop.extent.value for loop in kernel.loops]
    if any(extent <= 0 for extent in extents):
        return output
    grids = np.indices(extents).reshape(len(extents), -1) if extents else np.zeros((0, 1), int)
    env = {loop.var: grid for loop, grid in zip(kernel.loops, grids, strict=True)}
    with np.errstate(all="ignore"):
        value = _Evaluator(buffers, grids.shape[1]).value(expand(kernel.value), env)
        offsets = np.broadcast_to(dim_value(kernel.offset, env), (grids.shape[1],))
    output.reshape(-1)[offsets] = value
    return output


def dim_value(dim: Dim, env: Environment) -> np.ndarray:
    """A dim over arrays of variables."""
    total = np.zeros((), np.int64)
    for mono, coef in dim.terms:
        term = np.int64(coef)
        for atom in mono:
            term = term * _atom_value(atom, env)
        total = total + term
    return np.asarray(total)


def _atom_value(atom: Atom, env: Environment) -> np.ndarray:
    if atom.op == "symbol":
        return env[atom.name].astype(np.int64)
    a, b = (dim_value(arg, env) for arg in atom.args)
    functions: dict[str, Callable[..., np.ndarray]] = {
        "floordiv": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum,
    }  # fmt: skip
    return functions[atom.op](a, b)


class _Evaluator:
    def __init__(self, buffers: Sequence[np.ndarray], points: int) -> None:
        self.buffers = [buffer.reshape(-1) for buffer in buffers]
        self.points = points

    def value(self, root: Expr, env: Environment) -> np.ndarray:
        """Values at every output point, as an array of the node's element type."""
        values: dict[Expr, np.ndarray] = {}
        pending = [root]
        while pending:
            node = pending[-1]
            operands = () if node.op == "reduce" else node.args
            missing = [arg for arg in operands if arg not in values]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            result = self.node_value(node, [values[arg] for arg in operands], env)
            points = np.broadcast_to(result, (self.points,))
            values[node] = points.astype(NUMPY[node.dtype])
        return values[root]

    def node_value(self, node: Expr, args: list[np.ndarray], env: Environment) -> np.ndarray:
        dim = index_dim(node)
        if node.op == "const":
            return np.asarray(node.attr)
        if dim is not None:
            return dim_value(dim, env)
        if node.op == "load":
            assert isinstance(node.attr, int)
            return self.buffers[node.attr][args[0]]
        if node.op == "reduce":
            return self.reduction(node, env)
        if node.op == "select":
            return np.where(*args)
        if node.op == "cast":
            return convert(args[0], node.dtype)
        if node.op == "bitcast":
            return args[0].view(NUMPY[node.dtype])
        return apply(node, args)

    def reduction(self, node: Expr, env: Environment) -> np.ndarray:
        """A reduction at every point; points that agree in its variables share one."""
        used = [name for name in env if name in _variables(node)]
        table = np.array([np.broadcast_to(env[name], self.points) for name in used])
        table = table.reshape(len(used), self.points)
        distinct, where = np.unique(table, axis=1, return_inverse=True)
        if not used:
            distinct, where = np.zeros((0, 1), np.int64), np.zeros(self.points, np.int64)
        inside = _Evaluator(self.buffers, distinct.shape[1])
        inner = dict(zip(used, distinct, strict=True))
        return inside._distinct_reduction(node, inner)[where.reshape(-1)]

    def _distinct_reduction(self, node: Expr, env: Environment) -> np.ndarray:
        kind, names, extents, body = reduce_parts(node)
        sizes = [int(dim_value(extent, {})) for extent in extents]
        count, points = int(np.prod(sizes)), self.points
        grids = np.indices(sizes).reshape(len(sizes), -1)
        inner = {name: np.repeat(np.broadcast_to(at, points), count) for name, at in env.items()}
        inner |= {name: np.tile(at, points) for name, at in zip(names, grids, strict=True)}
        wider = _Evaluator(self.buffers, points * count)
        items = wider.value(body, inner).reshape(points, count)
        step, start = _STEPS[kind], _identity(kind, node.dtype)
        if kind == "chain":
            total = np.full(points, start, items.dtype)
            for position in range(count):
                total = step(total, items[:, position])
            return total
        chunks = [items[:, at : at + CHUNK] for at in range(0, max(count, 1), CHUNK)]
        joined = [_join(chunk, step, start) for chunk in chunks]
        total = joined[0]
        for chunk in joined[1:]:
            total = step(total, chunk)
        return total


@cache
def _variables(node: Expr) -> frozenset[str]:
    """Symbols that the value depends on, without those that reductions inside it bind."""
    dim = index_dim(node)
    if dim is not None:
        return frozenset(dim.symbols())
    found = frozenset[str]().union(*(_variables(arg) for arg in node.args))
    return found - frozenset(reduce_parts(node)[1]) if node.op == "reduce" else found


def _join(chunk: np.ndarray, step: Step, start: float | int) -> np.ndarray:
    """The four partials of one chunk, (p0 op p2) op (p1 op p3)."""
    points, count = chunk.shape
    partials = np.full((points, 4), start, chunk.dtype)
    for position in range(0, count - 3, 4):
        partials = step(partials, chunk[:, position : position + 4])
    rest = count % 4
    if rest:
        partials[:, :rest] = step(partials[:, :rest], chunk[:, count - rest :])
    p0, p1, p2, p3 = partials.T
    return step(step(p0, p2), step(p1, p3))


def _identity(kind: str, dtype: DType) -> float | int:
    if kind in ("sum", "chain", "prod"):
        return int(kind == "prod")
    if dtype.is_float:
        return -np.inf if kind == "max" else np.inf
    limits = np.iinfo(NUMPY[dtype])
    return limits.min if kind == "max" else limits.max


def wasm_max(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f32.max: NaN if either is, -0 below +0."""
    result = np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)
    return (
        np.where(np.isnan(a) | np.isnan(b), np.nan, result).astype(a.dtype)
        if (a.dtype.kind == "f")
        else np.maximum(a, b)
    )


def wasm_min(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f32.min: NaN if either is, -0 below +0."""
    if a.dtype.kind != "f":
        return np.minimum(a, b)
    result = np.where((a < b) | ((a == b) & np.signbit(a)), a, b)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, result).astype(a.dtype)


_STEPS: dict[str, Step] = {
    "chain": np.add, "sum": np.add, "prod": np.multiply, "max": wasm_max, "min": wasm_min,
}  # fmt: skip


def convert(x: np.ndarray, dtype: DType) -> np.ndarray:
    """ONNX Cast: float to integer truncates and saturates, NaN gives 0; integers wrap."""
    target = NUMPY[dtype]
    if dtype is BOOL:
        return x != 0
    if x.dtype.kind == "f" and not dtype.is_float:
        limits = np.iinfo(target)
        exact = [_saturate(float(item), int(limits.min), int(limits.max)) for item in x]
        return np.array(exact, dtype=object).astype(target)
    return x.astype(target)


def _saturate(value: float, low: int, high: int) -> int:
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, int(value)))


def _divide(a: int, b: int) -> int:
    """Towards zero; 0 for a zero divisor."""
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_EXACT: dict[str, Callable[[int, int], int]] = {
    "div": _divide,
    "floordiv": lambda a, b: 0 if b == 0 else a // b,
    "mod": lambda a, b: 0 if b == 0 else a % b,
}
_COMPARE: dict[str, Callable[..., np.ndarray]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": wasm_min, "max": wasm_max,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "nearest": np.rint, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "not": np.logical_not, "shl": np.left_shift, "shr": np.right_shift,
    **_COMPARE,
}  # fmt: skip


def apply(node: Expr, args: list[np.ndarray]) -> np.ndarray:
    """A primitive operator on arrays of its operand type."""
    dtype = node.args[0].dtype
    if node.op in _EXACT:
        if dtype.is_float:
            return np.divide(*args)
        exact = [_EXACT[node.op](int(a), int(b)) for a, b in zip(*args, strict=True)]
        bits = 8 * dtype.bytes
        wrapped = [item & ((1 << bits) - 1) for item in exact]
        unsigned = np.array(wrapped, np.uint64).astype(f"u{dtype.bytes}")
        return unsigned.view(NUMPY[dtype])
    return _FUNCTIONS[node.op](*args)


def same_bits(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal bit for bit, where every NaN equals every NaN."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.kind != "f":
        return bool(np.array_equal(actual, expected))
    unsigned = f"u{actual.dtype.itemsize}"
    equal = actual.view(unsigned) == expected.view(unsigned)
    return bool(np.all(equal | (np.isnan(actual) & np.isnan(expected))))
