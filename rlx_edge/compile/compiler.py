"""The public entry of the compiler: module in, program out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rlx_edge.compile.backends import backend_of
from rlx_edge.compile.lower import lower
from rlx_edge.compile.passes.place import check_precision, is_contraction
from rlx_edge.compile.pipeline import native_pipeline, run_passes, with_regions_apart
from rlx_edge.compile.program_builder import BufferPlace, link
from rlx_edge.compile.schedule import schedule
from rlx_edge.compile.shard import shard
from rlx_edge.compile.targets.target import Target
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.attributes import FIXED
from rlx_edge.ir.core import Function, Module
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.program import EdgePort, LaunchInfo, Port, Program

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """``placed`` is the IR that ``program`` was made from (its digest is ``program.ir_digest``),
    ``buffers`` say what lies where in memory and when, for pictures; nothing executes them.
    ``fallbacks`` are fused operations that the device cannot hold, see ``fit.py``."""

    placed: Module
    program: Program
    buffers: tuple[BufferPlace, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


@dataclass(frozen=True, slots=True)
class Fallback:
    """The fused operation ``op`` that ends with ``value`` does not fit, and why. It runs in parts,
    or as it is where it has none (``split`` is false)."""

    value: str
    op: str
    reason: str
    split: bool = True

    def __str__(self) -> str:
        how = "it runs in parts" if self.split else "it has no parts and runs as it is"
        return f"%{self.value} = {self.op} {self.reason}: {how}"


def compile_module(
    module: Module,
    target: Target | None = None,
    *,
    device: str = "wasm:0",
    precision: str = FIXED,
    apart: Sequence[str] = (),
    hints: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> CompiledModule:
    """Compile graph IR for one device: all sizes stay symbolic, one program serves every shape.

    ``precision`` is what contractions may do (``ir.attributes.PRECISIONS``).
    ``apart`` names fused operations that become smaller ones (``pipeline.with_regions_apart``).
    ``hints`` are representative sizes by symbol; they order the memory plan, nothing else.
    ``progress`` is told each step's name. Raises ``RlxError`` where the module cannot be placed
    or lowered.
    """
    tell = progress or _silent
    placed = place_module(module, device=device, precision=precision, apart=apart, progress=tell)
    return _compile(placed, target, hints, tell, module_digest(module))


def compile_placed_module(
    placed: Module,
    target: Target | None = None,
    *,
    hints: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    source_digest: str | None = None,
) -> CompiledModule:
    """As ``compile_placed``, with the module and its buffers."""
    return _compile(placed, target, hints, progress or _silent, source_digest)


def place_module(
    module: Module,
    *,
    device: str = "wasm:0",
    precision: str = FIXED,
    apart: Sequence[str] = (),
    progress: Progress | None = None,
) -> Module:
    """Graph IR through every graph pass; a module that is placed already is returned as it is.

    ``RlxError`` ``precision.placed`` where that one states another precision than the one asked.
    """
    check_precision(precision)
    if not is_placed(module.function):
        pipeline = with_regions_apart(native_pipeline(device, precision), apart)
        return run_passes(module, pipeline, progress=progress)
    stated = [op.attrs.get("precision", FIXED) for op in module.function.ops if is_contraction(op)]
    if precision != FIXED and any(item != precision for item in stated):
        raise RlxError(
            "precision.placed",
            "the module is placed and states its precision itself",
            found=precision,
            allowed=sorted({str(item) for item in stated}),
        )
    return module


def compile_placed(
    placed: Module,
    target: Target | None = None,
    *,
    hints: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    source_digest: str | None = None,
) -> Program:
    """Lower, plan and emit a placed module; no graph pass runs.

    ``source_digest`` is that of the module before the passes, where there was one.
    """
    return compile_placed_module(
        placed, target, hints=hints, progress=progress, source_digest=source_digest
    ).program


def compile_part(
    placed: Module,
    device: str,
    target: Target | None = None,
    *,
    hints: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Program:
    """The program of one device's part of a verified module that is placed on several.

    Its digests are those of the whole module and of the module's task graph. Raises what ``shard``
    and ``schedule`` raise.
    """
    return compile_shard(placed, device, target, hints=hints, progress=progress).program


def compile_shard(
    placed: Module,
    device: str,
    target: Target | None = None,
    *,
    hints: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> CompiledModule:
    """As ``compile_part``, with the whole ``placed`` module and the part's buffers."""
    part, graph = shard(placed, device), schedule(placed)
    compiled = _compile(
        part.module, target, hints, progress or _silent, graph.ir_digest, is_home=part.is_home
    )
    program = replace(
        compiled.program,
        ir_digest=graph.ir_digest,
        device=device,
        graph_digest=graph.digest,
    )
    return CompiledModule(placed, program, compiled.buffers)


def _compile(
    placed: Module,
    target: Target | None,
    hints: Mapping[str, int] | None,
    tell: Progress,
    source_digest: str | None,
    *,
    is_home: bool = True,
) -> CompiledModule:
    chosen = target or WasmTarget()
    tell("lower")
    lowered = lower(placed, chosen, is_home=is_home)
    tell("plan")
    linked = link(placed.function, lowered, chosen.memory, hints)
    tell("emit")
    code = backend_of(chosen).emit(linked.kernels, chosen, _first_uses(linked.launches))
    function = placed.function
    names = function.output_names or [value.name for value in function.returns]
    ir_digest = module_digest(placed)
    program = Program(
        ir_digest=ir_digest,
        source_digest=source_digest or ir_digest,
        target=chosen.name,
        kernels_digest="sha256:" + hashlib.sha256(code.data).hexdigest(),
        code=code.data,
        plan=linked.plan,
        inputs=tuple(Port(value.name, value.type) for value in function.params if is_home),
        outputs=tuple(
            Port(name, value.type) for name, value in zip(names, function.returns, strict=True)
        ),
        uploads=linked.uploads,
        prepare=linked.prepare,
        execute=linked.execute,
        launches=linked.launches,
        bindings=tuple(function.bindings if is_home else ()),
        guards=tuple(function.guards),
        resident=linked.resident,
        entries=code.entries,
        choices=linked.choices,
        transfers=tuple(
            EdgePort(item.edge, item.is_send, item.name, item.type) for item in lowered.transfers
        ),
    )
    return CompiledModule(placed, program, linked.buffers)


def _first_uses(launches: Sequence[LaunchInfo]) -> list[LaunchInfo]:
    """For each kernel the first launch that uses it."""
    found: dict[int, LaunchInfo] = {}
    for launch in launches:
        found.setdefault(launch.kernel, launch)
    return [found[kernel] for kernel in sorted(found)]


def is_placed(function: Function) -> bool:
    """Whether every operation carries a device set."""
    return bool(function.ops) and all("target_device_set" in op.attrs for op in function.ops)


def _silent(step: str) -> None:
    del step
