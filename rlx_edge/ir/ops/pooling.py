"""Pooling of NCHW images. Window elements are counted row by row inside the window."""

from __future__ import annotations

from rlx_edge.ir.dims import Dim, as_dim, ceildiv, dim_max, dim_min, product
from rlx_edge.ir.expression import Expr, cast, const, index
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.contraction import window_size
from rlx_edge.ir.ops.reduction import count_value, reduce_axes
from rlx_edge.ir.ops.signature import (
    FLOAT,
    attr_bool,
    attr_ints,
    attribute,
    example,
    operand,
    require_rank,
)
from rlx_edge.ir.types import I8, U8, DType, TensorType

BLOCKED = frozenset({"blocked"})


def lowest(dtype: DType) -> float | int:
    """The identity of ``max``."""
    if dtype.is_float:
        return float("-inf")
    return -(1 << (8 * dtype.bytes - 1)) if dtype.kind == "int" else 0


def _pooled_size(
    extent: Dim, kernel: int, stride: int, dilation: int, pads: tuple[int, int], ceil: bool
) -> Dim:
    if not ceil:
        return window_size(extent, as_dim(kernel), stride, dilation, *pads)
    # The last window must start before the padding behind the image (ONNX MaxPool, ceil_mode).
    span = extent + pads[0] + pads[1] - (kernel - 1) * dilation - 1
    return dim_min(ceildiv(span, stride) + 1, (extent + pads[0] - 1) // stride + 1)


def _pool_type(ctx: InferContext) -> TensorType:
    n, c, h, w = require_rank(ctx, 0, 4, "x")
    kernel = attr_ints(ctx, "kernel", 2, 1)
    stride = attr_ints(ctx, "stride", 2, 1)
    padding = attr_ints(ctx, "padding", 4, 0)
    dilation = attr_ints(ctx, "dilation", 2, 1)
    ceil = attr_bool(ctx, "ceil_mode")
    sizes = [
        _pooled_size(
            extent,
            kernel[axis],
            stride[axis],
            dilation[axis],
            (padding[axis], padding[axis + 2]),
            ceil,
        )
        for axis, extent in enumerate((h, w))
    ]
    for size, name in zip(sizes, ("height", "width"), strict=True):
        if size.is_constant and size.value < 1:
            raise ctx.error(
                f"the window is larger than the padded {name}",
                found=f"output {name} {size}",
                allowed="at least 1",
            )
    return TensorType(ctx.types[0].dtype, (n, c, *sizes))


def _places(ctx: ExpressionContext, at: tuple[Dim, ...], taps: tuple[Dim, ...]) -> list[Dim]:
    stride, padding, dilation = ctx.attrs["stride"], ctx.attrs["padding"], ctx.attrs["dilation"]
    return [
        at[2 + axis] * stride[axis] + taps[axis] * dilation[axis] - padding[axis]
        for axis in range(2)
    ]


def _window(ctx: ExpressionContext, kind: str, at: tuple[Dim, ...], fill: Expr) -> Expr:
    padded = any(ctx.attrs["padding"]) or ctx.attrs["ceil_mode"]

    def body(row: Dim, column: Dim) -> Expr:
        places = (at[0], at[1], *_places(ctx, at, (row, column)))
        return ctx.load_or("x", places, fill) if padded else ctx.load("x", places)

    return ctx.reduce(kind, ctx.attrs["kernel"], body)


def _max_pool(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return _window(ctx, "max", at, const(lowest(ctx.result.dtype), ctx.result.dtype))


def _tap_count(ctx: ExpressionContext, at: tuple[Dim, ...], axis: int) -> Dim:
    """How many of a window's taps along one axis count."""
    kernel, stride = ctx.attrs["kernel"][axis], ctx.attrs["stride"][axis]
    dilation, ceil = ctx.attrs["dilation"][axis], ctx.attrs["ceil_mode"]
    before, after = ctx.attrs["padding"][axis], ctx.attrs["padding"][axis + 2]
    include = ctx.attrs["count_include_pad"]
    if not ceil and (include or not (before or after)):
        return as_dim(kernel)
    start = at[2 + axis] * stride - before
    end = ctx.type("x").shape[2 + axis] + (after if include else 0)
    first = as_dim(0) if include or not before else ceildiv(dim_max(-start, 0), dilation)
    last = dim_min(kernel - 1, (end - 1 - start) // dilation)
    return dim_max(last - first + 1, 1)


def _average_pool(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    dtype = ctx.result.dtype
    total = _window(ctx, "sum", at, const(0, dtype))
    rows, columns = _tap_count(ctx, at, 0), _tap_count(ctx, at, 1)
    if rows.is_constant and columns.is_constant:
        return total / const(rows.value * columns.value, dtype)
    return total / (cast(index(rows), dtype) * cast(index(columns), dtype))


def _global_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    if x.rank < 3:
        raise ctx.error("x must have spatial axes", found=x, allowed="rank 3 or more")
    return TensorType(x.dtype, (*x.shape[:2], *(as_dim(1) for _ in x.shape[2:])))


def _spatial(ctx: ExpressionContext) -> tuple[int, ...]:
    return tuple(range(2, ctx.types[0].rank))


def _global_average(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    total = reduce_axes(ctx, "sum", _spatial(ctx), at[:2])
    return total / count_value(product(ctx.types[0].shape[2:]), ctx.result.dtype)


def _global_max(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return reduce_axes(ctx, "max", _spatial(ctx), at[:2])


_WINDOW_ATTRS = (
    attribute("kernel", "ints"),
    attribute("stride", "ints"),
    attribute("padding", "ints"),
    attribute("dilation", "ints"),
    attribute("ceil_mode", "bool"),
)

OPS = (
    OpDef(
        "rlxc::max_pool2d",
        (operand("x", (*FLOAT, I8, U8)),),
        _WINDOW_ATTRS,
        _pool_type,
        Expression(_max_pool),
        BLOCKED,
        "Greatest in each window, NaN if any is; padding never wins (ONNX MaxPool).",
        (
            example(
                "halve",
                "f32[n, 2, 6, 7]",
                kernel=(2, 2),
                stride=(2, 2),
                padding=(0, 0, 0, 0),
                dilation=(1, 1),
                ceil_mode=False,
            ),
            example(
                "padded",
                "f32[1, 2, 7, 7]",
                kernel=(3, 2),
                stride=(2, 3),
                padding=(1, 0, 1, 1),
                dilation=(1, 2),
                ceil_mode=True,
            ),
        ),
    ),
    OpDef(
        "rlxc::average_pool2d",
        (operand("x", FLOAT),),
        (*_WINDOW_ATTRS, attribute("count_include_pad", "bool")),
        _pool_type,
        Expression(_average_pool),
        BLOCKED,
        "Mean of each window; padding counts only with count_include_pad (ONNX AveragePool).",
        (
            example(
                "plain",
                "f32[n, 2, 6, 6]",
                kernel=(2, 3),
                stride=(2, 1),
                padding=(0, 0, 0, 0),
                dilation=(1, 1),
                ceil_mode=False,
                count_include_pad=False,
            ),
            example(
                "excluded",
                "f32[1, 2, 7, 7]",
                kernel=(3, 3),
                stride=(2, 2),
                padding=(1, 1, 1, 1),
                dilation=(1, 1),
                ceil_mode=False,
                count_include_pad=False,
            ),
            example(
                "included",
                "f32[1, 2, 8, 7]",
                kernel=(3, 3),
                stride=(2, 2),
                padding=(1, 1, 1, 1),
                dilation=(1, 1),
                ceil_mode=True,
                count_include_pad=True,
            ),
        ),
    ),
    OpDef(
        "rlxc::global_average_pool",
        (operand("x", FLOAT),),
        (),
        _global_type,
        Expression(_global_average),
        frozenset({"blocked", "reduction"}),
        "Mean over all spatial axes (ONNX GlobalAveragePool).",
        (example("image", "f32[2, 3, 5, n]"),),
    ),
    OpDef(
        "rlxc::global_max_pool",
        (operand("x", FLOAT),),
        (),
        _global_type,
        Expression(_global_max),
        frozenset({"blocked", "reduction"}),
        "Greatest over all spatial axes (ONNX GlobalMaxPool).",
        (example("image", "f32[2, 3, 5, n]"),),
    ),
)
