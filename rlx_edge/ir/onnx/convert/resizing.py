"""Resize, Upsample and GridSample.

The IR resamples by the exact ratio of the sizes. A scale that does not give a whole size would use
another ratio, so it is allowed only where it fits, which a guard says for symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir.core import Guard, Value
from rlx_edge.ir.dims import ZERO, Dim
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.onnx.shape_values import Ratio, Unknown

_COORDINATES = {
    "half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel",  # the same where the scale is the ratio of the sizes
    "pytorch_half_pixel": "pytorch_half_pixel",
    "asymmetric": "asymmetric",
    "align_corners": "align_corners",
}
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(n: NodeContext) -> Value:
    """Opset 10 has scales only and asymmetric coordinates."""
    if n.opset < 11:
        sizes = _scaled(n, 1, range(n.rank(0)))
        return _resampled(n, sizes, "asymmetric", "floor")
    if n.int_attr("antialias", 0):
        n.unsupported("antialias = 1")
    if n.string_attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        n.unsupported(
            "keep_aspect_ratio_policy",
            found=n.string_attr("keep_aspect_ratio_policy"),
            allowed="stretch",
        )
    rank = n.rank(0)
    axes = [n.axis(axis, rank) for axis in n.ints_attr("axes", tuple(range(rank)))]
    coordinates = n.string_attr("coordinate_transformation_mode", "half_pixel")
    if coordinates not in _COORDINATES:
        n.unsupported(
            "coordinate_transformation_mode", found=coordinates, allowed=list(_COORDINATES)
        )
    rounding = n.string_attr("nearest_mode", "round_prefer_floor")
    if n.has(3) and n.shape(3) != (ZERO,):
        sizes = list(n.shape(0))
        given = n.dims(3)
        if len(given) != len(axes):
            n.fail("import.node", "one size an axis is needed", found=len(given), allowed=len(axes))
        for axis, size in zip(axes, given, strict=True):
            sizes[axis] = size
    else:
        sizes = _scaled(n, 2, axes)
    return _resampled(n, sizes, _COORDINATES[coordinates], rounding)


def _upsample(n: NodeContext) -> Value:
    if n.opset >= 9:
        return _resampled(n, _scaled(n, 1, range(n.rank(0))), "asymmetric", "floor")
    found = n.node.attributes.get("scales")
    scales = found.value if found is not None and isinstance(found.value, tuple) else ()
    sizes = list(n.shape(0))
    if len(scales) != len(sizes):
        n.fail("import.attribute", "one scale an axis is needed", found=list(scales))
    for axis, scale in enumerate(scales):
        assert isinstance(scale, float)
        sizes[axis] = _scale(n, sizes[axis], scale)
    return _resampled(n, sizes, "asymmetric", "floor")


def _scaled(n: NodeContext, index: int, axes: Sequence[int]) -> list[Dim]:
    """The sizes that the scales of input ``index`` give."""
    try:
        scales = n.settled(index).items
    except Unknown:
        n.fail(
            "import.data_dependent",
            f"the scales (input {index}) must be known when the model is imported",
            found="a tensor that is computed at run time",
        )
    sizes = list(n.shape(0))
    if len(scales) != len(axes):
        n.fail("import.node", "one scale an axis is needed", found=len(scales), allowed=len(axes))
    for axis, scale in zip(axes, scales, strict=True):
        if not isinstance(scale, (float, Ratio)):
            n.fail("import.node", "scales must be floats", found=str(scale))
        sizes[axis] = _scale(n, sizes[axis], scale)
    return sizes


def _scale(n: NodeContext, size: Dim, scale: float | Ratio) -> Dim:
    """``size * scale``, which must be whole."""
    if isinstance(scale, float):
        if not 0.0 < scale < float("inf"):
            n.fail("import.node", "a scale must be positive", found=scale)
        numerator, denominator = scale.as_integer_ratio()
        scaled = size * numerator
    else:
        scaled, denominator = size * scale.numerator, scale.denominator
    result = scaled // denominator
    if result * denominator is not scaled:
        if scaled.is_constant or denominator > 1024:
            n.unsupported(
                "a scale that does not give a whole size",
                found=f"{size} * {scale if isinstance(scale, float) else f'1/{denominator}'}",
                allowed="a whole size, or sizes instead of scales",
            )
        reason = f"{n.node.op_type} {n.node.label}"
        n.assume.require(Guard(scaled % denominator, "==", ZERO, reason))
    return result


def _resampled(n: NodeContext, sizes: Sequence[Dim], coordinates: str, rounding: str) -> Value:
    x = n.value(0)
    mode = n.string_attr("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    mode = "cubic" if mode == "bicubic" else mode
    if mode not in ("nearest", "linear", "cubic"):
        n.fail("import.attribute", "unknown mode", found=mode, allowed="nearest, linear, cubic")
    if rounding not in _ROUNDINGS:
        n.fail("import.attribute", "unknown nearest_mode", found=rounding, allowed=_ROUNDINGS)
    if tuple(sizes) == x.type.shape:
        return x
    if mode == "cubic":
        return _cubic(n, x, sizes, coordinates)
    attrs: Attrs = {
        "sizes": tuple(sizes),
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": rounding,
    }
    return n.op("rlxc::resize", [x], attrs)


def _cubic(n: NodeContext, x: Value, sizes: Sequence[Dim], coordinates: str) -> Value:
    attrs: Attrs = {
        "sizes": tuple(sizes),
        "coordinate_transformation_mode": coordinates,
        "coefficient": n.float_attr("cubic_coeff_a", -0.75),
        "exclude_outside": n.int_attr("exclude_outside", 0) != 0,
    }
    return n.op("rlxc::resize_cubic", [x], attrs)


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


CONVERTERS: dict[str, Converter] = {
    "GridSample": _grid_sample,
    "Resize": _resize,
    "Upsample": _upsample,
}
