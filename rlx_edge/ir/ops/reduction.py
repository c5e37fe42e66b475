"""Reductions over whole axes, in the order of the numerics contract.

The reduced elements are counted in row-major order of the reduced axes: four partials, chunks of
4096, joined in order (``expression.reduce``).
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.dims import Dim, product
from rlx_edge.ir.expression import Expr, cast, const, index, unary
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    ANY,
    FLOAT,
    NUMBER,
    attr_axes,
    attr_bool,
    attribute,
    example,
    operand,
    same_as_first,
)
from rlx_edge.ir.types import I32, I64, DType, TensorType

ONE_AXIS = frozenset({"reduction"})
ROWS = "rlxc::rows"
"""The root of a fused operation on rows whose result has the operand's shape."""


def count_value(count: Dim, dtype: DType) -> Expr:
    """A number of elements as a value of ``dtype``."""
    return const(count.value, dtype) if count.is_constant else cast(index(count), dtype)


def reduce_axes(
    ctx: ExpressionContext,
    kind: str,
    axes: tuple[int, ...],
    at: tuple[Dim, ...],
    element: Callable[[Expr], Expr] = lambda x: x,
) -> Expr:
    """Reduce ``element`` of operand 0 over ``axes``; ``at`` indexes the axes that stay."""
    shape = ctx.types[0].shape

    def body(*variables: Dim) -> Expr:
        kept, reduced = iter(at), iter(variables)
        return element(
            ctx.load(
                0, [next(reduced) if axis in axes else next(kept) for axis in range(len(shape))]
            )
        )

    return ctx.reduce(kind, [shape[axis] for axis in axes], body)


def _type(ctx: InferContext) -> TensorType:
    shape = ctx.types[0].shape
    axes = attr_axes(ctx, "axes", len(shape))
    one = product(())
    if attr_bool(ctx, "keepdims"):
        dims = tuple(one if axis in axes else dim for axis, dim in enumerate(shape))
    else:
        dims = tuple(dim for axis, dim in enumerate(shape) if axis not in axes)
    return TensorType(ctx.types[0].dtype, dims)


def _reduce(
    ctx: ExpressionContext,
    kind: str,
    at: tuple[Dim, ...],
    element: Callable[[Expr], Expr] = lambda x: x,
) -> Expr:
    axes = ctx.attrs["axes"]
    kept = (
        tuple(place for axis, place in enumerate(at) if axis not in axes)
        if ctx.attrs["keepdims"]
        else at
    )
    return reduce_axes(ctx, kind, axes, kept, element)


def _count(ctx: ExpressionContext) -> Dim:
    return product(ctx.types[0].shape[axis] for axis in ctx.attrs["axes"])


def _mean(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return _reduce(ctx, "sum", at) / count_value(_count(ctx), ctx.result.dtype)


def _l2(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return unary("sqrt", _reduce(ctx, "sum", at, lambda x: x * x))


def _plain(kind: str) -> Callable[[ExpressionContext, tuple[Dim, ...]], Expr]:
    return lambda ctx, at: _reduce(ctx, kind, at)


def _definition(
    name: str,
    dtypes: tuple[DType, ...],
    define: Callable[[ExpressionContext, tuple[Dim, ...]], Expr],
    doc: str,
) -> OpDef:
    return OpDef(
        f"rlxc::reduce_{name}",
        (operand("x", dtypes),),
        (attribute("axes", "ints"), attribute("keepdims", "bool")),
        _type,
        Expression(define),
        ONE_AXIS,
        doc,
        (
            example("rows", "f32[3, n]", axes=(1,), keepdims=True),
            example("outer", "f32[2, 3, 4]", axes=(0, 2), keepdims=False),
            example("all", "f32[2, n]", axes=(0, 1), keepdims=False),
        ),
    )


OPS = (
    _definition("sum", NUMBER, _plain("sum"), "Sum over axes; integers wrap (ONNX ReduceSum)."),
    _definition(
        "mean",
        (*FLOAT, I32, I64),
        _mean,
        "Sum over axes divided by the count, towards 0 for integers (ONNX ReduceMean).",
    ),
    _definition("max", NUMBER, _plain("max"), "Greatest, NaN if any is NaN (ONNX ReduceMax)."),
    _definition("min", NUMBER, _plain("min"), "Least, NaN if any is NaN (ONNX ReduceMin)."),
    _definition("prod", NUMBER, _plain("prod"), "Product over axes (ONNX ReduceProd)."),
    _definition("l2", FLOAT, _l2, "Square root of the sum of squares (ONNX ReduceL2)."),
    OpDef(
        ROWS,
        (operand("x", ANY),),
        (),
        same_as_first,
        Expression(lambda ctx, at: ctx.load("x", at)),
        ONE_AXIS,
        "The operand itself. Fusion of whole rows is named after it: the epilogue reduces over the "
        "last axes of operands and goes on with the elements.",
        (example("matrix", "f32[2, n]"),),
    ),
)
