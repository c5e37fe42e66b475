"""Attention: rows of weights from products of queries and keys, applied to values."""

from __future__ import annotations

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


def _attention_type(ctx: InferContext) -> TensorType:
    q, keys, v = (item.shape for item in ctx.types[:3])
    if not len(q) == len(keys) == len(v) >= 2:
        raise ctx.error(
            "q, keys and v have one rank",
            found=", ".join(map(str, ctx.types[:3])),
            allowed="a rank of 2 or more",
        )
    for a, b, c in zip(q[:-2], keys[:-2], v[:-2], strict=True):
        require_same(ctx, a, b, "batches of q and keys")
        require_same(ctx, a, c, "batches of q and v")
    require_same(ctx, q[-1], keys[-2], "sizes of q's rows and of keys' columns")
    require_same(ctx, keys[-1], v[-2], "numbers of keys and of values")
    attr_bool(ctx, "causal")
    attr_bool(ctx, "zero_empty")
    if len(ctx.types) > 3:
        _check_bias(ctx, (*q[:-1], keys[-1]))
    return TensorType(ctx.types[0].dtype, (*q[:-1], v[-1]))


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
    return builder.op("rlxc::matmul", [weights, v], stated)


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
        ),
        _attention_type,
        Decomposition(_attention),
        frozenset({"contraction"}),
        "softmax(q keys * scale + bias) v over the last two axes; ``keys`` are columns. "
        "``causal``: a query sees keys up to its own position; ``zero_empty``: weights that are "
        "NaN, as those of a row without any key, are 0.",
        (
            example(
                "heads",
                *("f32[2, 3, n, 8]", "f32[2, 3, 8, 5]", "f32[2, 3, 5, 4]"),
                scale=0.5,
                causal=False,
                zero_empty=False,
            ),
            example(
                "biased",
                *("f32[2, 2, n, 4]", "f32[2, 2, 4, 5]", "f32[2, 2, 5, 4]", "f32[2, 1, 1, 5]"),
                scale=1.0,
                causal=False,
                zero_empty=True,
            ),
            example(
                "causal",
                *("f32[1, 2, 4, 4]", "f32[1, 2, 4, n]", "f32[1, 2, n, 3]"),
                scale=0.25,
                causal=True,
                zero_empty=False,
            ),
        ),
    ),
)
