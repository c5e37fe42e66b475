"""Cases of the operators that act element by element."""

from __future__ import annotations

import numpy as np

from tests.conformance.case import DTYPES, FUNCTION, RANGE, Case, case, typed

FLOATS = ("f32", "f64")
INTEGERS = ("i64", "i32", "i8", "u8")
SIGNED = ("f32", "f64", "i64", "i32", "i8")
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool")

ONE = {
    "matrix": "T[n, 5]",
    "scalar": "T[]",
    "vector": "T[n]",
    "rank5": "T[2, 1, 3, 2, n]",
    "odd": "T[7, 13, 3]",
}
SPECIAL = {"special": ("T[n, 15]", {"draw": "special", "sizes": (2,)})}
TWO = {
    "same": "T[n, 5] T[n, 5]",
    "row": "T[n, 5] T[5]",
    "column": "T[n, 5] T[n, 1]",
    "scalar": "T[] T[n, 3]",
    "outer": "T[n, 1, 4] T[3, 1]",
    "rank5": "T[2, 1, 3, 1, n] T[1, 4, 3, 2, n]",
    "ones": "T[1] T[1, 1]",
    "odd": "T[7, 13, 3] T[13, 3]",
    "scalars": "T[] T[]",
}
PAIRED = {"pairs": ("T[14, 1] T[14]", {"draw": "special"})}


def unary() -> tuple[Case, ...]:
    cases: list[Case] = []
    for operator in ("Ceil", "Floor", "Round", "Sqrt", "Reciprocal"):
        cases += typed(operator, FLOATS, {**ONE, **SPECIAL})
    for operator in ("Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Erf"):
        draw = "positive" if operator == "Log" else "normal"
        forms = {**ONE, **SPECIAL} if operator not in ("Sin", "Cos") else ONE
        accuracy = RANGE if operator == "Sigmoid" else FUNCTION
        cases += typed(operator, FLOATS, forms, accuracy=accuracy, draw=draw)
    for operator in ("Abs", "Neg"):
        types = NUMBERS if operator == "Abs" else SIGNED
        cases += typed(operator, types, {**ONE, **SPECIAL})
    cases += typed("Not", ("bool",), ONE)
    cases += typed("Identity", ALL, ONE)
    return tuple(cases)


def binary() -> tuple[Case, ...]:
    cases: list[Case] = []
    for operator in ("Add", "Sub", "Mul"):
        cases += typed(operator, NUMBERS, {**TWO, **PAIRED})
    cases += typed("Div", NUMBERS, TWO, draw={1: "divisor"})
    cases += typed("Div", ("f32",), PAIRED)
    cases += typed("Div", ("i64", "i32"), {"signs": ("T[n, 6] T[6]", {"draw": {1: "nonzero"}})})
    for operator in ("And", "Or"):
        cases += typed(operator, ("bool",), TWO)
    cases += typed("Equal", ALL, {**TWO, **PAIRED})
    for operator in ("Less", "Greater", "GreaterOrEqual"):
        cases += typed(operator, NUMBERS, {**TWO, **PAIRED})
    for operator in ("Max", "Min"):
        cases += typed(operator, NUMBERS, {**TWO, "one": "T[n, 3]", "three": "T[n, 3] T[3] T[1]"})
        cases += typed(operator, ("f32",), PAIRED)
        cases += typed(operator, ("i32", "u8"), {"wide": ("T[n, 9] T[9]", {"draw": "wide"})})
    cases += typed("Sum", FLOATS, {**TWO, "one": "T[n, 3]", "three": "T[n, 3] T[3] T[1]"})
    cases += powers()
    return tuple(cases)


def powers() -> tuple[Case, ...]:
    floats = typed("Pow", FLOATS, TWO, draw={0: "positive"}, accuracy=FUNCTION)
    special = typed("Pow", ("f32",), PAIRED, accuracy=FUNCTION)
    integers = typed("Pow", ("i64", "i32"), TWO, draw={1: "small"})
    mixed = [
        case("Pow", f"{base}-by-{exponent}", f"{base}[n, 5] {exponent}[5]", draw={1: "small"})
        for base, exponent in (("i64", "i32"), ("i32", "i64"))
    ]
    mixed += [
        case("Pow", f"f32-by-{exponent}", f"f32[n, 5] {exponent}[5]", accuracy=FUNCTION)
        for exponent in ("i64", "i32", "i8")
    ]
    halves = np.array([0.5, 2, 3, 0, 1.0], np.float32)
    mixed += [
        case(
            "Pow", f"{base}-by-f32", f"{base}[n, 5] f32[5]", constants={1: halves}, draw="positive"
        )
        for base in ("i64", "i32")
    ]
    return (*floats, *special, *integers, *mixed)


def activations() -> tuple[Case, ...]:
    cases: list[Case] = []
    forms = {**ONE, **SPECIAL}
    cases += typed("Relu", ("f32", "f64", "i64", "i32", "i8"), forms)
    for operator, attrs in (
        ("LeakyRelu", {"alpha": 0.2}),
        ("Elu", {"alpha": 1.5}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ):
        accuracy = RANGE if operator == "Elu" else FUNCTION
        cases += typed(operator, FLOATS, {**forms, "given": ("T[n, 4]", attrs)}, accuracy=accuracy)
    cases += typed("HardSwish", FLOATS, forms, accuracy=FUNCTION, draw="wide")
    cases += typed("Gelu", FLOATS, ONE, accuracy=RANGE)
    tanh = {"tanh": ("T[n, 4]", {"approximate": "tanh"})}
    cases += typed("Gelu", FLOATS, tanh, accuracy=RANGE)
    slopes = {
        "same": "T[n, 4] T[n, 4]",
        "channels": "T[n, 3, 5] T[3, 1]",
        "one": "T[2, 3, n] T[1]",
        "scalar": "T[n, 4] T[]",
        "rank5": "T[1, 3, 2, 2, n] T[3, 1, 1, 1]",
    }
    cases += typed("PRelu", ("f32", "f64", "i64", "i32"), slopes)
    return tuple(cases)


def clips() -> tuple[Case, ...]:
    cases: list[Case] = []
    forms = {
        "both": "T[n, 5] T[] T[]",
        "low": "T[n, 5] T[]",
        "high": "T[n, 5] - T[]",
        "none": "T[n, 5]",
        "scalar": "T[] T[] T[]",
        "rank5": "T[2, 1, 3, 2, n] T[] T[]",
    }
    for dtype in NUMBERS:
        kind = DTYPES[dtype][1]
        bounds = {1: np.array(2, kind), 2: np.array(5, kind)}
        for name, text in forms.items():
            given = {at: bound for at, bound in bounds.items() if len(text.split()) and at}
            cases += _clip(dtype, name, text, given)
    special = {1: np.array(-1.0, np.float32), 2: np.array(2.0, np.float32)}
    cases.append(
        case("Clip", "f32-special", "f32[2, 14] f32[] f32[]", given=special, draw="special")
    )
    cases.append(case("Clip", "f32-attributes", "f32[n, 5]", opset=6, min=-0.5, max=0.75))
    return tuple(cases)


def _clip(dtype: str, name: str, text: str, bounds: dict[int, np.ndarray]) -> tuple[Case, ...]:
    given = bounds if name in ("both", "scalar", "rank5") else {}
    given = {1: bounds[1]} if name == "low" else {2: bounds[2]} if name == "high" else given
    form = {name: (text, {"given": given, "draw": "wide" if dtype == "f32" else "normal"})}
    constant = {f"{name}-constant": (text, {"constants": given})}
    return typed("Clip", (dtype,), form) + (typed("Clip", (dtype,), constant) if given else ())


def casts() -> tuple[Case, ...]:
    """Between all types; out of range only where the conversion is defined."""
    cases: list[Case] = []
    for source in ALL:
        for target in ALL:
            draw = "positive" if target == "u8" else "normal"
            cases.append(
                case(
                    "Cast",
                    f"{source}-to-{target}",
                    f"{source}[n, 5]",
                    to=DTYPES[target][0],
                    draw=draw,
                )
            )
    wide = (("i64", "i32"), ("i64", "i8"), ("i32", "u8"), ("i32", "f32"), ("i64", "f32"))
    for source, target in wide:
        name = f"{source}-to-{target}-wide"
        text = f"{source}[n, 9]"
        cases.append(case("Cast", name, text, to=DTYPES[target][0], draw="wide"))
    special = case(
        "Cast", "f32-to-bool-special", "f32[2, 14]", to=DTYPES["bool"][0], draw="special"
    )
    scalar = case("Cast", "f32-to-i64-scalar", "f32[]", to=DTYPES["i64"][0])
    return (*cases, special, scalar)


def choices() -> tuple[Case, ...]:
    forms = {
        "same": "bool[n, 5] T[n, 5] T[n, 5]",
        "broadcast": "bool[n, 1] T[5] T[1, 1]",
        "scalar": "bool[] T[n, 3] T[3]",
        "rank5": "bool[1, 4, 1, 2, n] T[2, 1, 3, 1, n] T[4, 1, 1, 1]",
    }
    return typed("Where", ALL, forms)


CASES = (*unary(), *binary(), *activations(), *clips(), *casts(), *choices())
