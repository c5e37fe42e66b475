"""Element-by-element operators: arithmetic, comparisons, logic, activations, Cast and Where."""

from __future__ import annotations

from functools import reduce

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ONE
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.types import BOOL, F32, DType


def _same(name: str) -> Converter:
    """The operator of the IR with the same operands and no attributes."""

    def convert(n: NodeContext) -> Value:
        return n.op(name, n.values())

    return convert


def _binary(name: str) -> Converter:
    """Two operands with broadcasting; before opset 7 ``axis`` says where the second one lies."""

    def convert(n: NodeContext) -> Value:
        a, b = n.value(0), n.value(1)
        if n.opset < 7 and n.has_attr("axis") and a.type.rank > b.type.rank:
            axis = n.axis(n.int_attr("axis"), a.type.rank)
            behind = a.type.rank - axis - b.type.rank
            if behind < 0:
                n.fail("import.attribute", "axis leaves no room for the second operand", found=axis)
            b = n.reshape(b, (*b.type.shape, *(ONE for _ in range(behind))), hint=b.name)
        return n.op(name, [a, b])

    return convert


def _abs(n: NodeContext) -> Value:
    x = n.value(0)
    return x if x.type.dtype.kind == "uint" else n.op("rlxc::abs", [x])


def _fold_inputs(name: str) -> Converter:
    """A variadic operator (``Sum``, ``Max``) as a left fold of the binary one."""

    def convert(n: NodeContext) -> Value:
        values = n.values()
        if not values:
            n.fail("import.node", "at least one input is needed", found="none")
        if len(values) == 1:
            return values[0]
        head = reduce(lambda a, b: n.step(name, [a, b]), values[:-1])
        return n.op(name, [head, values[-1]])

    return convert


def _mean(n: NodeContext) -> Value:
    values = n.values()
    if not values:
        n.fail("import.node", "at least one input is needed", found="none")
    total = reduce(lambda a, b: n.step("rlxc::add", [a, b]), values)
    return n.op("rlxc::div", [total, n.splat(float(len(values)), total.type.dtype)])


def _with_alpha(name: str, default: float) -> Converter:
    def convert(n: NodeContext) -> Value:
        return n.op(name, [n.value(0)], {"alpha": n.float_attr("alpha", default)})

    return convert


def _selu(n: NodeContext) -> Value:
    """gamma * (x if x > 0 else alpha * (exp(x) - 1))."""
    x = n.value(0)
    inner = n.step("rlxc::elu", [x], {"alpha": n.float_attr("alpha", 1.6732632)})
    return n.op("rlxc::mul", [inner, n.splat(n.float_attr("gamma", 1.050701), x.type.dtype)])


def _celu(n: NodeContext) -> Value:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    x = n.value(0)
    dtype = x.type.dtype
    alpha, zero = n.splat(n.float_attr("alpha", 1.0), dtype), n.splat(0.0, dtype)
    powers = n.step("rlxc::exp", [n.step("rlxc::div", [x, alpha])])
    below = n.step("rlxc::mul", [alpha, n.step("rlxc::sub", [powers, n.splat(1.0, dtype)])])
    upper, lower = n.step("rlxc::max", [zero, x]), n.step("rlxc::min", [zero, below])
    return n.op("rlxc::add", [upper, lower])


def _shrink(n: NodeContext) -> Value:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    x = n.value(0)
    dtype = x.type.dtype
    if not dtype.is_float:
        n.unsupported("element type", found=dtype, allowed="floats")
    limit, bias = n.float_attr("lambd", 0.5), n.splat(n.float_attr("bias", 0.0), dtype)
    below = n.step("rlxc::less", [x, n.splat(-limit, dtype)])
    above = n.step("rlxc::greater", [x, n.splat(limit, dtype)])
    lowered = n.step("rlxc::sub", [x, bias])
    inner = n.step("rlxc::where", [above, lowered, n.splat(0.0, dtype)])
    return n.op("rlxc::where", [below, n.step("rlxc::add", [x, bias]), inner])


def _softsign(n: NodeContext) -> Value:
    x = n.value(0)
    bottom = n.step("rlxc::add", [n.splat(1.0, x.type.dtype), n.step("rlxc::abs", [x])])
    return n.op("rlxc::div", [x, bottom])


def _mish(n: NodeContext) -> Value:
    x = n.value(0)
    return n.op("rlxc::mul", [x, n.step("rlxc::tanh", [n.step("rlxc::softplus", [x])])])


def _swish(n: NodeContext) -> Value:
    x = n.value(0)
    alpha = n.float_attr("alpha", 1.0)
    scaled = x if alpha == 1.0 else n.step("rlxc::mul", [x, n.splat(alpha, x.type.dtype)])
    return n.op("rlxc::mul", [x, n.step("rlxc::sigmoid", [scaled])])


def _tan(n: NodeContext) -> Value:
    x = n.value(0)
    return n.op("rlxc::div", [n.step("rlxc::sin", [x]), n.step("rlxc::cos", [x])])


def _thresholded_relu(n: NodeContext) -> Value:
    x = n.value(0)
    above = n.step("rlxc::greater", [x, n.splat(n.float_attr("alpha", 1.0), x.type.dtype)])
    return n.op("rlxc::where", [above, x, n.splat(0.0, x.type.dtype)])


def _hard_sigmoid(n: NodeContext) -> Value:
    attrs: Attrs = {"alpha": n.float_attr("alpha", 0.2), "beta": n.float_attr("beta", 0.5)}
    return n.op("rlxc::hard_sigmoid", [n.value(0)], attrs)


def _gelu(n: NodeContext) -> Value:
    approximate = n.string_attr("approximate", "none")
    return n.op("rlxc::gelu", [n.value(0)], {"approximate": approximate})


def _clip(n: NodeContext) -> Value:
    """Bounds are attributes before opset 11 and optional inputs since."""
    x = n.value(0)
    if n.opset < 11:
        low = _bound(n, "min", x.type.dtype)
        high = _bound(n, "max", x.type.dtype)
    else:
        low, high = _scalar(n, 1), _scalar(n, 2)
    if low is not None and high is not None:
        return n.op("rlxc::clip", [x, low, high])
    if low is not None:
        return n.op("rlxc::max", [x, low])
    return n.op("rlxc::min", [x, high]) if high is not None else x


def _bound(n: NodeContext, name: str, dtype: DType) -> Value | None:
    return n.splat(n.float_attr(name), dtype) if n.has_attr(name) else None


def _scalar(n: NodeContext, index: int) -> Value | None:
    """A bound as a tensor of rank 0."""
    return n.reshape(n.value(index), (), hint="bound") if n.has(index) else None


def _mod(n: NodeContext) -> Value:
    """With ``fmod`` the result has the dividend's sign: a - trunc(a / b) * b."""
    a, b = n.value(0), n.value(1)
    if not n.int_attr("fmod", 0):
        if a.type.dtype.is_float:
            n.fail("import.attribute", "Mod of floats needs fmod = 1", found="fmod = 0")
        return n.op("rlxc::mod", [a, b])
    if a.type.dtype.is_float:
        n.unsupported("fmod = 1 on floats")
    whole = n.step("rlxc::mul", [n.step("rlxc::div", [a, b]), b])
    return n.op("rlxc::sub", [a, whole])


def _pow(n: NodeContext) -> Value:
    """The exponent may have another type than the base, which is also the result's.

    Of an integer base, whole exponents are exact powers; the others are computed in f32."""
    base, exponent = n.value(0), n.value(1)
    dtype = base.type.dtype
    if dtype.is_integer and exponent.type.dtype.is_float:
        single = [n.step("rlxc::cast", [item], {"dtype": F32}) for item in (base, exponent)]
        rough = n.step("rlxc::cast", [n.step("rlxc::pow", single)], {"dtype": dtype})
        whole = n.step("rlxc::cast", [exponent], {"dtype": dtype})
        exact = n.step("rlxc::pow", [base, whole])
        back = n.step("rlxc::cast", [whole], {"dtype": exponent.type.dtype})
        return n.op("rlxc::where", [n.step("rlxc::equal", [back, exponent]), exact, rough])
    if exponent.type.dtype is not base.type.dtype:
        exponent = n.step("rlxc::cast", [exponent], {"dtype": base.type.dtype})
    return n.op("rlxc::pow", [base, exponent])


def _cast(n: NodeContext) -> Value:
    x = n.value(0)
    dtype = n.state.dtype(n.int_attr("to"), n.where)
    return x if x.type.dtype is dtype else n.op("rlxc::cast", [x], {"dtype": dtype})


def _cast_like(n: NodeContext) -> Value:
    x = n.value(0)
    dtype = n.type(1).dtype
    return x if x.type.dtype is dtype else n.op("rlxc::cast", [x], {"dtype": dtype})


def _logical(name: str) -> Converter:
    def convert(n: NodeContext) -> Value:
        values = n.values()
        for value in values:
            if value.type.dtype is not BOOL:
                n.fail("import.node", "operands must be bool", found=str(value.type))
        return n.op(name, values)

    return convert


def _is_inf(n: NodeContext) -> Value:
    x = n.value(0)
    zero = n.splat(False, BOOL)
    found = zero
    for flag, bound in (("detect_positive", "inf"), ("detect_negative", "-inf")):
        if n.int_attr(flag, 1):
            hit = n.step("rlxc::equal", [x, n.splat(float(bound), x.type.dtype)])
            found = hit if found is zero else n.op("rlxc::or", [found, hit])
    if found is zero:
        n.unsupported("IsInf that detects neither sign")
    return found


CONVERTERS: dict[str, Converter] = {
    **{
        name: _same(f"rlxc::{name.lower()}")
        for name in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh")
    },
    "Abs": _abs,
    "Add": _binary("rlxc::add"),
    "And": _logical("rlxc::and"),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _same("rlxc::ceil"),
    "Celu": _celu,
    "Clip": _clip,
    "Cos": _same("rlxc::cos"),
    "Div": _binary("rlxc::div"),
    "Elu": _with_alpha("rlxc::elu", 1.0),
    "Equal": _binary("rlxc::equal"),
    "Erf": _same("rlxc::erf"),
    "Exp": _same("rlxc::exp"),
    "Floor": _same("rlxc::floor"),
    "Gelu": _gelu,
    "Greater": _binary("rlxc::greater"),
    "GreaterOrEqual": _binary("rlxc::greater_or_equal"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _same("rlxc::hard_swish"),
    "IsInf": _is_inf,
    "IsNaN": _same("rlxc::is_nan"),
    "LeakyRelu": _with_alpha("rlxc::leaky_relu", 0.01),
    "Less": _binary("rlxc::less"),
    "LessOrEqual": _binary("rlxc::less_or_equal"),
    "Log": _same("rlxc::log"),
    "Max": _fold_inputs("rlxc::max"),
    "Mean": _mean,
    "Min": _fold_inputs("rlxc::min"),
    "Mish": _mish,
    "Mod": _mod,
    "Mul": _binary("rlxc::mul"),
    "Neg": _same("rlxc::neg"),
    "Not": _logical("rlxc::not"),
    "Or": _logical("rlxc::or"),
    "Pow": _pow,
    "PRelu": _same("rlxc::prelu"),
    "Reciprocal": _same("rlxc::reciprocal"),
    "Relu": _same("rlxc::relu"),
    "Round": _same("rlxc::round"),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _same("rlxc::sigmoid"),
    "Sign": _same("rlxc::sign"),
    "Sin": _same("rlxc::sin"),
    "Softplus": _same("rlxc::softplus"),
    "Softsign": _softsign,
    "Sqrt": _same("rlxc::sqrt"),
    "Sub": _binary("rlxc::sub"),
    "Sum": _fold_inputs("rlxc::add"),
    "Swish": _swish,
    "Tan": _tan,
    "Tanh": _same("rlxc::tanh"),
    "ThresholdedRelu": _thresholded_relu,
    "Where": _same("rlxc::where"),
    "Xor": _logical("rlxc::xor"),
}
