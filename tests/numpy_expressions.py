"""Scalar expressions evaluated with numpy: every primitive is one rounded IEEE operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx_edge.ir.expression import Expr, walk

NUMPY: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "i8": np.int8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32,
    "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip


def _minimum(a: Any, b: Any) -> Any:
    """numpy's minimum propagates NaN but does not order the zeros."""
    least = np.minimum(a, b)
    return np.where(
        (a == 0) & (b == 0) & (np.signbit(a) | np.signbit(b)), a.dtype.type(-0.0), least
    )


def _maximum(a: Any, b: Any) -> Any:
    most = np.maximum(a, b)
    both_negative = np.signbit(a) & np.signbit(b)
    return np.where((a == 0) & (b == 0) & ~both_negative, a.dtype.type(0.0), most)


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "nearest": np.rint, "min": _minimum, "max": _maximum, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.logical_not,
    "shl": np.left_shift, "shr": np.right_shift, "select": np.where,
}  # fmt: skip


def evaluate(expr: Expr, operands: Mapping[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """``expr`` of primitive operators, with whole arrays in place of the loads of each slot.

    Where a load reads does not matter.
    """
    values: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for node in walk(expr):
            if node.op == "index":
                continue
            args = [values[arg] for arg in node.args] if node.op != "load" else []
            dtype = NUMPY[node.dtype.name]
            if node.op == "const":
                value = dtype(node.attr)
            elif node.op == "load":
                value = operands[node.attr]  # type: ignore[index]
            elif node.op == "cast":
                value = np.asarray(args[0]).astype(dtype)
            elif node.op == "bitcast":
                value = np.asarray(args[0]).view(dtype)
            else:
                value = OPERATORS[node.op](*args)
            values[node] = np.asarray(value, dtype=dtype)
    return np.asarray(values[expr])
