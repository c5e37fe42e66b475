"""Every operator's examples, and random modules, through the pipeline."""

# covers R12

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings

from rlx_edge.compile.pipeline import NATIVE_PIPELINE, parse_pipeline, run_passes
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.opdef import Example
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.tensor import Tensor, from_values
from rlx_edge.ir.types import BOOL, F32, TensorType, tensor_type
from tests.compile.passes.test_preserves_values import difference
from tests.strategies import modules

# Without the pass that changes values.
STEPS = [
    step
    for step in parse_pipeline(NATIVE_PIPELINE.format(device="wasm:0"))
    if step.name != "revalue"
]
SIZES = {"n": 3, "batch": 2, "w": 4, "d0": 2, "t1": 1, "acc": 2, "nan": 2, "exp": 2}
EXAMPLES = [
    pytest.param(name, item, id=f"{name}-{item.name}")
    for name, definition in OPS.items()
    for item in definition.examples
]


def tensor(type: TensorType, rng: random.Random) -> Tensor:
    shape = tuple(dim.evaluate(SIZES) for dim in type.shape)
    count = 1
    for size in shape:
        count *= size
    if type.dtype.is_float:
        return from_values(type.dtype, shape, [rng.uniform(-2, 2) for _ in range(count)])
    top = 1 if type.dtype is BOOL else 2
    return from_values(type.dtype, shape, [rng.randint(0, top) for _ in range(count)])


def inputs(module: Module) -> dict[str, Tensor]:
    rng = random.Random(1)
    return {param.name: tensor(param.type, rng) for param in module.function.params}


def keeps_every_bit(module: Module) -> None:
    feeds = inputs(module)
    before = interpret(module, feeds)
    for step in STEPS:
        module = run_passes(module, str(step), check=True)
        problem = difference(before, interpret(module, feeds))
        assert problem is None, f"{step}: {problem}"


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_operators(name: str, example: Example) -> None:
    params = [Value(f"x{slot}", type) for slot, type in enumerate(example.operands)]
    sized = Value("sized", tensor_type(F32, "n"))  # every size comes from some parameter
    function = Function("example", [*params, sized], [], [])
    function.returns = [Builder(function).op(name, params, example.attrs)]
    keeps_every_bit(Module("example", function))


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(modules(placed=False))
def test_random_modules(module: Module) -> None:
    run_passes(module, NATIVE_PIPELINE.format(device="wasm:0"), check=True)
    try:
        interpret(module, inputs(module))
    except (RlxError, ZeroDivisionError):  # no value: a guard fails, a load leaves its operand
        return
    keeps_every_bit(module)
