"""Matrix products, normalisations and what belongs to training."""

from __future__ import annotations

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ONE, product
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.table import Converter, Output
from rlx_edge.ir.types import BOOL


def _matmul(n: NodeContext) -> Value:
    return n.op("rlxc::matmul", [n.value(0), n.value(1)])


def _gemm(n: NodeContext) -> Value:
    """alpha * A' * B' + beta * C."""
    a, b = n.value(0), n.value(1)
    if a.type.rank != 2 or b.type.rank != 2:
        n.fail("import.node", "operands must be matrices", found=f"{a.type} and {b.type}")
    if n.int_attr("transA", 0):
        a = n.step("rlxc::transpose", [a], {"perm": (1, 0)})
    if n.int_attr("transB", 0):
        b = n.step("rlxc::transpose", [b], {"perm": (1, 0)})
    alpha, beta = n.float_attr("alpha", 1.0), n.float_attr("beta", 1.0)
    addend = n.optional(2) if beta != 0.0 else None
    if alpha == 1.0 and addend is None:
        return n.op("rlxc::matmul", [a, b])
    result = n.step("rlxc::matmul", [a, b])
    dtype = result.type.dtype
    if alpha != 1.0:
        result = n.op("rlxc::mul", [result, n.splat(alpha, dtype)])
    if addend is None:
        return result
    if beta != 1.0:
        addend = n.step("rlxc::mul", [addend, n.splat(beta, dtype)])
    return n.op("rlxc::add", [result, addend])


def _batch_normalization(n: NodeContext) -> tuple[Value | None, ...]:
    """In training mode by the statistics of the batch, which also move the running ones."""
    if n.int_attr("training_mode", 0):
        return _batch_statistics(n)
    if any(n.used[1:]):
        n.unsupported("more outputs than the normalised tensor, outside of training mode")
    if n.opset < 9 and n.int_attr("spatial", 1) != 1:
        n.unsupported("spatial = 0")
    operands = [n.value(index) for index in range(5)]
    y = n.op("rlxc::batch_norm", operands, {"epsilon": n.float_attr("epsilon", 1e-5)})
    return (y, *(None for _ in n.used[1:]))


def _batch_statistics(n: NodeContext) -> tuple[Value | None, ...]:
    x = n.value(0)
    dtype = x.type.dtype
    others: Attrs = {"axes": (0, *range(2, x.type.rank)), "keepdims": False}
    per_channel = (x.type.shape[1], *(ONE for _ in x.type.shape[2:]))
    mean = n.step("rlxc::reduce_mean", [x], others)
    centered = n.step("rlxc::sub", [x, n.reshape(mean, per_channel, hint="mean")])
    square = n.step("rlxc::mul", [centered, centered])
    variance = n.step("rlxc::reduce_mean", [square], others)
    operands = [x, n.value(1), n.value(2), mean, variance]
    y = n.op("rlxc::batch_norm", operands, {"epsilon": n.float_attr("epsilon", 1e-5)})
    if not any(n.used[1:]):
        return (y, *(None for _ in n.used[1:]))
    momentum = n.float_attr("momentum", 0.9)
    kept, added = n.splat(momentum, dtype), n.splat(1 - momentum, dtype)
    moved = [
        n.op(
            "rlxc::add",
            [n.step("rlxc::mul", [n.value(slot), kept]), n.step("rlxc::mul", [now, added])],
            hint=hint,
        )
        for slot, now, hint in ((3, mean, "running_mean"), (4, variance, "running_var"))
    ]
    return (y, *moved)[: len(n.used)]


def _layer_normalization(n: NodeContext) -> tuple[Value | None, ...]:
    """The mean and the inverse deviation, where they are read, are computed beside."""
    axis = n.axis(n.int_attr("axis", -1), n.rank(0))
    x = n.value(0)
    operands = [n.value(0), n.value(1)]
    bias = n.optional(2)
    if bias is not None:
        operands.append(bias)
    attrs: Attrs = {"axis": axis, "epsilon": n.float_attr("epsilon", 1e-5)}
    y = n.op("rlxc::layer_norm", operands, attrs)
    if not any(n.used[1:]):
        return (y, *(None for _ in n.used[1:]))
    keep: Attrs = {"axes": tuple(range(axis, x.type.rank)), "keepdims": True}
    mean = n.op("rlxc::reduce_mean", [x], keep, hint=n.node.outputs[1] or "mean")
    centered = n.step("rlxc::sub", [x, mean])
    square = n.step("rlxc::mul", [centered, centered])
    variance = n.step("rlxc::reduce_mean", [square], keep)
    epsilon = n.splat(n.float_attr("epsilon", 1e-5), x.type.dtype)
    deviation = n.step("rlxc::sqrt", [n.step("rlxc::add", [variance, epsilon])])
    return (y, mean, n.step("rlxc::reciprocal", [deviation]))[: len(n.used)]


def _instance_normalization(n: NodeContext) -> Value:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias, per instance and channel."""
    x = n.value(0)
    axes = tuple(range(2, x.type.rank))
    normal = _normalized(n, x, axes)
    per_channel = (x.type.shape[1], *(ONE for _ in axes))
    scale = n.reshape(n.value(1), per_channel, hint="scale")
    bias = n.reshape(n.value(2), per_channel, hint="bias")
    return n.op("rlxc::add", [n.step("rlxc::mul", [normal, scale]), bias])


def _normalized(n: NodeContext, x: Value, axes: tuple[int, ...]) -> Value:
    keep: Attrs = {"axes": axes, "keepdims": True}
    centered = n.step("rlxc::sub", [x, n.step("rlxc::reduce_mean", [x], keep)])
    square = n.step("rlxc::mul", [centered, centered])
    variance = n.step("rlxc::reduce_mean", [square], keep)
    epsilon = n.splat(n.float_attr("epsilon", 1e-5), x.type.dtype)
    deviation = n.step("rlxc::sqrt", [n.step("rlxc::add", [variance, epsilon])])
    return n.step("rlxc::div", [centered, deviation])


def _group_normalization(n: NodeContext) -> Value:
    """Scale and bias are per channel from opset 21 on, per group before."""
    if n.opset < 21:
        n.unsupported("before opset 21", found=f"opset {n.opset}")
    x = n.value(0)
    shape = x.type.shape
    groups = n.int_attr("num_groups")
    if groups < 1 or not shape[1].divisible_by(groups):
        n.fail("import.attribute", "channels do not divide into groups", found=groups)
    inner = product((shape[1] // groups, *shape[2:]))
    flat = n.reshape(x, [shape[0], ONE * groups, inner], hint="groups")
    normal = n.reshape(_normalized(n, flat, (2,)), shape, hint="normal")
    per_channel = (shape[1], *(ONE for _ in shape[2:]))
    scale = n.reshape(n.value(1), per_channel, hint="scale")
    bias = n.reshape(n.value(2), per_channel, hint="bias")
    return n.op("rlxc::add", [n.step("rlxc::mul", [normal, scale]), bias])


def _rms_normalization(n: NodeContext) -> Value:
    """x / sqrt(mean(x * x) + epsilon) * scale over the axes from ``axis`` on."""
    x = n.value(0)
    rank = x.type.rank
    axes = tuple(range(n.axis(n.int_attr("axis", -1), rank), rank))
    square = n.step("rlxc::mul", [x, x])
    mean = n.step("rlxc::reduce_mean", [square], {"axes": axes, "keepdims": True})
    epsilon = n.splat(n.float_attr("epsilon", 1e-5), x.type.dtype)
    root = n.step("rlxc::sqrt", [n.step("rlxc::add", [mean, epsilon])])
    return n.op("rlxc::mul", [n.step("rlxc::div", [x, root]), n.value(1)])


def _mean_variance_normalization(n: NodeContext) -> Value:
    """(x - mean) / (sqrt(variance) + 1e-9)."""
    x = n.value(0)
    axes = n.axes(n.ints_attr("axes", (0, 2, 3)), x.type.rank)
    keep: Attrs = {"axes": axes, "keepdims": True}
    centered = n.step("rlxc::sub", [x, n.step("rlxc::reduce_mean", [x], keep)])
    square = n.step("rlxc::mul", [centered, centered])
    deviation = n.step("rlxc::sqrt", [n.step("rlxc::reduce_mean", [square], keep)])
    bottom = n.step("rlxc::add", [deviation, n.splat(1e-9, x.type.dtype)])
    return n.op("rlxc::div", [centered, bottom])


def _lp_normalization(n: NodeContext) -> Value:
    x = n.value(0)
    axis = n.axis(n.int_attr("axis", -1), x.type.rank)
    order = n.int_attr("p", 2)
    keep: Attrs = {"axes": (axis,), "keepdims": True}
    if order == 2:
        length = n.step("rlxc::reduce_l2", [x], keep)
    elif order == 1:
        length = n.step("rlxc::reduce_sum", [n.step("rlxc::abs", [x])], keep)
    else:
        n.fail("import.attribute", "unknown norm", found=order, allowed="1 or 2")
    zero = n.splat(0.0, x.type.dtype)
    quotient = n.step("rlxc::div", [x, length])
    return n.op("rlxc::where", [n.step("rlxc::equal", [length, zero]), zero, quotient])


def _dropout(n: NodeContext) -> tuple[Output | None, ...]:
    """Inference: the input itself; the mask keeps every element."""
    if n.has(2) and n.number(2):
        n.unsupported("training mode")
    if not any(n.used[1:]):
        return (n.entry(0), *(None for _ in n.used[1:]))
    mask = n.op("rlxc::expand", [n.splat(True, BOOL)], {"shape": n.shape(0)}, hint="mask")
    return (n.entry(0), mask)


def _local_response_normalization(n: NodeContext) -> Value:
    """x / (bias + alpha * mean of squares over ``size`` neighbouring channels) ^ beta, where
    channels outside count as zeros."""
    x = n.value(0)
    shape = x.type.shape
    if len(shape) < 3:
        n.fail("import.node", "the input has no spatial axes", found=str(x.type))
    size = n.int_attr("size")
    square = n.step("rlxc::mul", [x, x])
    flat = (shape[0], ONE, shape[1], product(shape[2:]))
    attrs: Attrs = {
        "kernel": (size, 1),
        "stride": (1, 1),
        "padding": ((size - 1) // 2, 0, size // 2, 0),
        "dilation": (1, 1),
        "ceil_mode": False,
        "count_include_pad": True,
    }
    mean = n.step("rlxc::average_pool2d", [n.reshape(square, flat, hint="channels")], attrs)
    dtype = x.type.dtype
    scaled = n.step("rlxc::mul", [mean, n.splat(n.float_attr("alpha", 1e-4), dtype)])
    base = n.step("rlxc::add", [scaled, n.splat(n.float_attr("bias", 1.0), dtype)])
    power = n.step("rlxc::pow", [base, n.splat(n.float_attr("beta", 0.75), dtype)])
    return n.op("rlxc::div", [x, n.reshape(power, shape, hint="power")])


def _identity(n: NodeContext) -> Output:
    return n.entry(0)


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_normalization,
    "Dropout": _dropout,
    "Gemm": _gemm,
    "GroupNormalization": _group_normalization,
    "Identity": _identity,
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "MatMul": _matmul,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
}
