"""Cases of reductions, Softmax and normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.case import SUM, Case, case, typed

FLOATS = ("f32", "f64")
NUMBERS = ("f32", "f64", "i64", "i32", "i8", "u8")


def _axes(*axes: int) -> dict[int, np.ndarray]:
    return {1: np.array(axes, np.int64)}


def reductions() -> tuple[Case, ...]:
    forms: dict[str, Any] = {
        "last": ("T[n, 7] i64[1]", {"constants": _axes(-1)}),
        "all": "T[n, 3]",
        "first-dropped": ("T[n, 5] i64[1]", {"constants": _axes(0), "keepdims": 0}),
        "two": ("T[2, 3, n] i64[2]", {"constants": _axes(0, 2)}),
        "two-dropped": ("T[2, n, 3, 2, 1] i64[2]", {"constants": _axes(1, 4), "keepdims": 0}),
        "long": ("T[2, n] i64[1]", {"constants": _axes(1), "sizes": (4097, 100)}),
        "wide": ("T[5, n] i64[1]", {"constants": _axes(0), "sizes": (33,)}),
        "scalar": "T[]",
        "noop": ("T[n, 3]", {"noop_with_empty_axes": 1}),
        "given-axes": ("T[n, 5] i64[1]", {"given": _axes(1)}),
        "empty-axes": ("T[n, 5] i64[0]", {"given": _axes()}),
    }
    special = {
        "special": (
            "T[14, 3] i64[1]",
            {"constants": _axes(1), "draw": "special", "oracle": "numpy"},
        )
    }
    sums = ("f32", "f64", "i64", "i32")
    return (
        *typed("ReduceSum", sums, forms, accuracy=SUM),
        *typed("ReduceMean", sums, forms, accuracy=SUM),
        *typed("ReduceMax", (*NUMBERS, "bool"), {**forms, **special}),
        *typed("ReduceMin", (*NUMBERS, "bool"), {**forms, **special}),
        case("ReduceMax", "f32-attribute", "f32[n, 5]", axes=[1], opset=11),
        case("ReduceSum", "f32-attribute", "f32[n, 5]", axes=[-1], opset=11, accuracy=SUM),
    )


def softmaxes() -> tuple[Case, ...]:
    forms: dict[str, Any] = {
        "last": "T[n, 7]",
        "first": ("T[n, 7]", {"axis": 0}),
        "middle": ("T[2, n, 3]", {"axis": 1}),
        "rank5": ("T[2, 1, 3, n, 2]", {"axis": -2}),
        "vector": "T[n]",
        "long": ("T[2, n]", {"sizes": (1000,)}),
        "large": ("T[2, 9]", {"draw": "wide"}),
        "flattened": ("T[2, 3, n]", {"axis": 1, "opset": 11}),
    }
    return (
        *typed("Softmax", FLOATS, forms, accuracy=SUM),
        *typed("LogSoftmax", FLOATS, forms, accuracy=SUM),
    )


def normalisations() -> tuple[Case, ...]:
    batch: dict[str, Any] = {
        "image": "T[2, 3, 4, n] T[3] T[3] T[3] T[3]",
        "matrix": "T[n, 5] T[5] T[5] T[5] T[5]",
        "signal": ("T[n, 5, 7] T[5] T[5] T[5] T[5]", {"epsilon": 0.01}),
        "rank5": "T[2, 4, 3, 1, n] T[4] T[4] T[4] T[4]",
    }
    layer: dict[str, Any] = {
        "rows": "T[n, 5] T[5] T[5]",
        "no-bias": "T[n, 5] T[5]",
        "planes": ("T[2, n, 3, 4] T[3, 4] T[3, 4]", {"axis": -2}),
        "long": ("T[n, 384] T[384] T[384]", {"epsilon": 1e-12, "sizes": (3,)}),
        "statistics": ("T[n, 5] T[5] T[5]", {"outputs": 3}),
    }
    return (
        *typed("BatchNormalization", FLOATS, batch, draw={4: "positive"}, accuracy=SUM),
        *typed("LayerNormalization", FLOATS, layer, accuracy=SUM),
    )


CASES = (*reductions(), *softmaxes(), *normalisations())
