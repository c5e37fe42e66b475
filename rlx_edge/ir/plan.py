"""Plan programs: straight-line integer code from sizes to the words that kernels read.

A plan program has one entry a symbol, then instructions in SSA form over 64-bit integers, guards,
and a list of which value goes into which word of the parameter block. Python evaluates it here;
JavaScript has the same small interpreter. The program is data (lists of integers), deterministic,
and part of what a ``Program``'s digests bind.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.ir.messages import failure

OPCODES = ("const", "symbol", "add", "sub", "mul", "floordiv", "mod", "max", "min")
RELATIONS = ("==", "!=", "<=", ">=", "<", ">")
MEMORY_LIMIT = 1 << 32
"""Bytes of a 32-bit WebAssembly memory (64 Ki pages)."""


@dataclass(frozen=True, slots=True)
class PlanGuard:
    """``values[left] relation values[right]`` must hold; ``text`` says it for people."""

    left: int
    relation: str
    right: int
    text: str


@dataclass(frozen=True, slots=True)
class PlanProgram:
    """``instructions`` are ``(opcode, a, b)``: SSA operands, or a literal for const/symbol."""

    symbols: tuple[str, ...]
    instructions: tuple[tuple[str, int, int], ...]
    guards: tuple[PlanGuard, ...]
    words: tuple[int, ...]
    """Initial parameter block (i32 words); dynamic ones are 0."""
    writes: tuple[tuple[int, int], ...]
    """``(word index, SSA value)``."""
    block_address: int
    """Byte address of the parameter block in linear memory."""
    peak: int
    """SSA value: bytes of linear memory that the plan needs."""
    inputs: tuple[tuple[int, tuple[int, ...]], ...]
    """A graph input: (SSA byte address, SSA dims)."""
    outputs: tuple[tuple[int, tuple[int, ...]], ...]
    transfers: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """What travels to or from another device, in the order of ``Program.transfers``."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one graph input, output or transfer lies: byte ``address`` and concrete ``shape``."""

    address: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan program evaluated for one set of sizes."""

    words: array[int]
    peak: int
    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    transfers: tuple[Placement, ...] = ()


def evaluate(program: PlanProgram, env: Mapping[str, int], limit: int = MEMORY_LIMIT) -> Plan:
    """The plan for concrete symbols. ``GuardError`` names the guard that fails, ``LimitError``
    the bytes when the model would need more memory than the ``limit`` of its device."""
    values = run_instructions(program, env)
    for guard in program.guards:
        if not relation_holds(values[guard.left], guard.relation, values[guard.right]):
            raise failure(
                "plan.guard", text=guard.text, left=values[guard.left], right=values[guard.right]
            )
    peak = values[program.peak]
    if peak > limit:
        raise failure("plan.memory", nbytes=peak, limit=limit)
    words = array("i", program.words)
    for position, value in program.writes:
        number = values[value]
        words[position] = number - (1 << 32) if number >= 1 << 31 else number
    return Plan(
        words,
        peak,
        tuple(_placement(values, entry) for entry in program.inputs),
        tuple(_placement(values, entry) for entry in program.outputs),
        tuple(_placement(values, entry) for entry in program.transfers),
    )


def run_instructions(program: PlanProgram, env: Mapping[str, int]) -> list[int]:
    """Every SSA value in order."""
    values: list[int] = []
    push = values.append
    for opcode, a, b in program.instructions:
        if opcode == "const":
            push(a)
        elif opcode == "symbol":
            push(env[program.symbols[a]])
        elif opcode == "add":
            push(values[a] + values[b])
        elif opcode == "sub":
            push(values[a] - values[b])
        elif opcode == "mul":
            push(values[a] * values[b])
        elif opcode == "floordiv":
            push(values[a] // values[b])
        elif opcode == "mod":
            push(values[a] % values[b])
        elif opcode == "max":
            push(max(values[a], values[b]))
        else:
            push(min(values[a], values[b]))
    return values


def relation_holds(a: int, relation: str, b: int) -> bool:
    """Whether ``a relation b`` for one of ``RELATIONS``."""
    return {"==": a == b, "!=": a != b, "<=": a <= b, ">=": a >= b, "<": a < b, ">": a > b}[
        relation
    ]


def _placement(values: Sequence[int], entry: tuple[int, tuple[int, ...]]) -> Placement:
    address, dims = entry
    return Placement(values[address], tuple(values[dim] for dim in dims))
