"""Reads at positions that are data.

A negative position counts from the end; what is still outside is clamped to the nearest element,
so nothing is ever read outside an operand, whatever the data.
"""

from __future__ import annotations

from rlx_edge.ir.dims import Dim, dim_min
from rlx_edge.ir.expression import INDEX, Expr, binary, cast, const, index, select
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    ANY,
    NUMBER,
    POSITION,
    attr_axis,
    attr_dims,
    attribute,
    dims,
    example,
    operand,
)
from rlx_edge.ir.types import TensorType


def _position(value: Expr, extent: Dim) -> Expr:
    """An index inside ``extent`` from an integer element."""
    dtype = value.dtype
    size = const(extent.value, dtype) if extent.is_constant else cast(index(extent), dtype)
    wrapped = select(value < 0, value + size, value)
    return cast(binary("max", binary("min", wrapped, size - 1), 0), INDEX)


def _gather_type(ctx: InferContext) -> TensorType:
    x, positions = ctx.types
    axis = attr_axis(ctx, "axis", x.rank)
    return TensorType(x.dtype, (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]))


def _gather(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    axis = ctx.attrs["axis"]
    count = ctx.type("indices").rank
    value = ctx.load("indices", at[axis : axis + count])
    position = _position(value, ctx.type("x").shape[axis])
    return ctx.load("x", (*at[:axis], position, *at[axis + count :]))


def _gather_elements_type(ctx: InferContext) -> TensorType:
    x, positions = ctx.types
    axis = attr_axis(ctx, "axis", x.rank)
    if positions.rank != x.rank:
        raise ctx.error(
            "indices must have the rank of x", found=positions, allowed=f"rank {x.rank}"
        )
    for position, (a, b) in enumerate(zip(positions.shape, x.shape, strict=True)):
        room = b - a
        if position != axis and (not room.is_constant or room.value < 0):
            raise ctx.error(
                f"indices reach beyond axis {position}", found=a, allowed=f"at most {b}"
            )
    return TensorType(x.dtype, positions.shape)


def _gather_elements(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    axis = ctx.attrs["axis"]
    shape = ctx.type("x").shape
    position = _position(ctx.load("indices", at), shape[axis])
    places: list[Dim | Expr] = [
        place if size is extent else dim_min(place, extent - 1)
        for place, extent, size in zip(at, shape, ctx.result.shape, strict=True)
    ]
    places[axis] = position
    return ctx.load("x", places)


def _range_type(ctx: InferContext) -> TensorType:
    for name, found in zip(("start", "delta"), ctx.types, strict=True):
        if found.rank:
            raise ctx.error(f"{name} must be a scalar", found=found, allowed="rank 0")
    (size,) = attr_dims(ctx, "size", 1)
    return TensorType(ctx.types[0].dtype, (size,))


def _range(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return ctx.load("start", ()) + cast(index(at[0]), ctx.result.dtype) * ctx.load("delta", ())


_OPERANDS = (operand("x", ANY), operand("indices", POSITION, group="I"))

OPS = (
    OpDef(
        "rlxc::gather",
        _OPERANDS,
        (attribute("axis", "int"),),
        _gather_type,
        Expression(_gather),
        frozenset(),
        "Slices of x along an axis at integer positions (ONNX Gather).",
        (
            example("rows", "f32[5, n]", "i64[2, 3]", axis=0),
            example("scalar", "f32[2, 4]", "i64[]", axis=1),
        ),
    ),
    OpDef(
        "rlxc::gather_elements",
        _OPERANDS,
        (attribute("axis", "int"),),
        _gather_elements_type,
        Expression(_gather_elements),
        frozenset(),
        "x at each position of indices along an axis (ONNX GatherElements).",
        (example("columns", "f32[3, 4]", "i64[3, 2]", axis=1),),
    ),
    OpDef(
        "rlxc::range",
        (operand("start", NUMBER), operand("delta", NUMBER)),
        (attribute("size", "dims"),),
        _range_type,
        Expression(_range),
        frozenset(),
        "start + i * delta for each i below size; integers wrap (ONNX Range).",
        (
            example("floats", "f32[]", "f32[]", size=dims("n")),
            example("integers", "i64[]", "i64[]", size=dims(7)),
        ),
    ),
)
