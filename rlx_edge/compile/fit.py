"""Compiling for what a device can hold: fused operations that do not fit fall back to their parts.

A program is compiled and its kernels are looked at, by the backend's row with an assembler's words.
Where a fused operation's kernel does not fit, the module is placed again with that region halved,
until all fit or nothing can be halved any more. Passes are told which regions to take apart and
nothing else: what a device is stays here and in the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlx_edge.compile.backends import Assembler, backend_of
from rlx_edge.compile.compiler import CompiledModule, Fallback, compile_module
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.core import Module
from rlx_edge.ir.ops import is_fused
from rlx_edge.ir.program import Program

ROUNDS = 16
"""Compilations at most; the largest region is taken apart in fewer."""


def compile_fitting(
    module: Module, target: Target, assembler: Assembler | None, **options: Any
) -> CompiledModule:
    """As ``compile_module`` with ``options``, for kernels that fit; without an ``assembler``, or
    for a backend that cannot tell, it is the same.

    Raises what ``compile_module`` and the assembler raise.
    """
    compiled = compile_module(module, target, **options)
    if assembler is None or backend_of(target).unfit is None:
        return compiled
    apart: list[str] = []
    found: list[Fallback] = []
    for _ in range(ROUNDS):
        misfits = list(_misfits(compiled.program, target, assembler))
        fresh = [item for item in misfits if item.split]
        if not fresh:
            return replace(compiled, fallbacks=(*found, *misfits))
        found += fresh
        apart += [item.value for item in fresh]
        compiled = compile_module(module, target, apart=apart, **options)
    kept = (replace(item, split=False) for item in _misfits(compiled.program, target, assembler))
    return replace(compiled, fallbacks=(*found, *kept))


def _misfits(program: Program, target: Target, assembler: Assembler) -> Iterator[Fallback]:
    """The operations whose kernels do not fit, each once, in the order of the launches."""
    unfit = backend_of(target).unfit
    assert unfit is not None
    reasons: Mapping[int, str] = unfit(
        program.entries, lambda: assembler.words(program.code), assembler.limits
    )
    seen: set[str] = set()
    for launch in program.launches:
        reason = reasons.get(launch.kernel)
        if reason is not None and launch.value not in seen:
            seen.add(launch.value)
            yield Fallback(launch.value, launch.op, reason, is_fused(launch.op))
