"""Rules that only modules built in Python can break, and how findings are reported."""

# covers R2, R6

from __future__ import annotations

import pytest

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Binding, Constant, Function, Guard, Module, Op, Value
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.errors import VerifyError
from rlx_edge.ir.expression import acc
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.types import F32, I32, I64, TensorType, tensor_type
from rlx_edge.ir.verifier import MAX_FINDINGS, findings, is_placed, verify

DATA = bytes(16)
DIGEST = bytes_digest(DATA)


def chain(count: int = 3) -> tuple[Module, list[Value]]:
    """``x → y0 → y1 → …`` through ``rlxc::relu``."""
    x = Value("x", tensor_type(F32, "n", 4))
    function = Function("chain", [x], [], [])
    builder = Builder(function)
    values = [x]
    for place in range(count):
        values.append(builder.op("rlxc::relu", [values[-1]], hint=f"y{place}"))
    function.returns = [values[-1]]
    return Module("chain", function), values


def with_constant(length: int = 16, listed: bool = True) -> Module:
    module, values = chain(1)
    builder = Builder(module.function)
    constant = builder.op("tensor::const", [], {"digest": DIGEST}, type=tensor_type(F32, 4))
    module.function.returns = [builder.op("rlxc::add", [values[-1], constant], hint="sum")]
    if listed:
        stored = Constant(DIGEST, tensor_type(F32, 4), MemorySource(DATA), 0, length)
        module.constants[DIGEST] = stored
    return module


def only(module: Module, *, strict: bool = False) -> VerifyError:
    (found,) = findings(module, strict=strict)
    with pytest.raises(VerifyError) as caught:
        verify(module, strict=strict)
    assert str(caught.value) == str(found)
    assert [str(item) for item in caught.value.findings] == [str(found)]
    return found


def test_a_sound_module_passes() -> None:
    module, _ = chain()
    verify(module, strict=True)
    verify(with_constant(), strict=True)
    verify(with_constant(listed=False))


def test_the_culprit_is_shown_between_its_neighbours() -> None:
    module, values = chain(20)
    values[11].type = tensor_type(F32, "n", 5)
    first, second = findings(module)
    assert first.code == "op.type"
    assert first.where == "@chain, operation 10"
    lines = first.excerpt.split("\n")
    assert lines[5] == "  %y10 = rlxc::relu(%y9) : f32[n, 5]"
    assert lines[6] == "  " + "^" * len(lines[5][2:])
    assert lines[0].startswith("  %y5 = ")
    assert lines[11].startswith("  %y15 = ")
    assert lines[12] == "note: %y9 has type f32[n, 4]"
    assert second.where == "@chain, operation 11"


def test_an_attribute_is_underlined() -> None:
    module, values = chain(1)
    Builder(module.function).op("rlxc::softmax", [values[1]], {"axis": 1})
    module.function.ops[-1].attrs["axis"] = 7
    lines = only(module).excerpt.split("\n")
    start = lines[1].index("axis = 7")
    assert lines[2] == " " * start + "^" * len("axis = 7")
    module.function.ops[-1].attrs = {"axes": 7, "axis": 1}
    found = only(module)
    assert "the right spelling is axis" in str(found)


def test_use_before_definition() -> None:
    module, values = chain()
    module.function.ops.reverse()
    assert [item.code for item in findings(module)] == ["value.undefined", "value.undefined"]
    module, values = chain()
    values[2].name = "y0"
    assert "defined twice" in str(findings(module)[0])
    stranger = Value("y0", values[0].type)
    module, _ = chain()
    module.function.ops[-1].operands = [stranger]
    assert "another value is called %y0" in str(only(module))


def test_results_know_their_producer() -> None:
    module, values = chain()
    values[1].producer = None
    assert only(module).code == "value.producer"
    module, values = chain()
    values[0].producer = module.function.ops[0]
    assert only(module).code == "value.parameter"
    module, values = chain(1)
    op = module.function.ops[0]
    op.results.append(Value("z", values[1].type, op))
    assert only(module).code == "op.results"


@pytest.mark.parametrize("name", ["", "half\ud800", "x" * 2000])
def test_names_can_be_written(name: str) -> None:
    module, values = chain()
    values[1].name = name
    print_module(module).encode("utf-8")
    assert only(module).code == "value.name"
    module, _ = chain()
    module.function.output_names = [name]
    assert only(module).code == "return.names"
    module, _ = chain()
    module.name = module.function.name = name
    assert only(module).code == "module.name"


def test_module_and_function_agree() -> None:
    module, _ = chain()
    module.name = "other"
    assert only(module).code == "module.name"
    module, _ = chain()
    module.version = "0.1"
    assert only(module).code == "module.version"


def test_returns() -> None:
    module, _ = chain()
    module.function.returns = []
    assert only(module).code == "return.none"
    module, values = chain()
    module.function.returns = [Value("y0", values[0].type)]
    assert only(module).code == "value.undefined"
    module, _ = chain()
    module.function.output_names = ["a", "b"]
    found = only(module)
    assert found.code == "return.names"
    assert found.excerpt.split("\n")[0] == "  func @chain(%x: f32[n, 4]) -> (a: f32[n, 4])"
    module, values = chain()
    module.function.returns *= 2  # outputs are found by their names
    assert only(module).code == "return.names"
    module.function.output_names = ["a", "b"]
    verify(module)


def test_bindings_and_guards() -> None:
    module, _ = chain()
    module.function.params.append(Value("k", tensor_type(I64, 2)))
    module.function.bindings = [Binding("rate", "k", 1)]
    module.function.guards = [Guard(as_dim("rate // 2"), ">=", as_dim("n"))]
    verify(module)
    module.function.bindings = [Binding("_rate", "k", 1)]
    assert {item.code for item in findings(module)} == {"bind.symbol", "guard.dim"}
    module.function.bindings = [Binding("rate", "y0", 1)]
    assert only(module).code == "bind.parameter"
    module.function.bindings = [Binding("rate", "k", -1)]
    assert only(module).code == "bind.position"
    module.function.bindings = [Binding("rate", "k", 0)]
    module.function.guards = [Guard(as_dim("rate"), "~", as_dim(1))]
    found = only(module)
    assert found.code == "guard.relation"
    assert found.excerpt == "  guard rate ~ 1\n  ^^^^^^^^^^^^^^"


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(f"{place} * n // {place + 7} % 5" for place in range(1, 60)),
        " + ".join(f"n * {'n * ' * place}3" for place in range(40)),
    ],
)
def test_a_dim_that_could_not_be_read_again(text: str) -> None:
    module, _ = chain()
    dim = as_dim(0)
    for term in text.split(" + "):
        dim = dim + as_dim(term)
    module.function.guards = [Guard(dim, ">=", as_dim(1))]
    assert "too long" in str(only(module))


def test_ranks_have_a_limit() -> None:
    module, values = chain(1)
    for value in values:
        value.type = TensorType(F32, tuple(as_dim(1) for _ in range(33)))
    assert [item.code for item in findings(module)] == ["value.type", "value.type"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1, ""),
        (1.5, "op.attribute"),
        (True, "op.attribute"),
        ("1", "op.attribute"),
        (1 << 70, "op.attribute"),
        ((1,), "op.attribute"),
    ],
)
def test_kinds_of_values(value: Attribute, code: str) -> None:
    module, values = chain(1)
    builder = Builder(module.function)
    builder.op("rlxc::softmax", [values[1]], {"axis": 1})
    module.function.ops[-1].attrs["axis"] = value
    assert [item.code for item in findings(module)] == ([code] if code else [])


def test_more_kinds_of_values() -> None:
    module, values = chain(1)
    builder = Builder(module.function)
    dims = {"shape": (as_dim("n * 2"), 2)}
    builder.op("rlxc::reshape", [values[1]], dims)  # type: ignore[arg-type]
    verify(module)
    assert findings(parse_module(print_module(module))) == []
    op = module.function.ops[-1]
    op.attrs["shape"] = [as_dim("n"), 4]  # type: ignore[assignment]
    assert only(module).code == "op.attribute"
    op.attrs["shape"] = (as_dim("n"), as_dim("4 * m") // as_dim("m"), as_dim("m"))
    assert "size m is neither" in str(findings(module)[0])
    op.attrs = {}
    assert "attribute shape is missing" in str(only(module))


def test_unknown_operators() -> None:
    module, _ = chain(1)
    module.function.ops[0].name = "rlxc::rleu"
    assert "the right spelling is rlxc::relu" in str(only(module))
    module.function.ops[0].name = "rlxc::zzzzzzzzzzzz"
    assert "rlxc::" in str(only(module).allowed)
    module.function.ops[0].name = "nowhere::relu"
    assert "the right spelling is rlxc::relu" in str(only(module))
    module.function.ops[0].name = "nowhere::zzzzzzzzzzzz"
    assert "tensor::…" in str(only(module))


def test_epilogues_belong_to_fused_operations() -> None:
    module, _ = chain(1)
    op = module.function.ops[0]
    op.attrs["epilogue"] = acc()
    assert "no such attribute" in str(only(module))
    op.name = "rlxc::fused_relu_relu"
    verify(module)
    op.attrs["epilogue"] = acc(I32)
    assert only(module).code == "op.epilogue"
    op.attrs["epilogue"] = "acc"
    assert only(module).code == "op.attribute"
    op.operands = []
    op.attrs["epilogue"] = acc()
    assert only(module).code == "op.operands"


def test_stated_types() -> None:
    module, _ = chain(1)
    builder = Builder(module.function)
    splat = builder.splat(1, F32)
    verify(module)
    splat.type = tensor_type(I32)
    verify(module)
    op = module.function.ops[-1]
    op.attrs["value"] = 1e39
    assert only(module).code == "op.type"
    splat.type = tensor_type(F32)
    assert only(module).code == "op.type"
    op.attrs["value"] = 1.0
    op.operands = [module.function.params[0]]
    assert only(module).code == "op.operands"


@pytest.mark.parametrize(
    ("values", "type", "fits"),
    [
        ((as_dim("n"),), tensor_type(I64, 1), True),
        ((as_dim("n"),), tensor_type(I32, 1), True),
        ((as_dim("n"),), tensor_type(I64), True),
        ((as_dim("n"), as_dim(2)), tensor_type(I64), False),
        ((as_dim("n"),), tensor_type(F32, 1), False),
        ((as_dim("n"),), tensor_type(I64, 2), False),
    ],
)
def test_sizes_as_data(values: tuple[Attribute, ...], type: TensorType, fits: bool) -> None:
    module, _ = chain(1)
    attrs: dict[str, Attribute] = {"values": values}  # type: ignore[dict-item]
    Builder(module.function).op("tensor::from_dims", [], attrs, type=type)
    assert [item.code for item in findings(module)] == ([] if fits else ["op.type"])


def test_placement_is_all_or_nothing() -> None:
    module, _ = chain(3)
    assert not is_placed(module.function)
    module.function.ops[1].attrs["memory_layout"] = "NCHW"
    verify(module)
    module.function.ops[1].attrs["sync_mode"] = "none"
    assert is_placed(module.function)
    found = findings(module)
    assert {item.code for item in found} == {"op.placement"}
    assert len(found) == 5
    for op in module.function.ops:
        op.attrs.update(target_device_set=("wasm:0",), sync_mode="none")
    verify(module)
    for bad in ((), ("wasm",), ("gpu:0",), ("wasm:0", "wasm:0")):
        module.function.ops[0].attrs["target_device_set"] = bad
        assert only(module).code.startswith("device.")
    module.function.ops[0].attrs["target_device_set"] = ("wasm:0",)
    for border in ((1, 1, 1), (1, 1, 1, -1)):
        module.function.ops[0].attrs["border"] = border
        assert only(module).code == "op.placement"


def test_constants() -> None:
    assert only(with_constant(12)).code == "const.type"
    module = with_constant()
    module.constants = {"sha256:" + "0" * 64: module.constants[DIGEST]}
    assert only(module).code == "const.missing"
    module = with_constant()
    module.function.ops[1].attrs["digest"] = DIGEST.upper()
    assert only(module).code == "const.digest"


def test_strict_wants_all_constants_and_nothing_left_over() -> None:
    assert only(with_constant(listed=False), strict=True).code == "const.missing"
    module, _ = chain()
    module.function.returns = [module.function.ops[0].result]
    assert only(module, strict=True).code == "value.unused"
    verify(module)
    module, _ = chain()
    module.constants = with_constant().constants
    assert only(module, strict=True).code == "const.unused"


def test_findings_are_capped_and_counted() -> None:
    module, values = chain(50)
    for value in values[1:]:
        value.type = tensor_type(F32, "m")
    with pytest.raises(VerifyError) as caught:
        verify(module)
    assert len(caught.value.findings) == MAX_FINDINGS
    assert str(caught.value).endswith("19 more findings")
    assert "\n" not in str(caught.value)
    assert caught.value.excerpt.count("@chain, operation") == MAX_FINDINGS - 1


def test_an_operation_without_results_prints() -> None:
    module, values = chain(1)
    module.function.ops.append(Op("comm::notify", [values[1]], {"to": "cuda:0"}, []))
    assert '  comm::notify(%y0) { to = "cuda:0" }\n' in print_module(module)
    assert only(module).code == "op.unknown"
