"""Contractions: chains of ``acc = acc + activation * weight`` from +0.0, ``k`` ascending.

A chain covers at most about 128 products; longer contractions add their chains in order,
``(chain 0 + chain 1) + chain 2 …``, which keeps rounding errors near those of blocked summation
(Higham, "The Accuracy of Floating Point Summation", 1993). Matrix products cut k every 128.
Convolutions walk k as: channel block of 4 inside the group, kernel row, kernel column, channel
within the block, and cut between channel blocks, as many to a chain as give at most 32 taps (at
least one). Taps outside the image contribute 0 * w; channels beyond the group contribute 0 * 0,
which leaves the accumulator's bits alone because it is never -0. Bias follows the last chain.
"""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir.dims import Dim, as_dim, ceildiv, dim_max, dim_min
from rlx_edge.ir.expression import Expr, binary, const, index, select
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    FLOAT,
    attr_int,
    attr_ints,
    attribute,
    broadcast_shapes,
    example,
    operand,
    require_rank,
    require_same,
)
from rlx_edge.ir.types import I32, I64, TensorType

CHANNEL_BLOCK = 4
CHAIN = 128
"""Products of one chain of a matrix product."""
CHAIN_TAPS = CHAIN // CHANNEL_BLOCK
"""Taps (block, kernel row, kernel column) of one chain of a convolution, if blocks allow."""


def window_size(
    extent: Dim, kernel: Dim, stride: int, dilation: int, before: int, after: int
) -> Dim:
    """Number of window positions along one axis (floor)."""
    return (extent + before + after - (kernel - 1) * dilation - 1) // stride + 1


def _convolution_attrs(
    ctx: InferContext,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    stride = attr_ints(ctx, "stride", 2, 1)
    padding = attr_ints(ctx, "padding", 4, 0)
    dilation = attr_ints(ctx, "dilation", 2, 1)
    groups = attr_int(ctx, "groups")
    if groups < 1:
        raise ctx.error("groups must be positive", found=groups, allowed="at least 1")
    return stride, padding, dilation, groups


def _grouped(ctx: InferContext, channels: Dim, groups: int, what: str) -> Dim:
    if not channels.divisible_by(groups):
        raise ctx.error(
            f"{what} do not divide into {groups} groups",
            found=channels,
            allowed=f"a multiple of {groups}",
        )
    return channels // groups


def _check_bias(ctx: InferContext, channels: Dim) -> None:
    if len(ctx.types) > 2:
        (bias,) = require_rank(ctx, 2, 1, "bias")
        require_same(ctx, bias, channels, "bias length and output channels")


def _conv_type(ctx: InferContext) -> TensorType:
    n, c, h, w = require_rank(ctx, 0, 4, "x")
    out, inner, kh, kw = require_rank(ctx, 1, 4, "w")
    stride, padding, dilation, groups = _convolution_attrs(ctx)
    require_same(
        ctx,
        _grouped(ctx, c, groups, "input channels"),
        inner,
        "channels in a group and weight channels",
    )
    _grouped(ctx, out, groups, "output channels")
    _check_bias(ctx, out)
    oh = window_size(h, kh, stride[0], dilation[0], padding[0], padding[2])
    ow = window_size(w, kw, stride[1], dilation[1], padding[1], padding[3])
    for size, axis in ((oh, "height"), (ow, "width")):
        if size.is_constant and size.value < 1:
            raise ctx.error(
                f"the kernel is larger than the padded {axis}",
                found=f"output {axis} {size}",
                allowed="at least 1",
            )
    return TensorType(ctx.types[0].dtype, (n, out, oh, ow))


def chain_blocks(kernel_rows: Dim, kernel_columns: Dim) -> Dim:
    """Channel blocks of one chain of a convolution."""
    return dim_max(as_dim(CHAIN_TAPS) // (kernel_rows * kernel_columns), 1)


def _lanes(inner: Dim) -> int:
    return inner.value if inner.is_constant and inner.value < CHANNEL_BLOCK else CHANNEL_BLOCK


Tap = Callable[[Dim, Expr | None, Dim, Dim], Expr]
"""``tap(channel, exists, kernel row, kernel column)``: a product; ``exists`` None means always."""


def _chains(ctx: ExpressionContext, inner: Dim, kernel: tuple[Dim, Dim], tap: Tap) -> Expr:
    """All products of one output element, ``inner`` channels over ``kernel``, chain by chain."""
    blocks, lanes = ceildiv(inner, CHANNEL_BLOCK), _lanes(inner)
    per_chain = chain_blocks(*kernel)
    single = (per_chain - blocks).is_constant and (per_chain - blocks).value >= 0

    def product_at(block: Dim, row: Dim, column: Dim, lane: Dim, padded: bool) -> Expr:
        channel = block * CHANNEL_BLOCK + lane
        if not padded:
            return tap(channel, None, row, column)
        return tap(dim_min(channel, inner - 1), index(channel) < index(inner), row, column)

    if single:
        padded = not (inner.divisible_by(CHANNEL_BLOCK) or lanes < CHANNEL_BLOCK)
        return ctx.reduce(
            "chain",
            (blocks, *kernel, lanes),
            lambda block, row, column, lane: product_at(block, row, column, lane, padded),
        )
    width = per_chain * CHANNEL_BLOCK
    padded = not (width.is_constant and inner.divisible_by(width.value))

    def chain(number: Dim) -> Expr:
        return ctx.reduce(
            "chain",
            (per_chain, *kernel, CHANNEL_BLOCK),
            lambda block, row, column, lane: product_at(
                number * per_chain + block, row, column, lane, padded
            ),
        )

    return ctx.reduce("chain", (ceildiv(blocks, per_chain),), chain)


def _conv(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    n, o, y, x = at
    _, _, h, w = ctx.type("x").shape
    out, inner, kh, kw = ctx.type("w").shape
    stride, padding, dilation = ctx.attrs["stride"], ctx.attrs["padding"], ctx.attrs["dilation"]
    groups = ctx.attrs["groups"]
    base = as_dim(0) if groups == 1 else o // (out // groups) * inner
    zero = const(0, ctx.result.dtype)

    def tap_product(channel: Dim, exists: Expr | None, row: Dim, column: Dim) -> Expr:
        places = (
            (y * stride[0] + row * dilation[0] - padding[0], h, padding[0] or padding[2]),
            (x * stride[1] + column * dilation[1] - padding[1], w, padding[1] or padding[3]),
        )
        inside = exists
        spots: list[Dim] = []
        for place, extent, padded in places:
            if not padded:
                spots.append(place)
                continue
            both = binary("and", index(place) >= index(0), index(place) < index(extent))
            inside = both if inside is None else binary("and", inside, both)
            spots.append(dim_max(dim_min(place, extent - 1), 0))
        tap = ctx.load("x", (n, base + channel, *spots))
        weight = ctx.load("w", (o, channel, row, column))
        if inside is not None:
            tap = select(inside, tap, zero)
        if exists is not None:
            weight = select(exists, weight, zero)
        return tap * weight

    total = _chains(ctx, inner, (kh, kw), tap_product)
    return total + ctx.load("b", (o,)) if ctx.has("b") else total


def _transposed_size(
    extent: Dim, kernel: Dim, stride: int, dilation: int, pads: int, extra: int
) -> Dim:
    return (extent - 1) * stride - pads + (kernel - 1) * dilation + extra + 1


def _transposed_type(ctx: InferContext) -> TensorType:
    n, c, h, w = require_rank(ctx, 0, 4, "x")
    inner, out, kh, kw = require_rank(ctx, 1, 4, "w")
    stride, padding, dilation, groups = _convolution_attrs(ctx)
    extra = attr_ints(ctx, "output_padding", 2, 0)
    require_same(ctx, c, inner, "input channels and weight channels")
    _grouped(ctx, c, groups, "input channels")
    _check_bias(ctx, out * groups)
    oh = _transposed_size(h, kh, stride[0], dilation[0], padding[0] + padding[2], extra[0])
    ow = _transposed_size(w, kw, stride[1], dilation[1], padding[1] + padding[3], extra[1])
    for size, axis in ((oh, "height"), (ow, "width")):
        if size.is_constant and size.value < 1:
            raise ctx.error(
                f"padding removes the whole {axis}",
                found=f"output {axis} {size}",
                allowed="at least 1",
            )
    return TensorType(ctx.types[0].dtype, (n, out * groups, oh, ow))


def _transposed(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    """As a gather: tap (row, column) reaches result y from image row (y + top - row * d) / s."""
    n, o, y, x = at
    _, c, h, w = ctx.type("x").shape
    _, out, kh, kw = ctx.type("w").shape
    stride, padding, dilation = ctx.attrs["stride"], ctx.attrs["padding"], ctx.attrs["dilation"]
    groups = ctx.attrs["groups"]
    inner = c // groups
    base = as_dim(0) if groups == 1 else o // out * inner
    feature = o if groups == 1 else o % out
    zero = const(0, ctx.result.dtype)

    def tap_product(channel: Dim, exists: Expr | None, row: Dim, column: Dim) -> Expr:
        inside = exists
        spots: list[Dim] = []
        for position, tap, axis, extent in ((y, row, 0, h), (x, column, 1, w)):
            reach = position + padding[axis] - tap * dilation[axis]
            place = reach // stride[axis]
            conditions = [index(place) >= index(0), index(place) < index(extent)]
            if stride[axis] > 1:
                conditions.append(binary("eq", index(reach % stride[axis]), index(0)))
            for condition in conditions:
                inside = condition if inside is None else binary("and", inside, condition)
            spots.append(dim_max(dim_min(place, extent - 1), 0))
        assert inside is not None
        tap_value = select(inside, ctx.load("x", (n, base + channel, *spots)), zero)
        weight = ctx.load("w", (base + channel, feature, row, column))
        return tap_value * (weight if exists is None else select(exists, weight, zero))

    total = _chains(ctx, inner, (kh, kw), tap_product)
    return total + ctx.load("b", (o,)) if ctx.has("b") else total


def _matmul_type(ctx: InferContext) -> TensorType:
    a, b = ctx.types[0].shape, ctx.types[1].shape
    if not a or not b:
        raise ctx.error(
            "operands must have at least one axis", found=f"{ctx.types[0]} and {ctx.types[1]}"
        )
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    require_same(ctx, a[-1], b[-2] if len(b) > 1 else b[-1], "the contracted sizes")
    batch = broadcast_shapes(ctx, [a[:-2], b[:-2]])
    return TensorType(ctx.types[0].dtype, (*batch, *rows, *columns))


def _matmul(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    a, b = ctx.type("a").shape, ctx.type("b").shape
    has_row, has_column = len(a) > 1, len(b) > 1
    batch = at[: len(at) - has_row - has_column]
    row = at[len(batch) : len(batch) + has_row]
    column = at[len(at) - 1 :] if has_column else ()

    def batch_index(shape: tuple[Dim, ...]) -> list[Dim]:
        outer = shape[:-2]
        tail = batch[len(batch) - len(outer) :]
        return [
            as_dim(0) if dim.is_constant and dim.value == 1 else place
            for dim, place in zip(outer, tail, strict=True)
        ]

    depth = a[-1]

    def body(k: Dim) -> Expr:
        left = ctx.load("a", [*batch_index(a), *row, k])
        right = ctx.load("b", [*batch_index(b), k, *column])
        return left * right

    if depth.is_constant and depth.value <= CHAIN:
        return ctx.reduce("chain", (depth,), body)

    def bounded(k: Dim) -> Expr:
        if depth.divisible_by(CHAIN):
            return body(k)
        zero = const(0, ctx.result.dtype)
        exists = index(k) < index(depth)
        left, right = body(dim_min(k, depth - 1)).args
        return select(exists, left, zero) * select(exists, right, zero)

    return ctx.reduce(
        "chain",
        (ceildiv(depth, CHAIN),),
        lambda number: ctx.reduce("chain", (CHAIN,), lambda k: bounded(number * CHAIN + k)),
    )


_X_W_BIAS = (operand("x", FLOAT), operand("w", FLOAT), operand("b", FLOAT, optional=True))
_CONV_ATTRS = (
    attribute("stride", "ints"),
    attribute("padding", "ints"),
    attribute("dilation", "ints"),
    attribute("groups", "int"),
)

OPS = (
    OpDef(
        "rlxc::conv2d",
        _X_W_BIAS,
        _CONV_ATTRS,
        _conv_type,
        Expression(_conv),
        frozenset({"contraction", "blocked"}),
        doc="Convolution of NCHW images; padding = [top, left, bottom, right] (ONNX Conv).",
        examples=(
            example(
                "padded",
                "f32[n, 3, 6, 5]",
                "f32[4, 3, 3, 3]",
                "f32[4]",
                stride=(2, 1),
                padding=(1, 1, 0, 2),
                dilation=(1, 1),
                groups=1,
            ),
            example(
                "grouped",
                "f32[1, 12, 5, 5]",
                "f32[4, 6, 2, 2]",
                stride=(1, 1),
                padding=(0, 0, 0, 0),
                dilation=(2, 1),
                groups=2,
            ),
            example(
                "depthwise",
                "f32[2, 5, 6, 6]",
                "f32[5, 1, 3, 3]",
                "f32[5]",
                stride=(1, 1),
                padding=(1, 1, 1, 1),
                dilation=(1, 1),
                groups=5,
            ),
        ),
    ),
    OpDef(
        "rlxc::conv_transpose2d",
        _X_W_BIAS,
        (
            attribute("stride", "ints"),
            attribute("padding", "ints"),
            attribute("dilation", "ints"),
            attribute("output_padding", "ints"),
            attribute("groups", "int"),
        ),
        _transposed_type,
        Expression(_transposed),
        frozenset({"contraction", "blocked"}),
        doc="Transposed convolution, w as [in, out / groups, h, w] (ONNX ConvTranspose).",
        examples=(
            example(
                "double",
                "f32[n, 3, 3, 4]",
                "f32[3, 2, 2, 2]",
                "f32[2]",
                stride=(2, 2),
                padding=(0, 0, 0, 0),
                dilation=(1, 1),
                output_padding=(0, 0),
                groups=1,
            ),
            example(
                "grouped",
                "f32[1, 10, 4, 3]",
                "f32[10, 3, 3, 3]",
                stride=(2, 1),
                padding=(1, 0, 1, 1),
                dilation=(1, 2),
                output_padding=(1, 0),
                groups=2,
            ),
        ),
    ),
    OpDef(
        "rlxc::matmul",
        (operand("a", (*FLOAT, I32, I64)), operand("b", (*FLOAT, I32, I64))),
        (),
        _matmul_type,
        Expression(_matmul),
        frozenset({"contraction"}),
        doc="Matrix product with numpy's rules for batches and vectors (ONNX MatMul).",
        examples=(
            example("matrices", "f32[n, 7]", "f32[7, 5]"),
            example("batches", "f32[2, 1, 3, 4]", "f32[3, 4, 2]"),
            example("vectors", "f32[6]", "f32[6]"),
        ),
    ),
)
