"""Attention: rows of weights from products of queries and keys, applied to values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx_edge.ir.dims import ONE, Dim
from rlx_edge.ir.opdef import Decomposition, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    SINGLE,
    attr_bool,
    attribute,
    broadcast_dim,
    example,
    operand,
    require_same,
)
from rlx_edge.ir.types import I64, TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.builder import Builder
    from rlx_edge.ir.core import Op, Value


ROWS_FIRST = "rows_first"


def turned(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape with the axis before the last two behind the next one."""
    *outer, a, b, last = shape
    return (*outer, b, a, last)


def _attention_type(ctx: InferContext) -> TensorType:
    q, keys, v = (item.shape for item in ctx.types[:3])
    rows_first = attr_bool(ctx, ROWS_FIRST)
    least = 3 if rows_first else 2
    if not len(q) == len(keys) == len(v) >= least:
        raise ctx.error(
            "q, keys and v have one rank",
            found=", ".join(map(str, ctx.types[:3])),
            allowed=f"a rank of {least} or more",
        )
    if rows_first:
        q, v = turned(q), turned(v)
    for a, b, c in zip(q[:-2], keys[:-2], v[:-2], strict=True):
        require_same(ctx, a, b, "batches of q and keys")
        require_same(ctx, a, c, "batches of q and v")
    require_same(ctx, q[-1], keys[-2], "sizes of q's rows and of keys' columns")
    require_same(ctx, keys[-1], v[-2], "numbers of keys and of values")
    attr_bool(ctx, "causal")
    attr_bool(ctx, "zero_empty")
    if len(ctx.types) > 3:
        _check_bias(ctx, (*q[:-1], keys[-1]))
    result = (*q[:-1], v[-1])
    return TensorType(ctx.types[0].dtype, turned(result) if rows_first else result)


def _check_bias(ctx: InferContext, scores: tuple[Dim, ...]) -> None:
    shape = ctx.types[3].shape
    tail = scores[len(scores) - len(shape) :]
    if len(shape) > len(scores) or any(
        broadcast_dim(ctx, a, b) is not b for a, b in zip(shape, tail, strict=True)
    ):
        raise ctx.error("the bias does not broadcast to the scores", found=ctx.types[3])


def _positions(builder: Builder, size: Dim, shape: tuple[Dim, ...]) -> Value:
    zero, one = builder.splat(0, I64), builder.splat(1, I64)
    numbers = builder.op("rlxc::range", [zero, one], {"size": (size,)})
    return builder.op("rlxc::reshape", [numbers], {"shape": shape})


def _attention(builder: Builder, op: Op) -> Value:
    q, keys, v, *bias = op.operands
    rank = q.type.rank
    perm = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    rows_first = bool(op.attrs[ROWS_FIRST])
    if rows_first:
        q, v = (builder.op("rlxc::transpose", [item], {"perm": perm}) for item in (q, v))
    stated = {name: value for name, value in op.attrs.items() if name == "precision"}
    scores = builder.op("rlxc::matmul", [q, keys], stated)
    dtype = scores.type.dtype
    scale = op.attrs["scale"]
    if scale != 1.0:
        scores = builder.op("rlxc::mul", [scores, builder.splat(scale, dtype)])  # type: ignore[arg-type]
    if op.attrs["causal"]:
        rows, columns = scores.type.shape[-2:]
        seen = builder.op(
            "rlxc::less_or_equal",
            [_positions(builder, columns, (ONE, columns)), _positions(builder, rows, (rows, ONE))],
        )
        nothing = builder.splat(float("-inf"), dtype)
        scores = builder.op("rlxc::where", [seen, scores, nothing])
    if bias:
        scores = builder.op("rlxc::add", [scores, bias[0]])
    weights = builder.op("rlxc::softmax", [scores], {"axis": scores.type.rank - 1})
    if op.attrs["zero_empty"]:
        empty = builder.op("rlxc::is_nan", [weights])
        weights = builder.op("rlxc::where", [empty, builder.splat(0.0, dtype), weights])
    result = builder.op("rlxc::matmul", [weights, v], stated)
    return builder.op("rlxc::transpose", [result], {"perm": perm}) if rows_first else result


OPS = (
    OpDef(
        "rlxc::attention",
        (
            operand("q", SINGLE),
            operand("keys", SINGLE),
            operand("v", SINGLE),
            operand("bias", SINGLE, optional=True),
        ),
        (
            attribute("scale", "float"),
            attribute("causal", "bool"),
            attribute("zero_empty", "bool"),
            attribute(ROWS_FIRST, "bool"),
        ),
        _attention_type,
        Decomposition(_attention),
        frozenset({"contraction"}),
        "softmax(q keys * scale + bias) v over the last two axes; ``keys`` are columns. "
        "``causal``: a query sees keys up to its own position; ``zero_empty``: weights that are "
        "NaN, as those of a row without any key, are 0. ``rows_first``: in q, v and the result the "
        "axis of rows comes before the last axis of batches.",
        (
            example(
                "heads",
                *("f32[2, 3, n, 8]", "f32[2, 3, 8, 5]", "f32[2, 3, 5, 4]"),
                scale=0.5,
                causal=False,
                zero_empty=False,
                rows_first=False,
            ),
            example(
                "biased",
                *("f32[2, 2, n, 4]", "f32[2, 2, 4, 5]", "f32[2, 2, 5, 4]", "f32[2, 1, 1, 5]"),
                scale=1.0,
                causal=False,
                zero_empty=True,
                rows_first=False,
            ),
            example(
                "causal",
                *("f32[1, 2, 4, 4]", "f32[1, 2, 4, n]", "f32[1, 2, n, 3]"),
                scale=0.25,
                causal=True,
                zero_empty=False,
                rows_first=False,
            ),
            example(
                "rows_first",
                *("f32[2, n, 3, 4]", "f32[2, 3, 4, 5]", "f32[2, 5, 3, 2]", "f32[2, 1, n, 5]"),
                scale=0.5,
                causal=False,
                zero_empty=False,
                rows_first=True,
            ),
        ),
    ),
)
