"""Activation functions, element by element."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr, binary, const, select, unary
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.elementary import elementwise, scalar
from rlx_edge.ir.ops.signature import (
    ELEMENTWISE,
    FLOAT,
    SIGNED,
    SINGLE,
    attribute,
    broadcast_all,
    example,
    operand,
    same_as_first,
)
from rlx_edge.ir.types import DType, TensorType

Define = Callable[[ExpressionContext, tuple[Dim, ...]], Expr]


def _with_attrs(
    name: str, dtypes: tuple[DType, ...], values: dict[str, float], define: Define, doc: str
) -> OpDef:
    """An activation with float attributes; ``values`` are those of the example."""
    return OpDef(
        f"rlxc::{name}",
        (operand("x", dtypes),),
        tuple(attribute(attr, "float") for attr in values),
        same_as_first,
        Expression(define),
        ELEMENTWISE,
        doc,
        (example("matrix", "f32[2, n]", **values),),
    )


def _relu(x: Expr) -> Expr:
    return select(x < 0, 0, x)


def _leaky_relu(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    x = ctx.load("x", at)
    return select(x < 0, x * ctx.attrs["alpha"], x)


def _elu(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    x = ctx.load("x", at)
    return select(x < 0, (unary("exp", x) - 1) * ctx.attrs["alpha"], x)


def _unit_interval(x: Expr) -> Expr:
    return binary("max", binary("min", x, 1), 0)


def _hard_sigmoid(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return _unit_interval(ctx.load("x", at) * ctx.attrs["alpha"] + ctx.attrs["beta"])


def _hard_swish(x: Expr) -> Expr:
    return x * _unit_interval(x * SIXTH + 0.5)


SIXTH = 0.1666666716337204
"""The f32 nearest to 1 / 6, which ONNX computes with also in f64."""
SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654


def _gelu(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    x = ctx.load("x", at)
    if ctx.attrs["approximate"] == "none":
        return x * 0.5 * (unary("erf", x * SQRT_HALF) + 1)
    inner = (x + x * x * x * 0.044715) * SQRT_2_OVER_PI
    return x * 0.5 * (unary("tanh", inner) + 1)


def _prelu_type(ctx: InferContext) -> TensorType:
    result = broadcast_all(ctx)
    if result != ctx.types[0]:
        raise ctx.error("slope must broadcast to x", found=ctx.types[1], allowed=ctx.types[0])
    return result


def _prelu(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    x = ctx.load("x", at)
    return select(x < const(0, x.dtype), x * ctx.broadcast("slope", at), x)


OPS = (
    elementwise("relu", SIGNED, _relu, "0 where x < 0, else x: NaN and -0 stay (ONNX Relu)."),
    _with_attrs(
        "leaky_relu", FLOAT, {"alpha": 0.01}, _leaky_relu, "x * alpha where x < 0 (ONNX LeakyRelu)."
    ),
    _with_attrs(
        "elu", SINGLE, {"alpha": 1.0}, _elu, "alpha * (exp(x) - 1) where x < 0 (ONNX Elu)."
    ),
    _with_attrs(
        "hard_sigmoid",
        FLOAT,
        {"alpha": 0.2, "beta": 0.5},
        _hard_sigmoid,
        "max(0, min(1, x * alpha + beta)) (ONNX HardSigmoid).",
    ),
    elementwise(
        "hard_swish", FLOAT, _hard_swish, "x * max(0, min(1, x / 6 + 0.5)) (ONNX HardSwish)."
    ),
    elementwise("sigmoid", SINGLE, scalar("sigmoid"), "1 / (1 + exp(-x)) (ONNX Sigmoid)."),
    elementwise("tanh", SINGLE, scalar("tanh"), "Hyperbolic tangent (ONNX Tanh)."),
    elementwise("softplus", SINGLE, scalar("softplus"), "log(1 + exp(x)) (ONNX Softplus)."),
    OpDef(
        "rlxc::gelu",
        (operand("x", SINGLE),),
        (attribute("approximate", "string", "none", "tanh"),),
        same_as_first,
        Expression(_gelu),
        ELEMENTWISE,
        "x * 0.5 * (1 + erf(x / sqrt(2))), or its tanh approximation (ONNX Gelu).",
        (
            example("exact", "f32[2, n]", approximate="none"),
            example("tanh", "f32[2, n]", approximate="tanh"),
        ),
    ),
    OpDef(
        "rlxc::prelu",
        (operand("x", SIGNED), operand("slope", SIGNED)),
        (),
        _prelu_type,
        Expression(_prelu),
        ELEMENTWISE,
        "x * slope where x < 0; slope broadcasts to x (ONNX PRelu).",
        (example("channels", "f32[2, 3, n]", "f32[3, 1]"),),
    ),
)
