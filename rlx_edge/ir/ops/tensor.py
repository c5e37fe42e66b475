"""``tensor::`` operators: constants, sizes as data, storage."""

from __future__ import annotations

from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.expression import Expr, binary, cast, const, index, select
from rlx_edge.ir.opdef import Data, Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import attr_dims, attribute, dims, example
from rlx_edge.ir.types import I64, DType, TensorType


def _stated(ctx: InferContext) -> TensorType:
    raise ctx.error("has no inferable type; the result type must be stated")


def _splat(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return const(ctx.attrs["value"], ctx.result.dtype)


def _from_dims_type(ctx: InferContext) -> TensorType:
    values = attr_dims(ctx, "values")
    return TensorType(I64, (as_dim(len(values)),))


def _from_dims(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    values = [cast(index(as_dim(dim)), ctx.result.dtype) for dim in ctx.attrs["values"]]
    result = values[-1] if values else const(0, ctx.result.dtype)
    for position in range(len(values) - 2, -1, -1):
        here = binary("eq", index(at[0]), index(position))
        result = select(here, values[position], result)
    return result


def _alloc_type(ctx: InferContext) -> TensorType:
    dtype = ctx.attrs["dtype"]
    if not isinstance(dtype, DType):
        raise ctx.error("dtype must be an element type", found=dtype)
    return TensorType(dtype, attr_dims(ctx, "shape"))


OPS = (
    OpDef(
        "tensor::const",
        (),
        (attribute("digest", "string"),),
        _stated,
        Data(),
        doc="A constant of the module's constant table, named by the digest of its bytes.",
    ),
    OpDef(
        "tensor::splat",
        (),
        (attribute("value", "number"),),
        _stated,
        Expression(_splat),
        frozenset({"elementwise", "blocked"}),
        doc="Every element is ``value`` (ONNX ConstantOfShape).",
    ),
    OpDef(
        "tensor::from_dims",
        (),
        (attribute("values", "dims"),),
        _from_dims_type,
        Expression(_from_dims),
        doc=(
            "Sizes as data (ONNX Shape and arithmetic on it): an integer vector of ``values``, "
            "i64 unless the stated type says i32; a scalar when the stated type has rank 0."
        ),
        examples=(example("sizes", values=dims("n", 8, "n * 8")),),
    ),
    OpDef(
        "tensor::alloc",
        (),
        (attribute("shape", "dims"), attribute("dtype", "dtype"), attribute("device", "string")),
        _alloc_type,
        Data(),
        doc="Storage on a device; its contents are undefined until something is stored.",
    ),
)
