"""Operators with random attributes and shapes against onnxruntime and numpy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.interpreter import evaluate_op
from rlx_edge.ir.ops.resize import COORDINATES, ROUNDINGS
from rlx_edge.ir.types import F32, tensor_type
from tests.ir.op_cases import Array, Attrs, build, reference, run, to_array, to_tensor

FEW = settings(max_examples=40)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 1, shape).astype(np.float32)


def assert_near(found: Array, expected: Array, scale: float = 1.0) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    largest = max(scale, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * largest)


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """Window attributes with an image size for which at least one window fits."""
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return {
        "kernel": kernel,
        "stride": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "dilation": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "padding": tuple(draw(st.integers(0, size - 1)) for size in kernel * 2),
        "image": (draw(st.integers(5, 9)), draw(st.integers(5, 9))),
    }


CHANNELS = [(1, 3, 5), (1, 4, 2), (1, 6, 3), (2, 2, 4), (3, 3, 3), (2, 10, 4)]
"""Groups, input channels, output channels."""


@FEW
@given(windows(), st.sampled_from(CHANNELS), st.booleans(), st.integers(0, 99))
def test_conv2d(
    window: dict[str, Any], channels: tuple[int, int, int], bias: bool, seed: int
) -> None:
    groups, inputs, outputs = channels
    rng = np.random.default_rng(seed)
    x = normal(rng, 2, inputs, *window["image"])
    w = normal(rng, outputs, inputs // groups, *window["kernel"])
    arrays = [x, w, normal(rng, outputs)] if bias else [x, w]
    attrs: Attrs = {
        "stride": window["stride"], "padding": window["padding"],
        "dilation": window["dilation"], "groups": groups,
    }  # fmt: skip
    found = run("rlxc::conv2d", arrays, attrs)
    assert_near(found, reference("rlxc::conv2d", attrs, arrays), 10)


@FEW
@given(
    windows(), st.sampled_from([(1, 3, 5), (2, 4, 2), (2, 10, 6), (3, 3, 3)]), st.integers(0, 99)
)
def test_conv_transpose2d(
    window: dict[str, Any], channels: tuple[int, int, int], seed: int
) -> None:
    groups, inputs, outputs = channels
    rng = np.random.default_rng(seed)
    x = normal(rng, 1, inputs, 4, 3)
    w = normal(rng, inputs, outputs // groups, *window["kernel"])
    extra = tuple(int(rng.integers(0, stride)) for stride in window["stride"])
    attrs: Attrs = {
        "stride": window["stride"], "padding": window["padding"], "dilation": window["dilation"],
        "output_padding": extra, "groups": groups,
    }  # fmt: skip
    found = run("rlxc::conv_transpose2d", [x, w], attrs)
    assert_near(found, reference("rlxc::conv_transpose2d", attrs, [x, w]), 10)


@FEW
@given(windows(), st.booleans(), st.integers(0, 99))
def test_max_pool2d(window: dict[str, Any], ceil: bool, seed: int) -> None:
    x = normal(np.random.default_rng(seed), 1, 2, *window.pop("image"))
    attrs: Attrs = {**window, "ceil_mode": ceil}
    np.testing.assert_array_equal(
        run("rlxc::max_pool2d", [x], attrs), reference("rlxc::max_pool2d", attrs, [x])
    )


@FEW
@given(windows(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_average_pool2d(window: dict[str, Any], ceil: bool, include: bool, seed: int) -> None:
    x = normal(np.random.default_rng(seed), 1, 2, *window.pop("image"))
    attrs: Attrs = {**window, "ceil_mode": ceil, "count_include_pad": include}
    assert_near(
        run("rlxc::average_pool2d", [x], attrs), reference("rlxc::average_pool2d", attrs, [x])
    )


def on_boundary(size: int, target: int, coordinates: str, rounding: str) -> bool:
    """Whether a coordinate lies exactly where rounding jumps: onnxruntime's inexact f32
    coordinates may fall on either side there."""
    if size == target:
        return False
    for at in range(target):
        place = Fraction((2 * at + 1) * size, 2 * target) - Fraction(1, 2)
        if coordinates == "asymmetric":
            place = Fraction(at * size, target)
        elif coordinates == "align_corners":
            place = Fraction(at * (size - 1), max(target - 1, 1))
        jumps = place * 2 if rounding.startswith("round") else place
        if jumps.denominator == 1 and (jumps % 2 == 1 or not rounding.startswith("round")):
            return True
    return False


def test_nearest_is_exact_on_boundaries() -> None:
    """7 to 1, half_pixel: the coordinate is 3 exactly; 4 to 2, asymmetric: 0 and 2."""
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)
    attrs: Attrs = {
        "sizes": tuple(map(as_dim, (1, 1, 1, 1))), "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor",
        "scales": (),
    }  # fmt: skip
    assert run("rlxc::resize", [x], attrs).item() == 3
    attrs = {
        **attrs, "sizes": tuple(map(as_dim, (1, 1, 1, 2))),
        "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil",
    }  # fmt: skip
    np.testing.assert_array_equal(run("rlxc::resize", [x[..., :4]], attrs).ravel(), [0, 2])


@pytest.mark.parametrize("target", [1, 4])
def test_pytorch_half_pixel_with_a_symbolic_size(target: int) -> None:
    """Whether the size is 1, where the coordinate is 0, is only known when it runs."""
    x = np.arange(7, dtype=np.float32)
    attrs: Attrs = {
        "sizes": (as_dim("k"),), "mode": "linear", "nearest_mode": "floor", "scales": (),
        "coordinate_transformation_mode": "pytorch_half_pixel",
    }  # fmt: skip
    op = build("rlxc::resize", [tensor_type(F32, 7)], attrs)
    found = to_array(evaluate_op(op, [to_tensor(x)], {"k": target}))
    expected = run("rlxc::resize", [x], {**attrs, "sizes": (as_dim(target),)})
    np.testing.assert_array_equal(found, expected)
    assert found[0] == (0 if target == 1 else 0.375)


@settings(max_examples=120)
@given(
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.sampled_from(COORDINATES),
    st.sampled_from(ROUNDINGS),
    st.sampled_from(["nearest", "linear"]),
)
def test_resize(
    image: tuple[int, int], sizes: tuple[int, int], coordinates: str, rounding: str, mode: str
) -> None:
    if mode == "nearest":
        assume(not any(map(on_boundary, image, sizes, [coordinates] * 2, [rounding] * 2)))
    x = np.arange(image[0] * image[1], dtype=np.float32).reshape(1, 1, *image)
    attrs: Attrs = {
        "sizes": tuple(as_dim(size) for size in (1, 1, *sizes)), "mode": mode,
        "coordinate_transformation_mode": coordinates, "nearest_mode": rounding,
        "scales": (),
    }  # fmt: skip
    found, expected = run("rlxc::resize", [x], attrs), reference("rlxc::resize", attrs, [x])
    assert_near(found, expected)


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(st.lists(st.integers(1, 4), min_size=0, max_size=4))
    first = [draw(st.sampled_from([size, 1])) for size in shape]
    second = [draw(st.sampled_from([size, 1])) for size in shape]
    return tuple(first[draw(st.integers(0, len(shape))) :]), tuple(second)


@FEW
@given(broadcastable(), st.sampled_from(["add", "sub", "mul", "div"]), st.integers(0, 99))
def test_broadcasting_gives_numpys_bits(
    shapes: tuple[tuple[int, ...], ...], name: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (normal(rng, *shape) for shape in shapes)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name]
    np.testing.assert_array_equal(run(f"rlxc::{name}", [a, b]), function(a, b))


@FEW
@given(broadcastable(), st.integers(0, 99))
def test_where_and_comparison_broadcast(shapes: tuple[tuple[int, ...], ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape) for shape in shapes)
    less = run("rlxc::less", [np.asarray(a), np.asarray(b)])
    np.testing.assert_array_equal(less, np.less(a, b))
    chosen = run("rlxc::where", [less, np.asarray(a), np.asarray(b)])
    np.testing.assert_array_equal(chosen, np.where(less, a, b))


@st.composite
def matrix_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rows, inner, columns = (draw(st.integers(1, 5)) for _ in range(3))
    outer = draw(broadcastable())
    a = (inner,) if draw(st.booleans()) and not outer[0] else (*outer[0], rows, inner)
    b = (inner,) if draw(st.booleans()) and not outer[1] else (*outer[1], inner, columns)
    return a, b


@FEW
@given(matrix_shapes(), st.integers(0, 99))
def test_matmul_follows_numpy(shapes: tuple[tuple[int, ...], tuple[int, ...]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (normal(rng, *shape) for shape in shapes)
    assert_near(run("rlxc::matmul", [a, b]), np.asarray(np.matmul(a, b)), 5)


@FEW
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_slice_follows_numpy(shape: list[int], data: st.DataObject) -> None:
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    starts, ends, steps, index = [], [], [], []
    for size in shape:
        start = data.draw(st.integers(0, size))
        end = data.draw(st.integers(start, size))
        step = data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
        starts.append(as_dim(start))
        ends.append(as_dim(end))
        steps.append(step)
        index.append(
            np.arange(size)[start:end][::step]
            if step > 0
            else np.arange(size)[start:end][::-1][::-step]
        )
    attrs: Attrs = {
        "axes": tuple(range(len(shape))), "starts": tuple(starts), "ends": tuple(ends),
        "steps": tuple(steps),
    }  # fmt: skip
    np.testing.assert_array_equal(run("rlxc::slice", [x], attrs), x[np.ix_(*index)])


@FEW
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=3),
    st.sampled_from(["constant", "reflect", "edge"]),
    st.data(),
)
def test_pad_follows_numpy(shape: list[int], mode: str, data: st.DataObject) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    widths = [
        (data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, size - 1))) for size in shape
    ]
    pads = [before for before, _ in widths] + [after for _, after in widths]
    attrs: Attrs = {"pads": tuple(map(as_dim, pads)), "mode": mode, "value": -1.5}
    options = {"constant_values": -1.5} if mode == "constant" else {}
    np.testing.assert_array_equal(
        run("rlxc::pad", [x], attrs),
        np.pad(x, widths, mode, **options),  # type: ignore[call-overload]
    )


@FEW
@given(st.permutations([0, 1, 2, 3]), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_transpose_follows_numpy(perm: list[int], shape: list[int]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    found = run("rlxc::transpose", [x], {"perm": tuple(perm)})
    np.testing.assert_array_equal(found, x.transpose(perm))


@FEW
@given(st.integers(0, 2), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_concat_follows_numpy(axis: int, lengths: list[int]) -> None:
    pieces = []
    for number, length in enumerate(lengths):
        shape = [2, 3, 2]
        shape[axis] = length
        pieces.append(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 100 * number)
    found = run("rlxc::concat", pieces, {"axis": axis})
    np.testing.assert_array_equal(found, np.concatenate(pieces, axis))


@FEW
@given(st.integers(0, 2), st.lists(st.integers(1, 3), max_size=2), st.integers(0, 99))
def test_gather_follows_numpy(axis: int, outer: list[int], seed: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    positions = np.random.default_rng(seed).integers(-x.shape[axis], x.shape[axis], outer)
    found = run("rlxc::gather", [x, np.asarray(positions, np.int32)], {"axis": axis})
    np.testing.assert_array_equal(found, np.take(x, positions, axis))


def test_gather_never_reads_outside() -> None:
    x = np.arange(5, dtype=np.float32)
    positions = np.array([-6, -5, 4, 5, 2**62, -(2**63)], np.int64)
    np.testing.assert_array_equal(
        run("rlxc::gather", [x, positions], {"axis": 0}), [0, 0, 4, 4, 4, 0]
    )
