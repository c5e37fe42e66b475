"""Operators that pick elements: Slice, Split, Gather."""

from __future__ import annotations

from itertools import pairwise

from rlx_edge.ir.core import Guard, Value
from rlx_edge.ir.dims import ZERO, Dim, as_dim, ceildiv, product
from rlx_edge.ir.onnx.context import Attrs, NodeContext, typed
from rlx_edge.ir.onnx.convert.table import Converter


def _slice(n: NodeContext) -> Value:
    x = n.value(0)
    rank = x.type.rank
    if n.opset < 10:
        starts = tuple(as_dim(at) for at in n.ints_attr("starts"))
        ends = tuple(as_dim(at) for at in n.ints_attr("ends"))
        axes = n.ints_attr("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    else:
        starts, ends = n.dims(1), n.dims(2)
        axes = n.integers(3) if n.has(3) else tuple(range(len(starts)))
        steps = n.integers(4) if n.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        n.fail("import.node", "starts, ends, axes and steps differ in length")
    bounds: dict[int, tuple[Dim, Dim, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = n.axis(axis, rank)
        if step == 0 or at in bounds:
            n.fail("import.node", "a step of 0, or an axis twice", found=list(steps))
        bounds[at] = _bounds(n, start, end, step, x.type.shape[at])
    return slice_of(n, x, bounds)


def slice_of(n: NodeContext, x: Value, bounds: dict[int, tuple[Dim, Dim, int]]) -> Value:
    """``x`` cut along axes; axes that stay whole are left out."""
    kept = {
        axis: bound
        for axis, bound in sorted(bounds.items())
        if bound != (ZERO, x.type.shape[axis], 1)
    }
    if not kept:
        return x
    attrs: Attrs = {
        "starts": tuple(bound[0] for bound in kept.values()),
        "ends": tuple(bound[1] for bound in kept.values()),
        "axes": tuple(kept),
        "steps": tuple(bound[2] for bound in kept.values()),
    }
    return n.op("rlxc::slice", [x], attrs)


def _bounds(n: NodeContext, start: Dim, end: Dim, step: int, extent: Dim) -> tuple[Dim, Dim, int]:
    """Start and end as ONNX clamps them: inside ``[0, extent]`` when walking up, inside
    ``[0, extent - 1]`` and ``[-1, extent - 1]`` when walking down."""
    start, end = _from_front(n, start, extent), _from_front(n, end, extent)
    low, high = (ZERO, extent) if step > 0 else (as_dim(-1), extent - 1)
    start = _clamped(n, start, ZERO, high)
    end = _clamped(n, end, low, high)
    if step < 0:  # the IR walks [start, end) downwards from end - 1
        start, end = end + 1, start + 1
    return start, n.assume.largest(start, end), step


def _from_front(n: NodeContext, position: Dim, extent: Dim) -> Dim:
    """A position counted from the end, counted from the front instead."""
    low, high = n.assume.lower(position), n.assume.upper(position)
    if low is not None and low >= 0:
        return position
    if high is not None and high < 0:
        return position + extent
    from_end = n.assume.decide(
        n.assume.compare(position, "<", ZERO), f"Slice {n.node.label}", n.where
    )
    return position + extent if from_end else position


def _clamped(n: NodeContext, position: Dim, low: Dim, high: Dim) -> Dim:
    return n.assume.largest(n.assume.smallest(position, high), low)


def _split(n: NodeContext) -> tuple[Value | None, ...]:
    """One slice an output that is read."""
    x = n.value(0)
    axis = n.axis(n.int_attr("axis", 0), x.type.rank)
    extent = x.type.shape[axis]
    sizes = _split_sizes(n, extent)
    if len(sizes) < len(n.used):
        n.fail("import.node", "more outputs than parts", found=len(n.used), allowed=len(sizes))
    results: list[Value | None] = []
    start = ZERO
    for position, used in enumerate(n.used):
        end = start + sizes[position]
        hint = n.node.outputs[position] or "part"
        results.append(_part(n, x, axis, start, end, hint) if used else None)
        start = end
    return tuple(results)


def _part(n: NodeContext, x: Value, axis: int, start: Dim, end: Dim, hint: str) -> Value:
    if start is ZERO and end is x.type.shape[axis]:
        return x
    attrs: Attrs = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (1,)}
    return n.op("rlxc::slice", [x], attrs, hint=hint)


def _split_sizes(n: NodeContext, extent: Dim) -> tuple[Dim, ...]:
    if n.has_attr("split"):
        sizes = tuple(as_dim(size) for size in n.ints_attr("split"))
    elif n.has(1):
        sizes = n.dims(1)
    else:
        return _equal_parts(n, extent)
    total = sum(sizes, ZERO)
    if total is not extent:
        if total.is_constant and extent.is_constant:
            n.fail("import.node", "the parts do not add up", found=str(total), allowed=str(extent))
        n.assume.require(Guard(extent, "==", total, f"Split {n.node.label}"))
    return sizes


def _equal_parts(n: NodeContext, extent: Dim) -> tuple[Dim, ...]:
    """All of one size; from opset 18 on the last may be smaller."""
    count = len(n.node.outputs)
    if n.int_attr("num_outputs", count) != count:
        n.fail("import.attribute", "num_outputs is not the number of outputs", allowed=count)
    if extent.divisible_by(count):
        return (extent // count,) * count
    if n.opset < 18:
        if extent.is_constant:
            n.fail("import.node", f"size {extent} does not split into {count} equal parts")
        n.assume.require(Guard(extent % count, "==", ZERO, f"Split {n.node.label}"))
        return (extent // count,) * count
    chunk = ceildiv(extent, count)
    edges = [n.assume.smallest(chunk * part, extent) for part in range(count + 1)]
    return tuple(end - start for start, end in pairwise(edges))


# ---- gathering -------------------------------------------------------------------------------


def _gather(n: NodeContext) -> Value:
    """A known scalar index is a slice."""
    x = n.value(0)
    shape = x.type.shape
    axis = n.axis(n.int_attr("axis", 0), len(shape))
    index = n.state.content_of(n.entry(1))
    is_data = index is None or n.state.depends_on_values(index)
    if index is None or is_data or index.size != 1 or not index.dtype.is_integer:
        return n.op("rlxc::gather", [x, n.value(1)], {"axis": axis})
    (at,) = index.dims()
    start = _from_front(n, at, shape[axis])
    room = shape[axis] - start
    if room.is_constant and room.value <= 0:
        n.fail("import.node", "index out of range", found=str(at), allowed=str(shape[axis]))
    cut = slice_of(n, x, {axis: (start, start + 1, 1)})
    picked = tuple(as_dim(dim) for dim in index.shape)
    return n.reshape(cut, (*shape[:axis], *picked, *shape[axis + 1 :]))


def _gather_elements(n: NodeContext) -> Value:
    x = n.value(0)
    axis = n.axis(n.int_attr("axis", 0), x.type.rank)
    return n.op("rlxc::gather_elements", [x, n.value(1)], {"axis": axis})


def _gather_nd(n: NodeContext) -> Value:
    """Positions along the leading axes become one along those axes flattened; what is outside an
    axis is clamped to it, as everywhere."""
    x, positions = n.value(0), n.value(1)
    if n.int_attr("batch_dims", 0) != 0:
        n.unsupported("batch_dims", found=n.int_attr("batch_dims", 0), allowed=0)
    shape, last = x.type.shape, positions.type.shape[-1]
    if not last.is_constant:
        n.unsupported("positions along a number of axes that is not known", found=str(last))
    count = last.value
    if not 1 <= count <= len(shape):
        n.fail("import.node", "positions along more axes than there are", found=count)
    leading = positions.type.shape[:-1]
    flat: Value | None = None
    for axis in range(count):
        one = slice_of(n, positions, {len(leading): (as_dim(axis), as_dim(axis + 1), 1)})
        place = _inside(n, n.reshape(one, leading), shape[axis])
        if flat is None:
            flat = place
        else:
            rows = n.step("rlxc::mul", [flat, n.size(shape[axis])])
            flat = n.step("rlxc::add", [rows, place])
    assert flat is not None
    rows = n.reshape(x, (product(shape[:count]), *shape[count:]))
    return n.op("rlxc::gather", [rows, flat], {"axis": 0})


def _inside(n: NodeContext, positions: Value, extent: Dim) -> Value:
    """Negative positions counted from the end, all of them clamped to ``0`` … ``extent - 1``."""
    zero = n.splat(0, positions.type.dtype)
    negative = n.step("rlxc::less", [positions, zero])
    from_end = n.step("rlxc::add", [positions, n.size(extent)])
    wrapped = n.step("rlxc::where", [negative, from_end, positions])
    return n.step("rlxc::max", [n.step("rlxc::min", [wrapped, n.size(extent - 1)]), zero])


def _center_crop_pad(n: NodeContext) -> Value:
    """Each axis cut or padded around its centre to a size that must be known."""
    x = n.value(0)
    rank = x.type.rank
    axes = [n.axis(axis, rank) for axis in n.ints_attr("axes", tuple(range(rank)))]
    wanted = n.integers(1)
    if len(wanted) != len(axes):
        n.fail("import.node", "one size an axis is needed", found=len(wanted), allowed=len(axes))
    bounds: dict[int, tuple[Dim, Dim, int]] = {}
    before, after = [ZERO] * rank, [ZERO] * rank
    for axis, target in zip(axes, wanted, strict=True):
        size = x.type.shape[axis]
        reason = f"CenterCropPad {n.node.label}"
        extent = n.assume.fixed(size, reason, n.where)
        if extent is None:
            n.unsupported("an axis whose size is not known", found=str(size))
        if target < extent:
            start = (extent - target) // 2
            bounds[axis] = (as_dim(start), as_dim(start + target), 1)
        else:
            before[axis] = as_dim((target - extent) // 2)
            after[axis] = as_dim(target - extent) - before[axis]
    cut = slice_of(n, x, bounds)
    pads = (*before, *after)
    if set(pads) == {ZERO}:
        return cut
    fill = typed(0, x.type.dtype)
    return n.op("rlxc::pad", [cut], {"pads": pads, "mode": "constant", "value": fill})


CONVERTERS: dict[str, Converter] = {
    "CenterCropPad": _center_crop_pad,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Slice": _slice,
    "Split": _split,
}
