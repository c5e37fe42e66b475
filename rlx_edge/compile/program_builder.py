"""Launches to a program: kernel numbering, addresses, parameter block, plan and command list.

Linear memory, from the bottom: a reserved first page part, the parameter block, resident buffers
(constants that execution reads and what ``prepare`` computes), then one arena for everything that
lives only during a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.compile.cost import SEGMENT_NANOSECONDS
from rlx_edge.compile.independence import side_by_side, waiting
from rlx_edge.compile.launches import Buffer, Launch, Lowered
from rlx_edge.compile.memory_plan import ALIGNMENT, Lifetime, assign_offsets
from rlx_edge.compile.plan_builder import PlanBuilder
from rlx_edge.compile.targets.target import Memory
from rlx_edge.compile.transfers import transfer_uses, weave
from rlx_edge.ir.commands import Command, Run
from rlx_edge.ir.core import Function, Guard
from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.errors import LimitError
from rlx_edge.ir.expression_text import expression_text
from rlx_edge.ir.kernel import Kernel, TemplateKernel
from rlx_edge.ir.ops import root_name
from rlx_edge.ir.ops.premises import premises
from rlx_edge.ir.plan import PlanGuard, PlanProgram
from rlx_edge.ir.program import Choice, LaunchInfo, Upload

BLOCK_ADDRESS = 1024
"""The bytes below hold nothing, so that a stray address 0 never aliases data."""
OVERREAD = 64
"""Bytes past the last buffer that vector loads may touch without using them."""
SYMBOL_HINT = 128
"""The size assumed for a symbol when the arena's order is chosen; a leading axis counts as 1."""


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """Where and when a buffer has its bytes: launches ``first`` to ``last`` (both inclusive).

    ``address`` is a value of the plan program, ``nbytes`` the size; a ``resident`` buffer keeps
    its bytes between runs. ``kind`` is that of ``Buffer``.
    """

    name: str
    kind: str
    first: int
    last: int
    resident: bool
    address: int
    nbytes: Dim


@dataclass(frozen=True, slots=True)
class Linked:
    """The parts of a ``Program`` that do not depend on the emitter."""

    kernels: tuple[Kernel, ...]
    plan: PlanProgram
    uploads: tuple[Upload, ...]
    prepare: tuple[Command, ...]
    execute: tuple[Command, ...]
    launches: tuple[LaunchInfo, ...]
    resident: int
    buffers: tuple[BufferPlace, ...]
    choices: tuple[Choice, ...]


def link(
    function: Function,
    lowered: Lowered,
    memory: Memory,
    hints: Mapping[str, int] | None = None,
) -> Linked:
    """Assign kernels, addresses and words. ``hints`` are representative sizes by symbol."""
    builder = PlanBuilder()
    env = _hint_env(function, hints or {})
    launches = [*lowered.prepare, *lowered.execute]
    _guards(function, builder)
    _guard_elements(builder, lowered, launches, memory)
    kernels, numbers = _number_kernels(launches)
    record_starts, block_bytes = _block_layout(launches)
    waits = waiting(launches, lowered.buffers, len(lowered.prepare))
    spans = _spans(lowered, waits)
    resident_at, resident_end = _place_resident(lowered, spans, BLOCK_ADDRESS + block_bytes, memory)
    addresses, peak = _place_arena(builder, lowered, spans, resident_at, resident_end, env)
    in_units = {
        number: builder.apply("floordiv", address, builder.const(memory.unit))
        for number, address in addresses.items()
    }
    words, writes = _fill_block(builder, launches, numbers, record_starts, in_units)
    inputs, outputs = (
        tuple(
            (addresses[number], tuple(builder.dim(dim) for dim in value.type.shape))
            for number, value in zip(numbers_of, values, strict=True)
        )
        for numbers_of, values in (
            (lowered.inputs, function.params if lowered.inputs else ()),
            (lowered.outputs, function.returns),
        )
    )
    boundary = len(lowered.prepare)
    transfers = tuple(
        (addresses[item.buffer], tuple(builder.dim(dim) for dim in item.type.shape))
        for item in lowered.transfers
    )
    plan = PlanProgram(
        tuple(builder.symbols),
        tuple(builder.instructions),
        tuple(builder.guards),
        tuple(words),
        tuple(writes),
        BLOCK_ADDRESS,
        peak,
        inputs,
        outputs,
        transfers,
    )
    return Linked(
        tuple(kernels),
        plan,
        _uploads(lowered, resident_at, addresses, builder),
        _segments(lowered.prepare, 0, env),
        weave(
            lowered,
            lambda begin, end: _segments(lowered.execute[begin:end], boundary + begin, env),
        ),
        tuple(
            LaunchInfo(
                launch.op,
                launch.value,
                number,
                "compile" if index < len(lowered.prepare) else "execute",
                waits[index],
            )
            for index, (launch, number) in enumerate(zip(launches, numbers, strict=True))
        ),
        resident_end,
        tuple(
            BufferPlace(
                buffer.name,
                buffer.kind,
                span.first,
                span.last,
                span.resident,
                addresses[number],
                buffer.nbytes,
            )
            for number, (buffer, span) in enumerate(zip(lowered.buffers, spans, strict=True))
        ),
        _choices(launches),
    )


def _guards(function: Function, builder: PlanBuilder) -> None:
    """The function's guards, and what every operator needs to stay inside its operands.

    Kernels check nothing at run time: IR that did not come from the importer is held to the same
    premises here.
    """
    bound = {binding.symbol for binding in function.bindings}
    sizes = frozenset(name for name in function.size_symbols() if name not in bound)
    guards = [
        Guard(as_dim(name), ">=", as_dim(1), "sizes are at least 1") for name in sorted(sizes)
    ]
    guards += function.guards
    for op in function.ops:
        if op.name.startswith("rlxc::"):
            types = [operand.type for operand in op.operands]
            guards += premises(root_name(op.name), types, op.attrs, op.result.type, sizes)
    stated: set[str] = set()
    for guard in guards:
        if str(guard) not in stated:
            stated.add(str(guard))
            builder.guard(guard)


def _guard_elements(
    builder: PlanBuilder, lowered: Lowered, launches: Sequence[Launch], memory: Memory
) -> None:
    """The largest buffer has no more elements than kernels can index."""
    if memory.elements is None:
        return
    sizes: dict[tuple[int, int], None] = {}
    for launch in launches:
        for number, dtype in zip(launch.buffers, launch.kernel.buffers, strict=True):
            sizes[number, dtype.bytes] = None
    counts = [
        builder.apply(
            "floordiv", builder.dim(lowered.buffers[number].nbytes), builder.const(nbytes)
        )
        for number, nbytes in sizes
    ]
    if counts:
        most = builder.const(memory.elements)
        text = f"every tensor has at most {memory.elements} elements"
        builder.guards.append(PlanGuard(builder.maximum(counts), "<=", most, text))


def _number_kernels(launches: Sequence[Launch]) -> tuple[list[Kernel], list[int]]:
    numbers: dict[Kernel, int] = {}
    return_numbers = [numbers.setdefault(launch.kernel, len(numbers)) for launch in launches]
    return list(numbers), return_numbers


def _choices(launches: Sequence[Launch]) -> tuple[Choice, ...]:
    """Where each way of every choice starts, and where the last one ends."""
    starts: dict[int, dict[int, int]] = {}
    kernels: dict[int, list[str]] = {}
    ends: dict[int, int] = {}
    for position, launch in enumerate(launches):
        if launch.choice is not None and isinstance(launch.kernel, TemplateKernel):
            number, way = launch.choice
            starts.setdefault(number, {}).setdefault(way, position)
            kernels.setdefault(number, []).append(_kernel_text(launch.kernel))
            ends[number] = position + 1
    return tuple(
        Choice(
            (*ways.values(), ends[number]),
            _digest(kernels[number]),
            len(launches[ends[number] - 1].arguments),
        )
        for number, ways in starts.items()
    )


def _kernel_text(kernel: TemplateKernel) -> str:
    """What tells a kernel from others, as text."""
    epilogue = "" if kernel.epilogue is None else expression_text(kernel.epilogue)
    options = " ".join(f"{name}={value}" for name, value in kernel.config)
    return f"{kernel.template} {options} {' '.join(kernel.extras)} {epilogue}"


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _block_layout(launches: Sequence[Launch]) -> tuple[list[int], int]:
    """First word of each launch's record, and the block's bytes."""
    starts: list[int] = []
    word = len(launches)
    for launch in launches:
        starts.append(word)
        grid = launch.groups is not None
        word += 1 + grid + len(launch.buffers) + len(launch.arguments)
    return starts, _aligned(word * 4)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class _Span:
    """Launch numbers over which a buffer must keep its bytes; ``resident``: between runs too."""

    first: int
    last: int
    resident: bool


def _spans(lowered: Lowered, waits: Sequence[bool]) -> list[_Span]:
    """A buffer is kept as long as any launch runs that may run beside one that uses it."""
    boundary = len(lowered.prepare)
    end = boundary + len(lowered.execute)
    uses: dict[int, list[int]] = {}
    launches = [*lowered.prepare, *lowered.execute]
    for first, last in side_by_side(waits):
        for launch in launches[first : last + 1]:
            for number in launch.buffers:
                uses.setdefault(number, []).extend((first, last))
    for number in lowered.inputs:
        uses.setdefault(number, []).append(boundary)
    for number in lowered.outputs:
        uses.setdefault(number, []).append(end)
    for number, place in transfer_uses(lowered):
        uses.setdefault(number, []).append(boundary + place)
    spans: list[_Span] = []
    for number, buffer in enumerate(lowered.buffers):
        touched = uses.get(number, [])
        first = 0 if buffer.kind == "constant" else min(touched, default=0)
        last = max(touched, default=0)
        spans.append(_Span(first, last, first < boundary <= last and bool(touched)))
    for number, buffer in enumerate(lowered.buffers):
        if buffer.kind == "constant" and uses.get(number) and spans[number].last >= boundary:
            spans[number] = _Span(0, spans[number].last, True)
    return spans


def _place_resident(
    lowered: Lowered, spans: Sequence[_Span], start: int, memory: Memory
) -> tuple[dict[int, int], int]:
    placed: dict[int, int] = {}
    address = start
    for number, (buffer, span) in enumerate(zip(lowered.buffers, spans, strict=True)):
        if span.resident:
            placed[number] = address
            address += _aligned(buffer.nbytes.value)
    if address > memory.limit:
        raise LimitError(
            "plan.memory",
            "the model's weights need more memory than the device can address",
            found=f"{address} bytes",
            allowed=f"at most {memory.limit} bytes",
        )
    return placed, address


def _place_arena(
    builder: PlanBuilder,
    lowered: Lowered,
    spans: Sequence[_Span],
    resident_at: Mapping[int, int],
    base: int,
    env: Mapping[str, int],
) -> tuple[dict[int, int], int]:
    """Plan values of every buffer's address, and of the bytes of memory needed."""
    moving = [number for number in range(len(lowered.buffers)) if number not in resident_at]
    lifetimes = [
        _lifetime(builder, lowered.buffers[number], spans[number], env) for number in moving
    ]
    offsets, peak = assign_offsets(builder, lifetimes)
    start = builder.const(base)
    addresses = {number: builder.const(at) for number, at in resident_at.items()}
    for number, offset in zip(moving, offsets, strict=True):
        addresses[number] = builder.apply("add", start, offset)
    top = builder.apply("add", builder.apply("add", start, peak), builder.const(OVERREAD))
    return addresses, top


def _lifetime(
    builder: PlanBuilder, buffer: Buffer, span: _Span, env: Mapping[str, int]
) -> Lifetime:
    size = builder.align(builder.dim(buffer.nbytes), ALIGNMENT)
    return Lifetime(span.first, span.last, size, _aligned(max(0, buffer.nbytes.evaluate(env))))


def _hint_env(function: Function, hints: Mapping[str, int]) -> dict[str, int]:
    names = set(function.size_symbols()) | {binding.symbol for binding in function.bindings}
    for value in function.values():
        for dim in value.type.shape:
            names.update(dim.symbols())
    leading = {param.type.shape[0] for param in function.params if param.type.rank > 1}
    return {
        name: hints.get(name, 1 if as_dim(name) in leading else SYMBOL_HINT)
        for name in sorted(names)
    }


def _fill_block(
    builder: PlanBuilder,
    launches: Sequence[Launch],
    numbers: Sequence[int],
    starts: Sequence[int],
    addresses: Mapping[int, int],
) -> tuple[list[int], list[tuple[int, int]]]:
    words = [BLOCK_ADDRESS + 4 * start for start in starts]
    writes: list[tuple[int, int]] = []

    def put(value: int) -> None:
        literal = builder.literal(value)
        if literal is None or not -(1 << 31) <= literal < 1 << 31:
            writes.append((len(words), value))
            words.append(0)
        else:
            words.append(literal)

    for launch, number in zip(launches, numbers, strict=True):
        words.append(number)
        if launch.groups is not None:
            put(builder.dim(launch.groups))
        for buffer in launch.buffers:
            put(addresses[buffer])
        for argument in launch.arguments:
            put(builder.dim(argument))
    return words, writes


def _uploads(
    lowered: Lowered,
    resident_at: Mapping[int, int],
    addresses: Mapping[int, int],
    builder: PlanBuilder,
) -> tuple[Upload, ...]:
    """Constants and where they go; those that only ``prepare`` reads lie in the arena."""
    uploads: list[Upload] = []
    used = {number for launch in [*lowered.prepare, *lowered.execute] for number in launch.buffers}
    used.update(lowered.outputs)
    used.update(item.buffer for item in lowered.transfers)
    for number, buffer in enumerate(lowered.buffers):
        if buffer.kind != "constant" or number not in used:
            continue
        address = resident_at.get(number)
        if address is None:
            address = builder.literal(addresses[number])
        if address is None:
            raise AssertionError(f"constant {buffer.name} has no fixed address")
        uploads.append(Upload(str(buffer.source), address, buffer.nbytes.value))
    return tuple(uploads)


def _same_choice(a: Launch, b: Launch) -> bool:
    return a.choice is not None and b.choice is not None and a.choice[0] == b.choice[0]


def _segments(launches: Sequence[Launch], begin: int, env: Mapping[str, int]) -> tuple[Run, ...]:
    """One ``Run`` for each stretch of launches that fits a segment at the representative sizes."""
    commands: list[Run] = []
    start, spent = begin, 0
    for number, launch in enumerate(launches, begin):
        time = max(0, launch.time.evaluate(env))
        follows = number > start and _same_choice(launches[number - begin - 1], launch)
        if number > start and not follows and spent + time > SEGMENT_NANOSECONDS:
            commands.append(Run(start, number))
            start, spent = number, 0
        spent += time
    end = begin + len(launches)
    if end > start:
        commands.append(Run(start, end))
    return tuple(commands)
