"""Operators about where elements are: ArgMax, ArgMin, Hardmax, OneHot, Trilu, EyeLike."""

from __future__ import annotations

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ONE, Dim, as_dim, product
from rlx_edge.ir.onnx.context import Attrs, NodeContext, typed
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.types import BOOL, F32, I64

_NOWHERE = (1 << 31) - 1
"""Above every position: no axis is longer."""


def counted(n: NodeContext, size: Dim, rank: int, axis: int) -> Value:
    """0, 1, … along ``axis`` of a tensor of ``rank`` whose other sizes are 1, as i64."""
    operands = [n.splat(0, I64), n.splat(1, I64)]
    numbers = n.step("rlxc::range", operands, {"size": (size,)})
    shape = [ONE] * rank
    shape[axis] = size
    return n.reshape(numbers, shape, hint="positions")


def _extreme_position(n: NodeContext, x: Value, axis: int, kind: str, keep: bool) -> Value:
    """The first position, or with ``select_last_index`` the last, of the extreme element; NaN is
    more extreme than any number."""
    over: Attrs = {"axes": (axis,), "keepdims": True}
    extreme = n.step(f"rlxc::reduce_{kind}", [x], over)
    found = n.step("rlxc::equal", [x, extreme])
    if x.type.dtype.is_float:
        found = n.step("rlxc::or", [found, n.step("rlxc::is_nan", [x])])
    places = counted(n, x.type.shape[axis], x.type.rank, axis)
    last = n.int_attr("select_last_index", 0) != 0
    other = n.splat(-1 if last else _NOWHERE, I64)
    candidates = n.step("rlxc::where", [found, places, other])
    attrs: Attrs = {"axes": (axis,), "keepdims": keep}
    return n.op("rlxc::reduce_max" if last else "rlxc::reduce_min", [candidates], attrs)


def _argument(kind: str) -> Converter:
    def convert(n: NodeContext) -> Value:
        x = n.value(0)
        axis = n.axis(n.int_attr("axis", 0), x.type.rank)
        return _extreme_position(n, x, axis, kind, n.int_attr("keepdims", 1) != 0)

    return convert


def _hardmax(n: NodeContext) -> Value:
    """1 at the first maximum, 0 elsewhere; before opset 13 over the flattened axes."""
    x = n.value(0)
    shape = x.type.shape
    old = n.opset < 13
    axis = n.axis(n.int_attr("axis", 1 if old else -1), len(shape))
    if old:
        x = n.reshape(x, [product(shape[:axis]), product(shape[axis:])], hint="flat")
        axis = 1
    place = _extreme_position(n, x, axis, "max", True)
    here = n.step("rlxc::equal", [counted(n, x.type.shape[axis], x.type.rank, axis), place])
    return n.reshape(n.op("rlxc::cast", [here], {"dtype": x.type.dtype}), shape)


def _one_hot(n: NodeContext) -> Value:
    """``values[1]`` where an index points, ``values[0]`` elsewhere; negative ones count from the
    end, those outside point nowhere."""
    indices = n.step("rlxc::cast", [n.value(0)], {"dtype": I64})
    depth = n.dim(1)
    off, on = (
        n.reshape(
            n.step(
                "rlxc::slice",
                [n.value(2)],
                {"axes": (0,), "starts": (as_dim(at),), "ends": (as_dim(at + 1),), "steps": (1,)},
            ),
            (),
            hint=hint,
        )
        for at, hint in ((0, "off"), (1, "on"))
    )
    rank = indices.type.rank + 1
    axis = n.axis(n.int_attr("axis", -1), rank)
    shape = indices.type.shape
    places = n.reshape(indices, (*shape[:axis], ONE, *shape[axis:]), hint="indices")
    numbers = counted(n, depth, rank, axis)
    # A negative index equals position - depth.
    from_end = n.step("rlxc::sub", [numbers, n.size(depth)])
    here = n.step(
        "rlxc::or",
        [n.step("rlxc::equal", [places, numbers]), n.step("rlxc::equal", [places, from_end])],
    )
    return n.op("rlxc::where", [here, on, off])


def _trilu(n: NodeContext) -> Value:
    """Column - row against the diagonal ``k``; the other triangle is zero."""
    x = n.value(0)
    if x.type.rank < 2:
        n.fail("import.node", "the input is not a matrix", found=str(x.type))
    rows = counted(n, x.type.shape[-2], 2, 0)
    columns = counted(n, x.type.shape[-1], 2, 1)
    diagonal = n.reshape(n.value(1), (), hint="k") if n.has(1) else n.splat(0, I64)
    distance = n.step("rlxc::sub", [columns, rows])
    relation = "greater_or_equal" if n.int_attr("upper", 1) else "less_or_equal"
    kept = n.step(f"rlxc::{relation}", [distance, diagonal])
    zero = n.splat(typed(0, x.type.dtype), x.type.dtype)
    return n.op("rlxc::where", [kept, x, zero])


def _eye_like(n: NodeContext) -> Value:
    shape = n.shape(0)
    if len(shape) != 2:
        n.fail("import.node", "the input is not a matrix", found=str(n.type(0)))
    number = n.int_attr("dtype", 0)
    dtype = n.state.dtype(number, n.where) if number else n.type(0).dtype
    distance = n.step("rlxc::sub", [counted(n, shape[1], 2, 1), counted(n, shape[0], 2, 0)])
    here = n.step("rlxc::equal", [distance, n.splat(n.int_attr("k", 0), I64)])
    return here if dtype is BOOL else n.op("rlxc::cast", [here], {"dtype": dtype or F32})


CONVERTERS: dict[str, Converter] = {
    "ArgMax": _argument("max"),
    "ArgMin": _argument("min"),
    "EyeLike": _eye_like,
    "Hardmax": _hardmax,
    "OneHot": _one_hot,
    "Trilu": _trilu,
}
