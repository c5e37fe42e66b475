"""Canonical forms of data movement: views, permutations, copies of everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rlx_edge.compile.passes.constants import splat_value
from rlx_edge.compile.passes.rewrite import Rewriter, Rule
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import ONE, Dim, DimLike, as_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.ops import OPS, infer_type
from rlx_edge.ir.types import TensorType

RESHAPE = "rlxc::reshape"
TRANSPOSE = "rlxc::transpose"


def reshape_to_same(op: Op, rewriter: Rewriter) -> Value | None:
    """``reshape(x)`` to the shape of x is x."""
    if op.name != RESHAPE or op.result.type != op.operands[0].type:
        return None
    return op.operands[0]


def reshape_of_reshape(op: Op, rewriter: Rewriter) -> Value | None:
    """Of two views in a row only the last shape counts."""
    inner = op.operands[0].producer if op.name == RESHAPE else None
    if inner is None or inner.name != RESHAPE:
        return None
    return rewriter.again(op, [inner.operands[0]])


def transpose_identity(op: Op, rewriter: Rewriter) -> Value | None:
    """A permutation that moves nothing."""
    if op.name != TRANSPOSE or list(_ints(op, "perm")) != list(range(op.result.type.rank)):
        return None
    return op.operands[0]


def transpose_of_transpose(op: Op, rewriter: Rewriter) -> Value | None:
    """Two permutations in a row are one."""
    inner = op.operands[0].producer if op.name == TRANSPOSE else None
    if inner is None or inner.name != TRANSPOSE:
        return None
    first = _ints(inner, "perm")
    return rewriter.again(op, inner.operands, perm=tuple(first[axis] for axis in _ints(op, "perm")))


def transpose_as_reshape(op: Op, rewriter: Rewriter) -> Value | None:
    """A permutation that moves only axes of size 1 is a view."""
    if op.name != TRANSPOSE:
        return None
    shape = op.operands[0].type.shape
    moving = [axis for axis in _ints(op, "perm") if shape[axis] is not ONE]
    if moving != sorted(moving):
        return None
    return _reshape(rewriter, op.operands[0], op.result.type.shape)


def cast_to_same(op: Op, rewriter: Rewriter) -> Value | None:
    """Conversion to the type that the operand has."""
    if op.name != "rlxc::cast" or op.operands[0].type.dtype is not op.result.type.dtype:
        return None
    return op.operands[0]


def convert_layout_to_same(op: Op, rewriter: Rewriter) -> Value | None:
    """Conversion to the layout and border that the operand has."""
    if op.name != "rlxc::convert_layout" or "border" in op.attrs:
        return None
    producer = op.operands[0].producer
    stored = {} if producer is None else producer.attrs
    if "border" in stored:
        return None
    if op.attrs.get("memory_layout", "NCHW") != stored.get("memory_layout", "NCHW"):
        return None
    return op.operands[0]


def whole_operand(op: Op, rewriter: Rewriter) -> Value | None:
    """``expand``, ``tile``, ``pad``, ``resize``, ``slice`` and ``concat`` that change nothing."""
    if op.name not in _KEEPS_ALL or len(op.operands) != 1:
        return None
    if op.result.type != op.operands[0].type or not _KEEPS_ALL[op.name](op):
        return None
    return op.operands[0]


def _forward_slice(op: Op) -> bool:
    # With the same sizes and forward steps of 1, a slice starts at 0 on every axis.
    return all(step == 1 for step in _ints(op, "steps"))


def _pads_nothing(op: Op) -> bool:
    return all(as_dim(pad) == as_dim(0) for pad in _dims(op, "pads"))


def _always(op: Op) -> bool:
    return True


_KEEPS_ALL = {
    "rlxc::expand": _always,
    "rlxc::tile": _always,
    "rlxc::resize": _always,
    "rlxc::concat": _always,
    "rlxc::slice": _forward_slice,
    "rlxc::pad": _pads_nothing,
}


def expand_into_elementwise(op: Op, rewriter: Rewriter) -> Value | None:
    """Elementwise operations broadcast by themselves."""
    if not _is_broadcasting(op):
        return None
    operands = [
        item.producer.operands[0]
        if item.producer is not None and item.producer.name == "rlxc::expand"
        else item
        for item in op.operands
    ]
    if operands == op.operands or _inferred(op, operands) != op.result.type:
        return None
    return rewriter.again(op, operands)


def reshape_below_elementwise(op: Op, rewriter: Rewriter) -> Value | None:
    """``f(reshape(x))`` is ``reshape(f(x))``: the view moves on until it meets another one.

    All operands that are no scalars must be views of one shape with one result shape.
    """
    if op.name == "rlxc::batch_norm" or not _is_elementwise(op):
        return None
    wide = [item for item in op.operands if not _is_scalar(item)]
    views = [item.producer for item in wide if item.producer is not None]
    if not views or len(views) < len(wide) or any(view.name != RESHAPE for view in views):
        return None
    first = views[0].operands[0].type
    for view in views:
        if view.operands[0].type.shape != first.shape:
            return None
        if view.result.type.shape != op.result.type.shape:
            return None
    operands = [item if _is_scalar(item) else _source(item) for item in op.operands]
    inner = _inferred(op, operands)
    if inner is None or inner.shape != first.shape:
        return None
    moved = rewriter.again(op, operands)
    return _reshape(rewriter, moved, op.result.type.shape)


def _source(view: Value) -> Value:
    assert view.producer is not None
    return view.producer.operands[0]


def _is_scalar(value: Value) -> bool:
    """A value of rank 0, or a splat of one element (which broadcasts to any rank below it)."""
    return value.type.rank == 0 or (
        splat_value(value) is not None and all(dim is ONE for dim in value.type.shape)
    )


def _is_elementwise(op: Op) -> bool:
    found = OPS.get(op.name)
    return found is not None and "elementwise" in found.traits and bool(op.operands)


def _is_broadcasting(op: Op) -> bool:
    return _is_elementwise(op) and len(op.operands) > 1 and op.name != "rlxc::batch_norm"


def _inferred(op: Op, operands: Sequence[Value]) -> TensorType | None:
    """The result type with other operands, ``None`` where they do not fit the operator."""
    try:
        return infer_type(op.name, [item.type for item in operands], op.attrs)
    except RlxError:
        return None


def _reshape(rewriter: Rewriter, value: Value, shape: Sequence[Dim]) -> Value:
    return rewriter.op(RESHAPE, [value], {"shape": tuple(shape)}, hint=value.name)


def _ints(op: Op, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", op.attrs[name])


def _dims(op: Op, name: str) -> tuple[DimLike, ...]:
    return cast("tuple[DimLike, ...]", op.attrs[name])


RULES: tuple[Rule, ...] = (
    reshape_to_same,
    reshape_of_reshape,
    transpose_identity,
    transpose_of_transpose,
    transpose_as_reshape,
    cast_to_same,
    convert_layout_to_same,
    whole_operand,
    expand_into_elementwise,
    reshape_below_elementwise,
)
