"""Resize, Upsample and GridSample.

The IR resamples by the ratio of the sizes unless scales are stated. A constant scale is taken as
the simplest fraction that rounds to its f32: 3/5 for 0.6.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rlx_edge.ir.core import Guard, Value
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim, product
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.onnx.shape_values import Ratio, Unknown
from rlx_edge.ir.types import I64, DType

_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "asymmetric",
    "align_corners",
)
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_DENOMINATORS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


@dataclass(frozen=True, slots=True)
class Target:
    """Sizes of the result, and scales where they are not the ratios of the sizes."""

    sizes: tuple[Dim, ...]
    scales: tuple[Fraction, ...] | None = None


def _resize(n: NodeContext) -> Value:
    """Opset 10 has scales only and asymmetric coordinates."""
    if n.opset < 11:
        return _resampled(n, _scaled(n, 1, range(n.rank(0))), "asymmetric", "floor")
    if n.int_attr("antialias", 0):
        n.unsupported("antialias = 1")
    rank = n.rank(0)
    axes = [n.axis(axis, rank) for axis in n.ints_attr("axes", tuple(range(rank)))]
    coordinates = n.string_attr("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        n.unsupported(
            "coordinate_transformation_mode", found=coordinates, allowed=list(_COORDINATES)
        )
    rounding = n.string_attr("nearest_mode", "round_prefer_floor")
    if n.has(3) and n.shape(3) != (ZERO,):
        target = _sized(n, axes)
    else:
        target = _scaled(n, 2, axes)
    return _resampled(n, target, coordinates, rounding)


def _sized(n: NodeContext, axes: Sequence[int]) -> Target:
    """By sizes; ``keep_aspect_ratio_policy`` makes one scale of them, which needs numbers."""
    policy = n.string_attr("keep_aspect_ratio_policy", "stretch")
    given = n.dims(3) if policy == "stretch" else tuple(map(as_dim, n.integers(3)))
    if len(given) != len(axes):
        n.fail("import.node", "one size an axis is needed", found=len(given), allowed=len(axes))
    sizes = list(n.shape(0))
    if policy == "stretch":
        for axis, size in zip(axes, given, strict=True):
            sizes[axis] = size
        return Target(tuple(sizes))
    if policy not in ("not_larger", "not_smaller"):
        n.fail("import.attribute", "unknown keep_aspect_ratio_policy", found=policy)
    scales = [Fraction(1)] * len(sizes)
    old = {axis: _number(n, sizes[axis]) for axis in axes}
    ratios = [Fraction(size.value, old[axis]) for axis, size in zip(axes, given, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        scales[axis] = scale
        sizes[axis] = as_dim(int(scale * old[axis] + Fraction(1, 2)))
    return Target(tuple(sizes), tuple(scales))


def _number(n: NodeContext, size: Dim) -> int:
    found = n.assume.fixed(size, f"{n.node.op_type} {n.node.label}", n.where)
    if found is None:
        n.unsupported("keep_aspect_ratio_policy of an axis that is not known", found=str(size))
    return found


def _upsample(n: NodeContext) -> Value:
    if n.opset >= 9:
        return _resampled(n, _scaled(n, 1, range(n.rank(0))), "asymmetric", "floor")
    found = n.node.attributes.get("scales")
    scales = found.value if found is not None and isinstance(found.value, tuple) else ()
    if len(scales) != n.rank(0):
        n.fail("import.attribute", "one scale an axis is needed", found=list(scales))
    numbers = [scale for scale in scales if isinstance(scale, float)]
    return _resampled(n, _target(n, range(n.rank(0)), numbers), "asymmetric", "floor")


def _scaled(n: NodeContext, index: int, axes: Sequence[int]) -> Target:
    """What the scales of input ``index`` give."""
    try:
        scales = n.settled(index).items
    except Unknown:
        n.fail(
            "import.data_dependent",
            f"the scales (input {index}) must be known when the model is imported",
            found="a tensor that is computed at run time",
        )
    if len(scales) != len(axes):
        n.fail("import.node", "one scale an axis is needed", found=len(scales), allowed=len(axes))
    found = [scale for scale in scales if isinstance(scale, (float, Ratio))]
    if len(found) < len(scales):
        n.fail("import.node", "scales must be floats", found=", ".join(map(str, scales)))
    return _target(n, axes, found)


def _target(n: NodeContext, axes: Sequence[int], scales: Sequence[float | Ratio]) -> Target:
    """Sizes rounded down; a scale that follows from sizes must give a whole one."""
    sizes = list(n.shape(0))
    fractions = [Fraction(1)] * len(sizes)
    stated = False
    for axis, scale in zip(axes, scales, strict=True):
        size = sizes[axis]
        if isinstance(scale, Ratio):
            sizes[axis] = _whole(n, size * scale.numerator, scale.denominator)
            continue
        fraction = _fraction(n, scale)
        scaled = size * fraction.numerator
        sizes[axis] = scaled // fraction.denominator
        fractions[axis] = fraction
        stated = stated or sizes[axis] * fraction.denominator is not scaled
    if stated and any(isinstance(scale, Ratio) for scale in scales):
        n.unsupported("a scale that does not give a whole size beside one that sizes give")
    return Target(tuple(sizes), tuple(fractions) if stated else None)


def _whole(n: NodeContext, scaled: Dim, denominator: int) -> Dim:
    result = scaled // denominator
    if result * denominator is not scaled:
        reason = f"{n.node.op_type} {n.node.label}"
        n.assume.require(Guard(scaled % denominator, "==", ZERO, reason))
    return result


def _fraction(n: NodeContext, scale: float) -> Fraction:
    if not 0.0 < scale < float("inf"):
        n.fail("import.node", "a scale must be positive", found=scale)
    exact = Fraction(scale)
    for limit in _DENOMINATORS:
        near = exact.limit_denominator(limit)
        if struct.pack("<f", float(near)) == struct.pack("<f", scale):
            return near
    n.unsupported("a scale that is no simple fraction", found=scale)


def _resampled(n: NodeContext, target: Target, coordinates: str, rounding: str) -> Value:
    x = n.value(0)
    mode = n.string_attr("mode", "nearest")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic"):
        n.fail("import.attribute", "unknown mode", found=mode, allowed="nearest, linear, cubic")
    if rounding not in _ROUNDINGS:
        n.fail("import.attribute", "unknown nearest_mode", found=rounding, allowed=_ROUNDINGS)
    pairs = [(scale.numerator, scale.denominator) for scale in target.scales or ()]
    attrs: Attrs = {
        "sizes": target.sizes,
        "coordinate_transformation_mode": coordinates,
        "scales": tuple(part for pair in pairs for part in pair),
    }
    if target.scales is None and target.sizes == x.type.shape:
        return x
    if target.scales is None and coordinates == "half_pixel_symmetric":  # the margins are 0
        attrs["coordinate_transformation_mode"] = "half_pixel"
    if mode == "cubic":
        attrs["coefficient"] = n.float_attr("cubic_coeff_a", -0.75)
        attrs["exclude_outside"] = n.int_attr("exclude_outside", 0) != 0
        return n.op("rlxc::resize_cubic", [x], attrs)
    return n.op("rlxc::resize", [x], {**attrs, "mode": mode, "nearest_mode": rounding})


_SAMPLINGS = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of opset 16."""


def _grid_sample(n: NodeContext) -> Value:
    mode = n.string_attr("mode", "linear")
    attrs: Attrs = {
        "mode": _SAMPLINGS.get(mode, mode),
        "padding_mode": n.string_attr("padding_mode", "zeros"),
        "align_corners": n.int_attr("align_corners", 0) != 0,
    }
    x, grid = n.value(0), n.value(1)
    if grid.type.dtype is not x.type.dtype:
        grid = n.step("rlxc::cast", [grid], {"dtype": x.type.dtype})
    return n.op("rlxc::grid_sample", [x, grid], attrs)


def _affine_grid(n: NodeContext) -> Value:
    """Positions of an image of ``size``, from -1 to 1 along each axis, under a matrix a batch."""
    theta = n.value(0)
    dtype = theta.type.dtype
    batch, _, *spatial = n.dims(1)
    rank = len(spatial)
    if theta.type.rank != 3 or theta.type.shape[1:] != (as_dim(rank), as_dim(rank + 1)):
        n.fail("import.node", "the matrices do not fit the sizes", found=str(theta.type))
    aligned = n.int_attr("align_corners", 0) != 0
    whole = (*spatial, ONE)
    columns = []
    for axis in reversed(range(rank)):
        place = _from_minus_one(n, spatial[axis], dtype, aligned)
        shape = [ONE] * (rank + 1)
        shape[axis] = spatial[axis]
        line = n.reshape(place, shape, hint="line")
        columns.append(n.step("rlxc::expand", [line], {"shape": whole}))
    columns.append(n.step("rlxc::expand", [n.splat(1.0, dtype)], {"shape": whole}))
    joined = n.step("rlxc::concat", columns, {"axis": rank})
    points = n.reshape(joined, (ONE, product(spatial), as_dim(rank + 1)), hint="points")
    turned = n.step("rlxc::transpose", [theta], {"perm": (0, 2, 1)})
    moved = n.step("rlxc::matmul", [points, turned])
    return n.reshape(moved, (batch, *spatial, as_dim(rank)))


def _from_minus_one(n: NodeContext, size: Dim, dtype: DType, aligned: bool) -> Value:
    """-1 + 2 i / (size - 1) from border to border, or -1 + (2 i + 1) / size at the centres."""
    first, parts = (0, size - 1) if aligned else (1, size)
    if parts is ZERO:
        first, parts = 1, ONE
    steps = [n.splat(first, I64), n.splat(2, I64)]
    counts = n.step("rlxc::range", steps, {"size": (size,)})
    numbers = [n.step("rlxc::cast", [item], {"dtype": dtype}) for item in (counts, n.size(parts))]
    return n.step("rlxc::sub", [n.step("rlxc::div", numbers), n.splat(1.0, dtype)])


CONVERTERS: dict[str, Converter] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "Upsample": _upsample,
}
