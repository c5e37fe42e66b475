"""Limits of the text form, spans, and what the golden files leave out."""

# covers R1, R8

from __future__ import annotations

import pytest

from rlx_edge.ir.attributes import EPILOGUE, PLACEMENT
from rlx_edge.ir.errors import ParseError
from rlx_edge.ir.lexer import MAX_NAME, quote, sigil_name, unquote
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.parser import declared_attributes, parse_module
from rlx_edge.ir.printer import attribute_text, print_module
from rlx_edge.ir.source import MAX_EXCERPT, OpSpan, SourceFile, Span
from rlx_edge.ir.spelling import (
    ATTRIBUTES,
    near_name,
    near_operators,
    right_attribute,
    right_operator,
    right_value,
)
from rlx_edge.ir.token_reader import MAX_LIST, parse_type
from rlx_edge.ir.types import F32

HEAD = 'rlx.module version = "1.0"\n\n'


def function(body: str = "", params: str = "%x: f32[n]", returns: str = "f32[n]") -> str:
    return f"{HEAD}func @f({params}) -> ({returns}) {{\n{body}  return %x\n}}\n"


def refused(text: str, *words: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_module(text, "f.rlx")
    for word in words:
        assert word in str(caught.value)
    return caught.value


def test_spans_cover_operations_and_their_parts() -> None:
    text = function("  %y = rlxc::softmax(%x) { axis = 0 } : f32[n]\n")
    module = parse_module(text, "f.rlx")
    span = module.function.ops[0].span
    assert isinstance(span, OpSpan)
    assert text[span.start : span.end] == "%y = rlxc::softmax(%x) { axis = 0 } : f32[n]"
    part = span.parts["attribute axis"]
    assert text[part.start : part.end] == "axis = 0"
    assert str(part) == "f.rlx:4:28"
    param = module.function.params[0].span
    assert param is not None
    assert text[param.start : param.end] == "%x: f32[n]"


def test_a_module_may_end_without_a_newline_and_use_windows_lines() -> None:
    text = function()
    assert print_module(parse_module(text.rstrip().replace("\n", "\r\n"))) == text


def test_names_that_cannot_be() -> None:
    refused(function(params=f"%{'x' * (MAX_NAME + 1)}: f32[n]"), "too long")
    refused(function(params=f'%"{"x" * (MAX_NAME + 1)}": f32[n]'), "too long")
    refused(function(params='%"": f32[n]'), "empty")
    refused(function(params=f"%x: f32[{'n' * (MAX_NAME + 1)}]"), "too long")
    refused(function("  bind max = %x[0]\n"), "not a usable dim name")


def test_lists_have_a_limit() -> None:
    many = ", ".join(["1"] * (MAX_LIST + 1))
    refused(function(f"  %y = rlxc::tile(%x) {{ repeats = [{many}] }} : f32[n]\n"), "too long")
    refused(function(params=f"%x: f32[{', '.join(['1'] * 33)}]"), "list is too long", "32")


def test_dims_have_a_limit() -> None:
    refused(function(params=f"%x: f32[{' + '.join(['n'] * 400)}]"), "dim is too long")
    refused(function(params=f"%x: f32[n{' // 2' * 70}]"), "dim is too long")
    refused(function(params=f"%x: f32[{'(' * 80}n{')' * 80}]"), "cannot read the dim")
    refused(function(params="%x: f32[,]"), "unexpected", "a dim")


def test_operations_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_edge.ir.parser.MAX_OPS", 2)
    line = "  %y{} = rlxc::relu(%x) : f32[n]\n"
    parse_module(function("".join(line.format(place) for place in range(2))))
    refused(function("".join(line.format(place) for place in range(3))), "too many operations")


def test_texts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_edge.ir.lexer.MAX_TEXT", 10)
    assert refused(function(), "text is too long").where == "f.rlx"


def test_strings_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlx_edge.ir.lexer.MAX_STRING", 10)
    refused(
        function('  guard n == 4 { reason = "a long reason" }\n'),
        "string is too long",
        "at most 10",
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("  %y = rlxc::softmax(%x) { axis = -0x1 } : f32[n]\n", ("number runs into",)),
        ("  %y = rlxc::leaky_relu(%x) { alpha = -0 } : f32[n]\n", ("minus zero",)),
        ("  %y = rlxc::leaky_relu(%x) { alpha = 1e999 } : f32[n]\n", ("too large",)),
        ("  %y = rlxc::leaky_relu(%x) { alpha = x } : f32[n]\n", ("a number is missing",)),
        (f"  %y = tensor::splat() {{ value = {2**64} }} : u64[]\n", ("more than 64 bits",)),
        (f"  %y = tensor::splat() {{ value = {'1' * 41} }} : u64[]\n", ("number is too long",)),
        ("  %y = rlxc::cast(%x) { dtype = float } : f32[n]\n", ("unknown element type",)),
        ('  %y = rlxc::cast(%x) { dtype = "f32" } : f32[n]\n', ("an element type",)),
        ("  %y = rlxc::reduce_sum(%x) { axes = [0], keepdims = 1 } : f32[1]\n", ("true or false",)),
        ("  %y = rlxc::relu %x : f32[n]\n", ("'(' and the operands",)),
        ("  %y, %z rlxc::relu(%x) : f32[n]\n", ("'='",)),
        ("  %y = relu(%x) : f32[n]\n", ("dialect::name",)),
        ("  %y = rlxc::relu(x) : f32[n]\n", ("a value, %name",)),
        ("  %y = rlxc::relu(%x) { 3 } : f32[n]\n", ("an attribute",)),
        ("  %y = rlxc::relu(%x) { phase } : f32[n]\n", ("'=' and a value of kind string",)),
        ("  guard n == 4 { because = 3 }\n", ("'reason'",)),
        ("  guard == 4\n", ("a dim",)),
        ("  bind = %x[0]\n", ("the name of the value symbol",)),
        ("  bind k = x[0]\n", ("an integer parameter",)),
        ("  bind k = %x[n]\n", ("the element's position",)),
        ('  %y = rlxc::relu(%x) { phase = "a\\ud800" } : f32[n]\n', ("surrogate",)),
        ("  %y = rlxc::fused_relu_add(%x) { epilogue = 3 } : f32[n]\n", ("expression in quotes",)),
        (
            '  %y = rlxc::fused_relu_add(%x) { epilogue = "acc", epilogue = "acc" } : f32[n]\n',
            ("given twice",),
        ),
        (
            '  %y = rlxc::fused_softmax_add(%x) { epilogue = "acc" } : f32[n]\n',
            ("attribute axis is missing",),
        ),
    ],
)
def test_what_is_refused(body: str, words: tuple[str, ...]) -> None:
    error = refused(function(body), *words)
    assert "^" in error.excerpt
    assert error.where is not None
    assert error.where.startswith("f.rlx:4:")


def test_texts_end_in_time() -> None:
    text = function("  %y = rlxc::relu(%x) : f32[n]\n")
    for length in range(len(text) - 1):
        if text[:length].strip() != text.strip():
            refused(text[:length])


def test_types_alone() -> None:
    assert str(parse_type(" f32[ n,4 ]")) == "f32[n, 4]"
    for text in ("", "f32", "f32[", "f32[n]]", "[n]"):
        with pytest.raises(ParseError) as caught:
            parse_type(text)
        assert str(caught.value.where).startswith("<type>:1:")


def test_excerpts_are_short_and_plain() -> None:
    line = "a" * 500 + "\x1b[31m\u202e" + "b" * 500
    file = SourceFile("long", f"first\n{line}\r\nlast")
    start = 6 + 500
    shown, carets = Span(file, start, start + 3).excerpt().split("\n")
    assert len(shown) <= MAX_EXCERPT + 4
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown[carets.index("^") : carets.index("^") + 3] == " [3"
    assert Span(file, 0, 5).excerpt() == "first\n^^^^^"
    assert Span(file, len(file.text), len(file.text) + 9).excerpt() == "last\n    ^"
    assert Span(file, 6, 2000).excerpt().split("\n")[0].endswith(" …")
    empty = SourceFile("empty", "")
    assert Span(empty, 0, 0).excerpt() == "\n^"


def test_quoting() -> None:
    assert quote("a\tb") == '"a\\tb"'
    assert quote("\u202e") == '"\\u202e"'
    assert unquote('"\\u0041"') == "A"
    assert sigil_name("%", "x:0") == '%"x:0"'
    assert sigil_name("%", "x.0") == "%x.0"
    for bad in ('"\\q"', '"\\u12"', '"\\udc00"'):
        with pytest.raises(ValueError, match="string"):
            unquote(bad)


def test_odd_values_still_print() -> None:
    assert attribute_text({"a": 1}) == "\"{'a': 1}\""
    assert attribute_text((1, (2,))) == '[1, "(2,)"]'
    assert attribute_text(F32) == "f32"


def test_right_spellings() -> None:
    known = ["stride", "padding", "sharding_strategy", "sync_mode"]
    assert right_attribute("strides", known) == "stride"
    assert right_attribute("Stride", known) == "stride"
    assert right_attribute("pads", known) == "padding"
    assert right_attribute("dp", known) == "sharding_strategy"
    assert right_attribute("sync_mod", known) == "sync_mode"
    assert right_attribute("zzz", known) is None
    assert right_value("dp", ["data_parallel", "pipeline"]) == "data_parallel"
    assert right_value("nchw", ["NCHW", "NHWC"]) == "NCHW"
    assert right_operator("onnx::Relu", OPS) == "rlxc::relu"
    assert right_operator("rlxc::Gemm", OPS) == "rlxc::matmul"
    assert right_operator("rlxc::const", OPS) == "tensor::const"
    assert right_operator("rlxc::zzzzzzzz", OPS) is None
    assert right_operator("rlxc::" + "relu" * 100, OPS) is None
    assert near_name("cnov", ["conv", "y"]) == "conv"
    assert near_name("x" * 1000, ["x" * 999]) is None
    assert near_name("cnov", ["conv"] * 5000) is None
    assert near_operators("zz::relu", OPS)[0] == "tensor::…"
    assert len(near_operators("rlxc::zzzzzzzz", OPS)) <= 7


def test_the_renamed_table_names_attributes_that_exist() -> None:
    known = {item.name for definition in OPS.values() for item in definition.attrs}
    known.update(item.name for item in (EPILOGUE, *PLACEMENT))
    assert set(ATTRIBUTES.values()) <= known


def test_declared_order() -> None:
    names = [
        item.name for item in declared_attributes("rlxc::fused_conv2d_relu", OPS["rlxc::conv2d"])
    ]
    assert names[:6] == ["stride", "padding", "dilation", "groups", "epilogue", "phase"]
    assert "epilogue" not in [
        item.name for item in declared_attributes("rlxc::relu", OPS["rlxc::relu"])
    ]
