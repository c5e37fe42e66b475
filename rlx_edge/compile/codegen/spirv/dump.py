"""A SPIR-V module as text: one instruction a line, ids by their names.

The form is that of ``spirv-dis``: result, ``=``, name, operands. A number stands for every id
without a name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rlx_edge.compile.codegen.spirv.assembler import Instruction, decode
from rlx_edge.compile.codegen.spirv.opcodes import BUILT_INS, BY_NUMBER, ENUMS, OPCODES, Opcode

_ENUM_NAMES = {
    table: {number: name for name, number in values.items()} for table, values in ENUMS.items()
}
_BUILT_IN_NAMES = {number: name for name, number in BUILT_INS.items()}


def dump(data: bytes) -> str:
    """The text of a module that the assembler wrote."""
    instructions, bound = decode(data)
    names = _names(instructions)
    types = {item[1]: item for item in instructions if _name(item).startswith("Type")}
    lines = [f"; bound {bound}"]
    lines += [_line(item, names, types) for item in instructions]
    return "\n".join(lines) + "\n"


def _name(item: Instruction) -> str:
    return BY_NUMBER[item[0]].name


def _names(instructions: Sequence[Instruction]) -> dict[int, str]:
    names: dict[int, str] = {}
    for item in instructions:
        if _name(item) == "Name":
            text = _string(item[2:])[0]
            clean = "".join(char if char.isalnum() else "_" for char in text)
            names[item[1]] = clean if clean not in names.values() else f"{clean}_{item[1]}"
    return names


def _string(words: Sequence[int]) -> tuple[str, int]:
    """A literal string at the front of ``words``, and how many of them it takes."""
    data = struct.pack(f"<{len(words)}I", *words)
    text = data[: data.index(0)]
    return text.decode(), len(text) // 4 + 1


def _line(item: Instruction, names: dict[int, str], types: dict[int, Instruction]) -> str:
    opcode, words = BY_NUMBER[item[0]], list(item[1:])
    kind = words.pop(0) if opcode.typed else None
    result = words.pop(0) if opcode.result else None
    shown = [] if kind is None else [_id(kind, names)]
    if opcode.name == "Constant":
        assert kind is not None
        shown.append(_literal(words, types[kind]))
    else:
        shown += _operands(opcode, words, names)
    text = " ".join([f"Op{opcode.name}", *shown])
    return text if result is None else f"{_id(result, names)} = {text}"


def _id(number: int, names: dict[int, str]) -> str:
    return f"%{names.get(number, number)}"


def _operands(opcode: Opcode, words: list[int], names: dict[int, str]) -> list[str]:
    shown: list[str] = []
    for kind in opcode.operands:
        repeated, kind = kind.endswith("*"), kind.removesuffix("*")
        while words:
            if kind == "str":
                text, length = _string(words)
                shown.append(f'"{text}"')
                del words[:length]
            else:
                shown.append(_word(kind, words.pop(0), names, shown))
            if not repeated:
                break
    return shown


def _word(kind: str, word: int, names: dict[int, str], before: Sequence[str]) -> str:
    if kind == "id":
        return _id(word, names)
    if kind in _ENUM_NAMES:
        return _ENUM_NAMES[kind][word]
    if before and before[-1] == "BuiltIn":
        return _BUILT_IN_NAMES[word]
    return str(word)


def _literal(words: Sequence[int], kind: Instruction) -> str:
    """A constant by its type: floats as the shortest decimal, others as unsigned integers."""
    data = struct.pack(f"<{len(words)}I", *words)
    if kind[0] == OPCODES["TypeFloat"].number:
        (number,) = struct.unpack("<d" if len(words) == 2 else "<f", data)
        return repr(number)
    return str(int.from_bytes(data, "little"))
