"""Elementary functions: one operand, element by element."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr, const, unary
from rlx_edge.ir.opdef import Expression, ExpressionContext, OpDef
from rlx_edge.ir.ops.signature import (
    ELEMENTWISE,
    FLOAT,
    SIGNED,
    SINGLE,
    example,
    operand,
    same_as_first,
)
from rlx_edge.ir.types import DType

Function = Callable[[Expr], Expr]


def elementwise(name: str, dtypes: tuple[DType, ...], function: Function, doc: str) -> OpDef:
    """``rlxc::name(x)`` whose element is ``function`` of x's element."""

    def define(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
        return function(ctx.load("x", at))

    return OpDef(
        f"rlxc::{name}",
        (operand("x", dtypes),),
        (),
        same_as_first,
        Expression(define),
        ELEMENTWISE,
        doc,
        (example("matrix", f"{dtypes[0]}[2, n]"),),
    )


def scalar(name: str) -> Function:
    """The scalar operator ``name`` as a function of one expression."""
    return lambda x: unary(name, x)


def _reciprocal(x: Expr) -> Expr:
    return const(1, x.dtype) / x


_FAR = "; beyond ±2**22 the value is that at ±2**22"

OPS = (
    elementwise("exp", SINGLE, scalar("exp"), "e to the power x (ONNX Exp)."),
    elementwise("log", SINGLE, scalar("log"), "Natural logarithm; NaN below zero (ONNX Log)."),
    elementwise("sqrt", FLOAT, scalar("sqrt"), "Square root, correctly rounded (ONNX Sqrt)."),
    elementwise("reciprocal", FLOAT, _reciprocal, "1 / x (ONNX Reciprocal)."),
    elementwise("erf", SINGLE, scalar("erf"), "Gauss error function (ONNX Erf)."),
    elementwise(
        "abs", SIGNED, scalar("abs"), "Absolute value; the least integer wraps (ONNX Abs)."
    ),
    elementwise("neg", SIGNED, scalar("neg"), "-x; the least integer wraps (ONNX Neg)."),
    elementwise("floor", FLOAT, scalar("floor"), "Largest integer not above x (ONNX Floor)."),
    elementwise("ceil", FLOAT, scalar("ceil"), "Smallest integer not below x (ONNX Ceil)."),
    elementwise("round", FLOAT, scalar("nearest"), "Nearest integer, ties to even (ONNX Round)."),
    elementwise(
        "sign", SIGNED, scalar("sign"), "-1, 1, or x itself for zeros and NaN (ONNX Sign)."
    ),
    elementwise("sin", SINGLE, scalar("sin"), f"Sine of x radians (ONNX Sin){_FAR}."),
    elementwise("cos", SINGLE, scalar("cos"), f"Cosine of x radians (ONNX Cos){_FAR}."),
    elementwise("asin", SINGLE, scalar("asin"), "Arc sine; NaN outside [-1, 1] (ONNX Asin)."),
    elementwise("acos", SINGLE, scalar("acos"), "Arc cosine; NaN outside [-1, 1] (ONNX Acos)."),
    elementwise("atan", SINGLE, scalar("atan"), "Arc tangent (ONNX Atan)."),
    elementwise("sinh", SINGLE, scalar("sinh"), "Hyperbolic sine (ONNX Sinh)."),
    elementwise("cosh", SINGLE, scalar("cosh"), "Hyperbolic cosine (ONNX Cosh)."),
    elementwise("asinh", SINGLE, scalar("asinh"), "Inverse hyperbolic sine (ONNX Asinh)."),
    elementwise(
        "acosh", SINGLE, scalar("acosh"), "Inverse hyperbolic cosine; NaN below 1 (ONNX Acosh)."
    ),
    elementwise(
        "atanh",
        SINGLE,
        scalar("atanh"),
        "Inverse hyperbolic tangent; NaN outside [-1, 1] (ONNX Atanh).",
    ),
)
