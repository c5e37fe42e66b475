"""Pooling over one, two or three spatial axes.

The IR pools images. A volume is pooled plane by plane and then along its depth: the greatest of a
window, and its mean with the taps that count, are those of its planes' greatest and means.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ZERO
from rlx_edge.ir.onnx.context import Attrs, NodeContext, typed
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.onnx.convert.windows import (
    Window,
    as_image,
    constant_padding,
    from_image,
    padded,
    pair,
    window_of,
)


@dataclass(frozen=True, slots=True)
class Pool:
    """The IR's operator, what its padding counts as, and the attributes beside the window."""

    name: str
    fill: float
    attrs: Attrs


def _window(n: NodeContext) -> Window:
    rank = n.rank(0) - 2
    if rank not in (1, 2, 3):
        n.unsupported("number of spatial axes", found=rank, allowed="1, 2 or 3")
    kernel = n.ints_attr("kernel_shape")
    if len(kernel) != rank or min(kernel) < 1:
        n.fail(
            "import.attribute",
            "attribute 'kernel_shape' is not right",
            found=list(kernel),
            allowed=f"{rank} positive numbers",
        )
    return window_of(n, kernel, n.shape(0)[2:])


def _pooled(n: NodeContext, x: Value, window: Window, pool: Pool) -> Value:
    if window.rank == 3:
        return _pooled_volume(n, x, window, pool)
    image, padding = padded(n, as_image(n, x, window.rank), window, pool.fill)
    attrs: Attrs = {
        "kernel": pair(window.kernel, 1),
        "stride": pair(window.stride, 1),
        "padding": padding,
        "dilation": pair(window.dilation, 1),
        **pool.attrs,
    }
    return from_image(n, n.op(pool.name, [image], attrs), window.rank)


def _pooled_volume(n: NodeContext, x: Value, window: Window, pool: Pool) -> Value:
    batch, channels, depth, height, width = x.type.shape
    plane = Window(
        window.kernel[1:],
        window.stride[1:],
        window.dilation[1:],
        window.before[1:],
        window.after[1:],
    )
    planes = n.reshape(x, (batch, channels * depth, height, width), hint="planes")
    pooled = _pooled(n, planes, plane, pool)
    rows, columns = pooled.type.shape[2:]
    columns_of = n.reshape(pooled, (batch, channels, depth, rows * columns), hint="columns")
    along = Window(
        (window.kernel[0], 1),
        (window.stride[0], 1),
        (window.dilation[0], 1),
        (window.before[0], ZERO),
        (window.after[0], ZERO),
    )
    result = _pooled(n, columns_of, along, pool)
    return n.reshape(result, (batch, channels, result.type.shape[2], rows, columns))


def _max_pool(n: NodeContext) -> tuple[Value | None, ...]:
    if len(n.used) > 1 and n.used[1]:
        n.unsupported("the output with indices is used")
    x = n.value(0)
    fill = typed(float("-inf"), x.type.dtype)
    pool = Pool("rlxc::max_pool2d", fill, {"ceil_mode": n.int_attr("ceil_mode", 0) != 0})
    return (_pooled(n, x, _window(n), pool), *(None for _ in n.used[1:]))


def _average_pool(n: NodeContext) -> Value:
    window = _window(n)
    counted = n.int_attr("count_include_pad", 0) != 0
    if constant_padding(window) is None and not counted:
        n.unsupported("padding that depends on sizes and is not counted")
    ceil = n.int_attr("ceil_mode", 0) != 0
    pool = Pool("rlxc::average_pool2d", 0.0, {"ceil_mode": ceil, "count_include_pad": counted})
    return _pooled(n, n.value(0), window, pool)


def _lp_pool(n: NodeContext) -> Value:
    """(sum of |x|^p in each window)^(1/p); the mean times the window's size is the sum."""
    window = _window(n)
    if n.int_attr("ceil_mode", 0):
        n.unsupported("ceil_mode")
    order = n.int_attr("p", 2)
    if order < 1:
        n.fail("import.attribute", "p must be positive", found=order)
    dtype = n.type(0).dtype
    size = n.step("rlxc::abs", [n.value(0)])
    if order == 1:
        powers = size
    elif order == 2:
        powers = n.step("rlxc::mul", [size, size])
    else:
        powers = n.step("rlxc::pow", [size, n.splat(float(order), dtype)])
    pool = Pool("rlxc::average_pool2d", 0.0, {"ceil_mode": False, "count_include_pad": True})
    mean = _pooled(n, powers, window, pool)
    total = n.op("rlxc::mul", [mean, n.splat(float(prod(window.kernel)), dtype)])
    if order == 1:
        return total
    if order == 2:
        return n.op("rlxc::sqrt", [total])
    return n.op("rlxc::pow", [total, n.splat(1 / order, dtype)])


def _global(name: str, reduction: str) -> Converter:
    """Over all spatial axes, which stay with size 1."""

    def convert(n: NodeContext) -> Value:
        x = n.value(0)
        rank = x.type.rank
        if rank < 3:
            n.fail("import.node", "the input has no spatial axes", found=str(x.type))
        if rank == 4:
            return n.op(name, [x])
        return n.op(reduction, [x], {"axes": tuple(range(2, rank)), "keepdims": True})

    return convert


CONVERTERS: dict[str, Converter] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global("rlxc::global_average_pool", "rlxc::reduce_mean"),
    "GlobalMaxPool": _global("rlxc::global_max_pool", "rlxc::reduce_max"),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
