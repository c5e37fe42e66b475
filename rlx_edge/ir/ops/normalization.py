"""Normalisations: batch norm as an expression, the others as decompositions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr, unary
from rlx_edge.ir.opdef import Decomposition, Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    FLOAT,
    SINGLE,
    attr_axis,
    attribute,
    broadcast_dim,
    example,
    operand,
    require_same,
)
from rlx_edge.ir.types import TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.builder import Builder
    from rlx_edge.ir.core import Op, Value


def _batch_norm_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    if x.rank < 2:
        raise ctx.error("x must have a channel axis", found=x, allowed="rank 2 or more")
    for name, found in zip(("scale", "shift", "mean", "var"), ctx.types[1:], strict=True):
        if found.rank != 1:
            raise ctx.error(f"{name} must have rank 1", found=found, allowed="rank 1")
        require_same(ctx, found.shape[0], x.shape[1], f"{name} length and channels")
    return x


def _batch_norm(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    channel = (at[1],)
    k = ctx.load("scale", channel) / unary("sqrt", ctx.load("var", channel) + ctx.attrs["epsilon"])
    return ctx.load("x", at) * k + (ctx.load("shift", channel) - ctx.load("mean", channel) * k)


def _axis_type(ctx: InferContext) -> TensorType:
    attr_axis(ctx, "axis", ctx.types[0].rank)
    return ctx.types[0]


def _axis(op: Op) -> int:
    axis = op.attrs["axis"]
    assert isinstance(axis, int)
    return axis


def _over(axes: tuple[int, ...]) -> dict[str, Attribute]:
    return {"axes": axes, "keepdims": True}


def _softmax(builder: Builder, op: Op) -> Value:
    (x,) = op.operands
    over = _over((_axis(op),))
    centred = builder.op("rlxc::sub", [x, builder.op("rlxc::reduce_max", [x], over)])
    powers = builder.op("rlxc::exp", [centred])
    return builder.op("rlxc::div", [powers, builder.op("rlxc::reduce_sum", [powers], over)])


def _log_softmax(builder: Builder, op: Op) -> Value:
    (x,) = op.operands
    over = _over((_axis(op),))
    centred = builder.op("rlxc::sub", [x, builder.op("rlxc::reduce_max", [x], over)])
    total = builder.op("rlxc::reduce_sum", [builder.op("rlxc::exp", [centred])], over)
    return builder.op("rlxc::sub", [centred, builder.op("rlxc::log", [total])])


def _layer_norm_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    axis = attr_axis(ctx, "axis", x.rank)
    tail = x.shape[axis:]
    for name, found in zip(("scale", "bias"), ctx.types[1:], strict=False):
        if found.rank > len(tail):
            raise ctx.error(
                f"{name} has more axes than are normalised",
                found=found,
                allowed=f"rank {len(tail)}",
            )
        for a, b in zip(found.shape[::-1], tail[::-1], strict=False):
            if broadcast_dim(ctx, a, b) is not b:
                raise ctx.error(f"{name} must broadcast to x", found=found, allowed=x)
    return x


def _layer_norm(builder: Builder, op: Op) -> Value:
    x, scale = op.operands[:2]
    over = _over(tuple(range(_axis(op), x.type.rank)))
    epsilon = op.attrs["epsilon"]
    assert isinstance(epsilon, float)
    centred = builder.op("rlxc::sub", [x, builder.op("rlxc::reduce_mean", [x], over)])
    squares = builder.op("rlxc::mul", [centred, centred])
    variance = builder.op("rlxc::reduce_mean", [squares], over)
    shifted = builder.op("rlxc::add", [variance, builder.splat(epsilon, x.type.dtype)])
    normal = builder.op("rlxc::div", [centred, builder.op("rlxc::sqrt", [shifted])])
    result = builder.op("rlxc::mul", [normal, scale])
    return builder.op("rlxc::add", [result, op.operands[2]]) if len(op.operands) > 2 else result


OPS = (
    OpDef(
        "rlxc::batch_norm",
        (
            operand("x", FLOAT),
            operand("scale", FLOAT),
            operand("shift", FLOAT),
            operand("mean", FLOAT),
            operand("var", FLOAT),
        ),
        (attribute("epsilon", "float"),),
        _batch_norm_type,
        Expression(_batch_norm),
        frozenset({"elementwise", "blocked"}),
        "k = scale / sqrt(var + epsilon); x * k + (shift - mean * k), channel axis 1 "
        "(ONNX BatchNormalization in inference).",
        (
            example(
                "image", "f32[2, 3, 4, n]", "f32[3]", "f32[3]", "f32[3]", "f32[3]", epsilon=1e-05
            ),
            example("matrix", "f32[n, 5]", "f32[5]", "f32[5]", "f32[5]", "f32[5]", epsilon=0.001),
        ),
    ),
    OpDef(
        "rlxc::softmax",
        (operand("x", SINGLE),),
        (attribute("axis", "int"),),
        _axis_type,
        Decomposition(_softmax),
        frozenset(),
        "exp(x - max) / sum of it, over one axis (ONNX Softmax, opset 13 and later).",
        (example("rows", "f32[2, n]", axis=1), example("middle", "f32[2, 3, 4]", axis=1)),
    ),
    OpDef(
        "rlxc::log_softmax",
        (operand("x", SINGLE),),
        (attribute("axis", "int"),),
        _axis_type,
        Decomposition(_log_softmax),
        frozenset(),
        "x - max - log(sum exp(x - max)), over one axis (ONNX LogSoftmax, opset 13 and later).",
        (example("rows", "f32[2, n]", axis=1),),
    ),
    OpDef(
        "rlxc::layer_norm",
        (operand("x", FLOAT), operand("scale", FLOAT), operand("bias", FLOAT, optional=True)),
        (attribute("axis", "int"), attribute("epsilon", "float")),
        _layer_norm_type,
        Decomposition(_layer_norm),
        frozenset(),
        "(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from ``axis`` on "
        "(ONNX LayerNormalization, first output).",
        (
            example("rows", "f32[2, 5]", "f32[5]", "f32[5]", axis=1, epsilon=1e-05),
            example("planes", "f32[2, 3, 4]", "f32[3, 4]", axis=1, epsilon=1e-05),
        ),
    ),
)
