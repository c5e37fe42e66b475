"""Cases of the operators that move, pick, repeat or make elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.case import DTYPES, FUNCTION, Case, case, typed

ALL = ("f32", "f64", "i64", "i32", "i8", "u8", "bool")


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def views() -> tuple[Case, ...]:
    reshape: dict[str, Any] = {
        "flat": ("T[n, 3, 4] i64[1]", {"constants": {1: _ints(-1)}}),
        "regroup": ("T[n, 6] i64[3]", {"constants": {1: _ints(0, 2, -1)}}),
        "given": ("T[4, 6] i64[2]", {"given": {1: _ints(3, -1)}}),
        "to-scalar": ("T[1, 1] i64[0]", {"constants": {1: _ints()}}),
        "rank5": ("T[n, 12] i64[5]", {"constants": {1: _ints(-1, 2, 1, 3, 2)}}),
    }
    flatten: dict[str, Any] = {
        "images": "T[n, 3, 4]",
        "none": ("T[n, 3, 4]", {"axis": 0}),
        "all": ("T[n, 3, 4]", {"axis": 3}),
        "end": ("T[2, 3, n, 1, 4]", {"axis": -2}),
        "vector": "T[n]",
    }
    squeeze: dict[str, Any] = {
        "one": ("T[n, 1, 3] i64[1]", {"constants": {1: _ints(1)}}),
        "two": ("T[1, n, 1] i64[2]", {"constants": {1: _ints(0, -1)}}),
        "every": "T[1, 3, 1, 2]",
        "given": ("T[n, 1, 3] i64[1]", {"given": {1: _ints(-2)}}),
        "attribute": ("T[n, 1, 3]", {"axes": [1], "opset": 11}),
        "scalar": ("T[1] i64[1]", {"constants": {1: _ints(0)}}),
    }
    unsqueeze: dict[str, Any] = {
        "front": ("T[n, 3] i64[1]", {"constants": {1: _ints(0)}}),
        "ends": ("T[n, 3] i64[2]", {"constants": {1: _ints(-1, 0)}}),
        "scalar": ("T[] i64[2]", {"constants": {1: _ints(0, 1)}}),
        "given": ("T[n, 3] i64[1]", {"given": {1: _ints(1)}}),
        "attribute": ("T[n, 3]", {"axes": [1], "opset": 11}),
    }
    return (
        *typed("Reshape", ALL, reshape),
        *typed("Flatten", ALL, flatten),
        *typed("Squeeze", ALL, squeeze),
        *typed("Unsqueeze", ALL, unsqueeze),
    )


def permutations() -> tuple[Case, ...]:
    transpose: dict[str, Any] = {
        "matrix": "T[n, 5]",
        "image": ("T[2, 3, n, 4]", {"perm": [0, 2, 3, 1]}),
        "rank5": ("T[2, 3, 1, n, 4]", {"perm": [4, 0, 3, 1, 2]}),
        "vector": "T[n]",
        "scalar": "T[]",
        "odd": ("T[17, 33]", {"perm": [1, 0]}),
    }
    concat: dict[str, Any] = {
        "rows": ("T[n, 5] T[2, 5]", {"axis": 0}),
        "columns": ("T[n, 5] T[n, 1] T[n, 3]", {"axis": -1}),
        "middle": ("T[2, n, 3, 1] T[2, 4, 3, 1]", {"axis": 1}),
        "one": ("T[n, 5]", {"axis": 0}),
        "vectors": ("T[n] T[1] T[n]", {"axis": 0}),
        "rank5": ("T[1, 2, n, 3, 2] T[1, 2, n, 3, 5]", {"axis": 4}),
    }
    return (*typed("Transpose", ALL, transpose), *typed("Concat", ALL, concat, most=1))


def pieces() -> tuple[Case, ...]:
    def bounds(*numbers: tuple[int, ...], given: bool = False) -> dict[str, Any]:
        inputs = {at + 1: _ints(*row) for at, row in enumerate(numbers)}
        return {"given" if given else "constants": inputs}

    three = "T[7, n] i64[1] i64[1] i64[1]"
    four = "T[7, n] i64[1] i64[1] i64[1] i64[1]"
    slices: dict[str, Any] = {
        "front": (three, bounds((0,), (3,), (0,))),
        "end": (four, bounds((-3,), (1 << 40,), (0,), (1,))),
        "steps": (four, bounds((1,), (6,), (0,), (2,))),
        "backwards": (four, bounds((-1,), (-(1 << 40),), (0,), (-2,))),
        "symbolic": (three, {**bounds((0,), (-1,), (1,)), "sizes": (3, 2, 8)}),
        "both": ("T[7, n] i64[2] i64[2]", {**bounds((2, 0), (5, 1)), "sizes": (3, 8)}),
        "given": (four, bounds((1,), (5,), (0,), (1,), given=True)),
        "rank5": (
            "T[2, 3, 4, 1, n] i64[2] i64[2] i64[2]",
            bounds((1, 0), (2, 3), (0, 2)),
        ),
        "attributes": ("T[7, n]", {"starts": [1], "ends": [4], "axes": [0], "opset": 9}),
    }
    split: dict[str, Any] = {
        "sizes": ("T[7, n] i64[3]", {"constants": {1: _ints(2, 1, 4)}, "outputs": 3}),
        "equal": ("T[6, n]", {"num_outputs": 3, "outputs": 3}),
        "uneven": ("T[n, 7]", {"num_outputs": 3, "outputs": 3, "axis": -1}),
        "given": ("T[n, 7] i64[2]", {"given": {1: _ints(3, 4)}, "outputs": 2, "axis": 1}),
        "old": ("T[6, n]", {"outputs": 2, "opset": 11}),
        "rank5": ("T[1, 4, 2, n, 3]", {"num_outputs": 2, "outputs": 2, "axis": 1}),
    }
    return (*typed("Slice", ALL, slices), *typed("Split", ALL, split))


def gathers() -> tuple[Case, ...]:
    gather: dict[str, Any] = {
        "rows": ("T[5, n] i64[2, 3]", {"draw": {1: "within:5"}}),
        "columns": ("T[n, 7] i32[4]", {"axis": 1, "draw": {1: "within:7"}}),
        "scalar": ("T[5, n] i64[]", {"draw": {1: "within:5"}}),
        "vector": ("T[6] i64[n]", {"draw": {1: "within:6"}}),
        "constant": ("T[n, 4, 3] i64[2]", {"axis": 1, "constants": {1: _ints(3, -4)}}),
        "rank5": ("T[2, 3, 4, 1, n] i64[2]", {"axis": 2, "draw": {1: "within:4"}}),
    }
    elements: dict[str, Any] = {
        "rows": ("T[5, 4] i64[3, 4]", {"draw": {1: "within:5"}}),
        "columns": ("T[n, 7] i64[n, 2]", {"axis": 1, "draw": {1: "within:7"}}),
        "smaller": ("T[5, 6] i32[2, 3]", {"axis": -1, "draw": {1: "within:6"}}),
        "vector": ("T[6] i64[n]", {"draw": {1: "within:6"}}),
        "cube": ("T[2, 3, n] i64[2, 5, n]", {"axis": 1, "draw": {1: "within:3"}}),
    }
    return (*typed("Gather", ALL, gather), *typed("GatherElements", ALL, elements))


def repetitions() -> tuple[Case, ...]:
    expand: dict[str, Any] = {
        "rows": ("T[n, 1] i64[2]", {"constants": {1: _ints(1, 4)}}),
        "lead": ("T[n, 3] i64[3]", {"constants": {1: _ints(2, 1, 1)}}),
        "scalar": ("T[] i64[2]", {"constants": {1: _ints(2, 3)}}),
        "given": ("T[3, 1] i64[3]", {"given": {1: _ints(2, 1, 6)}}),
        "same": ("T[3, 4] i64[2]", {"given": {1: _ints(3, 4)}}),
        "rank5": ("T[1, 2, 1, n, 1] i64[5]", {"constants": {1: _ints(3, 1, 2, 1, 2)}}),
    }
    tile: dict[str, Any] = {
        "both": ("T[2, n] i64[2]", {"constants": {1: _ints(3, 2)}}),
        "given": ("T[n, 3] i64[2]", {"given": {1: _ints(1, 4)}}),
        "vector": ("T[n] i64[1]", {"constants": {1: _ints(5)}}),
        "once": ("T[n, 3] i64[2]", {"constants": {1: _ints(1, 1)}}),
        "rank5": ("T[1, 2, 1, n, 2] i64[5]", {"constants": {1: _ints(2, 1, 3, 1, 2)}}),
    }
    return (*typed("Expand", ALL, expand), *typed("Tile", ALL, tile))


def pads() -> tuple[Case, ...]:
    cases: list[Case] = []
    for order, dtype in enumerate(ALL):
        fill = np.array(1, DTYPES[dtype][1])
        forms: dict[str, Any] = {
            "zeros": ("T[2, n] i64[4]", {"constants": {1: _ints(1, 0, 0, 2)}}),
            "value": ("T[2, n] i64[4] T[]", {"constants": {1: _ints(0, 3, 1, 0), 2: fill}}),
            "given-value": ("T[2, n] i64[4] T[]", {"given": {1: _ints(0, 3, 1, 0), 2: fill}}),
            "axes": (
                "T[2, n, 3] i64[2] - i64[1]",
                {"constants": {1: _ints(1, 2), 3: _ints(-1)}},
            ),
            "reflect": ("T[4, 5] i64[4]", {"constants": {1: _ints(2, 3, 1, 4)}, "mode": "reflect"}),
            "edge": ("T[n, 4] i64[4]", {"constants": {1: _ints(2, 3, 0, 4)}, "mode": "edge"}),
            "wrap": ("T[3, 4] i64[4]", {"constants": {1: _ints(2, 3, 1, 4)}, "mode": "wrap"}),
            "cut": ("T[6, 5] i64[4]", {"constants": {1: _ints(-1, 2, -2, 0)}}),
            "rank5": ("T[1, 2, 1, n, 2] i64[10]", {"constants": {1: _ints(*range(10))}}),
        }
        cases += typed("Pad", (dtype,), dict(list(forms.items())[: len(forms) if order < 1 else 3]))
    cases.append(case("Pad", "f32-attributes", "f32[2, n]", pads=[1, 0, 0, 2], value=1.5, opset=10))
    return tuple(cases)


def made() -> tuple[Case, ...]:
    from onnx import numpy_helper

    cases: list[Case] = []
    for dtype in ALL:
        kind = DTYPES[dtype][1]
        full = numpy_helper.from_array(np.arange(6).reshape(2, 3).astype(kind), "value")
        scalar = numpy_helper.from_array(np.array(1, kind), "value")
        one = numpy_helper.from_array(np.array([1], kind), "value")
        cases += (
            case("Constant", f"{dtype}-tensor", value=full),
            case("Constant", f"{dtype}-scalar", value=scalar),
            case("ConstantOfShape", f"{dtype}-constant", "i64[3]", value=one,
                 constants={0: _ints(2, 1, 3)}),
            case("ConstantOfShape", f"{dtype}-given", "i64[2]", value=one,
                 given={0: _ints(2, 5)}),
        )  # fmt: skip
    cases += (
        case("Constant", "floats", value_floats=[1.5, -2.0, 3.25]),
        case("Constant", "float", value_float=0.1),
        case("Constant", "ints", value_ints=[1, -2, 1 << 40]),
        case("Constant", "int", value_int=7),
        case("ConstantOfShape", "default", "i64[2]", given={0: _ints(3, 4)}),
        case("ConstantOfShape", "scalar", "i64[0]", constants={0: _ints()}),
    )
    return (*cases, *ranges())


def ranges() -> tuple[Case, ...]:
    rows = {"up": (1, 10, 3), "down": (10, -4, -3), "one": (0, 1, 1), "exact": (-6, 6, 2)}
    cases: list[Case] = []
    for dtype in ("i64", "i32", "f32", "f64"):
        for name, row in rows.items():
            values = {at: np.array(item, DTYPES[dtype][1]) for at, item in enumerate(row)}
            text = f"{dtype}[] {dtype}[] {dtype}[]"
            cases.append(case("Range", f"{dtype}-{name}-constant", text, constants=values))
            if dtype.startswith("i"):
                cases.append(case("Range", f"{dtype}-{name}-given", text, given=values))
    steps = {at: np.array(item, np.float32) for at, item in enumerate((0.5, 3.3, 0.3))}
    cases.append(
        case("Range", "f32-steps", "f32[] f32[] f32[]", constants=steps, accuracy=FUNCTION)
    )
    return tuple(cases)


CASES = (
    *views(),
    *permutations(),
    *pieces(),
    *gathers(),
    *repetitions(),
    *pads(),
    *made(),
)
