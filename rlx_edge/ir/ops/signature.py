"""What operator declarations share: element type sets, operand and attribute records, inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlx_edge.ir.attributes import AttributeDef
from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.opdef import Example, InferContext, OperandDef
from rlx_edge.ir.types import (
    BF16,
    BOOL,
    F16,
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
    TensorType,
    tensor_type,
)

FLOAT: tuple[DType, ...] = (F32, F64)
"""Types that float arithmetic is computed in; f16 and bf16 are storage types, cast first."""
SINGLE: tuple[DType, ...] = (F32,)
"""Types that the derived scalar functions (exp, log, …) exist for."""
INTEGER: tuple[DType, ...] = (I8, I16, I32, I64, U8, U16, U32, U64)
NUMBER: tuple[DType, ...] = (*FLOAT, *INTEGER)
SIGNED: tuple[DType, ...] = (*FLOAT, I8, I16, I32, I64)
LOGICAL: tuple[DType, ...] = (BOOL,)
COMPUTED: tuple[DType, ...] = (*NUMBER, BOOL)
ANY: tuple[DType, ...] = (*FLOAT, F16, BF16, *INTEGER, BOOL)
"""Every storable type: data movement only."""
POSITION: tuple[DType, ...] = (I64, I32)
"""Types of operands that hold positions (gather)."""

ELEMENTWISE = frozenset({"elementwise", "blocked"})
"""Traits of an operator that acts on each element alone."""


def operand(
    name: str,
    dtypes: tuple[DType, ...],
    *,
    group: str = "T",
    optional: bool = False,
    variadic: bool = False,
) -> OperandDef:
    """One operand; operands of one ``group`` share their element type."""
    return OperandDef(name, dtypes, group, optional, variadic)


def attribute(name: str, kind: str, *choices: str) -> AttributeDef:
    """One required attribute."""
    return AttributeDef(name, kind, choices)


def example(name: str, *types: str, **attrs: object) -> Example:
    """A conformance case; operand types in text form: ``"f32[2, n]"``."""
    return Example(name, tuple(_parse_type(text) for text in types), attrs)  # type: ignore[arg-type]


def _parse_type(text: str) -> TensorType:
    from rlx_edge.ir.types import dtype_named

    name, _, rest = text.partition("[")
    dims = [part.strip() for part in rest.rstrip("]").split(",") if part.strip()]
    return tensor_type(dtype_named(name), *dims)


def dims(*values: int | str) -> tuple[Dim, ...]:
    """A ``dims`` attribute value."""
    return tuple(as_dim(value) for value in values)


# ---- inference -------------------------------------------------------------------------------

Infer = Callable[[InferContext], TensorType]


def same_as_first(ctx: InferContext) -> TensorType:
    """The type of the first operand."""
    return ctx.types[0]


def attr_int(ctx: InferContext, name: str) -> int:
    """An ``int`` attribute; ``op.attribute`` when it is not one."""
    value = ctx.attrs[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _attribute_error(ctx, name, value, "an integer")
    return value


def attr_ints(
    ctx: InferContext, name: str, count: int | None = None, low: int | None = None
) -> tuple[int, ...]:
    """An ``ints`` attribute with ``count`` entries of at least ``low``."""
    value = ctx.attrs[name]
    if not isinstance(value, tuple) or not all(
        isinstance(item, int) and not isinstance(item, bool) for item in value
    ):
        raise _attribute_error(ctx, name, value, "a list of integers")
    numbers = tuple(item for item in value if isinstance(item, int))
    if count is not None and len(numbers) != count:
        raise _attribute_error(ctx, name, f"{len(numbers)} entries", f"{count} entries")
    if low is not None and any(item < low for item in numbers):
        raise _attribute_error(ctx, name, list(numbers), f"integers of at least {low}")
    return numbers


def attr_dims(ctx: InferContext, name: str, count: int | None = None) -> tuple[Dim, ...]:
    """A ``dims`` attribute (integers are accepted) with ``count`` entries."""
    value = ctx.attrs[name]
    if not isinstance(value, tuple) or not all(
        isinstance(item, Dim) or (isinstance(item, int) and not isinstance(item, bool))
        for item in value
    ):
        raise _attribute_error(ctx, name, value, "a list of dims")
    found = tuple(as_dim(item) for item in value if isinstance(item, (Dim, int)))
    if count is not None and len(found) != count:
        raise _attribute_error(ctx, name, f"{len(found)} entries", f"{count} entries")
    return found


def attr_bool(ctx: InferContext, name: str) -> bool:
    """A ``bool`` attribute."""
    value = ctx.attrs[name]
    if not isinstance(value, bool):
        raise _attribute_error(ctx, name, value, "true or false")
    return value


def attr_axis(ctx: InferContext, name: str, rank: int) -> int:
    """An ``int`` attribute that is an axis of rank ``rank`` (0 … rank - 1)."""
    axis = attr_int(ctx, name)
    if not 0 <= axis < rank:
        raise ctx.error(
            f"{name} {axis} is out of range for rank {rank}", found=axis, allowed=f"0 to {rank - 1}"
        )
    return axis


def attr_axes(ctx: InferContext, name: str, rank: int) -> tuple[int, ...]:
    """An ``ints`` attribute of distinct axes in ascending order."""
    axes = attr_ints(ctx, name)
    for axis in axes:
        if not 0 <= axis < rank:
            raise ctx.error(
                f"axis {axis} is out of range for rank {rank}",
                found=axis,
                allowed=f"0 to {rank - 1}",
            )
    if list(axes) != sorted(set(axes)):
        raise _attribute_error(ctx, name, list(axes), "distinct axes in ascending order")
    return axes


def _attribute_error(ctx: InferContext, name: str, found: object, allowed: str) -> RlxError:
    return RlxError(
        "op.attribute",
        f"{ctx.name}: attribute {name} has the wrong value",
        found=found,
        allowed=allowed,
    )


def broadcast_dim(ctx: InferContext, a: Dim, b: Dim) -> Dim:
    """The common size of two axes: equal, or one is the constant 1."""
    if a is b:
        return a
    if a.is_constant and a.value == 1:
        return b
    if b.is_constant and b.value == 1:
        return a
    raise ctx.error(
        f"sizes {a} and {b} do not broadcast", found=f"{a} and {b}", allowed="equal sizes or 1"
    )


def broadcast_shapes(ctx: InferContext, shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """ONNX multidirectional broadcasting of shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    one = as_dim(1)
    result = [one] * rank
    for shape in shapes:
        padded = [one] * (rank - len(shape)) + list(shape)
        result = [broadcast_dim(ctx, a, b) for a, b in zip(result, padded, strict=True)]
    return tuple(result)


def broadcast_all(ctx: InferContext) -> TensorType:
    """First operand's element type, all operands' shapes broadcast."""
    return TensorType(ctx.types[0].dtype, broadcast_shapes(ctx, [item.shape for item in ctx.types]))


def broadcast_bool(ctx: InferContext) -> TensorType:
    """``bool`` of all operands' shapes broadcast."""
    return TensorType(BOOL, broadcast_shapes(ctx, [item.shape for item in ctx.types]))


def require_rank(ctx: InferContext, position: int, rank: int, name: str) -> tuple[Dim, ...]:
    """Operand ``position``'s shape, which must have ``rank`` axes."""
    shape = ctx.types[position].shape
    if len(shape) != rank:
        raise ctx.error(
            f"{name} must have rank {rank}", found=ctx.types[position], allowed=f"rank {rank}"
        )
    return shape


def require_same(ctx: InferContext, a: Dim, b: Dim, what: str) -> None:
    """Two sizes must be equal; the error names both."""
    if a is not b:
        raise ctx.error(f"{what} do not agree", found=f"{a} and {b}", allowed="equal sizes")
