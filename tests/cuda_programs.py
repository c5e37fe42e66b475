"""Programs for CUDA that several tests compile: every operator's examples and the four models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rlx_edge.compile import CompiledModule, compile_module
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.opdef import Example
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.types import F32, tensor_type
from rlx_edge.model_source import open_source

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


def compile_model(path: Path, arch: str = "sm_80") -> CompiledModule:
    """A model file for CUDA."""
    module = open_source(str(path)).module({}, {})
    return compile_module(module, CudaTarget(arch), device=DEVICE)
