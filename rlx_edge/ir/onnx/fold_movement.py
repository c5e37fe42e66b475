"""Shape arithmetic that moves elements: Gather, Concat, Slice, Reshape and their like."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.fold_table import Fold
from rlx_edge.ir.onnx.shape_values import (
    MAX_ELEMENTS,
    Item,
    ShapeValue,
    Unknown,
    broadcast_items,
    broadcast_shape,
    indices_of,
)
from rlx_edge.ir.types import I64


def folded_axes(n: NodeContext, rank: int, index: int = 1) -> tuple[int, ...]:
    """Axes from the attribute (older opsets) or from input ``index``."""
    axes = n.ints_attr("axes", ()) if n.has_attr("axes") else n.content(index).integers()
    return n.axes(axes, rank)


def _gather(n: NodeContext) -> tuple[ShapeValue, ...]:
    data, indices = n.content(0), n.content(1)
    axis = n.axis(n.int_attr("axis", 0), len(data.shape))
    extent = data.shape[axis]
    picks = [_wrapped_index(at, extent) for at in indices.integers()]
    before, after = data.shape[:axis], data.shape[axis + 1 :]
    items = tuple(
        data.at((*head, pick, *tail))
        for head in indices_of(before)
        for pick in picks
        for tail in indices_of(after)
    )
    return (ShapeValue(data.dtype, (*before, *indices.shape, *after), items),)


def _wrapped_index(at: int, extent: int) -> int:
    if not -extent <= at < extent:
        raise Unknown  # the converter reports it
    return at % extent


def _concat(n: NodeContext) -> tuple[ShapeValue, ...]:
    parts = [n.content(index) for index in range(n.count)]
    axis = n.axis(n.int_attr("axis"), len(parts[0].shape))
    before = parts[0].shape[:axis]
    kinds = {part.dtype.name for part in parts}
    if len(kinds) > 1 or any(part.shape[:axis] != before for part in parts):
        raise Unknown
    items: list[Item] = []
    for head in indices_of(before):
        for part in parts:
            items.extend(part.at((*head, *tail)) for tail in indices_of(part.shape[axis:]))
    extent = sum(part.shape[axis] for part in parts)
    shape = (*before, extent, *parts[0].shape[axis + 1 :])
    return (ShapeValue(parts[0].dtype, shape, tuple(items)),)


def _slice(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    rank = len(data.shape)
    if n.opset < 10:
        starts, ends = n.ints_attr("starts"), n.ints_attr("ends")
        axes = n.ints_attr("axes", tuple(range(len(starts))))
        steps: Sequence[int] = [1] * len(starts)
    else:
        starts, ends = n.content(1).integers(), n.content(2).integers()
        axes = n.content(3).integers() if n.has(3) else tuple(range(len(starts)))
        steps = n.content(4).integers() if n.has(4) else [1] * len(starts)
    picks: list[Sequence[int]] = [range(extent) for extent in data.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = n.axis(axis, rank)
        picks[at] = picks[at][slice(start, end, step)]
    return (_picked(data, picks),)


def _picked(data: ShapeValue, picks: Sequence[Sequence[int]]) -> ShapeValue:
    shape = tuple(len(pick) for pick in picks)
    items = tuple(
        data.at([pick[at] for pick, at in zip(picks, index, strict=True)])
        for index in indices_of(shape)
    )
    return ShapeValue(data.dtype, shape, items)


def _split(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    axis = n.axis(n.int_attr("axis", 0), len(data.shape))
    outputs = len(n.node.outputs)
    if n.has_attr("split"):
        sizes: Sequence[int] = n.ints_attr("split")
    elif n.has(1):
        sizes = n.content(1).integers()
    else:
        chunk = -(-data.shape[axis] // outputs)
        sizes = [min(chunk, data.shape[axis] - chunk * part) for part in range(outputs)]
    results = []
    start = 0
    for size in sizes:
        picks: list[Sequence[int]] = [range(extent) for extent in data.shape]
        picks[axis] = range(start, start + size)
        results.append(_picked(data, picks))
        start += size
    return tuple(results)


def _transpose(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    rank = len(data.shape)
    perm = n.ints_attr("perm", tuple(reversed(range(rank))))
    shape = tuple(data.shape[axis] for axis in perm)
    items = tuple(
        data.at([index[perm.index(axis)] for axis in range(rank)]) for index in indices_of(shape)
    )
    return (ShapeValue(data.dtype, shape, items),)


def _squeeze(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    rank = len(data.shape)
    if n.has_attr("axes") or n.has(1):
        dropped = folded_axes(n, rank)
    else:
        dropped = tuple(axis for axis, extent in enumerate(data.shape) if extent == 1)
    shape = [extent for axis, extent in enumerate(data.shape) if axis not in dropped]
    return (_same_size(data, shape),)


def _unsqueeze(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    count = len(n.ints_attr("axes", ())) if n.has_attr("axes") else n.content(1).size
    rank = len(data.shape) + count
    axes = folded_axes(n, rank)
    rest = iter(data.shape)
    return (data.reshaped([1 if axis in axes else next(rest) for axis in range(rank)]),)


def _reshape(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    wanted = list(n.ints_attr("shape") if n.has_attr("shape") else n.content(1).integers())
    if not n.int_attr("allowzero", 0):
        wanted = [
            data.shape[axis] if extent == 0 and axis < len(data.shape) else extent
            for axis, extent in enumerate(wanted)
        ]
    if wanted.count(-1) == 1:
        known = math.prod(extent for extent in wanted if extent != -1)
        wanted[wanted.index(-1)] = data.size // known if known else 0
    return (_same_size(data, wanted),)


def _same_size(data: ShapeValue, shape: Sequence[int]) -> ShapeValue:
    if math.prod(shape) != data.size:
        raise Unknown  # the converter reports it
    return data.reshaped(shape)


def _flatten(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    rank = len(data.shape)
    axis = n.int_attr("axis", 1)
    at = axis + rank if axis < 0 else axis
    return (data.reshaped([math.prod(data.shape[:at]), math.prod(data.shape[at:])]),)


def _expand(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    shape = broadcast_shape(data.shape, n.content(1).integers())
    if math.prod(shape) > MAX_ELEMENTS:
        raise Unknown
    return (ShapeValue(data.dtype, shape, tuple(broadcast_items(data, shape))),)


def _tile(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    repeats = n.content(1).integers()
    shape = [extent * count for extent, count in zip(data.shape, repeats, strict=True)]
    if math.prod(shape) > MAX_ELEMENTS:
        raise Unknown
    picks = [
        [at % extent for at in range(total)]
        for extent, total in zip(data.shape, shape, strict=True)
    ]
    return (_picked(data, picks),)


def _identity(n: NodeContext) -> tuple[ShapeValue, ...]:
    return (n.content(0),)


def _non_zero(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    found = [
        index
        for index, number in zip(indices_of(data.shape), data.numbers(), strict=True)
        if number != 0
    ]
    items = tuple(as_dim(index[axis]) for axis in range(len(data.shape)) for index in found)
    return (ShapeValue(I64, (len(data.shape), len(found)), items),)


FOLDS: dict[str, Fold] = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _identity,
    "NonZero": _non_zero,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
