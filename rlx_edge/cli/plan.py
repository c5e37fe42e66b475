"""``rlx plan``: what a model becomes, and how much memory it needs, before anything is loaded."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlx_edge.cli.arguments import (
    add_import,
    add_precision,
    add_vulkan_driver,
    parse_shapes,
    parse_values,
    style_of,
)
from rlx_edge.cli.code import form_of
from rlx_edge.cli.loading import graph_of
from rlx_edge.cli.outputs import check_output, write_output
from rlx_edge.cli.progress import Steps
from rlx_edge.compile import CompiledModule, CudaTarget
from rlx_edge.compile.backends import Assembler
from rlx_edge.compile.fit import compile_fitting
from rlx_edge.compile.targets.cuda import ARCHITECTURES
from rlx_edge.compile.targets.target import Target
from rlx_edge.compile.targets.wasm import STYLES
from rlx_edge.devices import resolve_device
from rlx_edge.engines import provider_of
from rlx_edge.gpu_workers.cuda.nvcc import assembler_of
from rlx_edge.ir.devices import Device, parse_device
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.plan import Plan, evaluate
from rlx_edge.ir.program import Port, Program
from rlx_edge.ir.program_text import dump_program

LISTED = 12
"""Operators of a kernel that a table line names."""


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx plan``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX model or IR text")
    parser.add_argument("-o", "--output", metavar="P", help="write the compiled program")
    parser.add_argument(
        "--code",
        metavar="FILE",
        help="write the generated code: .wasm or .dump; .cu, .ptx or .cubin; .spv or .spvasm",
    )
    parser.add_argument(
        "--explain", action="store_true", help="also list kernels, launches and the plan"
    )
    parser.add_argument("--device", default="wasm:0", metavar="NAME", help="wasm:0 by default")
    add_vulkan_driver(parser)
    add_precision(parser)
    parser.add_argument(
        "--arch",
        choices=tuple(ARCHITECTURES),
        help="plan for this CUDA architecture; needs no GPU, and nvcc to know what fits",
    )
    parser.add_argument("--style", choices=STYLES, default="cranelift", help="kernels tuned for")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_import(parser)


def execute(options: argparse.Namespace) -> int:
    """Compile, evaluate the plan where sizes are known, print."""
    values, shapes = parse_values(options.value), parse_shapes(options.shape)
    device, target, assembler = _target_of(options)
    form = None if options.code is None else form_of(options.code, target)
    written = [path for path in (options.output, options.code) if path is not None]
    if len({os.path.realpath(path) for path in written}) < len(written):
        raise InputError(
            "cli.output", "--output and --code name one file", found=options.code, where="--code"
        )
    for path in written:
        check_output(path)
    steps = Steps()
    try:
        module = graph_of(options.model, values, shapes)
        compiled = compile_fitting(
            module,
            target,
            assembler,
            device=str(device),
            precision=options.precision,
            progress=steps,
        )
    finally:
        steps.clear()
    program = compiled.program
    symbols = known_symbols(program, shapes, values)
    missing = [name for name in program.plan.symbols if name not in symbols]
    plan = None if missing else evaluate(program.plan, symbols)
    if options.output is not None:
        write_output(options.output, dump_program(program).encode("ascii"))
    if form is not None:
        write_output(options.code, form(program.code, target))
    if options.json:
        print(json.dumps(summary(program, symbols, plan), indent=2))
        return 0
    print("\n".join(lines(program, symbols, plan, missing)))
    if options.explain:
        print("\n".join([*fitting(compiled, assembler), *explanation(program)]))
    if options.output is not None:
        print(f"program   {options.output}")
    if form is not None:
        print(f"code in   {options.code}")
    return 0


def _target_of(options: argparse.Namespace) -> tuple[Device, Target, Assembler | None]:
    """What to compile for: a device of this machine, or an architecture that need not be here."""
    if options.arch is not None:
        if options.device not in ("wasm:0", "cuda:0"):
            raise InputError(
                "cli.arch", "--arch is for CUDA", found=options.device, allowed="--device cuda:0"
            )
        style_of(options)  # refuses a Vulkan driver
        arch = CudaTarget(options.arch)
        return parse_device("cuda:0"), arch, assembler_of(arch)
    device = resolve_device(options.device)
    provider = provider_of(device)
    target = provider.make_target(device, style_of(options, options.style))
    return device, target, provider.make_assembler(device, True)


def fitting(compiled: CompiledModule, assembler: Assembler | None) -> list[str]:
    """Which fused operations the device cannot hold, and what became of them."""
    if assembler is None:
        return ["", "fitting   nothing here tells whether kernels fit the device"]
    if not compiled.fallbacks:
        return ["", "fitting   every kernel fits the device"]
    return ["", *(f"fitting   {item}" for item in compiled.fallbacks)]


def known_symbols(
    program: Program, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Sizes from ``--shape`` and values from ``--value``; ``InputError`` where they do not fit."""
    ports = {port.name: port for port in program.inputs}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        port = ports.get(name)
        if port is None:
            raise InputError(
                "input.name", "no such input", found=repr(name), allowed=list(ports) or "none"
            )
        _bind_shape(port, shape, symbols)
    for binding in program.bindings:
        given = values.get(binding.parameter, ())
        if binding.position < len(given):
            symbols[binding.symbol] = given[binding.position]
    return symbols


def _bind_shape(port: Port, shape: Sequence[int], symbols: dict[str, int]) -> None:
    fits = len(shape) == port.type.rank
    for dim, size in zip(port.type.shape, shape, strict=False):
        if dim.symbols() == (str(dim),):
            fits &= symbols.setdefault(str(dim), size) == size
        elif dim.is_constant:
            fits &= dim.value == size
    if not fits:
        raise InputError(
            "input.shape",
            f"the shape does not fit input '{port.name}'",
            found="x".join(map(str, shape)),
            allowed=str(port.type),
        )


def summary(program: Program, symbols: Mapping[str, int], plan: Plan | None) -> dict[str, Any]:
    """The plan as JSON. ``memory_bytes`` is ``None`` while a size is open."""
    return {
        "target": program.target,
        "ir_digest": program.ir_digest,
        "kernels_digest": program.kernels_digest,
        "code_bytes": len(program.code),
        "kernels": kernel_count(program),
        "launches": {"prepare": _launches(program, "compile"), "execute": _launches(program)},
        "weights_bytes": sum(upload.nbytes for upload in program.uploads),
        "resident_bytes": program.resident,
        "memory_bytes": None if plan is None else plan.peak,
        "symbols": {name: symbols.get(name) for name in program.plan.symbols},
        "inputs": {port.name: str(port.type) for port in program.inputs},
        "outputs": {port.name: str(port.type) for port in program.outputs},
        "guards": [guard.text for guard in program.plan.guards],
    }


def lines(
    program: Program, symbols: Mapping[str, int], plan: Plan | None, missing: Sequence[str]
) -> list[str]:
    """The summary for people."""
    weights = sum(upload.nbytes for upload in program.uploads)
    prepare, execute_ = _launches(program, "compile"), _launches(program)
    if plan is None:
        memory = f"depends on {', '.join(missing)}; give --shape NAME=1x3x48x320 or --value NAME=V"
    else:
        at = ", ".join(f"{name} = {symbols[name]}" for name in program.plan.symbols)
        memory = f"{_bytes(plan.peak)}{f' at {at}' if at else ''}"
    found = [f"input     {port.name}: {port.type}" for port in program.inputs]
    found += [f"output    {port.name}: {port.type}" for port in program.outputs]
    found += [
        f"kernels   {kernel_count(program)} in {_bytes(len(program.code))} of code for "
        f"{program.target}",
        f"launches  {execute_} a run, segments: {len(program.execute)}; {prepare} once before",
        f"weights   {_bytes(weights)} uploaded, {_bytes(program.resident)} resident",
        f"memory    {memory}",
    ]
    found += [f"guard     {guard.text}" for guard in program.plan.guards]
    return [*found, f"IR        {program.ir_digest}", f"code      {program.kernels_digest}"]


def explanation(program: Program) -> list[str]:
    """Kernels with who uses them, launches in order, and the plan's size."""
    users: dict[int, Counter[str]] = {}
    for launch in program.launches:
        users.setdefault(launch.kernel, Counter())[launch.op] += 1
    found = ["", f"{'kernel':>6}  {'uses':>4}  operators"]
    for kernel, ops in sorted(users.items()):
        shown = [f"{op} ×{count}" if count > 1 else op for op, count in ops.most_common(LISTED)]
        found.append(f"{kernel:>6}  {ops.total():>4}  {', '.join(shown)}")
    found += ["", f"{'launch':>6}  {'phase':<7}  {'kernel':>6}  operation"]
    found += [
        f"{number:>6}  {launch.phase:<7}  {launch.kernel:>6}  %{launch.value} = {launch.op}"
        for number, launch in enumerate(program.launches)
    ]
    plan = program.plan
    return [
        *found,
        "",
        f"plan      {len(plan.instructions)} instructions, {len(plan.words)} words, "
        f"{len(plan.writes)} of them written for each shape",
    ]


def kernel_count(program: Program) -> int:
    """How many different kernels the launches use."""
    return len({launch.kernel for launch in program.launches})


def _launches(program: Program, phase: str = "execute") -> int:
    return sum(launch.phase == phase for launch in program.launches)


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count} bytes"
    if count < 10_000_000:
        return f"{count / 1e3:.1f} kB"
    return f"{count / 1e6:.1f} MB"
