"""The scalar operators of expressions: a row each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """A scalar operator: ``arity``, ``result`` (``same``, ``bool``), ``primitive`` for emitters.

    ``kinds`` are the operand type kinds it accepts.
    """

    name: str
    arity: int
    kinds: tuple[str, ...]
    primitive: bool = True
    result: str = "same"


_FLOAT = ("float",)
_NUMBER = ("float", "int", "uint")
_INTEGER = ("int", "uint")
_ANY = ("float", "int", "uint", "bool")
_BITS = ("int", "uint", "bool")

SCALAR_OPS: dict[str, ScalarOp] = {
    op.name: op
    for op in (
        # Primitive: IEEE 754 for floats (one rounding), two's complement wrap for integers.
        ScalarOp("add", 2, _NUMBER),
        ScalarOp("sub", 2, _NUMBER),
        ScalarOp("mul", 2, _NUMBER),
        ScalarOp("div", 2, _NUMBER),  # integers truncate towards zero (ONNX Div)
        ScalarOp("floordiv", 2, _INTEGER),
        ScalarOp("mod", 2, _INTEGER),  # sign of the divisor (ONNX Mod, fmod=0)
        ScalarOp("min", 2, _NUMBER),  # NaN-propagating, -0 < +0 (WebAssembly f32.min)
        ScalarOp("max", 2, _NUMBER),
        ScalarOp("neg", 1, _NUMBER),
        ScalarOp("abs", 1, _NUMBER),
        ScalarOp("sqrt", 1, _FLOAT),
        ScalarOp("floor", 1, _FLOAT),
        ScalarOp("ceil", 1, _FLOAT),
        ScalarOp("trunc", 1, _FLOAT),
        ScalarOp("nearest", 1, _FLOAT),  # round half to even
        ScalarOp("eq", 2, _ANY, result="bool"),
        ScalarOp("ne", 2, _ANY, result="bool"),
        ScalarOp("lt", 2, _NUMBER, result="bool"),
        ScalarOp("le", 2, _NUMBER, result="bool"),
        ScalarOp("gt", 2, _NUMBER, result="bool"),
        ScalarOp("ge", 2, _NUMBER, result="bool"),
        ScalarOp("and", 2, _BITS),  # bitwise; logical on bool
        ScalarOp("or", 2, _BITS),
        ScalarOp("xor", 2, _BITS),
        ScalarOp("not", 1, ("bool",)),
        ScalarOp("shl", 2, _INTEGER),  # the count is a constant below the width
        ScalarOp("shr", 2, _INTEGER),  # arithmetic for int, logical for uint
        # Derived: see scalar_functions.py for their definition in primitive operators.
        ScalarOp("exp", 1, _FLOAT, primitive=False),
        ScalarOp("log", 1, _FLOAT, primitive=False),
        ScalarOp("sin", 1, _FLOAT, primitive=False),
        ScalarOp("cos", 1, _FLOAT, primitive=False),
        ScalarOp("tanh", 1, _FLOAT, primitive=False),
        ScalarOp("sigmoid", 1, _FLOAT, primitive=False),
        ScalarOp("erf", 1, _FLOAT, primitive=False),
        ScalarOp("softplus", 1, _FLOAT, primitive=False),
        ScalarOp("sign", 1, _NUMBER, primitive=False),
        ScalarOp("pow", 2, _FLOAT, primitive=False),
        *(
            ScalarOp(name, 1, _FLOAT, primitive=False)
            for name in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
        ),
    )
}

SHIFTS = ("shl", "shr")
"""Their second operand is a constant from 0 to the type's width, exclusive."""
