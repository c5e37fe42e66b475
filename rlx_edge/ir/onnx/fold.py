"""Shape arithmetic: operators evaluated on known content while the model is imported.

Each function returns the content of the outputs or raises ``Unknown``, in which case the operator
is converted like any other. ``FOLDS`` is the table of operators that are followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.onnx import conditions
from rlx_edge.ir.onnx.conditions import Compare
from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.shape_values import (
    MAX_ELEMENTS,
    Arithmetic,
    Item,
    ShapeValue,
    Unknown,
    broadcast_items,
    broadcast_shape,
    from_numbers,
    indices_of,
    integers,
)
from rlx_edge.ir.types import BOOL, BY_ONNX, F32, I64, DType

Fold: TypeAlias = Callable[[NodeContext], tuple[ShapeValue, ...]]


def fold(n: NodeContext) -> tuple[ShapeValue, ...] | None:
    """The content of the node's outputs, ``None`` where it is not known."""
    function = FOLDS.get(n.node.op_type) if n.node.domain == "" else None
    if function is None:
        return None
    try:
        results = function(n)
    except Unknown:
        return None
    return results if all(result.size <= MAX_ELEMENTS for result in results) else None


# ---- sizes -----------------------------------------------------------------------------------


def _shape(n: NodeContext) -> tuple[ShapeValue, ...]:
    shape = n.shape(0)
    rank = len(shape)
    start = _clamped(n.int_attr("start", 0), rank)
    end = _clamped(n.int_attr("end", rank), rank)
    return (integers(shape[start : max(start, end)], I64),)


def _clamped(position: int, rank: int) -> int:
    return min(max(position + rank if position < 0 else position, 0), rank)


def _size(n: NodeContext) -> tuple[ShapeValue, ...]:
    return (ShapeValue(I64, (), (n.type(0).size,)),)


def _constant_of_shape(n: NodeContext) -> tuple[ShapeValue, ...]:
    shape = n.content(0).integers()
    if math.prod(shape) > MAX_ELEMENTS:
        raise Unknown
    fill = n.tensor_attr("value")
    if fill is not None and (fill.data_type not in BY_ONNX or fill.size != 1):
        raise Unknown  # the converter reports it
    dtype = F32 if fill is None else BY_ONNX[fill.data_type]
    numbers = (0.0,) if fill is None else fill.elements()
    return (from_numbers(dtype, shape, numbers * math.prod(shape)),)


def _range(n: NodeContext) -> tuple[ShapeValue, ...]:
    (start,), (limit,), (delta,) = (n.content(index).dims() for index in range(3))
    span = limit - start
    if not (delta.is_constant and span.is_constant) or delta.value == 0:
        raise Unknown
    count = max(0, -(-span.value // delta.value))
    if count > MAX_ELEMENTS:
        raise Unknown
    return (integers([start + delta * position for position in range(count)], n.type(0).dtype),)


# ---- element by element ----------------------------------------------------------------------


def _elementwise(
    n: NodeContext, dtype: DType, function: Callable[..., Item], count: int
) -> tuple[ShapeValue, ...]:
    values = [n.content(index) for index in range(count)]
    shape = broadcast_shape(*(value.shape for value in values))
    columns = [broadcast_items(value, shape) for value in values]
    return (ShapeValue(dtype, shape, tuple(function(*row) for row in zip(*columns, strict=True))),)


def _binary(name: str) -> Fold:
    def function(n: NodeContext) -> tuple[ShapeValue, ...]:
        if name == "mod" and n.int_attr("fmod", 0):
            raise Unknown
        dtype = n.content(0).dtype
        arithmetic = n.arithmetic(dtype)
        return _elementwise(n, dtype, lambda a, b: arithmetic.binary(name, a, b), 2)

    return function


def _extremum(name: str) -> Fold:
    def function(n: NodeContext) -> tuple[ShapeValue, ...]:
        dtype = n.content(0).dtype
        arithmetic = n.arithmetic(dtype)

        def row(*items: Item) -> Item:
            return reduce(lambda a, b: arithmetic.binary(name, a, b), items)

        return _elementwise(n, dtype, row, n.count)

    return function


def _unary(method: Callable[[Arithmetic, Item], Item]) -> Fold:
    def function(n: NodeContext) -> tuple[ShapeValue, ...]:
        dtype = n.content(0).dtype
        arithmetic = n.arithmetic(dtype)
        return _elementwise(n, dtype, lambda item: method(arithmetic, item), 1)

    return function


def _comparison(relation: str) -> Fold:
    def function(n: NodeContext) -> tuple[ShapeValue, ...]:
        arithmetic = n.arithmetic(n.content(0).dtype)
        return _elementwise(n, BOOL, lambda a, b: arithmetic.compare(relation, a, b), 2)

    return function


def _not(n: NodeContext) -> tuple[ShapeValue, ...]:
    def function(item: Item) -> Item:
        if isinstance(item, (bool, Compare, conditions.Every, conditions.Some)):
            return conditions.negate(item)
        raise Unknown

    return _elementwise(n, BOOL, function, 1)


def _where(n: NodeContext) -> tuple[ShapeValue, ...]:
    def function(condition: Item, a: Item, b: Item) -> Item:
        if isinstance(condition, (bool, Compare, conditions.Every, conditions.Some)):
            if a == b:
                return a
            return a if n.assume.decide(condition, "Where in shape arithmetic", n.where) else b
        raise Unknown

    return _elementwise(n, n.content(1).dtype, function, 3)


def _cast(n: NodeContext) -> tuple[ShapeValue, ...]:
    number = n.int_attr("to")
    if number not in BY_ONNX:
        raise Unknown
    to = BY_ONNX[number]
    arithmetic = n.arithmetic(n.content(0).dtype)
    return _elementwise(n, to, lambda item: arithmetic.cast(item, to), 1)


def _clip(n: NodeContext) -> tuple[ShapeValue, ...]:
    if n.has_attr("min") or n.has_attr("max"):
        raise Unknown
    dtype = n.content(0).dtype
    arithmetic = n.arithmetic(dtype)
    low = n.content(1).items[0] if n.has(1) else None
    high = n.content(2).items[0] if n.has(2) else None

    def function(item: Item) -> Item:
        item = item if low is None else arithmetic.binary("max", item, low)
        return item if high is None else arithmetic.binary("min", item, high)

    return _elementwise(n, dtype, function, 1)


# ---- movement --------------------------------------------------------------------------------


def _axes(n: NodeContext, rank: int, index: int = 1) -> tuple[int, ...]:
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
    if any(part.shape[:axis] != before for part in parts):
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
        dropped = _axes(n, rank)
    else:
        dropped = tuple(axis for axis, extent in enumerate(data.shape) if extent == 1)
    shape = [extent for axis, extent in enumerate(data.shape) if axis not in dropped]
    return (_same_size(data, shape),)


def _unsqueeze(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    count = len(n.ints_attr("axes", ())) if n.has_attr("axes") else n.content(1).size
    rank = len(data.shape) + count
    axes = _axes(n, rank)
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


# ---- reductions ------------------------------------------------------------------------------


def _reduction(name: str) -> Fold:
    def function(n: NodeContext) -> tuple[ShapeValue, ...]:
        data = n.content(0)
        rank = len(data.shape)
        if n.has_attr("axes") or n.has(1):
            axes = _axes(n, rank)
        elif n.int_attr("noop_with_empty_axes", 0):
            raise Unknown
        else:
            axes = tuple(range(rank))
        if not axes:
            axes = tuple(range(rank))
        if any(data.shape[axis] == 0 for axis in axes) or data.dtype.is_float:
            raise Unknown
        arithmetic = n.arithmetic(data.dtype)
        kept = [1 if axis in axes else extent for axis, extent in enumerate(data.shape)]
        groups = [extent if axis in axes else 1 for axis, extent in enumerate(data.shape)]
        items = tuple(
            reduce(
                lambda a, b: arithmetic.binary(name, a, b),
                (
                    data.at([at + move for at, move in zip(index, inside, strict=True)])
                    for inside in indices_of(groups)
                ),
            )
            for index in indices_of(kept)
        )
        if not n.int_attr("keepdims", 1):
            kept = [extent for axis, extent in enumerate(kept) if axis not in axes]
        return (ShapeValue(data.dtype, tuple(kept), items),)

    return function


def _cumulative_sum(n: NodeContext) -> tuple[ShapeValue, ...]:
    data = n.content(0)
    if len(data.shape) != 1 or n.int_attr("exclusive", 0) or n.int_attr("reverse", 0):
        raise Unknown
    totals: list[Dim] = []
    for dim in data.dims():
        totals.append(dim + totals[-1] if totals else dim)
    return (integers(totals, data.dtype),)


FOLDS: dict[str, Fold] = {
    "Abs": _unary(Arithmetic.absolute),
    "Add": _binary("add"),
    "And": _binary("and"),
    "Cast": _cast,
    "Ceil": _unary(Arithmetic.ceil),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumulative_sum,
    "Div": _binary("div"),
    "Equal": _comparison("=="),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _unary(Arithmetic.floor),
    "Gather": _gather,
    "Greater": _comparison(">"),
    "GreaterOrEqual": _comparison(">="),
    "Identity": _identity,
    "Less": _comparison("<"),
    "LessOrEqual": _comparison("<="),
    "Max": _extremum("max"),
    "Min": _extremum("min"),
    "Mod": _binary("mod"),
    "Mul": _binary("mul"),
    "Neg": _unary(Arithmetic.negated),
    "NonZero": _non_zero,
    "Not": _not,
    "Or": _binary("or"),
    "Pow": _binary("pow"),
    "Range": _range,
    "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"),
    "ReduceProd": _reduction("mul"),
    "ReduceSum": _reduction("add"),
    "Reshape": _reshape,
    "Round": _unary(Arithmetic.round),
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _unary(Arithmetic.square_root),
    "Squeeze": _squeeze,
    "Sub": _binary("sub"),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _binary("xor"),
}
