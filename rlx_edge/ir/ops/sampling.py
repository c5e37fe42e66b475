"""Sampling at positions that are data: ``rlxc::grid_sample``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import INDEX, Expr, binary, cast, const, index, select, unary
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.resize import cubic_weights
from rlx_edge.ir.ops.signature import FLOAT, attribute, example, operand, require_same
from rlx_edge.ir.types import I32, TensorType

COEFFICIENT = -0.75
"""Of cubic interpolation; ONNX fixes it."""


def _type(ctx: InferContext) -> TensorType:
    x, grid = ctx.types
    axes = x.rank - 2
    if axes < 1 or grid.rank != x.rank:
        raise ctx.error("grid must have the rank of x, at least 3", found=f"{x} and {grid}")
    require_same(ctx, grid.shape[0], x.shape[0], "batches")
    last = grid.shape[-1]
    if not (last.is_constant and last.value == axes):
        raise ctx.error("grid has one coordinate an axis", found=last, allowed=axes)
    return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))


def _reflected(x: Expr, low: Expr, high: Expr) -> Expr:
    """x mirrored at the borders until it lies between them."""
    below, above = x < low, x > high
    beyond = select(below, low - x, x - high)
    span = high - low
    turns = unary("trunc", beyond / span)
    rest = beyond - turns * span
    half = turns * 0.5
    odd = binary("ne", unary("trunc", half), half)
    from_low = binary("xor", below, odd)
    return select(binary("or", below, above), select(from_low, low + rest, high - rest), x)


class _Sampler:
    """One output element of ``rlxc::grid_sample``."""

    def __init__(self, ctx: ExpressionContext, at: tuple[Dim, ...]) -> None:
        self.ctx, self.at = ctx, at
        self.dtype = ctx.result.dtype
        self.mode, self.padding = ctx.attrs["mode"], ctx.attrs["padding_mode"]
        self.aligned = ctx.attrs["align_corners"]
        self.spatial = ctx.type("x").shape[2:]
        self.zero = const(0, self.dtype)

    def length(self, axis: int) -> Expr:
        extent = self.spatial[axis]
        if extent.is_constant:
            return const(extent.value, self.dtype)
        return cast(index(extent), self.dtype)

    def borders(self, axis: int) -> tuple[Expr, Expr]:
        length = self.length(axis)
        return (self.zero, length - 1) if self.aligned else (const(-0.5, self.dtype), length - 0.5)

    def inside(self, place: Expr, axis: int) -> Expr:
        return binary("max", binary("min", place, self.length(axis) - 1), self.zero)

    def coordinate(self, axis: int) -> Expr:
        """In elements; coordinates of the grid are in reverse order of the axes."""
        at, last = self.at, len(self.spatial) - 1
        value = self.ctx.load("grid", (at[0], *at[2:], last - axis)) + 1
        length = self.length(axis)
        place = value * 0.5 * (length - 1) if self.aligned else (value * length - 1) * 0.5
        if self.mode == "nearest":
            place = unary("nearest", place)
        low, high = self.borders(axis)
        if self.padding == "border":
            beyond = binary("or", place < low, place > high)
            return select(beyond, self.inside(place, axis), place)
        return _reflected(place, low, high) if self.padding == "reflection" else place

    def pixel(self, places: Sequence[Expr]) -> Expr:
        """The element at whole places, or what the padding puts outside."""
        known: Expr | None = None
        spots: list[Dim | Expr] = [self.at[0], self.at[1]]
        for axis, place in enumerate(places):
            if self.padding == "reflection":
                place = unary("trunc", _reflected(place, *self.borders(axis)))
            elif self.padding == "zeros":
                here = binary("and", place >= self.zero, place < self.length(axis))
                known = here if known is None else binary("and", known, here)
            spots.append(cast(cast(self.inside(place, axis), I32), INDEX))
        value = self.ctx.load("x", spots)
        return value if known is None else select(known, value, self.zero)

    def sample(self, places: tuple[Expr, ...] = ()) -> Expr:
        """The value with the first axes settled at ``places``."""
        axis = len(places)
        if axis == len(self.spatial):
            return self.pixel(places)
        place = self.coordinate(axis)
        if self.mode == "nearest":
            return self.sample((*places, place))
        first = unary("floor", place)
        fraction = place - first
        if self.mode == "linear":
            weights, start = [1 - fraction, fraction], 0
        else:
            weights, start = cubic_weights(fraction, COEFFICIENT), -1
        terms = [
            self.sample((*places, first + step if step else first)) * weight
            for step, weight in enumerate(weights, start)
        ]
        return reduce(lambda a, b: a + b, terms)


def _grid_sample(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return _Sampler(ctx, at).sample()


OPS = (
    OpDef(
        "rlxc::grid_sample",
        (operand("x", FLOAT), operand("grid", FLOAT)),
        (
            attribute("mode", "string", "nearest", "linear", "cubic"),
            attribute("padding_mode", "string", "zeros", "border", "reflection"),
            attribute("align_corners", "bool"),
        ),
        _type,
        Expression(_grid_sample),
        frozenset(),
        "x at the positions of grid, whose coordinates run from -1 to 1, the last axis first "
        "(ONNX GridSample).",
        (
            example(
                "linear",
                "f32[2, 3, 4, 5]",
                "f32[2, 3, n, 2]",
                mode="linear",
                padding_mode="zeros",
                align_corners=False,
            ),
            example(
                "nearest",
                "f32[1, 2, 4, 5]",
                "f32[1, 3, 2, 2]",
                mode="nearest",
                padding_mode="border",
                align_corners=True,
            ),
            example(
                "cubic",
                "f32[1, 1, 4, n]",
                "f32[1, 3, 2, 2]",
                mode="cubic",
                padding_mode="reflection",
                align_corners=False,
            ),
        ),
    ),
)
