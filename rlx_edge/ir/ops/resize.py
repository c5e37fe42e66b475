"""Resampling by exact rational coordinates.

The coordinate in the operand of result position ``i`` is a fraction ``n / d`` of integers that
only the sizes and scales decide, so which elements are read never depends on floating point. The
scale ``s`` of an axis is out / in unless ``scales`` says otherwise:

    asymmetric             i / s
    half_pixel             (i + 1/2) / s - 1/2
    half_pixel_symmetric   the same, moved by (in - out / s) / 2: the margins are equal
    pytorch_half_pixel     as half_pixel, 0 where out is 1
    align_corners          i * (in - 1) / (out - 1), 0 where out is 1
"""

from __future__ import annotations

from rlx_edge.ir.dims import Dim, as_dim, dim_max, dim_min
from rlx_edge.ir.expression import Expr, binary, cast, const, index, select
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    ANY,
    FLOAT,
    attr_dims,
    attr_ints,
    attribute,
    dims,
    example,
    operand,
)
from rlx_edge.ir.types import TensorType

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "asymmetric",
    "align_corners",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


Scale = tuple[Dim, Dim]
"""Numerator and positive denominator."""


def _coordinate(mode: str, at: Dim, size: Dim, target: Dim, scale: Scale) -> tuple[Dim, Dim]:
    """Numerator and positive denominator of the coordinate in the operand."""
    over, under = scale
    if mode == "asymmetric":
        return at * under, over
    if mode == "align_corners":
        return at * (size - 1), dim_max(target - 1, 1)
    if mode == "pytorch_half_pixel" and target.is_constant and target.value == 1:
        return as_dim(0), as_dim(1)
    numerator = (at * 2 + 1) * under - over
    if mode == "half_pixel_symmetric":
        numerator = numerator + size * over - target * under
    if mode == "pytorch_half_pixel" and not target.is_constant:
        # min(out - 1, 1) is 0 exactly where out is 1.
        numerator = numerator * dim_min(target - 1, 1)
    return numerator, over * 2


def _scales(ctx: ExpressionContext) -> list[Scale | None]:
    """The scale of each axis, ``None`` for one that is copied."""
    shape, targets = ctx.type("x").shape, ctx.result.shape
    stated = ctx.attrs["scales"]
    if not stated:
        return [
            None if size is target else (target, size)
            for size, target in zip(shape, targets, strict=True)
        ]
    pairs = zip(stated[::2], stated[1::2], strict=True)
    return [None if over == under else (as_dim(over), as_dim(under)) for over, under in pairs]


def _rounded(mode: str, numerator: Dim, denominator: Dim) -> Dim:
    if mode == "floor":
        return numerator // denominator
    if mode == "ceil":
        return -((-numerator) // denominator)
    if mode == "round_prefer_ceil":
        return (numerator * 2 + denominator) // (denominator * 2)
    return -((denominator - numerator * 2) // (denominator * 2))


def _clamped(place: Dim, size: Dim) -> Dim:
    return dim_max(dim_min(place, size - 1), 0)


def _check(ctx: InferContext, sizes: tuple[Dim, ...]) -> None:
    for size in sizes:
        if size.is_constant and size.value < 1:
            raise ctx.error("a size is below 1", found=size, allowed="at least 1")
    if ctx.attrs["scales"] != ():
        attr_ints(ctx, "scales", 2 * len(sizes), 1)


def _resize_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    sizes = attr_dims(ctx, "sizes", x.rank)
    if ctx.attrs["mode"] == "linear" and x.dtype not in FLOAT:
        raise ctx.error("mode linear needs a float type", found=x.dtype, allowed=list(FLOAT))
    _check(ctx, sizes)
    return TensorType(x.dtype, sizes)


def _resize(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    shape, targets = ctx.type("x").shape, ctx.result.shape
    mode = ctx.attrs["coordinate_transformation_mode"]
    if ctx.attrs["mode"] == "linear":
        return _linear(ctx, at, mode)
    places = [
        place
        if scale is None
        else _clamped(
            _rounded(ctx.attrs["nearest_mode"], *_coordinate(mode, place, size, target, scale)),
            size,
        )
        for place, size, target, scale in zip(at, shape, targets, _scales(ctx), strict=True)
    ]
    return ctx.load("x", places)


def _linear(ctx: ExpressionContext, at: tuple[Dim, ...], mode: str) -> Expr:
    """Between both neighbours, innermost axis first: low * (1 - t) + high * t."""
    shape, targets, dtype = ctx.type("x").shape, ctx.result.shape, ctx.result.dtype
    scales = _scales(ctx)

    def sample(axis: int, places: tuple[Dim, ...]) -> Expr:
        if axis == len(shape):
            return ctx.load("x", places)
        size, target, scale = shape[axis], targets[axis], scales[axis]
        if scale is None:
            return sample(axis + 1, (*places, at[axis]))
        numerator, denominator = _coordinate(mode, at[axis], size, target, scale)
        below = numerator // denominator
        fraction = cast(index(numerator % denominator), dtype) / cast(index(denominator), dtype)
        low = sample(axis + 1, (*places, _clamped(below, size)))
        high = sample(axis + 1, (*places, _clamped(below + 1, size)))
        return low * (1 - fraction) + high * fraction

    return sample(0, ())


def _cubic_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    sizes = attr_dims(ctx, "sizes", x.rank)
    _check(ctx, sizes)
    return TensorType(x.dtype, sizes)


def cubic_weights(t: Expr, a: float) -> list[Expr]:
    """Weights of the four neighbours at fraction ``t`` behind the second (Keys, 1981)."""
    near, far, last = t + 1, 1 - t, 2 - t
    return [
        ((near * a - 5 * a) * near + 8 * a) * near - 4 * a,
        (t * (a + 2) - (a + 3)) * t * t + 1,
        (far * (a + 2) - (a + 3)) * far * far + 1,
        ((last * a - 5 * a) * last + 8 * a) * last - 4 * a,
    ]


def _cubic(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    """Along each resampled axis four neighbours, weighted; those outside are the nearest inside,
    or left out and the other weights scaled to a sum of 1."""
    shape, targets = ctx.type("x").shape, ctx.result.shape
    mode = ctx.attrs["coordinate_transformation_mode"]
    dtype = ctx.result.dtype
    scales = _scales(ctx)

    def sample(axis: int, places: tuple[Dim, ...]) -> Expr:
        if axis == len(shape):
            return ctx.load("x", places)
        size, target, scale = shape[axis], targets[axis], scales[axis]
        if scale is None:
            return sample(axis + 1, (*places, at[axis]))
        numerator, denominator = _coordinate(mode, at[axis], size, target, scale)
        first = numerator // denominator - 1
        fraction = cast(index(numerator % denominator), dtype) / cast(index(denominator), dtype)
        weights = cubic_weights(fraction, ctx.attrs["coefficient"])
        spots = [first + step for step in range(4)]
        if ctx.attrs["exclude_outside"]:
            weights = [
                select(
                    binary("and", index(spot) >= index(0), index(spot) < index(size)),
                    weight,
                    const(0, dtype),
                )
                for spot, weight in zip(spots, weights, strict=True)
            ]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [weight / total for weight in weights]
        taps = [sample(axis + 1, (*places, _clamped(spot, size))) for spot in spots]
        result = taps[0] * weights[0]
        for tap, weight in zip(taps[1:], weights[1:], strict=True):
            result = result + tap * weight
        return result

    return sample(0, ())


SCALES = attribute("scales", "ints")
"""Numerator and denominator for each axis, or none where the scales are the sizes' ratios."""

OPS = (
    OpDef(
        "rlxc::resize",
        (operand("x", ANY),),
        (
            attribute("sizes", "dims"),
            attribute("mode", "string", "nearest", "linear"),
            attribute("coordinate_transformation_mode", "string", *COORDINATES),
            attribute("nearest_mode", "string", *ROUNDINGS),
            SCALES,
        ),
        _resize_type,
        Expression(_resize),
        frozenset({"blocked"}),
        "Resampling to ``sizes``; axes whose size stays are copied; the scale is size / old size, "
        "or that of ``scales`` (ONNX Resize, Upsample).",
        (
            example(
                "double",
                "f32[1, 2, 3, n]",
                sizes=dims(1, 2, 6, "2 * n"),
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
                scales=(),
            ),
            example(
                "shrink",
                "f32[1, 1, 7, 5]",
                sizes=dims(1, 1, 3, 4),
                mode="nearest",
                coordinate_transformation_mode="half_pixel",
                nearest_mode="round_prefer_floor",
                scales=(),
            ),
            example(
                "bilinear",
                "f32[1, 2, 4, 5]",
                sizes=dims(1, 2, 7, 3),
                mode="linear",
                coordinate_transformation_mode="half_pixel",
                nearest_mode="round_prefer_floor",
                scales=(),
            ),
            example(
                "scaled",
                "f32[1, 1, 5, 7]",
                sizes=dims(1, 1, 6, 4),
                mode="linear",
                coordinate_transformation_mode="half_pixel",
                nearest_mode="floor",
                scales=(1, 1, 1, 1, 13, 10, 3, 5),
            ),
            example(
                "corners",
                "f32[1, 2, 4, 5]",
                sizes=dims(1, 2, 7, 9),
                mode="linear",
                coordinate_transformation_mode="align_corners",
                nearest_mode="floor",
                scales=(),
            ),
        ),
    ),
    OpDef(
        "rlxc::resize_cubic",
        (operand("x", FLOAT),),
        (
            attribute("sizes", "dims"),
            attribute("coordinate_transformation_mode", "string", *COORDINATES),
            attribute("coefficient", "float"),
            attribute("exclude_outside", "bool"),
            SCALES,
        ),
        _cubic_type,
        Expression(_cubic),
        frozenset({"blocked"}),
        "Cubic resampling to ``sizes`` by four neighbours an axis; axes whose size stays are "
        "copied (ONNX Resize, mode cubic).",
        (
            example(
                "enlarge",
                "f32[1, 2, 4, 5]",
                sizes=dims(1, 2, 7, 9),
                coordinate_transformation_mode="half_pixel",
                coefficient=-0.75,
                exclude_outside=False,
                scales=(),
            ),
            example(
                "inside",
                "f32[1, 1, 5, n]",
                sizes=dims(1, 1, 3, "2 * n"),
                coordinate_transformation_mode="asymmetric",
                coefficient=-0.5,
                exclude_outside=True,
                scales=(),
            ),
        ),
    ),
)
