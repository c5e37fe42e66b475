"""Hypothesis strategies for dims, scalar expressions and whole modules, shared by all tests."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Binding, Constant, Function, Guard, Module, Value
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.expression import (
    INDEX,
    Expr,
    acc,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    reduce,
    select,
    unary,
)
from rlx_edge.ir.expression_parser import Operand
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.scalar_ops import SCALAR_OPS, SHIFTS
from rlx_edge.ir.types import (
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    U8,
    U32,
    DType,
    TensorType,
)

SIZES = ("batch", "n", "w", "d0", "t1", "acc", "nan", "exp")
"""Size names, some of which mean something else in an expression's text."""


# ---- dims and types --------------------------------------------------------------------------

_DIM_STEPS: tuple[Callable[[Dim, Dim], Dim], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    dim_max,
    dim_min,
    lambda a, b: a if b is as_dim(0) else a // b,
    lambda a, b: a if b is as_dim(0) else a % b,
)


def dims(names: Sequence[str] = SIZES, steps: int = 4) -> st.SearchStrategy[Dim]:
    """Dims over ``names``, of any sign."""
    leaves = st.one_of(
        st.sampled_from([symbol(name) for name in names]), st.integers(-9, 40).map(as_dim)
    )

    @st.composite
    def build(draw: st.DrawFn) -> Dim:
        dim = draw(leaves)
        for _ in range(draw(st.integers(0, steps))):
            step = draw(st.sampled_from(_DIM_STEPS))
            other = draw(leaves)
            a, b = (dim, other) if draw(st.booleans()) else (other, dim)
            dim = step(a, b)
        return dim

    return build()


def sizes(names: Sequence[str] = ("batch", "n", "w")) -> st.SearchStrategy[Dim]:
    """What axes usually are: a small number or a symbol."""
    return st.one_of(st.integers(1, 5).map(as_dim), st.sampled_from([symbol(n) for n in names]))


def dtypes() -> st.SearchStrategy[DType]:
    return st.sampled_from(list(DTYPES.values()))


def tensor_types() -> st.SearchStrategy[TensorType]:
    """Any element type, up to rank 4, any dims."""
    return st.builds(TensorType, dtypes(), st.lists(dims(), max_size=4).map(tuple))


# ---- names -----------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
NAMES = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True),
    st.sampled_from(["x", "1", "onnx::Add_12", "a.b", "x:0", 'quote"d', "back\\slash", "é"]),
    TEXTS,
)


# ---- expressions -----------------------------------------------------------------------------

_FLOATS = st.floats(width=32)
_LOADED = (F32, I32, BOOL, F64, U8)


def operands(rank: int = 3) -> list[Operand]:
    """One operand an element type, and the first again in a later slot."""
    names = ("x", "b", "mask", "x:0", "12")
    found = [
        Operand(name, TensorType(dtype, tuple(as_dim("n") for _ in range(position % (rank + 1)))))
        for position, (name, dtype) in enumerate(zip(names, _LOADED, strict=True))
    ]
    return [*found, found[1]]


def literals(dtype: DType) -> st.SearchStrategy[Expr]:
    """A constant of ``dtype``."""
    if dtype is BOOL:
        return st.booleans().map(lambda value: const(value, BOOL))
    if dtype.is_float:
        floats = st.floats() if dtype is F64 else _FLOATS
        return floats.map(lambda value: const(value, dtype))
    if dtype is INDEX:
        return st.integers(-9, 99).map(index)
    bits = 8 * dtype.bytes
    low = -(1 << (bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (bits - 1 if dtype.kind == "int" else bits)) - 1
    return st.integers(low, high).map(lambda value: const(value, dtype))


@st.composite
def expressions(
    draw: st.DrawFn,
    scope: Sequence[Operand] = (),
    start: DType | None = F32,
    rank: int = 3,
    steps: int = 12,
    reductions: bool = True,
    names: Sequence[str] = SIZES,
) -> Expr:
    """A well-typed expression; later nodes use earlier ones, so that nodes are shared."""
    axes = [f"_i{axis}" for axis in range(rank)]
    pool: list[Expr] = [] if start is None else [acc(start)]
    where = dims([*axes, *names], 2) if axes or names else st.integers(0, 3).map(as_dim)
    for slot, operand in enumerate(scope):
        if draw(st.booleans()):
            at = [index(draw(where)) for _ in operand.type.shape]
            pool.append(load(slot, operand.type.dtype, at))
    pool.append(draw(literals(draw(st.sampled_from((F32, I32, I64, BOOL, F64, U32, I8, F16))))))
    pool.append(index(draw(where)))
    for _ in range(draw(st.integers(1, steps))):
        pool.append(_step(draw, pool, scope, reductions))
    return pool[-1]


def _step(draw: st.DrawFn, pool: list[Expr], scope: Sequence[Operand], reductions: bool) -> Expr:
    x = draw(st.sampled_from(pool))
    same = [item for item in pool if item.dtype is x.dtype]
    y = draw(st.one_of(st.sampled_from(same), literals(x.dtype)))
    kind = draw(st.sampled_from(("operator", "operator", "select", "cast", "bits", "reduce")))
    if kind == "select":
        conditions = [item for item in pool if item.dtype is BOOL]
        condition = draw(st.sampled_from(conditions)) if conditions else binary("eq", x, x)
        return select(condition, x, y) if draw(st.booleans()) else select(condition, y, x)
    if kind == "cast":
        return cast(x, draw(st.sampled_from((F32, I32, I64, BOOL, U8, F16, INDEX))))
    if kind == "bits" and x.dtype in (F32, I32):
        return bitcast(x, U32)
    if kind == "reduce" and reductions:
        reduction = draw(st.sampled_from(("chain", "sum", "max")))
        return reduce(reduction, ["_r0", "_r1"], [4, draw(dims(("n", "w"), 2))], x)
    fitting = [op for op in SCALAR_OPS.values() if x.dtype.kind in op.kinds]
    op = draw(st.sampled_from(fitting))
    if op.arity == 1:
        return unary(op.name, x)
    if op.name in SHIFTS:
        return binary(op.name, x, const(draw(st.integers(0, 8 * x.dtype.bytes - 1)), x.dtype))
    if x.dtype is INDEX and op.name in ("floordiv", "mod"):
        y = index(draw(st.integers(1, 9)))
    return (
        binary(op.name, x, y)
        if draw(st.booleans())
        or op.name
        in (
            "floordiv",
            "mod",
        )
        else binary(op.name, y, x)
    )


# ---- modules ---------------------------------------------------------------------------------

_UNARY = ("relu", "exp", "tanh", "sigmoid", "neg", "abs", "sqrt", "hard_swish", "copy")
_BINARY = ("add", "sub", "mul", "div", "min", "max")


@st.composite
def modules(draw: st.DrawFn, *, placed: bool | None = None, max_ops: int = 10) -> Module:
    """A valid module with constants, sizes, guards, fused operations and, if wanted, placement."""
    names = draw(st.lists(NAMES, min_size=4, max_size=4, unique=True))
    shape = tuple(as_dim(item) for item in draw(st.sampled_from(_SHAPES)))
    params = [
        Value(names[0], TensorType(F32, shape)),
        Value(names[1], TensorType(I64, (as_dim(2),))),
    ]
    function = Function(names[2], params, [], [])
    symbols = sorted({name for dim in shape for name in dim.symbols()})
    if draw(st.booleans()):
        function.bindings.append(Binding("rate", names[1], draw(st.integers(0, 1))))
        symbols.append("rate")
    if symbols:
        guards = st.builds(
            Guard,
            dims(symbols, 3),
            st.sampled_from(("==", "!=", "<=", ">=", "<", ">")),
            dims(symbols, 2),
            st.one_of(st.just(""), TEXTS),
        )
        function.guards.extend(draw(st.lists(guards, max_size=2)))
    module = Module(names[2], function)
    builder = Builder(function)
    pool = [params[0]]
    for _ in range(draw(st.integers(1, max_ops))):
        pool.append(_operation(draw, module, builder, pool, symbols))
    function.returns = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    count = len(function.returns)
    if draw(st.booleans()) or len(set(function.returns)) < count:
        function.output_names = draw(st.lists(NAMES, min_size=count, max_size=count, unique=True))
    if draw(st.booleans()) if placed is None else placed:
        _place(draw, function)
    return module


_SHAPES: tuple[tuple[int | str, ...], ...] = (
    ("batch", 4),
    ("n", "w"),
    (2, 3),
    ("batch", 4, "n", "w"),
    (1, 4, 5, 5),
    (),
)


def _operation(
    draw: st.DrawFn, module: Module, builder: Builder, pool: list[Value], symbols: list[str]
) -> Value:
    x = draw(st.sampled_from(pool))
    same = [value for value in pool if value.type == x.type]
    hint = draw(st.sampled_from(("y", "conv", "é", "a.b", "1")))
    kind = draw(st.sampled_from(("unary", "binary", "fused", "splat", "const", "conv", "dims")))
    if kind == "fused":
        return _fused(draw, builder, x, same, hint, symbols)
    if kind == "splat":
        value = draw(_FLOATS | st.sampled_from((1e-05, 0.1)) | st.integers(-99, 99))
        scalar = builder.splat(value, F32, (), hint)
        return builder.op("rlxc::mul", [x, scalar])
    if kind == "const" or (kind == "conv" and x.type.rank != 4):
        return _constant(draw, module, builder, hint)
    if kind == "conv":
        weight = _constant(draw, module, builder, hint, (4, x.type.shape[1].value, 3, 3))
        return builder.op("rlxc::conv2d", [x, weight], _window(draw), hint=hint)
    if kind == "dims":
        known = dims(symbols, 3) if symbols else st.integers(1, 9).map(as_dim)
        values = tuple(draw(st.lists(known, max_size=3)))
        return _float(builder, builder.op("tensor::from_dims", [], {"values": values}), x)
    if kind == "binary":
        name = draw(st.sampled_from(_BINARY))
        return builder.op(f"rlxc::{name}", [x, draw(st.sampled_from(same))], hint=hint)
    return builder.op(f"rlxc::{draw(st.sampled_from(_UNARY))}", [x], hint=hint)


def _float(builder: Builder, sizes_value: Value, x: Value) -> Value:
    """``x`` again, after the sizes were cast to floats that nothing reads."""
    builder.op("rlxc::cast", [sizes_value], {"dtype": F32})
    return builder.op("rlxc::copy", [x])


def _window(draw: st.DrawFn) -> dict[str, Attribute]:
    stride = draw(st.integers(1, 2))
    return {
        "stride": (stride, stride),
        "padding": tuple(draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))),
        "dilation": (1, 1),
        "groups": 1,
    }


def _constant(
    draw: st.DrawFn,
    module: Module,
    builder: Builder,
    hint: str,
    shape: tuple[int, ...] | None = None,
) -> Value:
    if shape is None:
        shape = draw(st.sampled_from(((4,), (2, 3), (), (3, 0))))
    type = TensorType(F32, tuple(as_dim(dim) for dim in shape))
    seed = draw(st.integers(0, 9))
    data = struct.pack("<f", seed / 8) * type.size.value
    digest = bytes_digest(data)
    module.constants.setdefault(digest, Constant(digest, type, MemorySource(data), 0, len(data)))
    return builder.op("tensor::const", [], {"digest": digest}, hint=hint, type=type)


def _fused(
    draw: st.DrawFn,
    builder: Builder,
    x: Value,
    same: list[Value],
    hint: str,
    symbols: list[str],
) -> Value:
    extras = draw(st.lists(st.sampled_from([x, *same]), max_size=2))
    values = [x, *extras]
    scope = [Operand(value.name, value.type) for value in values]
    epilogue = draw(
        expressions(scope[1:] and scope, F32, x.type.rank, 6, reductions=False, names=symbols)
    )
    attrs: dict[str, Attribute] = {"epilogue": cast(epilogue, F32)}
    return builder.op("rlxc::fused_relu_mul", values, attrs, hint=hint)


def _place(draw: st.DrawFn, function: Function) -> None:
    names = draw(st.sampled_from((("wasm:0",), ("cuda:0", "cuda:1"), ("cpu:0@gateway",))))
    for op in function.ops:
        op.attrs["target_device_set"] = names
        op.attrs["sync_mode"] = draw(
            st.sampled_from(("blocking", "event", "async_barrier", "none"))
        )
        if op.result.type.rank == 4:
            op.attrs["memory_layout"] = draw(st.sampled_from(("NCHW", "NCHW4c")))
        if draw(st.booleans()):
            op.attrs["border"] = (1, 0, 1, 0)
        if draw(st.booleans()):
            op.attrs["phase"] = draw(st.sampled_from(("compile", "execute")))
