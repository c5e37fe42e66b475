"""``Pad`` in all its modes."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ZERO, Dim, as_dim
from rlx_edge.ir.onnx.context import Attrs, NodeContext, typed
from rlx_edge.ir.onnx.convert.selection import slice_of
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.onnx.shape_values import Unknown
from rlx_edge.ir.types import BOOL


def _pad(n: NodeContext) -> Value:
    """Amounts are an attribute before opset 11; negative ones cut."""
    x = n.value(0)
    rank = x.type.rank
    mode = n.string_attr("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        n.fail(
            "import.attribute", "unknown mode", found=mode, allowed="constant, reflect, edge, wrap"
        )
    if n.opset < 11:
        amounts = tuple(as_dim(pad) for pad in n.ints_attr("pads"))
    else:
        amounts = n.dims(1)
    fill = _fill(n) if mode == "constant" else 0
    axes = [n.axis(axis, rank) for axis in (n.integers(3) if n.has(3) else range(rank))]
    if len(amounts) != 2 * len(axes):
        n.fail("import.node", "two amounts an axis are needed", found=len(amounts))
    before, after = [ZERO] * rank, [ZERO] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = amounts[position], amounts[position + len(axes)]
    if mode != "constant":
        x = _cropped(n, x, before, after)
        before = [n.assume.largest(amount, ZERO) for amount in before]
        after = [n.assume.largest(amount, ZERO) for amount in after]
    pads = (*before, *after)
    if mode == "reflect":
        for amount, size in zip(pads, x.type.shape * 2, strict=True):
            if amount is not ZERO:
                n.assume.require_at_least(size - amount, 1, f"room to reflect in {n.node.label}")
    if all(amount is ZERO for amount in pads):
        return x
    if isinstance(fill, Value):
        return _padded_with(
            n, x, {"pads": pads, "mode": mode, "value": typed(0, x.type.dtype)}, fill
        )
    attrs: Attrs = {"pads": pads, "mode": mode, "value": typed(fill, x.type.dtype)}
    return n.op("rlxc::pad", [x], attrs)


def _fill(n: NodeContext) -> float | int | bool | Value:
    """What is put in: a number, or a scalar that is computed."""
    if n.opset < 11:
        return n.float_attr("value", 0.0)
    if not n.has(2):
        return 0
    try:
        (number,) = n.settled(2).numbers()
    except (Unknown, ValueError):
        return n.reshape(n.value(2), (), hint="fill")
    return number


def _padded_with(n: NodeContext, x: Value, attrs: Attrs, fill: Value) -> Value:
    """Padding by an element that is computed: chosen where padding the image of "is x" says no."""
    whole = n.op("rlxc::expand", [n.splat(True, BOOL)], {"shape": x.type.shape}, hint="inside")
    inside = n.step("rlxc::pad", [whole], {**attrs, "value": False})
    return n.op("rlxc::where", [inside, n.step("rlxc::pad", [x], attrs), fill])


def _cropped(n: NodeContext, x: Value, before: Sequence[Dim], after: Sequence[Dim]) -> Value:
    """Negative amounts as a slice."""
    bounds: dict[int, tuple[Dim, Dim, int]] = {}
    for axis, (head, tail) in enumerate(zip(before, after, strict=True)):
        start = n.assume.largest(-head, ZERO)
        bounds[axis] = (start, x.type.shape[axis] - n.assume.largest(-tail, ZERO), 1)
    return slice_of(n, x, bounds)


CONVERTERS: dict[str, Converter] = {"Pad": _pad}
