"""A module taken apart: one for each entry point, with the functions and variables that it uses.

Drivers may reserve the workgroup memory of a whole module for each of its kernels, and read all of
it for each pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rlx_edge.compile.codegen.spirv.assembler import Instruction, decode, encode
from rlx_edge.compile.codegen.spirv.opcodes import BY_NUMBER, ENUMS

_NOTES = {"Name": "names", "MemberName": "names", "Decorate": "notes", "MemberDecorate": "notes"}
_WORKGROUP = ENUMS["Storage"]["Workgroup"]


@dataclass(slots=True)
class _Function:
    code: list[Instruction] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    used: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Sections:
    """A module's instructions by where they stand and what they belong to."""

    preamble: list[Instruction] = field(default_factory=list)
    entries: list[Instruction] = field(default_factory=list)
    modes: dict[int, list[Instruction]] = field(default_factory=dict)
    names: dict[int, list[Instruction]] = field(default_factory=dict)
    notes: dict[int, list[Instruction]] = field(default_factory=dict)
    globals: list[Instruction] = field(default_factory=list)
    functions: dict[int, _Function] = field(default_factory=dict)


def single_entries(data: bytes) -> list[bytes]:
    """A module for each entry point of a module that the assembler wrote, in their order."""
    items, bound = decode(data)
    sections = _sections(items)
    return [encode(_module(sections, entry), bound) for entry in sections.entries]


def _sections(items: Iterable[Instruction]) -> _Sections:
    found = _Sections()
    function: _Function | None = None
    for item in items:
        name = BY_NUMBER[item[0]].name
        if name == "Function":
            function = found.functions[item[2]] = _Function()
        if function is not None:
            function.code.append(item)
            function.results += _result(item)
            function.used.update(_operands(item))
            if name == "FunctionEnd":
                function = None
        elif name == "EntryPoint":
            found.entries.append(item)
        elif name == "ExecutionMode":
            found.modes.setdefault(item[1], []).append(item)
        elif name in _NOTES:
            getattr(found, _NOTES[name]).setdefault(item[1], []).append(item)
        elif found.entries:
            found.globals.append(item)
        else:
            found.preamble.append(item)
    return found


def _module(sections: _Sections, entry: Instruction) -> Iterator[Instruction]:
    function = sections.functions[entry[2]]
    kept = [item for item in sections.globals if _is_needed(item, function)]
    imported = [number for item in sections.preamble for number in _result(item)]
    every = [*imported, *(number for item in kept for number in _result(item)), *function.results]
    yield from sections.preamble
    yield entry
    yield from sections.modes.get(entry[2], ())
    for notes in (sections.names, sections.notes):
        for number in every:
            yield from notes.get(number, ())
    yield from kept
    yield from function.code


def _is_needed(item: Instruction, function: _Function) -> bool:
    """Whether a declaration stays: all but variables of other kernels in workgroup memory."""
    private = BY_NUMBER[item[0]].name == "Variable" and item[3] == _WORKGROUP
    return not private or item[2] in function.used


def _result(item: Instruction) -> tuple[int, ...]:
    opcode = BY_NUMBER[item[0]]
    return (item[2 if opcode.typed else 1],) if opcode.result else ()


def _operands(item: Instruction) -> Iterator[int]:
    """Ids that an instruction in a function reads."""
    opcode = BY_NUMBER[item[0]]
    words = item[1 + opcode.typed + opcode.result :]
    for position, kind in enumerate(opcode.operands):
        if kind == "id*":
            yield from words[position:]
        elif kind == "id":
            yield from words[position : position + 1]
