"""Value-changing rewrites stay within 1e-5 of the largest value."""

# covers R12, R16

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.compile.pipeline import run_passes
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.tensor import Tensor, from_values
from rlx_edge.ir.types import F32, tensor_type
from tests.network_strategies import Network, feeds

TOLERANCE = 1e-5
PIPELINE = "canonicalize,revalue,canonicalize,share,fold,eliminate-dead"


def largest_difference(before: Tensor, after: Tensor) -> float:
    """max |after - before| / max |before|."""
    pairs = list(zip(before.values(), after.values(), strict=True))
    return max(abs(a - b) for a, b in pairs) / max(abs(a) for a, _ in pairs)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Module, list[str]]:
    """A convolution followed by batch norms, constant scales and shifts; what follows it."""
    x = Value("x", tensor_type(F32, "batch", 4, 3, "w"))
    function = Function("chain", [x], [], [])
    rng = random.Random(draw(st.integers(0, 999)))
    net = Network(draw, Module("chain", function), Builder(function), rng)
    kind = draw(st.sampled_from(("dense", "grouped", "depthwise", "transposed")))
    window = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
    if kind == "transposed":
        channels, weight = 6, net.constant(4, 6, 3, 3)
        attrs = {**window, "output_padding": (0, 0), "groups": 1}
    else:
        groups, channels = {"dense": (1, 5), "grouped": (2, 6), "depthwise": (4, 4)}[kind]
        weight = net.constant(channels, 4 // groups, 3, 3)
        attrs = {**window, "groups": groups}
    operands = [x, weight, *([net.constant(channels)] if draw(st.booleans()) else [])]
    name = "conv_transpose2d" if kind == "transposed" else "conv2d"
    value = net.op(name, *operands, **attrs)
    steps = draw(
        st.lists(st.sampled_from(("batch_norm", "mul", "add", "splat")), min_size=1, max_size=4)
    )
    for step in steps:
        if step == "batch_norm":
            vectors = [
                net.constant(channels, low=0.5),
                net.constant(channels),
                net.constant(channels),
            ]
            value = net.op(
                "batch_norm", value, *vectors, net.constant(channels, low=0.1), epsilon=1e-05
            )
        elif step == "splat":
            value = net.op("mul", net.builder.splat(1.375, F32, (1,)), value)
        else:
            value = net.op(step, value, net.constant(1, channels, 1, 1, low=0.5))
    function.returns = [net.op("relu", value)]
    return net.module, steps


@settings(max_examples=80)
@given(chains(), st.integers(0, 99))
def test_everything_after_a_convolution_goes_into_it(
    case: tuple[Module, list[str]], seed: int
) -> None:
    module, steps = case
    inputs = feeds(module, seed)
    log: list[Applied] = []
    after = run_passes(module, PIPELINE, check=True, log=log)
    (before_out,), (after_out,) = (
        interpret(module, inputs).values(),
        interpret(after, inputs).values(),
    )
    assert largest_difference(before_out, after_out) <= TOLERANCE
    kinds = [op.name for op in after.function.ops if not op.name.startswith("tensor::")]
    left = [name for name in kinds if name not in ("rlxc::conv2d", "rlxc::conv_transpose2d")]
    assert left in (["rlxc::add", "rlxc::relu"], ["rlxc::relu"]), steps


@settings(max_examples=60)
@given(
    st.sampled_from((1.0, 2.0, 3.0, -1.0, 0.5, -0.5)),
    st.lists(st.floats(2.0**-20, 2.0**20, width=32), min_size=1, max_size=8),
)
def test_powers(exponent: float, numbers: list[float]) -> None:
    x = Value("x", tensor_type(F32, "batch"))
    function = Function("powers", [x], [], [])
    builder = Builder(function)
    function.returns = [builder.op("rlxc::pow", [x, builder.splat(exponent, F32)])]
    module = Module("powers", function)
    inputs = {"x": from_values(F32, (len(numbers),), numbers)}
    after = run_passes(module, "revalue", check=True)
    assert all(op.name != "rlxc::pow" for op in after.function.ops)
    (before_out,), (after_out,) = (
        interpret(module, inputs).values(),
        interpret(after, inputs).values(),
    )
    for a, b in zip(before_out.values(), after_out.values(), strict=True):
        assert abs(a - b) <= 4e-7 * abs(a)
