"""Programs for CUDA that several tests compile: every operator's examples and the four models."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.compile import CompiledModule, compile_module
from rlx_edge.compile.lower import lower
from rlx_edge.compile.program_builder import link
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.kernel import Kernel
from rlx_edge.ir.opdef import Example
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.tensor import Tensor, from_values
from rlx_edge.ir.types import BOOL, F32, TensorType, tensor_type
from rlx_edge.model_source import open_source
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.units import ExecutionUnit

Array = npt.NDArray[Any]
SIZE = 3
"""What every symbol of an example stands for."""

DEVICE = "cuda:0"
REFUSED = frozenset({"codegen.type"})
"""Codes of errors for element types that no kernel computes with (f16, bf16)."""


@dataclass(frozen=True)
class ExampleProgram:
    """One example as a module of its own, and its program."""

    name: str
    operator: str
    example: Example
    module: Module
    compiled: CompiledModule


def example_module(name: str, example: Example) -> Module:
    """A function of one op; ``sized`` gives every symbol a parameter to come from."""
    params = [Value(f"x{slot}", type) for slot, type in enumerate(example.operands)]
    sized = Value("sized", tensor_type(F32, "n"))
    function = Function("example", [*params, sized], [], [])
    function.returns = [Builder(function).op(name, params, example.attrs)]
    return Module("example", function)


def _examples() -> Iterator[ExampleProgram]:
    for name, definition in OPS.items():
        for example in definition.examples:
            module = example_module(name, example)
            try:
                compiled = compile_module(module, CudaTarget(), device=DEVICE)
            except RlxError as error:
                if error.code not in REFUSED:
                    raise
                continue
            yield ExampleProgram(f"{name}-{example.name}", name, example, module, compiled)


@cache
def example_programs() -> tuple[ExampleProgram, ...]:
    """Every example that CUDA has code for, compiled."""
    return tuple(_examples())


def sample_tensors(module: Module, seed: int = 1) -> dict[str, Tensor]:
    """Operands of an example: small numbers of both signs, integers that select something."""
    rng = random.Random(seed)
    return {param.name: _tensor(param.type, rng) for param in module.function.params}


def _tensor(type: TensorType, rng: random.Random) -> Tensor:
    shape = tuple(dim.evaluate(dict.fromkeys(dim.symbols(), SIZE)) for dim in type.shape)
    count = prod(shape)
    if type.dtype.is_float:
        return from_values(type.dtype, shape, [rng.uniform(-2, 2) for _ in range(count)])
    top = 1 if type.dtype is BOOL else 2
    return from_values(type.dtype, shape, [rng.randint(0, top) for _ in range(count)])


def run_program(
    compiled: CompiledModule, unit: ExecutionUnit, feeds: Mapping[str, Array]
) -> dict[str, Array]:
    """Outputs by name of one run on ``unit``, which is closed afterwards."""
    program = compiled.program
    context = DeviceContext(unit.device)
    runner = ProgramRunner(program, compiled.placed.constants, unit, context)
    bound = FeedChecker(program.inputs, program.bindings).bind(feeds)
    outputs = runner.run(bound.arrays, bound.symbols)
    runner.close()
    context.close()
    return {port.name: array for port, array in zip(program.outputs, outputs, strict=True)}


def to_array(tensor: Tensor) -> Array:
    """The elements as numpy has them."""
    return np.frombuffer(tensor.tobytes(), numpy_dtype(tensor.dtype)).reshape(tensor.shape)


def wrong_examples(unit: Callable[[int], ExecutionUnit]) -> list[str]:
    """Examples whose results on ``unit(number)`` are not the interpreter's bits, and why."""
    found: list[str] = []
    for number, item in enumerate(example_programs()):
        tensors = sample_tensors(item.module)
        feeds = {name: to_array(tensor) for name, tensor in tensors.items()}
        (actual,) = run_program(item.compiled, unit(number), feeds).values()
        (expected,) = (to_array(tensor) for tensor in interpret(item.module, tensors).values())
        if actual.dtype != expected.dtype or not same_bits(actual, expected):
            found.append(
                f"{item.name}: {actual.reshape(-1)[:4]} instead of {expected.reshape(-1)[:4]}"
            )
    return found


def same_bits(a: Array, b: Array) -> bool:
    """Equal bit for bit, except that any NaN equals any NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    equal = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return bool((equal | (np.isnan(a) & np.isnan(b))).all())


def kernels_of(compiled: CompiledModule, target: CudaTarget) -> tuple[Kernel, ...]:
    """The kernels of a program, as the emitter gets them."""
    lowered = lower(compiled.placed, target)
    return link(compiled.placed.function, lowered, target.memory).kernels


MODEL_VALUES: dict[str, dict[str, tuple[int, ...]]] = {"silero_vad": {"sr": (16000,)}}
"""Values of the integer inputs that a stored model branches on."""


def compile_model(name: str, path: Path, arch: str = "sm_80") -> CompiledModule:
    """A stored model for CUDA."""
    module = open_source(str(path)).module(MODEL_VALUES.get(name, {}), {})
    return compile_module(module, CudaTarget(arch), device=DEVICE)
