"""Convolutions: kernels that slide over spatial axes; and the windows that pooling shares.

The IR has two spatial axes. One-dimensional operators run as images of height 1, the reshapes
around them are views. ``auto_pad`` becomes explicit padding: constant where the sizes allow, a
``rlxc::pad`` with symbolic amounts where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim, ceildiv
from rlx_edge.ir.onnx.context import Attrs, NodeContext, typed
from rlx_edge.ir.onnx.convert.table import Converter


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel over the spatial axes, as ONNX states it (1 or 2 axes)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)


def window_of(n: NodeContext, kernel: tuple[int, ...], spatial: Sequence[Dim]) -> Window:
    rank = len(kernel)
    _check_axes(n, rank, spatial)
    stride = _spatial(n, "strides", rank)
    dilation = _spatial(n, "dilations", rank)
    before, after = _padding(n, kernel, stride, dilation, spatial)
    return Window(kernel, stride, dilation, before, after)


def _check_axes(n: NodeContext, rank: int, spatial: Sequence[Dim]) -> None:
    if len(spatial) != rank:
        n.fail(
            "import.attribute",
            "kernel and input have different numbers of spatial axes",
            found=f"{rank} and {len(spatial)}",
        )


def _explicit_pads(n: NodeContext, rank: int) -> tuple[int, ...]:
    pads = n.ints_attr("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank or min(pads) < 0:
        n.fail(
            "import.attribute",
            "attribute 'pads' is not right",
            found=list(pads),
            allowed=f"{2 * rank} numbers that are not negative",
        )
    return pads


def _spatial(n: NodeContext, name: str, rank: int) -> tuple[int, ...]:
    values = n.ints_attr(name, (1,) * rank)
    if len(values) != rank or min(values) < 1:
        n.fail(
            "import.attribute",
            f"attribute {name!r} is not right for {rank} spatial axes",
            found=list(values),
            allowed=f"{rank} positive numbers",
        )
    return values


def _padding(
    n: NodeContext,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    spatial: Sequence[Dim],
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Amounts before and after each spatial axis."""
    rank = len(kernel)
    mode = n.string_attr("auto_pad", "NOTSET") or "NOTSET"
    if mode == "NOTSET":
        dims = tuple(as_dim(pad) for pad in _explicit_pads(n, rank))
        return dims[:rank], dims[rank:]
    if mode == "VALID":
        return (ZERO,) * rank, (ZERO,) * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        n.fail(
            "import.attribute",
            "unknown auto_pad",
            found=mode,
            allowed="NOTSET, VALID, SAME_UPPER, SAME_LOWER",
        )
    small: list[Dim] = []
    large: list[Dim] = []
    for extent, size, step, gap in zip(spatial, kernel, stride, dilation, strict=True):
        reach = (size - 1) * gap + 1
        if step == 1:
            total = as_dim(reach - 1)
        else:
            needed = (ceildiv(extent, step) - 1) * step + reach - extent
            total = n.assume.largest(needed, ZERO)
        small.append(total // as_dim(2))
        large.append(total - total // as_dim(2))
    if mode == "SAME_UPPER":
        return tuple(small), tuple(large)
    return tuple(large), tuple(small)


def as_image(n: NodeContext, x: Value, rank: int) -> Value:
    """``[N, C, L]`` as ``[N, C, 1, L]``."""
    if rank == 2:
        return x
    shape = x.type.shape
    return n.reshape(x, [*shape[:-1], ONE, shape[-1]], hint=f"{x.name}_image")


def from_image(n: NodeContext, y: Value, rank: int) -> Value:
    if rank == 2:
        return y
    shape = y.type.shape
    return n.reshape(y, [*shape[:-2], shape[-1]])


def pair(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    return values if len(values) == 2 else (fill, *values)


def constant_padding(window: Window) -> tuple[int, ...] | None:
    """``(top, left, bottom, right)``, ``None`` where an amount depends on sizes."""
    amounts = (*window.before, *window.after)
    if not all(amount.is_constant for amount in amounts):
        return None
    before = tuple(amount.value for amount in window.before)
    after = tuple(amount.value for amount in window.after)
    return (*pair(before, 0), *pair(after, 0))


def padded(n: NodeContext, x: Value, window: Window, fill: float) -> tuple[Value, tuple[int, ...]]:
    """The image and the padding left to the operator: symbolic amounts are applied before it."""
    constant = constant_padding(window)
    if constant is not None:
        return x, constant
    lead = (ZERO,) * (4 - window.rank)
    pads = (*lead, *window.before, *lead, *window.after)
    attrs: Attrs = {"pads": pads, "mode": "constant", "value": typed(fill, x.type.dtype)}
    return n.step("rlxc::pad", [x], attrs), (0, 0, 0, 0)


def _check_rank(n: NodeContext, rank: int) -> None:
    if rank not in (1, 2):
        n.unsupported(
            "number of spatial axes", found=rank, allowed="1 or 2 (three-dimensional data is open)"
        )


def _weight(n: NodeContext, rank: int) -> Value:
    """Input 1 with a height of 1 put in for one-dimensional kernels; constants keep their bytes."""
    entry = n.entry(1)
    shape = n.shape(1)
    if rank == 2:
        return n.value(1)
    image = (*shape[:-1], ONE, shape[-1])
    if entry.tensor is not None and entry.value is None:
        return n.state.weight(entry.tensor, n.where, [dim.value for dim in image])
    return n.reshape(n.value(1), image, hint="kernel")


def _kernel_of(n: NodeContext, weight: Sequence[Dim]) -> tuple[int, ...]:
    """Spatial sizes of the weight, which must be constants and agree with ``kernel_shape``."""
    spatial = tuple(weight[2:])
    if not all(dim.is_constant for dim in spatial):
        n.unsupported("kernels with symbolic sizes", found=", ".join(map(str, spatial)))
    kernel = tuple(dim.value for dim in spatial)
    stated = n.ints_attr("kernel_shape", kernel)
    if stated != kernel:
        n.fail(
            "import.attribute",
            "kernel_shape is not the shape of the weight",
            found=list(stated),
            allowed=list(kernel),
        )
    return kernel


def _image_rank(n: NodeContext, index: int) -> int:
    rank = n.rank(index) - 2
    _check_rank(n, rank)
    return rank


def _conv(n: NodeContext) -> Value:
    rank = _image_rank(n, 1)
    kernel = _kernel_of(n, n.shape(1))
    window = window_of(n, kernel, n.shape(0)[2:])
    x = as_image(n, n.value(0), rank)
    x, padding = padded(n, x, window, 0.0)
    operands = [x, _weight(n, rank)]
    bias = n.optional(2)
    if bias is not None:
        operands.append(bias)
    attrs: Attrs = {
        "stride": pair(window.stride, 1),
        "padding": padding,
        "dilation": pair(window.dilation, 1),
        "groups": n.int_attr("group", 1),
    }
    if rank == 2:
        return n.op("rlxc::conv2d", operands, attrs)
    return from_image(n, n.step("rlxc::conv2d", operands, attrs), rank)


def _conv_transpose(n: NodeContext) -> Value:
    """``pads`` cut the output; ``output_shape`` and ``auto_pad`` are turned into them."""
    rank = _image_rank(n, 1)
    kernel = _kernel_of(n, n.shape(1))
    spatial = n.shape(0)[2:]
    _check_axes(n, rank, spatial)
    stride = _spatial(n, "strides", rank)
    dilation = _spatial(n, "dilations", rank)
    extra = n.ints_attr("output_padding", (0,) * rank)
    if len(extra) != rank or min(extra) < 0:
        n.fail("import.attribute", "attribute 'output_padding' is not right", found=list(extra))
    mode = n.string_attr("auto_pad", "NOTSET") or "NOTSET"
    if mode == "NOTSET" and not n.has_attr("output_shape"):
        pads = _explicit_pads(n, rank)
    else:
        pads, extra = _transposed_pads(n, mode, kernel, stride, dilation, extra, spatial)
    x = as_image(n, n.value(0), rank)
    operands = [x, _weight(n, rank)]
    bias = n.optional(2)
    if bias is not None:
        operands.append(bias)
    attrs: Attrs = {
        "stride": pair(stride, 1),
        "padding": (*pair(pads[:rank], 0), *pair(pads[rank:], 0)),
        "dilation": pair(dilation, 1),
        "groups": n.int_attr("group", 1),
        "output_padding": pair(extra, 0),
    }
    if rank == 2:
        return n.op("rlxc::conv_transpose2d", operands, attrs)
    return from_image(n, n.step("rlxc::conv_transpose2d", operands, attrs), rank)


def _transposed_pads(
    n: NodeContext,
    mode: str,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    extra: tuple[int, ...],
    spatial: Sequence[Dim],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What to cut so that the output has ``output_shape``, or input times stride for ``SAME``; and
    the output padding, enlarged where that is beyond what the kernel reaches."""
    rank = len(kernel)
    if mode == "VALID" and not n.has_attr("output_shape"):
        return (0,) * (2 * rank), extra
    wanted: Sequence[Dim | int] = n.ints_attr("output_shape", ())[-rank:]
    if wanted and len(wanted) != rank:
        n.fail("import.attribute", "attribute 'output_shape' is not right", found=list(wanted))
    if not wanted:
        wanted = [extent * step for extent, step in zip(spatial, stride, strict=True)]
    before: list[int] = []
    after: list[int] = []
    added: list[int] = []
    for axis, size in enumerate(wanted):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        total = (spatial[axis] - 1) * stride[axis] + extra[axis] + reach - size
        if not total.is_constant:
            n.unsupported("padding that depends on sizes", found=str(total))
        amount = max(0, total.value)
        added.append(extra[axis] + max(0, -total.value))
        half = amount // 2
        upper = mode == "SAME_UPPER"
        before.append(half if upper else amount - half)
        after.append(amount - half if upper else half)
    return (*before, *after), tuple(added)


CONVERTERS: dict[str, Converter] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
