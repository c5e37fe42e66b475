"""``InferenceSession``: a model, ready to run, as onnxruntime's users know it.

A session compiles a graph once; every shape only costs a plan. Where a graph branches on the
value of an integer input, or on a size, one compiled *variant* is kept for each way it goes, and
the first whose guards hold runs.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet, finalize

import numpy.typing as npt

from rlx_edge.compile import CompiledModule, is_placed, place_module
from rlx_edge.compile.fit import compile_fitting
from rlx_edge.engines import provider_of
from rlx_edge.ir.core import Module
from rlx_edge.ir.digest import bytes_digest, check_digest, module_digest
from rlx_edge.ir.errors import DeviceError, ModelError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Port, Program
from rlx_edge.model_source import (
    ModelLike,
    ModelSource,
    NodeArg,
    Values,
    deciding_values,
    open_source,
    shown_shape,
)
from rlx_edge.runtime.arrays import tensor_type_name
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import BoundFeeds, FeedChecker
from rlx_edge.runtime.runner import PLANS, ProgramRunner
from rlx_edge.runtime.trace import Trace, TraceEvent
from rlx_edge.session_arguments import (
    Cache,
    chosen_cache,
    chosen_precision,
    given_program,
    hint_values,
    only_device,
    output_positions,
    plan_limit,
)

Array = npt.NDArray[Any]
Step = Callable[[str], None]

VARIANTS = 16
"""Compiled variants kept, least recently used first out."""

_open_sessions: WeakSet[InferenceSession] = WeakSet()
"""Sessions that hold something of a device."""


class InferenceSession:
    """A model on a device.

    ``model`` is a path, bytes or a byte source of ONNX or of IR text, or an IR ``Module``.
    ``providers`` names one device (``wasm:0`` by default). ``value_hint`` gives integer inputs
    that the model branches on, so that the first variant is compiled here and not by the first
    run. ``program`` is a compiled program for the model: nothing is compiled then, and one that
    was made from another IR is a ``DigestError`` with both digests. ``precision`` is what matrix
    products and convolutions may do (``fixed``, the default: the same bits on every device;
    ``relaxed``, ``tf32``, ``fp16`` where the device offers them). ``style`` chooses the engine
    family the kernels are tuned for. ``cache`` is the folder of compiled machine code (``True``:
    the usual one, ``False``: none). ``plans`` bounds the remembered shapes. ``enable_profiling``
    times every launch. ``progress`` is told the name of each step.

    ``run`` may be called from several threads; calls take turns. A session is a context manager.
    """

    def __init__(
        self,
        model: ModelLike,
        providers: Sequence[str] | None = None,
        *,
        value_hint: Mapping[str, int | Sequence[int]] | None = None,
        program: Program | None = None,
        precision: str = "fixed",
        style: str = "cranelift",
        cache: Cache = True,
        plans: int = PLANS,
        enable_profiling: bool = False,
        progress: Step | None = None,
    ) -> None:
        self._device = only_device(providers)
        self._tell: Step = progress or _silent
        self._engine = provider_of(self._device)
        self._target = self._engine.make_target(self._device, style)
        self._tell("read")
        program = given_program(program)
        inspect = None if program is None else partial(check_source, program)
        self._source: ModelSource = open_source(model, inspect)
        self._output_names = [arg.name for arg in self._source.outputs()]
        self._cache = chosen_cache(cache)
        self._precision = chosen_precision(precision)
        self._plans = plan_limit(plans)
        self._profiling = enable_profiling
        self._trace = Trace(str(self._device))
        self._context = DeviceContext(str(self._device))
        self._variants: list[_Variant] = []
        self._retired_plans = 0
        self._lock = threading.Lock()
        # Contexts and buffers know each other: without this, the memory of a session that is
        # dropped would wait for the garbage collector, which does not see how large it is.
        finalize(self, _release, self._variants, self._context).atexit = False
        self._closed = False
        self.compile_count = 0
        """How many times the compiler ran."""
        self.last_profile: tuple[TraceEvent, ...] = ()
        """What happened in the last run, or in the constructor before any run."""
        hints = hint_values(value_hint, [arg.name for arg in self._source.inputs()])
        if program is not None:
            self._add(self._bound(program))
        else:
            self._try_first(hints)
        self.last_profile = self._trace.take()

    # ---- what the model is -------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Name, shape and type of every input, in order."""
        return self._source.inputs()

    def get_outputs(self) -> list[NodeArg]:
        """Name, shape and type of every output, in order."""
        declared = self._source.outputs()
        if not self._variants:
            return declared
        ports = self._variants[0].program.outputs
        return [
            NodeArg(
                arg.name,
                arg.shape or shown_shape(port.type.shape),
                tensor_type_name(port.type.dtype),
            )
            for arg, port in zip(declared, ports, strict=True)
        ]

    @property
    def ports(self) -> tuple[Port, ...]:
        """The inputs with their types in the IR, whose open sizes are dims."""
        return self._variants[-1].program.inputs if self._variants else self._source.ports()

    def get_providers(self) -> list[str]:
        """The device that runs the model."""
        return [str(self._device)]

    @property
    def plan_count(self) -> int:
        """How many plans were evaluated."""
        return self._retired_plans + sum(variant.runner.plan_count for variant in self._variants)

    @property
    def programs(self) -> tuple[Program, ...]:
        """The compiled variants, most recently used last."""
        return tuple(variant.program for variant in self._variants)

    @property
    def memory_size(self) -> int:
        """Bytes of device memory that the variants have now."""
        return sum(variant.runner.unit.size for variant in self._variants)

    # ---- running -----------------------------------------------------------------------------

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object]
    ) -> list[Array]:
        """The named outputs (all if ``None`` or empty), as fresh arrays.

        ``InputError`` for names, shapes or element types that do not fit the model, ``GuardError``
        for sizes that it cannot run at, ``LimitError`` where memory does not suffice.
        """
        with self._lock:
            self._open()
            variant, bound = self._variant_for(input_feed)
            wanted = output_positions(output_names, self._output_names)
            try:
                outputs = variant.runner.run(bound.arrays, bound.symbols)
            except DeviceError:
                self._renew(variant)
                raise
            finally:
                self.last_profile = self._trace.take()
            return [outputs[position] for position in wanted]

    def close(self) -> None:
        """Release the device; using the session afterwards is a ``DeviceError``."""
        with self._lock:
            if self._closed:
                return
            for variant in list(self._variants):
                self._retire(variant)
            self._closed = True
            self._context.close()
            _open_sessions.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- variants ----------------------------------------------------------------------------

    def _variant_for(self, feeds: Mapping[str, object]) -> tuple[_Variant, BoundFeeds]:
        for variant in self._variants:
            bound = variant.checker.bind(feeds)
            if variant.runner.holds(bound.symbols):
                if variant is not self._variants[-1]:
                    self._variants.remove(variant)
                    self._variants.append(variant)
                return variant, bound
        if self._variants and self._source.fixed:
            return self._require_guards(self._variants[-1], feeds)
        ports = self._source.ports()
        loose = FeedChecker(ports).bind(feeds)
        values = deciding_values(ports, loose.arrays)
        shapes = {port.name: array.shape for port, array in zip(ports, loose.arrays, strict=True)}
        return self._require_guards(self._compile(values, shapes), feeds)

    def _require_guards(
        self, variant: _Variant, feeds: Mapping[str, object]
    ) -> tuple[_Variant, BoundFeeds]:
        bound = variant.checker.bind(feeds)
        for guard in variant.program.guards:
            if not guard.holds(bound.symbols):
                raise failure(
                    "session.guard",
                    where=self._source.name,
                    symbols=[f"{k} = {v}" for k, v in sorted(bound.symbols.items())],
                    guard=f"{guard}" + (f" ({guard.reason})" if guard.reason else ""),
                )
        return variant, bound

    def _try_first(self, hints: Values) -> None:
        """Compile now, unless the model branches on something that only a run will tell."""
        try:
            self._compile(hints, {})
        except ModelError as error:
            if error.code != "import.value_needed":
                raise

    def _compile(self, values: Values, shapes: Mapping[str, Sequence[int]]) -> _Variant:
        self._tell("import")
        module = self._source.module(values, shapes)
        start = Trace.now()
        compiled = compile_fitting(
            module,
            self._target,
            self._engine.make_assembler(self._device, self._cache),
            device=str(self._device),
            precision=self._precision,
            progress=self._tell,
        )
        self.compile_count += 1
        self._trace.record("compile", "compile", start, name=module.name)
        return self._add(compiled)

    def _bound(self, program: Program) -> CompiledModule:
        """The program with the module it was made from; ``DigestError`` if that is another."""
        module = self._source.module({}, {})
        check_source(program, module)
        placed = place_module(
            module, device=str(self._device), precision=self._precision, progress=self._tell
        )
        check_digests(program, placed)
        return CompiledModule(placed, program)

    def _add(self, compiled: CompiledModule) -> _Variant:
        self._tell("load")
        variant = _Variant(compiled, self._runner(compiled))
        self._variants.append(variant)
        _open_sessions.add(self)
        atexit.unregister(_close_sessions)
        atexit.register(_close_sessions, os.getpid())  # the latest registered runs first
        if len(self._variants) > VARIANTS:
            self._retire(self._variants[0])
        return variant

    def _runner(self, compiled: CompiledModule) -> ProgramRunner:
        tell = self._tell  # a runner that knew the session would keep it alive
        return ProgramRunner(
            compiled.program,
            compiled.placed.constants,
            self._engine.make_unit(self._device, self._cache),
            self._context,
            holder=f"session of {self._source.name}",
            trace=self._trace,
            plans=self._plans,
            check_weights=not self._source.checked,
            profile=self._profiling,
            progress=lambda done, total: tell(f"weights {100 * done // total} %"),
        )

    def _renew(self, variant: _Variant) -> None:
        """Give a variant a new unit: the memory of one that failed cannot be trusted."""
        self._retired_plans += variant.runner.plan_count
        variant.runner.close()
        variant.runner = self._runner(variant.compiled)

    def _retire(self, variant: _Variant) -> None:
        self._variants.remove(variant)
        self._retired_plans += variant.runner.plan_count
        variant.runner.close()

    # ---- checks ------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._closed:
            raise failure("session.closed", where=self._source.name)


class _Variant:
    """One compiled program with its runner."""

    __slots__ = ("checker", "compiled", "program", "runner")

    def __init__(self, compiled: CompiledModule, runner: ProgramRunner) -> None:
        self.compiled = compiled
        self.program = compiled.program
        self.runner = runner
        self.checker = FeedChecker(self.program.inputs, self.program.bindings)


def check_source(program: Program, module: Module) -> None:
    """``DigestError`` with both digests unless ``program`` was compiled from ``module``, which
    need not be verified yet."""
    made_from = program.ir_digest if is_placed(module.function) else program.source_digest
    check_digest(f"the program and the IR '{module.name}'", made_from, module_digest(module))


def check_digests(program: Program, placed: Module) -> None:
    """``DigestError`` with both digests unless ``program`` was made from ``placed`` and its kernels
    are the ones that it names."""
    check_digest(
        f"the program and the IR '{placed.name}'", program.ir_digest, module_digest(placed)
    )
    check_digest("the program and its kernels", program.kernels_digest, bytes_digest(program.code))


def _release(variants: list[_Variant], context: DeviceContext) -> None:
    """Give back what a session held; nothing for one that was closed."""
    for variant in variants:
        variant.runner.close()
    variants.clear()
    context.close()


def _close_sessions(process: int) -> None:
    """At exit, before devices name what they still hold: a session that is open then is no leak.

    The children of a fork hold nothing of their own.
    """
    if os.getpid() == process:
        for session in list(_open_sessions):
            session.close()


def _silent(step: str) -> None:
    del step
