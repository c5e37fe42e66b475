"""Reductions, their norms and Softmax."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import product
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.types import BOOL, U8


def _axes(n: NodeContext, since_input: int) -> tuple[int, ...] | None:
    """Reduced axes; ``None`` for "none, the operator is the identity"."""
    rank = n.rank(0)
    if n.opset < since_input or n.has_attr("axes"):
        axes = n.ints_attr("axes", ())
    else:
        axes = n.integers(1) if n.has(1) else ()
    if axes:
        return n.axes(axes, rank)
    return None if n.int_attr("noop_with_empty_axes", 0) else tuple(range(rank))


def _reduction(
    name: str,
    since_input: int = 18,
    before: Callable[[NodeContext, Value], Value] | None = None,
    after: str | None = None,
) -> Converter:
    """``after(reduce(before(x)))``; axes are an input from opset ``since_input`` on."""

    def convert(n: NodeContext) -> Value:
        x = n.value(0)
        axes = _axes(n, since_input)
        y = x if before is None else before(n, x)
        if y.type.dtype is BOOL:  # all and any are the least and the greatest
            return _of_bits(n, y, name, axes)
        if axes is not None and n.rank(0) > 0:
            attrs: Attrs = {"axes": axes, "keepdims": n.int_attr("keepdims", 1) != 0}
            y = n.op(name, [y], attrs) if after is None else n.step(name, [y], attrs)
        return y if after is None else n.op(after, [y])

    return convert


def _of_bits(n: NodeContext, x: Value, name: str, axes: tuple[int, ...] | None) -> Value:
    if name not in ("rlxc::reduce_max", "rlxc::reduce_min"):
        n.unsupported("element type", found=BOOL, allowed="numbers")
    if axes is None or n.rank(0) == 0:
        return x
    attrs: Attrs = {"axes": axes, "keepdims": n.int_attr("keepdims", 1) != 0}
    bits = n.step(name, [n.step("rlxc::cast", [x], {"dtype": U8})], attrs)
    return n.op("rlxc::cast", [bits], {"dtype": BOOL})


def _square(n: NodeContext, x: Value) -> Value:
    return n.step("rlxc::mul", [x, x])


def _absolute(n: NodeContext, x: Value) -> Value:
    return n.step("rlxc::abs", [x])


def _reduce_log_sum_exp(n: NodeContext) -> Value:
    """m + log(sum(exp(x - m))) with m the maximum, which keeps exp in range."""
    x = n.value(0)
    axes = _axes(n, 18)
    if axes is None or n.rank(0) == 0:
        return x
    keep: Attrs = {"axes": axes, "keepdims": True}
    top = n.step("rlxc::reduce_max", [x], keep)
    powers = n.step("rlxc::exp", [n.step("rlxc::sub", [x, top])])
    total = n.step("rlxc::log", [n.step("rlxc::reduce_sum", [powers], keep)])
    result = n.step("rlxc::add", [total, top])
    if n.int_attr("keepdims", 1):
        return result
    shape = [dim for axis, dim in enumerate(x.type.shape) if axis not in axes]
    return n.reshape(result, shape)


def _softmax(name: str) -> Converter:
    """Before opset 13 the axes from ``axis`` on are flattened into one."""

    def convert(n: NodeContext) -> Value:
        x = n.value(0)
        shape = x.type.shape
        old = n.opset < 13
        axis = n.axis(n.int_attr("axis", 1 if old else -1), len(shape))
        if not old or axis == len(shape) - 1:
            return n.op(name, [x], {"axis": axis})
        flat = n.reshape(x, [product(shape[:axis]), product(shape[axis:])], hint="flat")
        return n.reshape(n.step(name, [flat], {"axis": 1}), shape)

    return convert


CONVERTERS: dict[str, Converter] = {
    "LogSoftmax": _softmax("rlxc::log_softmax"),
    "ReduceL1": _reduction("rlxc::reduce_sum", before=_absolute),
    "ReduceL2": _reduction("rlxc::reduce_l2"),
    "ReduceLogSum": _reduction("rlxc::reduce_sum", after="rlxc::log"),
    "ReduceLogSumExp": _reduce_log_sum_exp,
    "ReduceMax": _reduction("rlxc::reduce_max"),
    "ReduceMean": _reduction("rlxc::reduce_mean"),
    "ReduceMin": _reduction("rlxc::reduce_min"),
    "ReduceProd": _reduction("rlxc::reduce_prod"),
    "ReduceSum": _reduction("rlxc::reduce_sum", since_input=13),
    "ReduceSumSquare": _reduction("rlxc::reduce_sum", before=_square),
    "Softmax": _softmax("rlxc::softmax"),
}
