"""``OffloadSession``: a model whose placed IR is cut between this process and a gateway.

Both sides derive their part, and the same task graph, from the same placed text. This side plays
``browser:0``, as a page does; outputs have the bits of a run on one device, wherever the cut is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rlx_edge.compile import compile_part, place_module
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.schedule import schedule
from rlx_edge.gateway.client import Arrived, Done
from rlx_edge.gateway.connection import GatewayConnection
from rlx_edge.gateway.registry import file_digest
from rlx_edge.ir.core import Module
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.errors import DeviceError, InputError, ModelError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.ops.communication import BULK_BYTES
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.program import Port
from rlx_edge.ir.task_graph import TaskGraph
from rlx_edge.ir.transfer_rules import devices
from rlx_edge.model_source import ModelLike, NodeArg, Values, deciding_values, open_source
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.executor import State
from rlx_edge.runtime.feeds import BoundFeeds, FeedChecker
from rlx_edge.runtime.program_run import ProgramRun
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.trace import Trace, TraceEvent
from rlx_edge.wasm_runtime.unit import WasmUnit

Array = npt.NDArray[Any]
Step = Callable[[str], None]

HOME = "browser:0"
GATEWAY = "cpu:0@gateway"
"""What a gateway lends unless it is told otherwise."""
MODES = ("local", "remote", "split")


@dataclass(frozen=True, slots=True)
class _Variant:
    """One cut module: our part, and the gateway's by its number."""

    shard: int
    module: Module
    graph: TaskGraph
    runner: ProgramRunner
    checker: FeedChecker
    values: Values


class OffloadSession:
    """``mode`` is ``remote`` or ``split``; ``split_after`` names the value that ends our part.
    ``worker`` is the gateway's device (``cuda:0``), by default the first one that it lends.
    Tensors of more than ``bulk_bytes`` bytes travel over HTTP. Once the connection is lost, the
    run at hand fails and the next one connects again.

    ``InputError`` ``offload.mode`` and ``split.after``, ``DeviceError`` ``offload.cut`` where a
    part would be empty, and what the gateway refuses. ``run`` may be called from several threads;
    calls take turns. A session is a context manager.
    """

    def __init__(
        self,
        model: ModelLike,
        gateway: str,
        token: str,
        *,
        mode: str = "split",
        split_after: str = "",
        worker: str = "",
        bulk_bytes: int = BULK_BYTES,
        progress: Step | None = None,
    ) -> None:
        if mode not in MODES[1:] or (mode == "split") != bool(split_after):
            raise InputError(
                "offload.mode",
                "not a way to use a gateway",
                found=f"{mode}, split after {split_after or 'nothing'}",
                allowed="remote, or split with the value that ends the local part",
            )
        self._tell: Step = progress or _silent
        self._after = split_after.removeprefix("%")
        self._bulk_bytes = bulk_bytes
        self._tell("read")
        self._source = open_source(model)
        self._path = Path(model) if isinstance(model, str | Path) else None
        self._tell("connect")
        self._gateway, self._token = gateway, token
        self.connection = self._connect()
        self.role = self._chosen(worker)
        """The gateway's device, as the text of the module calls it."""
        self._context = DeviceContext(HOME)
        self._variants: list[_Variant] = []
        self._lock = threading.Lock()
        self.compile_count = 0
        self.last_profile: tuple[TraceEvent, ...] = ()
        """What both sides did in the last run, on our clock; see ``clock_uncertainty``."""
        try:
            self._try_first()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> GatewayConnection:
        return GatewayConnection(self._gateway, self._token, client="rlx-edge python")

    def _chosen(self, worker: str) -> str:
        lent = self.connection.welcome.devices
        role = f"{parse_device(worker)}@gateway" if worker else lent[0]
        if role not in lent:
            self.connection.close()
            raise failure("peer.device", found=role, allowed=list(lent))
        return role

    # ---- what it is --------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Name, shape and type of every input, in order."""
        return self._source.inputs()

    def get_outputs(self) -> list[NodeArg]:
        """Name, shape and type of every output, in order."""
        return self._source.outputs()

    @property
    def ports(self) -> tuple[Port, ...]:
        """The inputs with their types in the IR."""
        if self._variants:
            return self._variants[-1].runner.program.inputs
        return self._source.ports()

    @property
    def plan_count(self) -> int:
        """Plans evaluated on this side."""
        return sum(variant.runner.plan_count for variant in self._variants)

    @property
    def memory_size(self) -> int:
        """Bytes of linear memory on this side."""
        return sum(variant.runner.unit.size for variant in self._variants)

    @property
    def clock_uncertainty(self) -> int:
        """Nanoseconds by which the gateway's events may be off, either way."""
        return self.connection.clock_uncertainty

    @property
    def graphs(self) -> tuple[TaskGraph, ...]:
        """The task graph of every variant."""
        return tuple(variant.graph for variant in self._variants)

    # ---- running -----------------------------------------------------------------------------

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object]
    ) -> list[Array]:
        """The named outputs (all if ``None``), as fresh arrays; see ``InferenceSession.run``.

        ``DeviceError`` ``offload.sides`` should a side have had no part in it.
        """
        with self._lock:
            if self.connection.is_lost:
                self._reconnect()
            variant, bound = self._variant_for(input_feed)
            outputs = self._exchange(variant, bound)
        names = [arg.name for arg in self.get_outputs()]
        if output_names is None:
            return outputs
        for name in output_names:
            if name not in names:
                raise failure("output.name", name=name, names=names)
        return [outputs[names.index(name)] for name in output_names]

    def _reconnect(self) -> None:
        """A gateway that came back knows nothing: it is given every shard again."""
        self.connection.close()
        self.connection = self._connect()
        for variant in self._variants:
            self._ask_gateway(variant.shard, variant.module, variant.graph, variant.values)

    def _exchange(self, variant: _Variant, bound: BoundFeeds) -> list[Array]:
        link = self.connection
        number = link.start(variant.shard, bound.symbols)
        edges = {edge.edge: edge for edge in variant.graph.edges}

        def emit(edge: int, array: Array) -> None:
            data = np.ascontiguousarray(array).data.cast("B")
            link.send(number, edge, data, edges[edge].protocol_for(len(data)))

        run: ProgramRun | None = None
        done: Done | None = None
        variant.runner.trace.take()
        try:
            run = variant.runner.start(bound.symbols, emit)
            run.begin(bound.arrays)
            while run.state is not State.FINISHED or done is None:
                event = link.next()
                if isinstance(event, Arrived) and event.run == number:
                    run.arrived(event.edge, event.data)
                elif isinstance(event, Done) and event.run == number:
                    done = event
        except BaseException:
            if run is not None and run.state is State.ACTIVE:
                run.stop()
            link.cancel(number)
            raise
        outputs = run.outputs()
        self.last_profile = self._profile(variant.runner.trace, done)
        self._check_sides()
        return outputs

    def _profile(self, trace: Trace, done: Done) -> tuple[TraceEvent, ...]:
        offset = self.connection.clock_offset
        theirs = [TraceEvent(*row) for row in done.events]  # type: ignore[arg-type]
        moved = [event._replace(start=event.start - offset) for event in theirs]
        return tuple(sorted([*trace.take(), *moved], key=lambda event: event.start))

    def _check_sides(self) -> None:
        seen = {event.device for event in self.last_profile if event.kind in ("run", "send")}
        for device in (HOME, self.role):
            if device not in seen:
                raise DeviceError(
                    "offload.sides", "a side had no part in the run", found=device,
                    allowed=[HOME, self.role],
                )  # fmt: skip

    def close(self) -> None:
        """Free the gateway's shards and this side's memory; calling it again does nothing."""
        for variant in self._variants:
            variant.runner.close()
        self._variants.clear()
        self.connection.close()
        self._context.close()

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

    def _try_first(self) -> None:
        try:
            self._compile({}, {})
        except ModelError as error:
            if error.code != "import.value_needed":
                raise

    def _variant_for(self, feeds: Mapping[str, object]) -> tuple[_Variant, BoundFeeds]:
        for variant in self._variants:
            bound = variant.checker.bind(feeds)
            if variant.runner.holds(bound.symbols):
                return variant, bound
        ports = self._source.ports()
        loose = FeedChecker(ports).bind(feeds)
        shapes = {port.name: array.shape for port, array in zip(ports, loose.arrays, strict=True)}
        variant = self._compile(deciding_values(ports, loose.arrays), shapes)
        bound = variant.checker.bind(feeds)
        if not variant.runner.holds(bound.symbols):
            raise failure(
                "session.guard",
                where=self._source.name,
                symbols=[f"{k} = {v}" for k, v in sorted(bound.symbols.items())],
                guard=", ".join(map(str, variant.runner.program.guards)),
            )
        return variant, bound

    def _compile(self, values: Values, shapes: Mapping[str, Sequence[int]]) -> _Variant:
        self._tell("import")
        placed = place_module(self._source.module(values, shapes), progress=self._tell)
        module = Split(
            after=self._after, first=HOME, second=self.role, bulk_bytes=self._bulk_bytes
        ).run(placed)
        if self.role not in devices(module.function):
            raise DeviceError(
                "offload.cut", "nothing is left for the gateway", found=f"cut after %{self._after}"
            )
        graph = schedule(module)
        self._tell("compile")
        program = compile_part(module, HOME)
        self.compile_count += 1
        self._tell("gateway")
        shard = len(self._variants)
        self._ask_gateway(shard, module, graph, values)
        runner = ProgramRunner(
            program,
            module.constants,
            WasmUnit(HOME),
            self._context,
            holder=f"session of {self._source.name}",
            check_weights=not self._source.checked,
        )
        checker = FeedChecker(program.inputs, program.bindings)
        variant = _Variant(shard, module, graph, runner, checker, values)
        self._variants.append(variant)
        return variant

    def _ask_gateway(self, shard: int, module: Module, graph: TaskGraph, values: Values) -> None:
        text = print_module(module).encode("utf-8")
        ir = module_digest(module)

        def read(digest: str) -> bytes:
            if digest == ir:
                return text
            constant = module.constants.get(digest)
            if constant is None:
                raise failure("upload.unasked", found=digest)
            return constant.read()

        self.connection.load(
            shard,
            self.role,
            ir,
            graph.digest,
            read,
            model=self._model_digest(),
            values={name: [int(item) for item in items] for name, items in values.items()},
        )

    def _model_digest(self) -> str:
        known = self.connection.welcome.models
        if not known or self._path is None or not self._path.is_file():
            return ""
        digest = file_digest(self._path)
        return digest if digest in known else ""


def _silent(step: str) -> None:
    del step
