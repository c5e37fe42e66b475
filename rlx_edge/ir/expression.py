"""Scalar expressions: the meaning of operators, epilogues and loop kernels.

An ``Expr`` is one interned node of a shared DAG: equal expressions are the same object, so
equality and hashing are by identity and a pass over a DAG memoises by node. Index arithmetic is
folded into ``Dim`` polynomials (``op == "index"``); loop variables are dim symbols whose names
start with ``_`` (``_i0``, ``_r1``), which no size may use.

Node kinds (``op``): ``const`` (attr: value), ``index`` (attr: Dim, dtype ``index``), ``acc`` (the
value an epilogue continues from), ``load`` (attr: operand slot; args: indices), ``reduce``
(attr: ``(kind, variables)``; args: body, extents…), ``cast``, ``bitcast``, ``select`` and the
scalar operators of ``SCALAR_OPS``. Operators marked derived there are expanded into primitive
ones by ``scalar_functions.expand`` before code generation, so every device computes the same bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias, Union
from typing import cast as typing_cast

from rlx_edge.ir.dims import Dim, DimLike, as_dim, dim_max, dim_min
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.scalar_ops import SCALAR_OPS, SHIFTS
from rlx_edge.ir.types import BOOL, F32, F64, I32, I64, U32, DType

INDEX = DType("index", "int", 4, 0, "i")
"""The type of sizes, loop variables and element offsets; never stored in a tensor."""

REDUCE_KINDS = ("chain", "sum", "prod", "max", "min")
"""``chain`` is the contraction order (one accumulator from +0.0); the others use four partials."""

ExprLike: TypeAlias = Union["Expr", int, float, bool]


class Expr:
    """One interned scalar expression node; build with the functions of this module."""

    __slots__ = ("args", "attr", "dtype", "op")
    _table: ClassVar[dict[tuple[Hashable, ...], Expr]] = {}

    op: str
    dtype: DType
    args: tuple[Expr, ...]
    attr: Hashable

    @staticmethod
    def make(op: str, dtype: DType, args: tuple[Expr, ...] = (), attr: Hashable = None) -> Expr:
        mark = _const_bits(dtype, attr) if op == "const" else attr
        key = (op, dtype.name, tuple(id(arg) for arg in args), mark)
        found = Expr._table.get(key)
        if found is None:
            found = Expr()
            found.op, found.dtype, found.args, found.attr = op, dtype, args, attr
            Expr._table[key] = found
        return found

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", like(other, self), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", like(other, self), self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", like(other, self), self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", like(other, self), self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def __bool__(self) -> bool:
        raise TypeError("an Expr has no truth value; use select()")

    def __repr__(self) -> str:
        inside = ", ".join(repr(arg) for arg in self.args)
        mark = "" if self.attr is None else f"{{{self.attr}}}"
        return f"{self.op}{mark}({inside})" if inside else f"{self.op}{mark}"


def _const_bits(dtype: DType, value: Hashable) -> Hashable:
    """A key that tells -0.0 from +0.0 and keeps NaN equal to itself."""
    return struct.pack("<d", value) if dtype.is_float else value


# ---- leaves ----------------------------------------------------------------------------------


def round_f32(value: float) -> float:
    """``value`` rounded to the nearest f32 (ties to even, overflow to infinity)."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def const(value: float | int | bool, dtype: DType) -> Expr:
    """A literal; floats are rounded to ``dtype``, integers must fit it."""
    if dtype is INDEX:
        return index(int(value))
    if dtype.is_float:
        number = float(value)
        if number != number:
            number = float("nan")  # one NaN: its bits are never part of a meaning
        return Expr.make("const", dtype, (), number if dtype is F64 else round_f32(number))
    if dtype is BOOL:
        return Expr.make("const", dtype, (), bool(value))
    return Expr.make("const", dtype, (), int(value))


def index(dim: DimLike) -> Expr:
    """An index-typed expression from a dim (sizes and loop variables)."""
    return Expr.make("index", INDEX, (), as_dim(dim))


def index_dim(expr: Expr) -> Dim | None:
    """The dim of a pure index expression, ``None`` for a data-dependent one."""
    return expr.attr if expr.op == "index" and isinstance(expr.attr, Dim) else None


def acc(dtype: DType = F32) -> Expr:
    """The value that an epilogue starts from (the root operator's result element)."""
    return Expr.make("acc", dtype)


def load(slot: int, dtype: DType, indices: Sequence[Expr | DimLike]) -> Expr:
    """Element of operand ``slot`` at logical ``indices`` (one a dimension)."""
    args = tuple(item if isinstance(item, Expr) else index(item) for item in indices)
    return Expr.make("load", dtype, args, slot)


def like(value: ExprLike, other: Expr) -> Expr:
    """``value`` as an expression of ``other``'s dtype when it is a Python number."""
    return value if isinstance(value, Expr) else const(value, other.dtype)


# ---- operators -------------------------------------------------------------------------------

_INDEX_FOLD: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": dim_max,
    "min": dim_min,
}


def unary(name: str, x: Expr) -> Expr:
    """Apply a one-operand operator of ``SCALAR_OPS``."""
    _check(name, 1, x)
    if x.dtype is INDEX and name == "neg":
        return binary("sub", index(0), x)
    return Expr.make(name, x.dtype, (x,))


def binary(name: str, a: ExprLike, b: ExprLike) -> Expr:
    """Apply a two-operand operator; a Python number takes the other operand's dtype."""
    if not isinstance(a, Expr):
        if not isinstance(b, Expr):
            raise TypeError(f"{name} needs an Expr")
        a = const(a, b.dtype)
    other = like(b, a)
    _check(name, 2, a, other)
    if name in SHIFTS:
        _check_count(name, other)
    left, right = index_dim(a), index_dim(other)
    if left is not None and right is not None and name in _INDEX_FOLD:
        return index(_INDEX_FOLD[name](left, right))
    dtype = BOOL if SCALAR_OPS[name].result == "bool" else a.dtype
    return Expr.make(name, dtype, (a, other))


def _check(name: str, arity: int, *args: Expr) -> None:
    op = SCALAR_OPS.get(name)
    if op is None or op.arity != arity:
        raise RlxError(
            "expression.op",
            "unknown scalar operator",
            found=f"{name}/{arity}",
            allowed=[f"{known.name}/{known.arity}" for known in SCALAR_OPS.values()],
        )
    for arg in args:
        if arg.dtype.kind not in op.kinds or arg.dtype is not args[0].dtype:
            raise RlxError(
                "expression.type",
                f"scalar operator {name} cannot take these types",
                found=", ".join(str(item.dtype) for item in args),
                allowed=f"one {'/'.join(op.kinds)} type",
            )


def _check_count(name: str, count: Expr) -> None:
    """A device may leave any other shift undefined: SPIR-V and CUDA C++ do."""
    known = count.attr if count.op == "const" else _index_value(count)
    width = 8 * count.dtype.bytes
    if not isinstance(known, int) or not 0 <= known < width:
        raise RlxError(
            "expression.shift",
            f"the count of {name} on {count.dtype} is not a constant below the width",
            found=repr(count) if known is None else known,
            allowed=f"0 to {width - 1}",
        )


def _index_value(expr: Expr) -> int | None:
    dim = index_dim(expr)
    return dim.value if dim is not None and dim.is_constant else None


def select(condition: Expr, a: ExprLike, b: ExprLike) -> Expr:
    """``a`` where ``condition`` (bool) holds, else ``b``; both sides are evaluated."""
    if not isinstance(a, Expr):
        if not isinstance(b, Expr):
            raise TypeError("select needs an Expr on one side")
        a = const(a, b.dtype)
    other = like(b, a)
    if condition.dtype is not BOOL or a.dtype is not other.dtype:
        raise RlxError(
            "expression.type",
            "select needs a bool and two values of one type",
            found=f"{condition.dtype}, {a.dtype}, {other.dtype}",
        )
    if a is other:
        return a
    return Expr.make("select", a.dtype, (condition, a, other))


def cast(x: Expr, dtype: DType) -> Expr:
    """Convert with ONNX Cast's meaning: float → int truncates and saturates, NaN gives 0."""
    return x if x.dtype is dtype else Expr.make("cast", dtype, (x,))


_BITCASTS = {
    (F32, I32),
    (I32, F32),
    (F32, U32),
    (U32, F32),
    (F64, I64),
    (I64, F64),
    (I32, U32),
    (U32, I32),
}


def bitcast(x: Expr, dtype: DType) -> Expr:
    """Reinterpret the bits as another type of the same width."""
    if (x.dtype, dtype) not in _BITCASTS:
        raise RlxError("expression.type", "no such bitcast", found=f"{x.dtype} to {dtype}")
    return Expr.make("bitcast", dtype, (x,))


def reduce(kind: str, variables: Sequence[str], extents: Sequence[DimLike], body: Expr) -> Expr:
    """Reduce ``body`` over ``variables`` (row-major, first is slowest); order per the contract."""
    if kind not in REDUCE_KINDS:
        raise RlxError("expression.reduce", "unknown reduction", found=kind, allowed=REDUCE_KINDS)
    args = (body, *(index(extent) for extent in extents))
    return Expr.make("reduce", body.dtype, args, (kind, tuple(variables)))


def reduce_parts(expr: Expr) -> tuple[str, tuple[str, ...], tuple[Dim, ...], Expr]:
    """``(kind, variables, extents, body)`` of a reduce node."""
    kind, variables = typing_cast("tuple[str, tuple[str, ...]]", expr.attr)
    extents = tuple(dim for arg in expr.args[1:] if (dim := index_dim(arg)) is not None)
    return kind, variables, extents, expr.args[0]


# ---- traversal -------------------------------------------------------------------------------


def rewrite(expr: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild bottom-up; ``rule`` sees each node with rewritten args, ``None`` keeps it.

    A node that folds to what was rewritten already, as a select between equal values does, is not
    rewritten again.
    """
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        args = tuple(done[arg] for arg in node.args)
        rebuilt = node if args == node.args else rebuild(node, args)
        replaced = None if rebuilt in args else rule(rebuilt)
        done[node] = rebuilt if replaced is None else replaced
    return done[expr]


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """The node with other args, index arithmetic folded again."""
    if node.op in _INDEX_FOLD and node.dtype is INDEX:
        return binary(node.op, args[0], args[1])
    if node.op == "select":
        return select(args[0], args[1], args[2])
    return Expr.make(node.op, node.dtype, args, node.attr)


def substitute(expr: Expr, env: Mapping[str, DimLike]) -> Expr:
    """Replace size symbols and loop variables inside every index."""
    if not env:
        return expr

    def rule(node: Expr) -> Expr | None:
        dim = index_dim(node)
        return None if dim is None else index(dim.substitute(env))

    return rewrite(expr, rule)


def replace_loads(expr: Expr, rule: Callable[[int, tuple[Expr, ...], DType], Expr]) -> Expr:
    """Replace each load by ``rule(slot, indices, dtype)``."""

    def visit(node: Expr) -> Expr | None:
        if node.op != "load" or not isinstance(node.attr, int):
            return None
        return rule(node.attr, node.args, node.dtype)

    return rewrite(expr, visit)


def replace_acc(expr: Expr, value: Expr) -> Expr:
    """Substitute the root's value into an epilogue."""
    return rewrite(expr, lambda node: value if node.op == "acc" else None)


def walk(expr: Expr) -> Iterable[Expr]:
    """Every distinct node once, operands first, in a deterministic order."""
    seen: set[Expr] = {expr}
    order: list[Expr] = []
    stack = [(expr, iter(expr.args))]
    while stack:
        node, rest = stack[-1]
        for arg in rest:
            if arg not in seen:
                seen.add(arg)
                stack.append((arg, iter(arg.args)))
                break
        else:
            stack.pop()
            order.append(node)
    return order
