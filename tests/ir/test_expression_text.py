"""How expressions are written, and what their parser refuses."""

# covers R1

from __future__ import annotations

import math

import pytest

from rlx_edge.ir.dims import as_dim, dim_max, symbol
from rlx_edge.ir.errors import ParseError, RlxError
from rlx_edge.ir.expression import (
    INDEX,
    Expr,
    acc,
    binary,
    bitcast,
    cast,
    const,
    index,
    load,
    reduce,
    select,
    unary,
)
from rlx_edge.ir.expression_check import MAX_DEPTH, check_size, epilogue_problems
from rlx_edge.ir.expression_parser import Operand, Scope, parse_expression
from rlx_edge.ir.expression_text import expression_text, number_text
from rlx_edge.ir.expression_tokens import MAX_LENGTH, loaded_slots
from rlx_edge.ir.types import BOOL, F32, F64, I32, I64, U8, TensorType, tensor_type

OPERANDS = [
    Operand("x", tensor_type(F32, "n", 4)),
    Operand("b", tensor_type(F32, 4)),
    Operand("x", tensor_type(F32, "n", 4)),
    Operand("a#1", tensor_type(I64)),
]
NAMES = [operand.name for operand in OPERANDS]
SCOPE = Scope(OPERANDS, F32, 2, ("n", "acc", "d0"))
A = acc()
B = load(1, F32, ["_i1"])
BIASED = A + B


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (select(BIASED < 0.0, 0.0, BIASED), "select(acc + %b[d1] < 0, 0, acc + %b[d1])"),
        ((A + 1) * (B - 2) / 3, "(acc + 1) * (%b[d1] - 2) / 3"),
        (A - (B - A), "acc - (%b[d1] - acc)"),
        (A - B - A, "acc - %b[d1] - acc"),
        (-A * -B, "-acc * -%b[d1]"),
        (-(A + B), "-(acc + %b[d1])"),
        (A - -B, "acc - -%b[d1]"),
        (A + -1.0, "acc + -1"),
        (-const(1, F32) + A, "-f32(1) + acc"),
        (const(-0.0, F32) + A, "-0.0 + acc"),
        (const(0.1, F32) * A, "0.1 * acc"),
        (const(math.inf, F32) - A, "inf - acc"),
        (binary("max", A, -math.inf), "max(acc, -inf)"),
        (const(1e-5, F32), "f32(1e-05)"),
        (const(math.nan, F32), "f32(nan)"),
        (cast(const(1, I32), F32), "f32(i32(1))"),
        (binary("floordiv", cast(A, I32), 3), "i32(acc) // 3"),
        (binary("mod", cast(A, I64), 3), "i64(acc) % 3"),
        (select(A < 0, const(1, F32), const(0, F32)), "select(acc < 0, f32(1), 0)"),
        (binary("eq", A < 0, const(True, BOOL)), "(acc < 0) == true"),
        (unary("exp", A), "exp(acc)"),
        (bitcast(A, I32), "bitcast_i32(acc)"),
        (load(2, F32, ["_i0", 3]), "%x#2[d0, 3]"),
        (cast(load(3, I64, []), F32), 'f32(%"a#1"[])'),
        (load(1, F32, [dim_max("_i1 - 1", 0)]), "%b[max(0, d1 - 1)]"),
        (load(1, F32, ["(_i0 * 3 + _i1) // 2 % 4"]), "%b[((3 * d0 + d1) // 2) % 4]"),
        (load(1, F32, [cast(A, INDEX)]), "%b[index(acc)]"),
        (cast(index("n") < index(4), F32), "f32(n < 4)"),
        (cast(index(symbol("d0")) + index(symbol("_i0")), F32), "f32(d0 + $d0)"),
        (cast(index(symbol("acc")), F32) * A, "f32($acc) * acc"),
        (cast(index(3), F32), "f32(index(3))"),
        (binary("lt", index(3), index(4)), "index(3) < 4"),
        (
            reduce("sum", ["_r0"], ["n"], load(0, F32, ["_r0", "_i1"])),
            "reduce_sum[_r0 < n](%x[_r0, d1])",
        ),
    ],
)
def test_spelling(expr: Expr, text: str) -> None:
    assert expression_text(expr, NAMES) == text
    assert parse_expression(text, SCOPE) is expr


def test_large_shared_nodes_are_named_once() -> None:
    x = (A + load(0, F32, ["_i0", "_i1"])) * B - A
    assert expression_text(select(x < 0, 0.0, x), NAMES) == (
        "t0 = (acc + %x[d0, d1]) * %b[d1] - acc; select(t0 < 0, 0, t0)"
    )
    for _ in range(60):
        x = x * x
    text = expression_text(x, NAMES)
    assert len(text) < 2000
    assert parse_expression(text, SCOPE) is x


def test_deep_expressions_are_cut_into_named_parts() -> None:
    x = A
    while check_size(x)[1] < MAX_DEPTH:
        x = unary("exp", x)
    text = expression_text(x)
    assert text.startswith("t0 = exp(")
    assert parse_expression(text, SCOPE) is x
    with pytest.raises(RlxError) as caught:
        check_size(unary("exp", x))
    assert caught.value.code == "expression.limit"


def test_a_slot_without_operand_still_prints() -> None:
    assert expression_text(load(7, F32, ["_i0"]), NAMES) == "%#7[d0]"


def test_an_unknown_node_still_prints() -> None:
    odd = Expr.make("frobnicate", F32, (A, Expr.make("const", I32, (), "x")))
    assert expression_text(odd) == "frobnicate(acc, 'x')"
    assert expression_text(Expr.make("index", INDEX, (), None)) == "?"


def test_a_size_is_a_usable_name() -> None:
    with pytest.raises(ParseError, match="not a usable dim name"):
        parse_expression("f32($max)", Scope())


def test_any_index_name_is_a_size_without_a_scope_of_sizes() -> None:
    assert parse_expression("f32(depth)", Scope()) is cast(index("depth"), F32)
    assert parse_expression("f32(d7)", Scope()) is cast(index(symbol("_i7")), F32)


def test_loaded_slots() -> None:
    assert loaded_slots("acc + %b[d1] * %x#2[d0, d1] + %zz[d0]", NAMES) == {1, 2}
    assert loaded_slots('%"a#1"[] + %"\\q"[] + %x#1[]', NAMES) == {3}


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (True, None, "true"),
        (3, None, "3"),
        (3.0, None, "3.0"),
        (1e-05, None, "1e-05"),
        (1e-05, F32, "1e-05"),
        (9.999999747378752e-06, F32, "1e-05"),
        (9.999999747378752e-06, F64, "9.999999747378752e-06"),
        (3, F32, "3.0"),
        (3, F64, "3.0"),
        (16777216.0, F32, "16777216.0"),
        (3.4028234663852886e38, F32, "3.4028235e+38"),
        (1e-45, F32, "1e-45"),
        (math.inf, F32, "inf"),
        (-math.inf, None, "-inf"),
        (math.nan, F32, "nan"),
        (-0.0, F32, "-0.0"),
        (200, U8, "200"),
    ],
)
def test_numbers_are_as_short_as_their_type_allows(value: float, dtype: object, text: str) -> None:
    assert number_text(value, dtype) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("operand is missing", "the end")),
        ("acc +", ("operand is missing",)),
        ("acc acc", ("ends before",)),
        ("(acc", ("unexpected", "')'")),
        ("1", ("element type",)),
        ("1 + 2", ("element type",)),
        ("-(1)", ("element type",)),
        ("-0 + acc", ("minus zero",)),
        ("exp(1)", ("element type", "f32(1)")),
        ("exp(acc, acc)", ("takes 1 operands",)),
        ("max(acc)", ("takes 2 operands",)),
        ("select(acc, acc, acc)", ("bool",)),
        ("select(1, acc, acc)", ("condition must be bool",)),
        ("select(acc < 0, 1, true)", ("not a value of bool",)),
        ("sigmod(acc)", ("did you mean sigmoid?",)),
        ("add(acc, acc)", ("unknown function",)),
        ("bitcast_f64(acc)", ("no such bitcast",)),
        ("bitcast_zz(acc)", ("unknown function",)),
        ("bitcast_i32(1)", ("element type",)),
        ("f32(acc, acc)", ("takes 1 operands",)),
        ("i32(1.5)", ("not a value of i32",)),
        ("u8(256)", ("not a value of u8",)),
        ("u8(-1)", ("not a value of u8",)),
        ("bool(1)", ("not a value of bool",)),
        ("f32(1e39)", ("too large for f32",)),
        ("f64(1e400)", ("too large for f64",)),
        ("acc + %b", ("unexpected", "'['")),
        ("acc + %c[d1]", ("not an operand", "%b")),
        ("acc + %b#0[d1]", ("not an operand",)),
        ("acc + %b#9[d1]", ("not an operand",)),
        ("%b[d1, d0]", ("1 axes", "found 2")),
        ("%b[acc]", ("must be of type index",)),
        ("%b[1.5]", ("not a value of index",)),
        ("%b[d1 // 0]", ("by zero",)),
        ("%b[d1 d1]", ("unexpected",)),
        ("acc + f32(d2)", ("no such output axis", "d0 to d1")),
        ("acc + f32(d99999)", ("no such output axis",)),
        ("acc + f32(m)", ("unknown name", "$acc")),
        ("t0 + acc", ("before it is defined",)),
        ("t0 = acc; t0 = acc; t0", ("defined twice",)),
        ("t0 = 1; acc + t0", ("element type",)),
        ("t0 = acc t0", ("unexpected", "';'")),
        ("acc < 0 < 1", ("ends before",)),
        ("acc & acc", ("no token", "'&'")),
        ("acc + " + "9" * 41, ("number is too long",)),
        ("(" * 70 + "acc" + ")" * 70, ("nested too deep",)),
        ("reduce_sum[r < 4](acc)", ("starts with _",)),
        ("reduce_sum[_r < 4, _r < 4](acc)", ("is new",)),
        ("reduce_sum[_r < index(acc)](acc)", ("made of sizes",)),
        ("reduce_sum[4](acc)", ("unexpected",)),
        ("%b[" + "*".join(["(n + d0 + d1 + 1)"] * 24) + "]", ("too many terms",)),
    ],
)
def test_what_is_refused(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expression(text, SCOPE)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("<expression>:1:")
    assert caught.value.excerpt.endswith("^")
    for word in words:
        assert word in message


def test_no_acc_where_there_is_no_root() -> None:
    with pytest.raises(ParseError, match="no acc"):
        parse_expression("acc + 1", Scope(OPERANDS))


def test_limits_hold() -> None:
    with pytest.raises(ParseError, match="too long"):
        parse_expression(" " * (MAX_LENGTH + 1) + "acc", SCOPE)
    with pytest.raises(ParseError, match="too many nested operators"):
        parse_expression("acc" + " + acc" * MAX_DEPTH, SCOPE)
    parts = [f"t{place} = acc + {place}" for place in range(7000)]
    level = [f"t{place}" for place in range(len(parts))]
    while len(level) > 1:
        names = [f"t{len(parts) + place}" for place in range(len(level) // 2)]
        parts += [
            f"{x} = {a} * {b}" for x, a, b in zip(names, level[::2], level[1::2], strict=False)
        ]
        level = [*names, *level[2 * len(names) :]]
    with pytest.raises(ParseError, match="too many nodes"):
        parse_expression(f"{'; '.join(parts)}; {level[0]}", SCOPE)


# ---- epilogues built in Python ---------------------------------------------------------------

TYPES = [operand.type for operand in OPERANDS]
ROOT = tensor_type(F32, "n", 4)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (A + B, ""),
        (acc(F64) + 1, "acc is f64"),
        (load(9, F32, ["_i0"]), "slot 9"),
        (load(1, F64, ["_i0"]), "loads f64"),
        (load(1, F32, ["_i0", "_i1"]), "2 indices"),
        (load(1, F32, [A]), "not of type index"),
        (load(1, F32, ["_i2"]), "no output axis d2"),
        (load(1, F32, ["m"]), "m is not a size"),
        (index("n"), "is an index"),
        (reduce("sum", ["_r0"], [4], A), "cannot reduce"),
        (Expr.make("add", F32, (A, index(1))), "add cannot take (f32, index)"),
        (Expr.make("lt", F32, (A, A)), "give f32"),
        (Expr.make("exp", F32, ()), "exp cannot take ()"),
        (Expr.make("select", F32, (A, A, A)), "select cannot take"),
        (Expr.make("const", F32, (), 1), ""),
        (Expr.make("const", U8, (), 300), "300 is not a value of u8"),
        (Expr.make("const", BOOL, (), 2), "2 is not a value of bool"),
        (Expr.make("const", I32, (), 0.5), "0.5 is not a value of i32"),
        (Expr.make("cast", F32, ()), "cast takes one operand"),
        (Expr.make("bitcast", F64, (A,)), "no bitcast from (f32) to f64"),
        (Expr.make("frobnicate", F32, (A,)), "no scalar operator frobnicate"),
    ],
)
def test_epilogue_rules(expr: Expr, words: str) -> None:
    found = list(epilogue_problems(expr, TYPES, ROOT, ("n",)))
    if not words:
        assert found == []
    else:
        assert any(words in problem for problem in found), found


ROW = load(0, F32, ["_i0", "_r0"])
ROW_SUM = reduce("sum", ["_r0"], ["n"], ROW)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (A / ROW_SUM, ""),
        (reduce("max", ["_r1"], ["n"], load(0, F32, ["_i0", "_r1"]) - ROW_SUM), ""),
        (reduce("sum", ["_i1"], ["n"], A), "_i1 is not a reduction variable"),
        (reduce("sum", ["_r0"], ["n"], ROW - ROW_SUM), "_r0 is the variable of two reductions"),
        (reduce("sum", ["_r0"], ["m"], ROW), "m is not a size"),
        (ROW_SUM + ROW, "_r0 is used outside of its reduction"),
        (ROW, "_r0 is not a size"),
    ],
)
def test_rules_of_epilogues_that_reduce(expr: Expr, words: str) -> None:
    found = list(epilogue_problems(expr, TYPES, ROOT, ("n",), reduces=True))
    assert any(words in problem for problem in found) if words else found == [], found


def test_an_epilogue_has_a_limit() -> None:
    x = A
    for _ in range(MAX_DEPTH):
        x = unary("exp", x)
    (found,) = epilogue_problems(x, TYPES, TensorType(F32, (as_dim(1),)), ())
    assert "too many nested operators" in found
