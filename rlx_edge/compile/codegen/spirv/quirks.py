"""Rewrites of a finished module for drivers that cannot take it as it is.

What is rewritten for which driver is data (``targets.vulkan.QUIRKS``); a rewrite changes how a
value is reached, never what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.spirv.assembler import Instruction
from rlx_edge.compile.codegen.spirv.opcodes import OPCODES
from rlx_edge.compile.targets.vulkan import Quirks

_EXTRACT = OPCODES["CompositeExtract"].number
_STRUCT = OPCODES["TypeStruct"].number
_ELEMENTS = (OPCODES["TypeVector"].number, OPCODES["TypeArray"].number)


def apply_quirks(
    instructions: Sequence[Instruction], bound: int, quirks: Quirks
) -> tuple[list[Instruction], int]:
    """``(instructions, bound)`` of the module that the driver is given."""
    if quirks.extract_depth is None:
        return list(instructions), bound
    return split_extracts(instructions, bound, quirks.extract_depth)


def split_extracts(
    instructions: Sequence[Instruction], bound: int, depth: int
) -> tuple[list[Instruction], int]:
    """Every ``OpCompositeExtract`` of more than ``depth`` indices in steps of at most ``depth``,
    through temporaries of the types in between."""
    members: dict[int, tuple[int, ...]] = {}
    types: dict[int, int] = {}
    found: list[Instruction] = []
    by_number = {opcode.number: opcode for opcode in OPCODES.values()}
    for item in instructions:
        opcode = by_number.get(item[0])
        if item[0] == _STRUCT:
            members[item[1]] = item[2:]
        elif item[0] in _ELEMENTS:
            members[item[1]] = (item[2],)
        elif opcode is not None and opcode.typed:
            types[item[2]] = item[1]
        if item[0] != _EXTRACT or len(item) - 4 <= depth:
            found.append(item)
            continue
        _, result_type, result, composite, *indices = item
        kind = types[composite]
        while len(indices) > depth:
            for at in indices[:depth]:
                inner = members[kind]
                kind = inner[at] if len(inner) > 1 else inner[0]
            found.append((_EXTRACT, kind, bound, composite, *indices[:depth]))
            composite, bound, indices = bound, bound + 1, indices[depth:]
        found.append((_EXTRACT, result_type, result, composite, *indices))
    return found, bound
