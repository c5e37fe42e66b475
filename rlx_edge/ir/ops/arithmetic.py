"""Arithmetic, comparison and logic of several operands, with ONNX multidirectional broadcasting.

Integers wrap. Integer division never traps: x / 0 is 0, and the least integer / -1 wraps.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr, binary, cast, const, select
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.elementary import elementwise, scalar
from rlx_edge.ir.ops.signature import (
    ANY,
    COMPUTED,
    ELEMENTWISE,
    FLOAT,
    INTEGER,
    LOGICAL,
    NUMBER,
    Infer,
    attribute,
    broadcast_all,
    broadcast_bool,
    broadcast_shapes,
    example,
    operand,
)
from rlx_edge.ir.types import BOOL, F32, I32, I64, DType, TensorType

Binary = Callable[[Expr, Expr], Expr]


def _operator(
    name: str, dtypes: tuple[DType, ...], function: Binary, infer: Infer, doc: str
) -> OpDef:
    """``rlxc::name(a, b)`` whose element is ``function`` of the broadcast elements."""

    def define(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
        return function(ctx.broadcast("a", at), ctx.broadcast("b", at))

    dtype = dtypes[0]
    examples = [
        example("broadcast", f"{dtype}[2, n]", f"{dtype}[n]"),
        example("scalar", f"{dtype}[3, 1, 2]", f"{dtype}[]"),
    ]
    if len(dtypes) > 2:
        examples.append(example("integers", "i64[3, 1]", "i64[1, 4]"))
    return OpDef(
        f"rlxc::{name}",
        (operand("a", dtypes), operand("b", dtypes)),
        (),
        infer,
        Expression(define),
        ELEMENTWISE,
        doc,
        tuple(examples),
    )


def _primitive(name: str) -> Binary:
    return lambda a, b: binary(name, a, b)


def _is_signed(dtype: DType) -> bool:
    return dtype.kind == "int"


def _safe_divisor(b: Expr) -> Expr:
    """``b`` with the divisors that would trap replaced by 1."""
    bad = binary("eq", b, 0)
    if _is_signed(b.dtype):
        bad = binary("or", bad, binary("eq", b, -1))
    return select(bad, const(1, b.dtype), b)


def _divide(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return a / b
    quotient = a / _safe_divisor(b)
    if _is_signed(a.dtype):
        quotient = select(binary("eq", b, -1), -a, quotient)
    return select(binary("eq", b, 0), const(0, a.dtype), quotient)


def _modulo(a: Expr, b: Expr) -> Expr:
    # The replaced divisor 1 gives remainder 0, which is also that of -1.
    return binary("mod", a, _safe_divisor(b))


def _power(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return binary("pow", a, b)
    return _integer_power(a, b)


def _integer_power(a: Expr, b: Expr) -> Expr:
    """By repeated squaring over the bits of the exponent.

    Exponents of the type's width and more are lowered to one of the same parity: only the powers
    of -1, 0 and 1 fit the type there. A negative exponent gives 0, but for the bases 1 and -1.
    """
    bits = 8 * a.dtype.bytes
    zero, one = const(0, a.dtype), const(1, a.dtype)
    even = binary("eq", binary("and", b, one), zero)
    exponent = select(b >= bits, select(even, const(bits - 2, a.dtype), bits - 1), b)
    result, square = one, a
    steps = bits.bit_length() - 1
    for step in range(steps):
        bit = binary("and", binary("shr", exponent, const(step, a.dtype)), one)
        result = select(binary("eq", bit, zero), result, result * square)
        if step < steps - 1:
            square = square * square
    negated = select(even, one, a)
    unit = binary("or", binary("eq", a, one), binary("eq", a, -1))
    return select(b < 0, select(unit, negated, zero), result)


def _where_type(ctx: InferContext) -> TensorType:
    shape = broadcast_shapes(ctx, [item.shape for item in ctx.types])
    return TensorType(ctx.types[1].dtype, shape)


def _where(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return select(ctx.broadcast("condition", at), ctx.broadcast("x", at), ctx.broadcast("y", at))


def _clip_type(ctx: InferContext) -> TensorType:
    for position, bound in enumerate(ctx.types[1:]):
        if bound.rank:
            raise ctx.error(
                f"{('min', 'max')[position]} must be a scalar", found=bound, allowed="rank 0"
            )
    return ctx.types[0]


def _clip(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    value = ctx.load("x", at)
    if ctx.has("min"):
        value = binary("max", value, ctx.load("min", ()))
    if ctx.has("max"):
        value = binary("min", value, ctx.load("max", ()))
    return value


def _cast_type(ctx: InferContext) -> TensorType:
    dtype = ctx.attrs["dtype"]
    if not isinstance(dtype, DType):
        raise ctx.error("dtype must be an element type", found=dtype)
    return TensorType(dtype, ctx.types[0].shape)


def _cast(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return cast(ctx.load("x", at), ctx.attrs["dtype"])


def _is_nan_type(ctx: InferContext) -> TensorType:
    return TensorType(BOOL, ctx.types[0].shape)


def _is_nan(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    x = ctx.load("x", at)
    return binary("ne", x, x)


OPS = (
    _operator("add", NUMBER, _primitive("add"), broadcast_all, "a + b (ONNX Add)."),
    _operator("sub", NUMBER, _primitive("sub"), broadcast_all, "a - b (ONNX Sub)."),
    _operator("mul", NUMBER, _primitive("mul"), broadcast_all, "a * b (ONNX Mul)."),
    _operator("div", NUMBER, _divide, broadcast_all, "a / b; integers truncate (ONNX Div)."),
    _operator(
        "pow",
        (F32, I32, I64),
        _power,
        broadcast_all,
        "a to the power b: IEEE 754 pow for floats; integers wrap, a negative exponent gives "
        "0 but for the bases 1 and -1 (ONNX Pow).",
    ),
    _operator(
        "mod",
        INTEGER,
        _modulo,
        broadcast_all,
        "Remainder with the divisor's sign, 0 for a divisor of 0 (ONNX Mod, fmod=0).",
    ),
    _operator(
        "min",
        NUMBER,
        _primitive("min"),
        broadcast_all,
        "Lesser of both, NaN if either is (ONNX Min).",
    ),
    _operator(
        "max",
        NUMBER,
        _primitive("max"),
        broadcast_all,
        "Greater of both, NaN if either is (ONNX Max).",
    ),
    _operator("equal", COMPUTED, _primitive("eq"), broadcast_bool, "a == b (ONNX Equal)."),
    _operator("less", NUMBER, _primitive("lt"), broadcast_bool, "a < b (ONNX Less)."),
    _operator(
        "less_or_equal", NUMBER, _primitive("le"), broadcast_bool, "a <= b (ONNX LessOrEqual)."
    ),
    _operator("greater", NUMBER, _primitive("gt"), broadcast_bool, "a > b (ONNX Greater)."),
    _operator(
        "greater_or_equal",
        NUMBER,
        _primitive("ge"),
        broadcast_bool,
        "a >= b (ONNX GreaterOrEqual).",
    ),
    _operator("and", LOGICAL, _primitive("and"), broadcast_bool, "a and b (ONNX And)."),
    _operator("or", LOGICAL, _primitive("or"), broadcast_bool, "a or b (ONNX Or)."),
    _operator("xor", LOGICAL, _primitive("xor"), broadcast_bool, "a differs from b (ONNX Xor)."),
    elementwise("not", LOGICAL, scalar("not"), "Logical negation (ONNX Not)."),
    OpDef(
        "rlxc::is_nan",
        (operand("x", FLOAT),),
        (),
        _is_nan_type,
        Expression(_is_nan),
        ELEMENTWISE,
        "Whether x is NaN (ONNX IsNaN).",
        (example("matrix", "f32[2, n]"),),
    ),
    OpDef(
        "rlxc::where",
        (operand("condition", LOGICAL, group="B"), operand("x", ANY), operand("y", ANY)),
        (),
        _where_type,
        Expression(_where),
        ELEMENTWISE,
        "x where condition holds, else y (ONNX Where).",
        (
            example("broadcast", "bool[2, 1]", "f32[n]", "f32[]"),
            example("integers", "bool[4]", "i64[4]", "i64[1]"),
        ),
    ),
    OpDef(
        "rlxc::clip",
        (
            operand("x", NUMBER),
            operand("min", NUMBER, optional=True),
            operand("max", NUMBER, optional=True),
        ),
        (),
        _clip_type,
        Expression(_clip),
        ELEMENTWISE,
        "min(max(x, min), max) with scalar bounds; NaN stays (ONNX Clip).",
        (
            example("both", "f32[2, n]", "f32[]", "f32[]"),
            example("below", "f32[2, n]", "f32[]"),
        ),
    ),
    OpDef(
        "rlxc::cast",
        (operand("x", ANY),),
        (attribute("dtype", "dtype"),),
        _cast_type,
        Expression(_cast),
        ELEMENTWISE,
        "Conversion: floats truncate to integers and saturate, NaN gives 0, integers wrap, "
        "anything but zero is true (ONNX Cast).",
        (
            example("truncate", "f32[2, n]", dtype=I64),
            example("widen", "i32[4]", dtype=F32),
            example("truth", "f32[2, n]", dtype=BOOL),
            example("bits", "bool[3]", dtype=F32),
        ),
    ),
)
