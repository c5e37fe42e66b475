"""Laws of the text form on random dims, expressions and modules."""

# covers R1, R11, R14

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.ir.core import Module
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.dims import Dim, parse_dim
from rlx_edge.ir.equality import first_difference
from rlx_edge.ir.errors import ParseError, RlxError
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.expression_parser import Scope, parse_expression
from rlx_edge.ir.expression_text import expression_text
from rlx_edge.ir.lexer import quote, unquote
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.token_reader import parse_type
from rlx_edge.ir.types import F32, TensorType
from rlx_edge.ir.verifier import findings
from tests.strategies import TEXTS, dims, expressions, modules, operands, tensor_types

OPERANDS = operands()
NAMES = [operand.name for operand in OPERANDS]
SCOPE = Scope(OPERANDS, F32, 3)


@given(dims())
def test_a_dim_reads_back_as_the_same_object(dim: Dim) -> None:
    assert parse_dim(str(dim)) is dim


@given(tensor_types())
def test_a_type_reads_back(type: TensorType) -> None:
    assert parse_type(str(type)) == type


@given(TEXTS)
def test_a_quoted_text_reads_back(text: str) -> None:
    literal = quote(text)
    assert unquote(literal) == text
    assert "\n" not in literal
    literal.encode("utf-8")


@settings(max_examples=150)
@given(expressions(OPERANDS))
def test_an_expression_reads_back_as_the_same_object(expr: Expr) -> None:
    text = expression_text(expr, NAMES)
    assert parse_expression(text, SCOPE) is expr
    assert "\n" not in text


@settings(max_examples=150)
@given(modules())
def test_a_module_reads_back(module: Module) -> None:
    assert findings(module) == []
    text = print_module(module)
    again = parse_module(text, "again.rlx")
    assert print_module(again) == text
    assert first_difference(module, again) is None
    assert module_digest(module) == module_digest(again)
    assert findings(again) == []


_PIECES = st.sampled_from(
    [
        "%", "@", "{", "}", "(", ")", "[", "]", ",", ":", "=", "//", '"', "\\", "\n", " ", "-", "$",
        "0", "-1", "9" * 30, "1e400", "nan", "rlxc::relu", "rlxc::fused_add_relu", "tensor::const",
        "f32", "i64[]", "batch // 0", "max(n,", "_r0", "acc", "d9", "epilogue", "select(",
        "stride", "axis", "é", "\ud800", "\0", "return", "func", "guard", "bind", "true",
    ]
)  # fmt: skip


@settings(max_examples=120)
@given(modules(max_ops=4), st.data())
def test_spoiled_text_fails_only_in_words(module: Module, data: st.DataObject) -> None:
    """Any edit of a text gives a module with findings or without, or a ``ParseError``."""
    text = print_module(module)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.sampled_from((0, 0, 1, 2, 9))))
        text = text[:start] + data.draw(st.one_of(_PIECES, st.text(max_size=3))) + text[end:]
    try:
        spoiled = parse_module(text, "spoiled.rlx")
    except ParseError as error:
        assert error.where is not None
        assert error.where.startswith("spoiled.rlx:")
        assert "^" in error.excerpt
        assert "\n" not in str(error)
        return
    found = findings(spoiled)
    assert all(isinstance(finding, RlxError) and str(finding) for finding in found)
    if not found:
        canonical = print_module(spoiled)
        assert print_module(parse_module(canonical)) == canonical


@settings(max_examples=120)
@given(expressions(OPERANDS), st.data())
def test_spoiled_expressions_fail_only_in_words(expr: Expr, data: st.DataObject) -> None:
    text = expression_text(expr, NAMES)
    start = data.draw(st.integers(0, len(text)))
    piece = data.draw(st.one_of(_PIECES, st.text(max_size=3)))
    text = text[:start] + piece + text[start + data.draw(st.integers(0, 3)) :]
    try:
        found = parse_expression(text, SCOPE)
    except ParseError as error:
        assert "^" in error.excerpt
    else:
        assert parse_expression(expression_text(found, NAMES), SCOPE) is found
