"""Operators that move elements: shapes, permutations, joins and repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rlx_edge.ir.core import Guard, Value
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim, ceildiv, product
from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.convert.table import Converter, Output
from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.types import F32


def _reshaped(n: NodeContext, shape: Sequence[Dim]) -> Output:
    """Input 0 under another shape; a weight keeps its bytes and needs no operation."""
    entry = n.entry(0)
    static = all(dim.is_constant for dim in shape)
    if entry.tensor is not None and entry.value is None and static:
        dims = tuple(dim.value for dim in shape)
        if math.prod(dims) != entry.tensor.size:
            n.fail(
                "import.node",
                "the new shape holds another number of elements",
                found=_text(shape),
                allowed=f"{entry.tensor.size} elements",
            )
        return Entry(entry.name, tensor=replace(entry.tensor, dims=dims))
    return n.reshape(n.value(0), shape)


def _reshape(n: NodeContext) -> Output:
    """0 copies a dim (unless ``allowzero``), one -1 takes what is left."""
    old = n.shape(0)
    given = n.dims(1) if n.has(1) else tuple(as_dim(dim) for dim in n.ints_attr("shape"))
    wanted = tuple(_known_mark(n, dim) for dim in given)
    allow_zero = n.int_attr("allowzero", 0) != 0
    shape: list[Dim] = []
    open_axis: int | None = None
    for axis, dim in enumerate(wanted):
        if dim.is_constant and dim.value < -1:
            n.fail("import.node", "negative size in the new shape", found=str(dim))
        if dim.is_constant and dim.value == -1:
            if open_axis is not None:
                n.fail("import.node", "more than one -1 in the new shape", found=_text(wanted))
            open_axis = axis
        elif dim is ZERO and not allow_zero:
            if axis >= len(old):
                n.fail("import.node", "0 in the new shape has no dim to copy", found=_text(wanted))
            dim = old[axis]
        shape.append(dim)
    if open_axis is not None:
        rest = product(shape[:open_axis] + shape[open_axis + 1 :])
        shape[open_axis] = _quotient(n, product(old), rest)
    return _reshaped(n, shape)


def _known_mark(n: NodeContext, dim: Dim) -> Dim:
    """-1 or 0 where an input is known to say so, which a guard records; else the dim itself."""
    value = n.assume.value_of(dim)
    if dim.is_constant or value is None or value > 0:
        return dim
    n.assume.require(Guard(dim, "==", as_dim(value), f"{n.node.op_type} {n.node.label}"))
    return as_dim(value)


def _quotient(n: NodeContext, total: Dim, part: Dim) -> Dim:
    """``total / part``, which the model says is whole; a guard says so where it is not plain."""
    if part is ZERO:
        n.fail("import.node", "-1 beside a size of 0 in the new shape")
    result = total // part
    if result * part is not total:
        if total.is_constant and part.is_constant:
            n.fail(
                "import.node", "the elements do not fit the new shape", found=f"{total} / {part}"
            )
        reason = f"{n.node.op_type} {n.node.label}"
        n.assume.require(Guard(total % part, "==", ZERO, reason))
    return result


def _text(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _flatten(n: NodeContext) -> Output:
    shape = n.shape(0)
    axis = n.int_attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        n.fail("import.attribute", "axis out of range", found=axis, allowed=f"0 to {len(shape)}")
    at = axis + len(shape) if axis < 0 else axis
    return _reshaped(n, [product(shape[:at]), product(shape[at:])])


def _axes_argument(n: NodeContext) -> tuple[int, ...] | None:
    """Axes from the attribute (before opset 13) or input 1; ``None`` if neither is there."""
    if n.has_attr("axes"):
        return n.ints_attr("axes")
    return n.integers(1) if n.has(1) else None


def _squeeze(n: NodeContext) -> Output:
    """Drops axes of size 1. A named axis with a symbolic size has to be 1, which a guard says;
    without names, axes with symbolic sizes stay unless they are known to be 1."""
    shape = n.shape(0)
    given = _axes_argument(n)
    if given is None:
        reason = f"Squeeze {n.node.label}"
        axes = tuple(
            axis
            for axis, dim in enumerate(shape)
            if n.assume.decide(n.assume.compare(dim, "==", ONE), reason, n.where)
        )
    else:
        axes = n.axes(given, len(shape))
    for axis in axes:
        if shape[axis].is_constant and shape[axis] is not ONE:
            n.fail("import.node", f"axis {axis} has not size 1", found=_text(shape))
        if not shape[axis].is_constant:
            n.assume.require(Guard(shape[axis], "==", ONE, f"Squeeze {n.node.label}"))
    return _reshaped(n, [dim for axis, dim in enumerate(shape) if axis not in axes])


def _unsqueeze(n: NodeContext) -> Output:
    shape = n.shape(0)
    given = _axes_argument(n)
    if given is None:
        n.fail("import.attribute", "the axes are missing")
    rank = len(shape) + len(given)
    axes = n.axes(given, rank)
    rest = iter(shape)
    return _reshaped(n, [ONE if axis in axes else next(rest) for axis in range(rank)])


def _transpose(n: NodeContext) -> Value:
    x = n.value(0)
    rank = x.type.rank
    perm = n.ints_attr("perm", tuple(reversed(range(rank))))
    if sorted(perm) != list(range(rank)):
        n.fail(
            "import.attribute",
            "perm is not a permutation of the axes",
            found=list(perm),
            allowed=f"0 to {rank - 1}, each once",
        )
    if perm == tuple(range(rank)):
        return x
    return n.op("rlxc::transpose", [x], {"perm": perm})


def _concat(n: NodeContext) -> Value:
    values = n.values()
    if not values:
        n.fail("import.node", "at least one input is needed", found="none")
    axis = n.axis(n.int_attr("axis", 1 if n.opset < 4 else None), values[0].type.rank)
    values = [value for value in values if value.type.shape[axis : axis + 1] != (ZERO,)] or values
    return values[0] if len(values) == 1 else n.op("rlxc::concat", values, {"axis": axis})


# ---- repetition ------------------------------------------------------------------------------


def _expand(n: NodeContext) -> Value:
    x = n.value(0)
    wanted = n.dims(1)
    rank = max(x.type.rank, len(wanted))
    old = (ONE,) * (rank - x.type.rank) + x.type.shape
    new = (ONE,) * (rank - len(wanted)) + wanted
    shape = tuple(_broadcast(n, a, b) for a, b in zip(old, new, strict=True))
    return x if shape == x.type.shape else n.op("rlxc::expand", [x], {"shape": shape})


def _broadcast(n: NodeContext, old: Dim, new: Dim) -> Dim:
    if old is new or new is ONE:
        return old
    if old is ONE:
        return new
    if old.is_constant and new.is_constant:
        n.fail("import.node", "sizes do not broadcast", found=f"{old} and {new}")
    for one, other in ((old, new), (new, old)):
        if n.assume.value_of(one) == 1 and n.assume.value_of(other) != 1:
            n.assume.require(Guard(one, "==", ONE, f"Expand {n.node.label}"))
            return other
    n.assume.require(Guard(old, "==", new, f"Expand {n.node.label}"))
    return old


def _constant_of_shape(n: NodeContext) -> Value:
    shape = n.dims(0)
    fill = n.tensor_attr("value")
    if fill is not None and fill.size != 1:
        n.fail("import.attribute", "value must have one element", found=list(fill.dims))
    if fill is None:
        scalar = n.splat(0.0, F32)
    else:
        scalar = n.splat(fill.elements()[0], n.state.dtype(fill.data_type, n.where))
    return n.op("rlxc::expand", [scalar], {"shape": shape}) if shape else scalar


def _range(n: NodeContext) -> Value:
    """The number of elements must be known: from constants, sizes, or integers that are fed."""
    start, delta = n.value(0), n.value(2)
    dtype = start.type.dtype
    if dtype.is_float:
        low, high, step = (n.number(index) for index in range(3))
        if step == 0 or not all(isinstance(item, (int, float)) for item in (low, high, step)):
            n.fail("import.node", "the step is 0", found=step)
        size = as_dim(max(0, math.ceil((high - low) / step)))
    else:
        low_dim, high_dim = n.dim(0), n.dim(1)
        step = n.integer(2)
        if step == 0:
            n.fail("import.node", "the step is 0", found=step)
        span = high_dim - low_dim if step > 0 else low_dim - high_dim
        size = n.assume.largest(ceildiv(span, abs(step)), ZERO)
    operands = [n.reshape(item, (), hint=item.name) for item in (start, delta)]
    return n.op("rlxc::range", operands, {"size": (size,)})


def _tile(n: NodeContext) -> Value:
    x = n.value(0)
    repeats = n.dims(1)
    if len(repeats) != x.type.rank:
        n.fail("import.node", "one repeat an axis is needed", found=_text(repeats))
    return x if set(repeats) <= {ONE} else n.op("rlxc::tile", [x], {"repeats": repeats})


def _depth_to_space(n: NodeContext) -> Value:
    """Blocks of channels become blocks of pixels; ``mode`` says which part of the channel index
    is the block: the slow one (DCR) or the fast one (CRD)."""
    x = n.value(0)
    batch, channels, height, width = _image(n, x)
    size = _block_size(n)
    if not channels.divisible_by(size * size):
        n.fail("import.node", f"channels do not divide by {size * size}", found=str(channels))
    rest, block = channels // (size * size), as_dim(size)
    mode = n.string_attr("mode", "DCR")
    if mode == "DCR":
        split, perm = (block, block, rest), (0, 3, 4, 1, 5, 2)
    elif mode == "CRD":
        split, perm = (rest, block, block), (0, 1, 4, 2, 5, 3)
    else:
        n.fail("import.attribute", "unknown mode", found=mode, allowed="DCR, CRD")
    blocks = n.reshape(x, (batch, *split, height, width), hint="blocks")
    mixed = n.step("rlxc::transpose", [blocks], {"perm": perm})
    return n.reshape(mixed, (batch, rest, height * size, width * size))


def _space_to_depth(n: NodeContext) -> Value:
    x = n.value(0)
    batch, channels, height, width = _image(n, x)
    size = _block_size(n)
    rows, columns = _quotient(n, height, as_dim(size)), _quotient(n, width, as_dim(size))
    block = as_dim(size)
    blocks = n.reshape(x, (batch, channels, rows, block, columns, block), hint="blocks")
    crd = n.string_attr("mode", "DCR") == "CRD"
    perm = (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4)
    mixed = n.step("rlxc::transpose", [blocks], {"perm": perm})
    return n.reshape(mixed, (batch, channels * size * size, rows, columns))


def _image(n: NodeContext, x: Value) -> tuple[Dim, Dim, Dim, Dim]:
    if x.type.rank != 4:
        n.fail("import.node", "the input is not an image", found=str(x.type), allowed="rank 4")
    batch, channels, height, width = x.type.shape
    return batch, channels, height, width


def _block_size(n: NodeContext) -> int:
    size = n.int_attr("blocksize")
    if size < 1:
        n.fail("import.attribute", "blocksize must be positive", found=size)
    return size


CONVERTERS: dict[str, Converter] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Range": _range,
    "Reshape": _reshape,
    "SpaceToDepth": _space_to_depth,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
