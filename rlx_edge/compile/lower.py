"""Placed function to launches: storage for every value, kernels for every operation.

Order of preference for an operation: no code (constants, views), a hand-designed template whose
requirements hold (``select.py``), otherwise the loop nest of its definition. This is the only way
from graph to kernels; no graph pass runs after placement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast as typing_cast

from rlx_edge.compile.backends import Backend, backend_of
from rlx_edge.compile.cost import loop_time, template_time
from rlx_edge.compile.launches import (
    BORDER,
    EXECUTE,
    PREPARE,
    Buffer,
    Launch,
    Lowered,
    LoweredTransfer,
)
from rlx_edge.compile.loops import LoweredNest, border_kernels, fill_kernels, lower_expression
from rlx_edge.compile.physical import NO_BORDER, Physical, same_bytes
from rlx_edge.compile.select import Claim, Pack, check_precision, claim
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.dims import ZERO, Dim, as_dim, ceildiv
from rlx_edge.ir.errors import VerifyError
from rlx_edge.ir.expression import Expr, cast, const, index, replace_loads
from rlx_edge.ir.kernel import LoopKernel, generalize
from rlx_edge.ir.ops import definition_expression, lookup
from rlx_edge.ir.ops.communication import RECV, SEND
from rlx_edge.ir.types import DType


@dataclass(slots=True)
class Storage:
    """Where a value lives and how."""

    buffer: int
    physical: Physical
    phase: str


@dataclass(slots=True)
class Lowering:
    """The state of one function's lowering."""

    module: Module
    target: Target
    backend: Backend
    lowered: Lowered = field(default_factory=Lowered)
    storage: dict[Value, Storage] = field(default_factory=dict)
    literals: dict[Value, float | int | bool] = field(default_factory=dict)
    packed: dict[tuple[int, Pack], int] = field(default_factory=dict)
    unbounded: frozenset[str] = frozenset()

    # ---- storage -----------------------------------------------------------------------------

    def place(self, value: Value) -> Storage:
        """The storage of a value that some kernel reads; literals of a known size are filled once,
        in prepare, others in every run."""
        found = self.storage.get(value)
        if found is not None:
            return found
        physical = Physical(value.type)
        phase = PREPARE if value.type.is_static else EXECUTE
        stored = self.reserve(value, physical, phase)
        self.emit_nests(
            fill_kernels(physical, self.literals[value]), stored, [], "tensor::splat", value
        )
        return stored

    def reserve(self, value: Value, physical: Physical, phase: str) -> Storage:
        """A fresh buffer for a value."""
        number = self.lowered.add_buffer(Buffer(value.name, physical.nbytes, "value"))
        stored = Storage(number, physical, phase)
        self.storage[value] = stored
        return stored

    def scratch(self, name: str, nbytes: Dim) -> int:
        return self.lowered.add_buffer(Buffer(name, nbytes, "scratch"))

    # ---- emission ----------------------------------------------------------------------------

    def emit_nests(
        self,
        nests: list[LoweredNest],
        result: Storage,
        operands: list[int],
        op: str,
        value: Value,
    ) -> None:
        """Launch loop nests whose slots name ``operands`` (buffer numbers)."""
        for nest in nests:
            buffers = (result.buffer, *(operands[slot] for slot in nest.slots))
            self.launch_loops(nest.kernel, buffers, result.phase, op, value.name)

    def launch_loops(
        self, nest: LoopKernel, buffers: tuple[int, ...], phase: str, op: str, value: str
    ) -> None:
        """Launch a loop nest as the generic kernel that it is an instance of, or as its forms."""
        kernel, arguments = generalize(nest)
        time = loop_time(nest, self.target.rates)
        if self.backend.groups is None:
            self.launch(Launch(kernel, buffers, arguments, op, value, time), phase)
            return
        forms = self.backend.groups(kernel, arguments)
        used = [form for form in forms if form[1] is not ZERO] or forms[:1]
        for place, (form, groups) in enumerate(used):
            spent = ZERO if place else time
            self.launch(Launch(form, buffers, arguments, op, value, spent, groups), phase)

    def launch(self, launch: Launch, phase: str) -> None:
        self.lowered.stage(phase).append(launch)

    # ---- operations --------------------------------------------------------------------------

    def lower_op(self, op: Op) -> None:
        if op.name == "tensor::const":
            self.lower_const(op)
        elif op.name == "tensor::splat":
            self.literals[op.result] = typing_cast("float | int | bool", op.attrs["value"])
        elif op.name == "tensor::from_dims":
            self.lower_from_dims(op)
        elif op.name in (SEND, RECV):
            self.lower_transfer(op)
        elif not self.alias_view(op):
            self.lower_compute(op)

    def lower_const(self, op: Op) -> None:
        constant = self.module.constants[str(op.attrs["digest"])]
        physical = Physical(op.result.type)
        number = self.lowered.add_buffer(
            Buffer(op.result.name, physical.nbytes, "constant", constant.digest)
        )
        self.storage[op.result] = Storage(number, physical, PREPARE)

    def lower_from_dims(self, op: Op) -> None:
        """Sizes as data: one store an element, the value is a kernel argument."""
        values = typing_cast("tuple[Dim, ...]", op.attrs["values"])
        stored = self.reserve(op.result, Physical(op.result.type), EXECUTE)
        dtype = op.result.type.dtype
        for position, dim in enumerate(values):
            kernel = LoopKernel((), (dtype,), as_dim(position), cast(index(dim), dtype))
            self.emit_nests([LoweredNest(kernel, ())], stored, [], op.name, op.result)

    def lower_transfer(self, op: Op) -> None:
        """A buffer that leaves here, or one that is filled from elsewhere."""
        is_send = op.name == SEND
        value = op.operands[0] if is_send else op.result
        stored = (
            self.place(value) if is_send else self.reserve(value, Physical(value.type), EXECUTE)
        )
        if not stored.physical.is_plain:
            raise _not_plain(f"transfer {op.attrs['edge']} of %{value.name}", stored.physical)
        self.lowered.transfers.append(
            LoweredTransfer(
                typing_cast("int", op.attrs["edge"]),
                is_send,
                stored.buffer,
                len(self.lowered.execute),
                value.name,
                value.type,
            )
        )

    def alias_view(self, op: Op) -> bool:
        """Give a view its operand's storage when the bytes are the same."""
        if "view" not in _traits(op):
            return False
        operand = op.operands[0]
        if operand in self.literals:
            self.literals[op.result] = self.literals[operand]
            return True
        source = self.place(operand)
        wanted = _physical(op)
        if not same_bytes(source.physical, wanted):
            return False
        self.storage[op.result] = Storage(source.buffer, wanted, source.phase)
        return True

    def lower_compute(self, op: Op) -> None:
        phase = PREPARE if op.attrs.get("phase") == "compile" else EXECUTE
        physical = _physical(op)
        check_precision(op, self.target, self.backend.offers)
        found = claim(
            op,
            physical,
            self.operand_physical(op),
            self.literals,
            self.target,
            self.backend.offers,
        )
        stored = self.reserve(op.result, physical, phase)
        if physical.border != NO_BORDER:
            merged = self.backend.groups is not None
            self.emit_nests(border_kernels(physical, merged), stored, [], BORDER, op.result)
        if found is not None:
            self.lower_claim(op, stored, found)
            return
        operands = [
            -1
            if operand in self.literals and operand not in self.storage
            else self.place(operand).buffer
            for operand in op.operands
        ]
        _, value = definition_expression(op)
        nests = lower_expression(
            self.inline_literals(op, value), physical, self.operand_physical(op), self.unbounded
        )
        self.emit_nests(nests, stored, operands, op.name, op.result)

    def operand_physical(self, op: Op) -> list[Physical]:
        return [
            self.storage[operand].physical if operand in self.storage else Physical(operand.type)
            for operand in op.operands
        ]

    def inline_literals(self, op: Op, value: Expr) -> Expr:
        """Replace loads of splat operands by their literal."""
        literals = {
            slot: self.literals[operand]
            for slot, operand in enumerate(op.operands)
            if operand in self.literals
        }

        def rule(slot: int, indices: tuple[Expr, ...], dtype: DType) -> Expr:
            if slot in literals:
                return const(literals[slot], dtype)
            return Expr.make("load", dtype, indices, slot)

        return replace_loads(value, rule) if literals else value

    def lower_claim(self, op: Op, stored: Storage, found: Claim) -> None:
        """Pack what the template wants packed, reserve its scratch, launch it."""
        buffers = [stored.buffer]
        for operand in found.operands:
            source = self.place(op.operands[operand.index])
            if operand.pack is None:
                buffers.append(source.buffer)
                continue
            name = f"{op.operands[operand.index].name}.packed"
            phase = PREPARE if source.phase == PREPARE else stored.phase
            buffers.append(self.pack(source.buffer, operand.pack, name, phase))
        if found.scratch is not None:
            buffers.append(self.scratch(f"{op.result.name}.scratch", found.scratch))
        time = template_time(found.flops, self.target.rates)
        number = self.lowered.choices
        self.lowered.choices += bool(found.alternatives)
        plain = ((found.kernel, found.groups), *found.others)
        for way, parts in enumerate((plain, *found.alternatives)):
            choice = (number, way) if found.alternatives else None
            for kernel, groups in parts:
                if groups is ZERO:
                    continue
                launch = Launch(
                    kernel,
                    tuple(buffers),
                    found.arguments,
                    op.name,
                    op.result.name,
                    time if way == 0 else ZERO,
                    groups,
                    choice,
                )
                self.launch(launch, stored.phase)

    def pack(self, source: int, pack: Pack, name: str, phase: str) -> int:
        """The buffer of a packed operand, packed once however many launches read it."""
        found = self.packed.get((source, pack))
        if found is not None:
            return found
        number = self.lowered.add_buffer(Buffer(name, pack.nbytes, "value"))
        self.packed[source, pack] = number
        if isinstance(pack.kernel, LoopKernel):
            self.launch_loops(pack.kernel, (number, source), phase, "pack", name)
            return number
        time = ceildiv(pack.nbytes, 4)
        buffers = (number, source)
        self.launch(
            Launch(pack.kernel, buffers, pack.arguments, "pack", name, time, pack.groups), phase
        )
        return number


def lower(module: Module, target: Target, *, is_home: bool = True) -> Lowered:
    """Launches of a placed module's function, or of one device's part of it.

    A part that is not ``is_home`` reads no parameter. ``VerifyError`` where it is not placed.
    """
    function = module.function
    state = Lowering(
        module,
        target,
        backend_of(target),
        unbounded=frozenset(binding.symbol for binding in function.bindings),
    )
    for position, param in enumerate(function.params if is_home else ()):
        physical = Physical(param.type)
        number = state.lowered.add_buffer(Buffer(param.name, physical.nbytes, "input", position))
        state.storage[param] = Storage(number, physical, EXECUTE)
        state.lowered.inputs.append(number)
    for op in function.ops:
        state.lower_op(op)
    _collect_outputs(function, state)
    return state.lowered


def _collect_outputs(function: Function, state: Lowering) -> None:
    for value in function.returns:
        stored = state.place(value)
        if not stored.physical.is_plain:
            raise _not_plain(f"output %{value.name}", stored.physical)
        state.lowered.outputs.append(stored.buffer)


def _not_plain(what: str, physical: Physical) -> VerifyError:
    return VerifyError(
        "lower.output",
        f"{what} is not in the plain layout",
        found=f"{physical.layout} with border {physical.border}",
        allowed="NCHW without a border",
    )


def _physical(op: Op) -> Physical:
    layout = str(op.attrs.get("memory_layout", "NCHW"))
    border = typing_cast("tuple[int, int, int, int]", op.attrs.get("border", NO_BORDER))
    return Physical(op.result.type, layout, tuple(border))  # type: ignore[arg-type]


def _traits(op: Op) -> frozenset[str]:
    return lookup(op.name).traits
