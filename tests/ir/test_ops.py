"""The operator table: inference, its errors, fused names and definitions as expressions."""

from __future__ import annotations

import pytest

from rlx_edge.ir.attributes import KINDS, Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Op, Value
from rlx_edge.ir.dims import as_dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    Expr,
    acc,
    binary,
    cast,
    index_dim,
    load,
    reduce_parts,
    select,
    walk,
)
from rlx_edge.ir.opdef import Expression, ExpressionContext
from rlx_edge.ir.ops import (
    OPS,
    definition_expression,
    infer_type,
    is_fused,
    lookup,
    root_name,
    root_operand_count,
)
from rlx_edge.ir.types import BOOL, F32, F64, I32, I64, TensorType, dtype_named, tensor_type

WINDOW: dict[str, Attribute] = {
    "kernel": (2, 2),
    "stride": (2, 2),
    "padding": (0, 0, 0, 0),
    "dilation": (1, 1),
    "ceil_mode": False,
}
CONV: dict[str, Attribute] = {
    "stride": (1, 1),
    "padding": (1, 1, 1, 1),
    "dilation": (1, 1),
    "groups": 1,
}
RESIZE: dict[str, Attribute] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
    "scales": (),
}


def typed(text: str) -> TensorType:
    name, _, dims = text.partition("[")
    return tensor_type(dtype_named(name), *(dim.strip() for dim in dims[:-1].split(",") if dim))


def infer(name: str, *types: str, **attrs: Attribute) -> str:
    return str(infer_type(name, [typed(text) for text in types], attrs))


def dims(*values: int | str) -> Attribute:
    return tuple(as_dim(value) for value in values)


def build(name: str, *types: str, **attrs: Attribute) -> Op:
    params = [Value(f"x{slot}", typed(text)) for slot, text in enumerate(types)]
    producer = Builder(Function("f", params, [], [])).op(name, params, attrs).producer
    assert producer is not None
    return producer


# ---- inference -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "types", "attrs", "expected"),
    [
        ("rlxc::relu", ["f32[n, 3]"], {}, "f32[n, 3]"),
        ("rlxc::add", ["f32[n, 1, 4]", "f32[3, 1]"], {}, "f32[n, 3, 4]"),
        ("rlxc::less", ["i64[n]", "i64[]"], {}, "bool[n]"),
        ("rlxc::where", ["bool[n, 1]", "i32[4]", "i32[]"], {}, "i32[n, 4]"),
        ("rlxc::cast", ["f32[n]"], {"dtype": I64}, "i64[n]"),
        ("rlxc::is_nan", ["f64[n]"], {}, "bool[n]"),
        ("rlxc::matmul", ["f32[b, 1, n, k]", "f32[h, k, 5]"], {}, "f32[b, h, n, 5]"),
        ("rlxc::matmul", ["f32[k]", "f32[k]"], {}, "f32[]"),
        ("rlxc::matmul", ["f32[k]", "f32[2, k, 3]"], {}, "f32[2, 3]"),
        ("rlxc::conv2d", ["f32[n, 3, h, 8]", "f32[4, 3, 3, 3]", "f32[4]"], CONV, "f32[n, 4, h, 8]"),
        (
            "rlxc::conv2d",
            ["f32[n, 8, h, w]", "f32[4, 2, 3, 1]"],
            {**CONV, "stride": (2, 2), "padding": (1, 0, 1, 0), "groups": 4},
            "f32[n, 4, (h + 1) // 2, (w + 1) // 2]",
        ),
        (
            "rlxc::conv_transpose2d",
            ["f32[n, 4, h, 3]", "f32[4, 2, 3, 3]"],
            {**CONV, "stride": (2, 2), "output_padding": (1, 0)},
            "f32[n, 2, 2 * h, 5]",
        ),
        ("rlxc::max_pool2d", ["f32[1, 2, 7, w]"], WINDOW, "f32[1, 2, 3, w // 2]"),
        ("rlxc::max_pool2d", ["f32[1, 2, 7, 8]"], {**WINDOW, "ceil_mode": True}, "f32[1, 2, 4, 4]"),
        ("rlxc::global_average_pool", ["f32[n, c, h, w]"], {}, "f32[n, c, 1, 1]"),
        (
            "rlxc::reduce_sum",
            ["f32[n, 3, k]"],
            {"axes": (0, 2), "keepdims": True},
            "f32[1, 3, 1]",
        ),
        ("rlxc::reduce_max", ["i64[n, 3]"], {"axes": (1,), "keepdims": False}, "i64[n]"),
        ("rlxc::softmax", ["f32[n, 3]"], {"axis": 1}, "f32[n, 3]"),
        ("rlxc::reshape", ["f32[n, 3, 4]"], {"shape": dims("3 * n", 4)}, "f32[3 * n, 4]"),
        ("rlxc::reshape", ["f32[n]"], {"shape": dims("m")}, "f32[m]"),
        ("rlxc::transpose", ["f32[n, 3, k]"], {"perm": (2, 0, 1)}, "f32[k, n, 3]"),
        ("rlxc::concat", ["f32[n, 2]", "f32[n, k]", "f32[n, 1]"], {"axis": 1}, "f32[n, k + 3]"),
        (
            "rlxc::slice",
            ["f32[n, 9]"],
            {"axes": (0, 1), "starts": dims(1, 2), "ends": dims("n", 9), "steps": (1, -3)},
            "f32[n - 1, 3]",
        ),
        (
            "rlxc::pad",
            ["f32[n, 3]"],
            {"pads": dims(1, "p", 0, 2), "mode": "constant", "value": 0.0},
            "f32[n + 1, p + 5]",
        ),
        ("rlxc::expand", ["f32[3, 1]"], {"shape": dims(2, 1, "n")}, "f32[2, 3, n]"),
        ("rlxc::tile", ["f32[n, 3]"], {"repeats": dims(2, "k")}, "f32[2 * n, 3 * k]"),
        ("rlxc::gather", ["f32[5, n, 2]", "i64[a, b]"], {"axis": 1}, "f32[5, a, b, 2]"),
        ("rlxc::gather_elements", ["f32[5, n]", "i64[4, 9]"], {"axis": 1}, "f32[4, 9]"),
        (
            "rlxc::resize",
            ["f32[1, 2, h, w]"],
            {**RESIZE, "sizes": dims(1, 2, "2 * h", 7)},
            "f32[1, 2, 2 * h, 7]",
        ),
        ("tensor::from_dims", [], {"values": dims("n", 4)}, "i64[2]"),
        (
            "tensor::alloc",
            [],
            {"shape": dims("n", 4), "dtype": F32, "device": "wasm:0"},
            "f32[n, 4]",
        ),
    ],
)
def test_result_type(
    name: str, types: list[str], attrs: dict[str, Attribute], expected: str
) -> None:
    assert infer(name, *types, **attrs) == expected


@pytest.mark.parametrize(
    ("name", "types", "attrs", "code", "message"),
    [
        ("rlxc::nothing", [], {}, "op.unknown", "unknown operator; found rlxc::nothing"),
        ("other::relu", ["f32[1]"], {}, "op.unknown", "found other::relu"),
        ("rlxc::relu", [], {}, "op.operands", "wrong number of operands; found 0; allowed: (x)"),
        ("rlxc::clip", ["f32[1]"] * 4, {}, "op.operands", "allowed: (x, [min], [max])"),
        ("rlxc::concat", [], {"axis": 0}, "op.operands", "allowed: (inputs, …)"),
        ("rlxc::exp", ["f64[2]"], {}, "op.type", "operand x has an element type that is not"),
        ("rlxc::add", ["f32[2]", "i64[2]"], {}, "op.type", "found i64; allowed: f32"),
        ("rlxc::where", ["f32[2]", "f32[2]", "f32[2]"], {}, "op.type", "operand condition"),
        ("rlxc::add", ["f32[n]", "f32[m]"], {}, "op.shape", "sizes n and m do not broadcast"),
        ("rlxc::add", ["f32[n]", "f32[3]"], {}, "op.shape", "sizes n and 3 do not broadcast"),
        (
            "rlxc::softmax",
            ["f32[2, 3]"],
            {"axis": 2},
            "op.shape",
            "axis 2 is out of range for rank 2",
        ),
        ("rlxc::softmax", ["f32[2, 3]"], {"axis": -1}, "op.shape", "allowed: 0 to 1"),
        ("rlxc::softmax", ["f32[2, 3]"], {"axis": True}, "op.attribute", "allowed: an integer"),
        ("rlxc::softmax", ["f32[2, 3]"], {}, "op.attribute", "attribute axis is missing"),
        ("rlxc::matmul", ["f32[2, k]", "f32[j, 3]"], {}, "op.shape", "found k and j"),
        ("rlxc::matmul", ["f32[]", "f32[2]"], {}, "op.shape", "at least one axis"),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8]", "f32[4, 3, 3, 3]"],
            CONV,
            "op.shape",
            "x must have rank 4",
        ),
        ("rlxc::conv2d", ["f32[1, 3, 8, 8]", "f32[4, 2, 3, 3]"], CONV, "op.shape", "found 3 and 2"),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8, 8]", "f32[4, 3, 3, 3]"],
            {**CONV, "groups": 2},
            "op.shape",
            "input channels do not divide into 2 groups",
        ),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8, 8]", "f32[4, 3, 3, 3]"],
            {**CONV, "groups": 0},
            "op.shape",
            "groups must be positive",
        ),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8, 8]", "f32[4, 3, 3, 3]", "f32[3]"],
            CONV,
            "op.shape",
            "bias length and output channels do not agree; found 3 and 4",
        ),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8, 8]", "f32[4, 3, 3, 3]"],
            {**CONV, "stride": (0, 1)},
            "op.attribute",
            "integers of at least 1",
        ),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8, 8]", "f32[4, 3, 3, 3]"],
            {**CONV, "padding": (1, 1)},
            "op.attribute",
            "found 2 entries; allowed: 4 entries",
        ),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 1, 8]", "f32[4, 3, 5, 3]"],
            CONV,
            "op.shape",
            "the kernel is larger than the padded height",
        ),
        (
            "rlxc::conv_transpose2d",
            ["f32[1, 3, 1, 8]", "f32[3, 3, 1, 3]"],
            {**CONV, "output_padding": (0, 0)},
            "op.shape",
            "padding removes the whole height",
        ),
        (
            "rlxc::max_pool2d",
            ["f32[1, 1, 1, 8]"],
            WINDOW,
            "op.shape",
            "larger than the padded height",
        ),
        (
            "rlxc::max_pool2d",
            ["f32[1, 1, 8, 8]"],
            {**WINDOW, "ceil_mode": 1},
            "op.attribute",
            "found 1",
        ),
        ("rlxc::global_max_pool", ["f32[1, 8]"], {}, "op.shape", "must have spatial axes"),
        ("rlxc::batch_norm", ["f32[8]"] * 5, {"epsilon": 0.1}, "op.shape", "channel axis"),
        (
            "rlxc::batch_norm",
            ["f32[2, 8]", "f32[8]", "f32[8]", "f32[7]", "f32[8]"],
            {"epsilon": 0.1},
            "op.shape",
            "mean length and channels do not agree; found 7 and 8",
        ),
        (
            "rlxc::batch_norm",
            ["f32[2, 8]", "f32[8, 1]", "f32[8]", "f32[7]", "f32[8]"],
            {"epsilon": 0.1},
            "op.shape",
            "scale must have rank 1",
        ),
        (
            "rlxc::batch_norm",
            ["f32[2, 8]", *["f32[8]"] * 4],
            {"epsilon": 1},
            "op.attribute",
            "attribute epsilon has the wrong value; found 1; allowed: float",
        ),
        (
            "rlxc::layer_norm",
            ["f32[2, 8]", "f32[2, 8]"],
            {"axis": 1, "epsilon": 0.1},
            "op.shape",
            "more axes than are normalised",
        ),
        (
            "rlxc::layer_norm",
            ["f32[2, 1]", "f32[8]"],
            {"axis": 1, "epsilon": 0.1},
            "op.shape",
            "scale must broadcast to x",
        ),
        ("rlxc::prelu", ["f32[3]", "f32[2, 3]"], {}, "op.shape", "slope must broadcast to x"),
        ("rlxc::clip", ["f32[3]", "f32[1]"], {}, "op.shape", "min must be a scalar"),
        (
            "rlxc::reduce_sum",
            ["f32[3, 4]"],
            {"axes": (1, 0), "keepdims": True},
            "op.attribute",
            "distinct axes in ascending order",
        ),
        (
            "rlxc::reduce_sum",
            ["f32[3, 4]"],
            {"axes": (2,), "keepdims": True},
            "op.shape",
            "axis 2 is out of range for rank 2",
        ),
        (
            "rlxc::reshape",
            ["f32[2, 3]"],
            {"shape": dims(7)},
            "op.shape",
            "another number of elements",
        ),
        ("rlxc::reshape", ["f32[2, 3]"], {"shape": 6}, "op.attribute", "allowed: a list of dims"),
        (
            "rlxc::transpose",
            ["f32[2, 3]"],
            {"perm": (0, 0)},
            "op.shape",
            "perm is not a permutation",
        ),
        ("rlxc::concat", ["f32[2, 3]", "f32[3, 3]"], {"axis": 1}, "op.shape", "found 3 and 2"),
        ("rlxc::concat", ["f32[2, 3]", "f32[3]"], {"axis": 0}, "op.shape", "differ in rank"),
        (
            "rlxc::slice",
            ["f32[4]"],
            {"axes": (0,), "starts": dims(1), "ends": dims(5), "steps": (1,)},
            "op.shape",
            "the slice of axis 0 leaves it; found [1, 5); allowed: 0 <= start <= end <= 4",
        ),
        (
            "rlxc::slice",
            ["f32[4]"],
            {"axes": (0,), "starts": dims(1), "ends": dims(3), "steps": (0,)},
            "op.shape",
            "a step is 0",
        ),
        (
            "rlxc::pad",
            ["f32[4]"],
            {"pads": dims(4, 0), "mode": "reflect", "value": 0.0},
            "op.shape",
            "axis 0 is too short to reflect",
        ),
        (
            "rlxc::pad",
            ["f32[4]"],
            {"pads": dims(-3, -2), "mode": "constant", "value": 0.0},
            "op.shape",
            "removes more than there is",
        ),
        (
            "rlxc::pad",
            ["f32[4]"],
            {"pads": dims(1, 0), "mode": "mirror", "value": 0.0},
            "op.attribute",
            "found mirror; allowed: constant, reflect, edge, wrap",
        ),
        (
            "rlxc::gather_elements",
            ["f32[4]", "i64[4, 1]"],
            {"axis": 0},
            "op.shape",
            "the rank of x",
        ),
        (
            "rlxc::gather_elements",
            ["f32[4, 2]", "i64[5, 2]"],
            {"axis": 1},
            "op.shape",
            "beyond axis 0",
        ),
        (
            "rlxc::resize",
            ["i64[1, 4]"],
            {**RESIZE, "mode": "linear", "sizes": dims(1, 8)},
            "op.shape",
            "mode linear needs a float type",
        ),
        ("rlxc::resize", ["f32[4]"], {**RESIZE, "sizes": dims(0)}, "op.shape", "a size is below 1"),
        (
            "rlxc::conv2d",
            ["f32[1, 3, 8, 8]", "f32[4, 3, 3, 3]"],
            {**CONV, "stride": 2},
            "op.attribute",
            "allowed: a list of integers",
        ),
        (
            "rlxc::expand",
            ["f32[4]"],
            {"shape": ("n", 2)},
            "op.attribute",
            "allowed: a list of dims",
        ),
        ("rlxc::tile", ["f32[4]"], {"repeats": dims(1, 2)}, "op.attribute", "found 2 entries"),
        ("rlxc::cast", ["f32[4]"], {"dtype": "i64"}, "op.attribute", "found i64; allowed: dtype"),
        ("tensor::splat", [], {"value": 1.0}, "op.shape", "the result type must be stated"),
        ("rlxc::fused_conv2d_relu", ["f32[4]"], {}, "op.attribute", "a fused op has an epilogue"),
        ("rlxc::relu", ["f32[4]"], {"epilogue": acc()}, "op.attribute", "only a fused op has one"),
    ],
)
def test_errors_name_what_is_wrong(
    name: str,
    types: list[str],
    attrs: dict[str, Attribute],
    code: str,
    message: str,
) -> None:
    with pytest.raises(RlxError) as failure:
        infer(name, *types, **attrs)
    assert failure.value.code == code
    assert message in str(failure.value)


def test_declarations_are_consistent() -> None:
    for name, definition in OPS.items():
        assert definition.name == name
        assert all(item.kind in KINDS for item in definition.attrs), name
        assert all(not item.optional for item in definition.attrs), name
        optional = [item.optional for item in definition.operands]
        assert optional == sorted(optional), name
        assert all(not item.variadic for item in definition.operands[:-1]), name


# ---- fused names -----------------------------------------------------------------------------


def test_root_is_the_longest_operator_name() -> None:
    assert root_name("rlxc::fused_conv2d_relu") == "rlxc::conv2d"
    assert root_name("rlxc::fused_batch_norm_relu") == "rlxc::batch_norm"
    assert root_name("rlxc::fused_conv_transpose2d_leaky_relu") == "rlxc::conv_transpose2d"
    assert root_name("rlxc::fused_reduce_mean_add") == "rlxc::reduce_mean"
    assert root_name("rlxc::fused_less_or_equal_not") == "rlxc::less_or_equal"
    assert root_name("rlxc::fused_less_not") == "rlxc::less"
    assert root_name("rlxc::relu") == "rlxc::relu"
    assert is_fused("rlxc::fused_add_relu") and not is_fused("rlxc::add")
    assert lookup("rlxc::fused_conv2d_relu") is OPS["rlxc::conv2d"]
    with pytest.raises(RlxError, match="unknown operator"):
        root_name("rlxc::fused_unheard_of")


def test_an_optional_root_operand_is_absent_when_the_epilogue_loads_its_slot() -> None:
    conv, concat, add = OPS["rlxc::conv2d"], OPS["rlxc::concat"], OPS["rlxc::add"]
    third = acc() + load(2, F32, (symbol("_i0"),))
    fourth = acc() + load(3, F32, (symbol("_i0"),))
    first = acc() + load(0, F32, (symbol("_i0"),))
    assert root_operand_count(conv, 3, None) == 3
    assert root_operand_count(conv, 3, third) == 2
    assert root_operand_count(conv, 4, fourth) == 3
    assert root_operand_count(conv, 2, first) == 2
    assert root_operand_count(concat, 4, fourth) == 3
    assert root_operand_count(add, 3, third) == 2


def test_a_fused_op_applies_its_epilogue() -> None:
    i0, i1, i2, i3 = (symbol(f"_i{axis}") for axis in range(4))
    epilogue = acc() + load(2, F32, (i1,))
    epilogue = select(epilogue < 0, 0, epilogue)
    op = build(
        "rlxc::fused_conv2d_relu", "f32[n, 3, 8, 8]", "f32[4, 3, 1, 1]", "f32[4]",
        **{**CONV, "padding": (0, 0, 0, 0), "epilogue": epilogue},
    )  # fmt: skip
    assert str(op.result.type) == "f32[n, 4, 8, 8]"
    context, value = definition_expression(op)
    assert value.op == "select"
    assert not any(node.op == "acc" for node in walk(value))
    assert len(context.types) == 3 and not context.has("b")
    (chain,) = [node for node in walk(value) if node.op == "reduce"]
    assert any(
        node.attr == 2 and index_dim(node.args[0]) is i1
        for node in walk(value)
        if node.op == "load"
    )
    _, names, _, body = reduce_parts(chain)
    x = next(node for node in walk(body) if node.op == "load" and node.attr == 0)
    assert [index_dim(arg) for arg in x.args] == [
        i0,
        as_dim(f"4 * {names[0]} + {names[3]}"),
        i2 + symbol(names[1]),
        i3 + symbol(names[2]),
    ]


def test_an_epilogue_may_change_the_element_type() -> None:
    op = build("rlxc::fused_add_less", "f32[n]", "f32[n]", epilogue=binary("lt", acc(), 0.0))
    assert op.result.type.dtype is BOOL
    op = build("rlxc::fused_less_cast", "f32[n]", "f32[n]", epilogue=cast(acc(BOOL), F32))
    assert op.result.type.dtype is F32


@pytest.mark.parametrize(
    ("epilogue", "code", "message"),
    [
        (acc(F64), "op.type", "acc has the wrong type"),
        (acc() + load(7, F32, ()), "op.operands", "does not exist; found 7"),
        (acc() + load(1, F32, ()), "op.type", "wrong type or rank"),
        (cast(load(1, I32, (as_dim(0),)), F32), "op.type", "wrong type or rank"),
    ],
)
def test_epilogues_are_checked(epilogue: Expr, code: str, message: str) -> None:
    with pytest.raises(RlxError, match=message) as failure:
        build("rlxc::fused_add_relu", "f32[n]", "f32[n]", epilogue=epilogue)
    assert failure.value.code == code


def test_an_epilogue_is_an_expression() -> None:
    with pytest.raises(RlxError, match="epilogue must be an expression"):
        infer("rlxc::fused_add_relu", "f32[n]", "f32[n]", epilogue="acc")


# ---- definitions -----------------------------------------------------------------------------


def chain_of(op: Op) -> tuple[tuple[str, ...], tuple[str, ...], Expr]:
    _, value = definition_expression(op)
    (chain,) = [node for node in walk(value) if node.op == "reduce"]
    kind, names, extents, body = reduce_parts(chain)
    assert kind == "chain"
    return names, tuple(map(str, extents)), body


def test_convolution_walks_channel_blocks_then_the_kernel_then_channels() -> None:
    _, extents, _ = chain_of(build("rlxc::conv2d", "f32[1, 8, 9, 9]", "f32[4, 8, 3, 5]", **CONV))
    assert extents == ("2", "3", "5", "4")
    _, extents, body = chain_of(build("rlxc::conv2d", "f32[1, 6, 9, 9]", "f32[4, 6, 3, 3]", **CONV))
    assert extents == ("2", "3", "3", "4")
    assert body.op == "mul" and all(arg.op == "select" for arg in body.args)
    _, extents, _ = chain_of(
        build("rlxc::conv2d", "f32[1, 5, 9, 9]", "f32[5, 1, 3, 3]", **{**CONV, "groups": 5})
    )
    assert extents == ("1", "3", "3", "1")


def chains_of(op: Op) -> list[tuple[str, ...]]:
    """Extents of the nested chains, outermost first."""
    _, value = definition_expression(op)
    chains = [reduce_parts(node) for node in walk(value) if node.op == "reduce"]
    assert {kind for kind, *_ in chains} == {"chain"}
    return [tuple(map(str, extents)) for _, _, extents, _ in reversed(chains)]


def test_long_contractions_are_sums_of_chains() -> None:
    assert chains_of(build("rlxc::matmul", "f32[5, 128]", "f32[128, 3]")) == [("128",)]
    assert chains_of(build("rlxc::matmul", "f32[5, 300]", "f32[300, 3]")) == [("3",), ("128",)]
    assert chains_of(build("rlxc::matmul", "f32[5, k]", "f32[k, 3]")) == [
        ("(k + 127) // 128",),
        ("128",),
    ]
    conv = build("rlxc::conv2d", "f32[1, 64, 9, 9]", "f32[4, 64, 3, 3]", **CONV)
    assert chains_of(conv) == [("6",), ("3", "3", "3", "4")]
    large = build("rlxc::conv2d", "f32[1, 6, 9, 9]", "f32[4, 6, 7, 7]", **CONV)
    assert chains_of(large) == [("2",), ("1", "7", "7", "4")]


def test_an_unpadded_convolution_has_no_conditions() -> None:
    op = build(
        "rlxc::conv2d", "f32[1, 8, h, w]", "f32[4, 8, 3, 3]", **{**CONV, "padding": (0, 0, 0, 0)}
    )
    _, value = definition_expression(op)
    assert not any(node.op == "select" for node in walk(value))


def test_decompositions_and_storage_have_no_expression() -> None:
    with pytest.raises(RlxError, match="has no expression; found decomposition") as failure:
        definition_expression(build("rlxc::softmax", "f32[2, 3]", axis=1))
    assert failure.value.code == "op.form"
    with pytest.raises(RlxError, match="found data"):
        definition_expression(build("tensor::alloc", shape=dims(2), dtype=F32, device="wasm:0"))


def test_equal_definitions_are_one_expression() -> None:
    """Expressions are interned: building an operator twice gives the same object."""
    for name, definition in OPS.items():
        for example in definition.examples:
            if isinstance(definition.define, Expression):
                types = [str(item) for item in example.operands]
                first, second = (build(name, *types, **example.attrs) for _ in range(2))
                assert definition_expression(first)[1] is definition_expression(second)[1], name


def test_every_expression_builds_on_its_examples() -> None:
    count = 0
    for name, definition in OPS.items():
        if not isinstance(definition.define, Expression):
            continue
        for example in definition.examples:
            params = [Value(f"x{slot}", type) for slot, type in enumerate(example.operands)]
            result = Builder(Function("f", params, [], [])).op(name, params, example.attrs)
            assert result.producer is not None
            context, value = definition_expression(result.producer)
            assert isinstance(context, ExpressionContext)
            assert value.dtype is result.type.dtype, name
            loaded = {node.attr for node in walk(value) if node.op == "load"}
            assert loaded == set(range(len(params))), name
            count += 1
    assert count > 80
