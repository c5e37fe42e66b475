"""Cases of matrix products, convolutions, pooling and resampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.case import SUM, Case, case, typed

FLOATS = ("f32", "f64")


def products() -> tuple[Case, ...]:
    matmul: dict[str, Any] = {
        "matrices": "T[n, 5] T[5, 3]",
        "vectors": "T[7] T[7]",
        "by-vector": "T[n, 7] T[7]",
        "vector-by": "T[7] T[7, n]",
        "batched": "T[2, n, 5] T[2, 5, 3]",
        "broadcast": "T[2, 1, n, 5] T[3, 5, 4]",
        "rank5": "T[1, 2, 1, n, 4] T[2, 1, 3, 4, 5]",
        "long": ("T[n, 300] T[300, 17]", {"sizes": (5, 33)}),
        "one": "T[n, 1] T[1, 1]",
    }
    gemm: dict[str, Any] = {
        "plain": "T[n, 5] T[5, 3]",
        "bias": "T[n, 5] T[5, 3] T[3]",
        "transposed": ("T[5, n] T[3, 5] T[n, 3]", {"transA": 1, "transB": 1}),
        "scaled": ("T[n, 5] T[5, 3] T[1, 3]", {"alpha": 0.5, "beta": 2.0}),
        "scalar": "T[n, 5] T[5, 3] T[]",
        "column": "T[n, 5] T[5, 3] T[n, 1]",
        "beta-0": ("T[n, 5] T[5, 3] T[3]", {"beta": 0.0}),
        "large": ("T[n, 130] T[130, 70] T[70]", {"sizes": (1, 19)}),
    }
    types = ("f32", "f64", "i64", "i32")
    return (
        *typed("MatMul", types, matmul, accuracy=SUM),
        *typed("Gemm", types, gemm, accuracy=SUM),
    )


def convolutions() -> tuple[Case, ...]:
    conv: dict[str, Any] = {
        "plain": ("T[n, 3, 7, 6] T[4, 3, 3, 3]", {"sizes": (1, 2)}),
        "bias": "T[2, 3, 5, n] T[4, 3, 1, 1] T[4]",
        "padded": ("T[2, 4, n, 9] T[5, 4, 3, 3] T[5]", {"pads": [1, 2, 0, 1], "sizes": (5, 8)}),
        "strided": ("T[1, 3, n, 9] T[8, 3, 3, 2]", {"strides": [2, 3], "sizes": (8, 11)}),
        "dilated": ("T[1, 2, 9, 11] T[3, 2, 3, 3]", {"dilations": [2, 3]}),
        "groups": ("T[1, 6, 5, 5] T[4, 3, 3, 3]", {"group": 2}),
        "depthwise": (
            "T[n, 8, 7, 7] T[8, 1, 3, 3] T[8]",
            {"group": 8, "pads": [1] * 4, "sizes": (1, 2)},
        ),
        "multiplier": ("T[1, 3, 6, 6] T[6, 1, 3, 3]", {"group": 3}),
        "same-upper": (
            "T[1, 2, n, 7] T[3, 2, 4, 3]",
            {"auto_pad": "SAME_UPPER", "strides": [2, 2], "sizes": (6, 9)},
        ),
        "same-lower": ("T[1, 2, 6, 7] T[3, 2, 4, 3]", {"auto_pad": "SAME_LOWER"}),
        "valid": ("T[1, 2, 6, 7] T[3, 2, 4, 3]", {"auto_pad": "VALID"}),
        "signal": ("T[2, 3, n] T[4, 3, 3] T[4]", {"pads": [1, 1], "sizes": (5, 16)}),
        "one": "T[1, 1, 1, 1] T[1, 1, 1, 1]",
        "odd": ("T[1, 17, 13, 11] T[19, 17, 5, 3]", {"pads": [2, 1, 2, 1]}),
    }
    transposed: dict[str, Any] = {
        "plain": "T[1, 3, n, 4] T[3, 2, 3, 3]",
        "bias": "T[2, 3, 3, n] T[3, 4, 2, 2] T[4]",
        "strided": ("T[1, 3, n, 4] T[3, 2, 3, 3]", {"strides": [2, 3]}),
        "padded": ("T[1, 3, 5, 4] T[3, 2, 3, 3]", {"pads": [1, 0, 1, 2], "strides": [2, 2]}),
        "output-padding": (
            "T[1, 2, 3, 3] T[2, 2, 3, 3]",
            {"strides": [3, 2], "output_padding": [1, 1]},
        ),
        "output-shape": (
            "T[1, 2, 3, 3] T[2, 2, 3, 3]",
            {"strides": [3, 2], "output_shape": [10, 8]},
        ),
        "same-upper": (
            "T[1, 2, 3, 3] T[2, 2, 3, 3]",
            {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        ),
        "dilated": ("T[1, 2, 3, 3] T[2, 2, 2, 2]", {"dilations": [2, 2]}),
        "groups": ("T[1, 4, 3, 3] T[4, 3, 3, 3]", {"group": 2}),
        "signal": ("T[1, 2, n] T[2, 3, 3]", {"strides": [2]}),
    }
    return (
        *typed("Conv", FLOATS, conv, accuracy=SUM),
        *typed("ConvTranspose", FLOATS, transposed, accuracy=SUM),
    )


POOLS: dict[str, Any] = {
    "halve": ("T[n, 2, 6, 8]", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "padded": (
        "T[1, 3, n, 7]",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "sizes": (7, 8)},
    ),
    "ceil": (
        "T[1, 2, n, 7]",
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "sizes": (6, 8)},
    ),
    "ceil-padded": (
        "T[1, 2, 8, 7]",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1},
    ),
    "same": (
        "T[1, 2, 7, 7]",
        {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    "dilated": ("T[1, 2, 9, 9]", {"kernel_shape": [2, 3], "dilations": [2, 3]}),
    "signal": ("T[2, 3, n]", {"kernel_shape": [3], "strides": [2], "sizes": (5, 8)}),
    "whole": ("T[2, 3, 4, 4]", {"kernel_shape": [4, 4]}),
}


def pools() -> tuple[Case, ...]:
    counted = {
        f"counted-{name}": (text, {**attrs, "count_include_pad": 1})
        for name, (text, attrs) in POOLS.items()
        if name in ("padded", "ceil-padded", "same")
    }
    everywhere: dict[str, Any] = {
        "image": "T[2, 3, 5, n]",
        "signal": "T[n, 3, 7]",
        "pixel": "T[1, 2, 1, 1]",
        "volume": "T[1, 2, 3, 2, n]",
    }
    return (
        *typed("MaxPool", ("f32", "f64", "i8", "u8"), POOLS),
        *typed("AveragePool", FLOATS, {**POOLS, **counted}, accuracy=SUM),
        *typed("GlobalAveragePool", FLOATS, everywhere, accuracy=SUM),
        *typed("GlobalMaxPool", FLOATS, everywhere, most=1),
    )


def resizes() -> tuple[Case, ...]:
    cases: list[Case] = []
    none = np.zeros(0, np.float32)
    scales = np.array([1, 1, 2, 2], np.float32)
    doubled = {"constants": {1: none, 2: scales}}
    text = "T[n, 2, 3, 4] f32[0] f32[4]"
    forms: dict[str, Any] = {
        "double": (text, {**doubled, "mode": "nearest"}),
        "linear": (text, {**doubled, "mode": "linear"}),
    }
    cases += typed("Resize", ("f32", "u8", "i32", "i8"), dict(list(forms.items())[:1]))
    cases += typed("Resize", ("f32",), {"linear": forms["linear"]}, accuracy=SUM)
    cases.append(
        case("Resize", "f32-given-scales", "f32[1, 1, 3, 4] f32[0] f32[4]",
             given={1: none, 2: scales}, mode="nearest")
    )  # fmt: skip
    for mode in ("half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners"):
        for kind in ("nearest", "linear", "cubic"):
            for scale in (0.6, 1.3):
                factors = {2: np.array([1, 1, scale, 2.5 * scale], np.float32)}
                cases.append(
                    case("Resize", f"f32-{mode}-by-{scale}-{kind}", "f32[1, 2, n, 7] - f32[4]",
                         constants=factors, mode=kind, coordinate_transformation_mode=mode,
                         sizes=(5, 8), accuracy=SUM)
                )  # fmt: skip
    for policy in ("not_larger", "not_smaller"):
        sizes = {3: np.array([7, 9], np.int64)}
        cases.append(
            case("Resize", f"f32-{policy}", "f32[1, 2, 4, 6] - - i64[2]", constants=sizes,
                 axes=[2, 3], keep_aspect_ratio_policy=policy, mode="nearest")
        )  # fmt: skip
    modes = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    for mode in modes:
        for size in ((5, 9), (2, 3), (1, 1)):
            sizes = {3: np.array([1, 2, *size], np.int64)}
            shape = "f32[1, 2, 4, 6] - - i64[4]"
            name = f"f32-{mode}-{size[0]}x{size[1]}"
            attrs: dict[str, Any] = {"coordinate_transformation_mode": mode}
            for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                cases.append(
                    case("Resize", f"{name}-{rounding}", shape, constants=sizes,
                         mode="nearest", nearest_mode=rounding, **attrs)
                )  # fmt: skip
            for kind in ("linear", "cubic"):
                cases.append(
                    case("Resize", f"{name}-{kind}", shape, constants=sizes, mode=kind,
                         accuracy=SUM, **attrs)
                )  # fmt: skip
    return tuple(cases)


CASES = (*products(), *convolutions(), *pools(), *resizes())
