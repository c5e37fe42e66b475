"""Shape arithmetic: operators evaluated on known content while the model is imported.

Each function returns the content of the outputs or raises ``Unknown``, in which case the operator
is converted like any other. ``FOLDS`` is the table of operators that are followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.onnx import conditions, fold_movement
from rlx_edge.ir.onnx.conditions import Compare
from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.fold_table import Fold
from rlx_edge.ir.onnx.item_arithmetic import Arithmetic
from rlx_edge.ir.onnx.shape_values import (
    MAX_ELEMENTS,
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


def fold(n: NodeContext) -> tuple[ShapeValue, ...] | None:
    """The content of the node's outputs, ``None`` where it is not known."""
    function = FOLDS.get(n.node.op_type) if n.node.domain == "" else None
    if function is None:
        return None
    try:
        results = function(n)
    except (Unknown, IndexError, ValueError, StopIteration):
        return None  # not known, or a node that contradicts itself, which the converter reports
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
    contents = [n.content(index) for index in range(3)]
    if any(content.size != 1 for content in contents):
        raise Unknown  # the converter reports it
    (start,), (limit,), (delta,) = (content.dims() for content in contents)
    span = limit - start
    if not (delta.is_constant and span.is_constant) or delta.value == 0:
        raise Unknown
    count = max(0, -(-span.value // delta.value))
    if count > MAX_ELEMENTS:
        raise Unknown
    return (integers([start + delta * position for position in range(count)], n.type(0).dtype),)


# ---- element by element ----------------------------------------------------------------------


def _elementwise(
    n: NodeContext, dtype: DType, function: Callable[..., Item], count: int, alike: int = 0
) -> tuple[ShapeValue, ...]:
    """``function`` of each row of broadcast items; inputs from ``alike`` on share their type."""
    spread = n.arithmetic(dtype).spread
    values = [n.content(index) for index in range(count)]
    if len({value.dtype.name for value in values[alike:]}) > 1:
        raise Unknown  # the converter reports it
    shape = broadcast_shape(*(value.shape for value in values))
    columns = [broadcast_items(value, shape) for value in values]
    return (
        ShapeValue(
            dtype, shape, tuple(spread(function, *row) for row in zip(*columns, strict=True))
        ),
    )


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
    dtype = n.content(1).dtype
    arithmetic = n.arithmetic(dtype)

    def function(condition: Item, a: Item, b: Item) -> Item:
        if isinstance(condition, (bool, Compare, conditions.Every, conditions.Some)):
            return arithmetic.choose(condition, a, b)
        raise Unknown

    return _elementwise(n, dtype, function, 3, alike=1)


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


# ---- reductions ------------------------------------------------------------------------------


def _reduction(name: str) -> Fold:
    def function(n: NodeContext) -> tuple[ShapeValue, ...]:
        data = n.content(0)
        rank = len(data.shape)
        if n.has_attr("axes") or n.has(1):
            axes = fold_movement.folded_axes(n, rank)
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


FOLDS: dict[str, Fold] = fold_movement.FOLDS | {
    "Abs": _unary(Arithmetic.absolute),
    "Add": _binary("add"),
    "And": _binary("and"),
    "Cast": _cast,
    "Ceil": _unary(Arithmetic.ceil),
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumulative_sum,
    "Div": _binary("div"),
    "Equal": _comparison("=="),
    "Floor": _unary(Arithmetic.floor),
    "Greater": _comparison(">"),
    "GreaterOrEqual": _comparison(">="),
    "Less": _comparison("<"),
    "LessOrEqual": _comparison("<="),
    "Max": _extremum("max"),
    "Min": _extremum("min"),
    "Mod": _binary("mod"),
    "Mul": _binary("mul"),
    "Neg": _unary(Arithmetic.negated),
    "Not": _not,
    "Or": _binary("or"),
    "Pow": _binary("pow"),
    "Range": _range,
    "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"),
    "ReduceProd": _reduction("mul"),
    "ReduceSum": _reduction("add"),
    "Round": _unary(Arithmetic.round),
    "Shape": _shape,
    "Size": _size,
    "Sqrt": _unary(Arithmetic.square_root),
    "Sub": _binary("sub"),
    "Where": _where,
    "Xor": _binary("xor"),
}
