"""Every operator's examples as text, whole and with any number, list or type replaced."""

# covers R1, R8

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.dims import symbol
from rlx_edge.ir.equality import first_difference
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.opdef import Example, OpDef
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.types import I64, TensorType
from rlx_edge.ir.verifier import findings

CASES = [
    pytest.param(definition, example, id=f"{definition.name}-{example.name}")
    for definition in OPS.values()
    for example in definition.examples
]


def module_of(definition: OpDef, example: Example) -> Module:
    """The example alone; every size in it is an axis of a parameter."""
    params = [Value(f"p{place}", type) for place, type in enumerate(example.operands)]
    function = Function("example", params, [], [])
    result = Builder(function).op(definition.name, params, example.attrs)
    function.returns = [result]
    known = function.size_symbols()
    dims = [dim for value in example.attrs.values() if isinstance(value, tuple) for dim in value]
    names = {name for dim in dims if hasattr(dim, "symbols") for name in dim.symbols()}
    extra = [size for size in sorted(names) if size not in known]
    if extra:
        shape = tuple(symbol(size) for size in extra)
        function.params.append(Value("sizes", TensorType(I64, shape)))
    return Module("example", function)


@pytest.mark.parametrize(("definition", "example"), CASES)
def test_examples_are_valid_and_read_back(definition: OpDef, example: Example) -> None:
    module = module_of(definition, example)
    assert findings(module) == []
    text = print_module(module)
    again = parse_module(text)
    assert first_difference(module, again) is None
    assert print_module(again) == text
    assert findings(again) == []


_PLACE = re.compile(r"-?\b[0-9]+\b|\[[^\[\]]*\]|\b(?:f32|i64|i32|bool|true|false)\b|%p[0-9]")
_VALUES = st.sampled_from(
    [
        "0", "-1", "1", "7", "9223372036854775807", "n", "n - 5", "true", "nan", "1.5", "f32[]",
        "[]", "[0]", "[1, 1]", "[1, 1, 1, 1]", "[-1]", "i64", "bool", "u8", "f16", '"x"',
        "(n // 2)", "max(n, 1)", "%p0", "%p1",
    ]
)  # fmt: skip
_TEXTS = [print_module(module_of(*case.values)) for case in CASES]  # type: ignore[arg-type]


@settings(max_examples=300)
@given(st.data())
def test_spoiled_examples_fail_only_in_words(data: st.DataObject) -> None:
    """No attribute or type of any operator leads its inference astray."""
    text = data.draw(st.sampled_from(_TEXTS))
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(_PLACE.finditer(text))[2:]
        place = data.draw(st.sampled_from(places))
        text = text[: place.start()] + data.draw(_VALUES) + text[place.end() :]
    try:
        found = findings(parse_module(text, "spoiled.rlx"))
    except RlxError as error:
        assert error.excerpt
    else:
        assert all("\n" not in str(finding) for finding in found)
