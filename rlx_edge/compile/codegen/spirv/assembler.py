"""A SPIR-V module under construction, and its bytes.

The assembler knows no kernel. It gives out result ids in order, keeps one instruction for equal
types and constants, collects capabilities with their extensions, and writes the sections in the
order that the specification asks for. It checks nothing: ``spirv-val`` does in tests. The same
calls give the same bytes.

::

    module = Module()
    block = Code(module.label())
    x = block.op("FAdd", module.float_type(32), a, b)
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rlx_edge.compile.codegen.spirv.opcodes import (
    ENUMS,
    EXTENSIONS,
    MAGIC,
    OPCODES,
    VERSION,
)

Instruction: TypeAlias = tuple[int, ...]
"""The words of an instruction: its number, then type, result and operands."""


def instruction(name: str, *words: int) -> Instruction:
    """``name`` of ``OPCODES`` with its words in order."""
    return (OPCODES[name].number, *words)


def string_words(text: str) -> tuple[int, ...]:
    """A literal string: UTF-8 with a final zero byte, padded to words."""
    data = text.encode() + b"\0"
    data += bytes(-len(data) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


@dataclass(eq=False, slots=True)
class Code:
    """Instructions in order; ``label`` is the block that the next one goes to."""

    module: Module
    label: int
    instructions: list[Instruction] = field(default_factory=list)

    def op(self, name: str, type_id: int, *operands: int) -> int:
        """Append an instruction with a result of type ``type_id``; its id."""
        result = self.module.id()
        self.instructions.append((OPCODES[name].number, type_id, result, *operands))
        return result

    def do(self, name: str, *operands: int) -> None:
        """Append an instruction without a result."""
        self.instructions.append((OPCODES[name].number, *operands))

    def start(self, label: int) -> None:
        """Begin the block ``label``."""
        self.instructions.append((OPCODES["Label"].number, label))
        self.label = label

    def append(self, other: Code) -> None:
        """Everything of ``other``, which begins in this block, here; it goes on where that ends."""
        self.instructions += other.instructions
        self.label = other.label


@dataclass(eq=False, slots=True)
class Module:
    """Sections of a module; see the file's docstring."""

    bound: int = 1
    capabilities: set[str] = field(default_factory=lambda: {"Shader"})
    addressing: str = "Logical"
    memory: str = "GLSL450"
    """The memory model."""
    refine_roots: bool = False
    """Whether the driver's f32 square roots need a refining step (``scalar_table``)."""
    compare_words: bool = False
    """Whether the driver compares f32 denormals as zeros (``word_order``)."""
    literals: dict[int, float] = field(default_factory=dict)
    """The values of float literals."""
    imports: dict[str, int] = field(default_factory=dict)
    entries: list[Instruction] = field(default_factory=list)
    modes: list[Instruction] = field(default_factory=list)
    names: list[Instruction] = field(default_factory=list)
    decorations: list[Instruction] = field(default_factory=list)
    globals: list[Instruction] = field(default_factory=list)
    functions: list[Instruction] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def id(self) -> int:
        """A fresh result id."""
        self.bound += 1
        return self.bound - 1

    # ---- declarations ------------------------------------------------------------------------

    def capability(self, *names: str) -> None:
        """Require capabilities; their extensions follow."""
        self.capabilities.update(names)

    def import_set(self, name: str = "GLSL.std.450") -> int:
        """The id of an extended instruction set."""
        if name not in self.imports:
            self.imports[name] = self.id()
        return self.imports[name]

    def name(self, target: int, text: str) -> None:
        """A name for people."""
        self.names.append(instruction("Name", target, *string_words(text)))

    def decorate(self, target: int, decoration: str, *words: int) -> None:
        number = ENUMS["Decoration"][decoration]
        self.decorations.append(instruction("Decorate", target, number, *words))

    def entry_point(self, function: int, name: str, interface: Sequence[int]) -> None:
        """A compute shader; ``interface`` are the built-in variables it reads."""
        model = ENUMS["Execution"]["GLCompute"]
        words = (model, function, *string_words(name), *interface)
        self.entries.append(instruction("EntryPoint", *words))

    def mode(self, function: int, name: str, *words: int) -> None:
        """An execution mode of an entry point."""
        self.modes.append(instruction("ExecutionMode", function, ENUMS["Mode"][name], *words))

    # ---- types -------------------------------------------------------------------------------

    def type(self, name: str, *words: int) -> int:
        """The type ``Type<name>`` with these operands; equal ones are one."""
        return self._once(("type", name, words), f"Type{name}", (), words)

    def void_type(self) -> int:
        return self.type("Void")

    def bool_type(self) -> int:
        return self.type("Bool")

    def int_type(self, bits: int = 32, signed: bool = True) -> int:
        """An integer type; 64 and 16 bits ask for their capability."""
        if bits in (16, 64):
            self.capability(f"Int{bits}")
        return self.type("Int", bits, int(signed))

    def storage_int(self, bits: int, signed: bool) -> int:
        """An integer type of 8 or 16 bits for memory only."""
        self.capability(f"StorageBuffer{bits}BitAccess")
        return self.type("Int", bits, int(signed))

    def float_type(self, bits: int = 32) -> int:
        """A float type; 64 and 16 bits ask for their capability."""
        if bits in (16, 64):
            self.capability(f"Float{bits}")
        return self.type("Float", bits)

    def vector_type(self, lanes: int) -> int:
        """A vector of f32."""
        return self.type("Vector", self.float_type(), lanes)

    def pointer(self, storage: str, pointee: int) -> int:
        return self.type("Pointer", ENUMS["Storage"][storage], pointee)

    def array(self, element: int, length: int) -> int:
        """A fixed array without a layout, for workgroup memory."""
        return self.type("Array", element, self.constant(self.int_type(32, False), length))

    def block(self, members: Sequence[tuple[int, int]], key: str = "") -> int:
        """A struct of ``(type, byte offset)`` members decorated as a block."""
        known = ("block", key, tuple(members))
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = self.id()
            self.globals.append(instruction("TypeStruct", found, *(kind for kind, _ in members)))
            self.decorate(found, "Block")
            for position, (_, offset) in enumerate(members):
                words = (found, position, ENUMS["Decoration"]["Offset"], offset)
                self.decorations.append(instruction("MemberDecorate", *words))
        return found

    def strided(self, element: int, stride: int, length: int = 0) -> int:
        """An array in memory, ``stride`` bytes an element; a runtime array without a length."""
        known = ("strided", element, stride, length)
        found = self._known.get(known)
        if found is None:
            size = (self.constant(self.int_type(32, False), length),) if length else ()
            found = self._known[known] = self.id()
            name = "TypeArray" if length else "TypeRuntimeArray"
            self.globals.append(instruction(name, found, element, *size))
            self.decorate(found, "ArrayStride", stride)
        return found

    # ---- constants and variables -------------------------------------------------------------

    def constant(self, type_id: int, *words: int) -> int:
        """A literal of a type of one or two words (low first); equal ones are one."""
        words = tuple(word & 0xFFFFFFFF for word in words)
        return self._once(("constant", type_id, words), "Constant", (type_id,), words)

    def boolean(self, value: bool) -> int:
        name = "ConstantTrue" if value else "ConstantFalse"
        return self._once((name,), name, (self.bool_type(),), ())

    def integer(self, value: int, bits: int = 32, signed: bool = True) -> int:
        """An integer literal, wrapped to its width."""
        if bits == 64:
            return self.constant(self.int_type(bits, signed), value, value >> 32)
        return self.constant(self.int_type(bits, signed), value)

    def real(self, value: float, bits: int = 32) -> int:
        """A float literal."""
        code, words = ("<d", "<2I") if bits == 64 else ("<f", "<I")
        data = struct.pack(code, value)
        found = self.constant(self.float_type(bits), *struct.unpack(words, data))
        self.literals[found] = struct.unpack(code, data)[0]
        return found

    def null(self, type_id: int) -> int:
        """Zero of any type."""
        return self._once(("null", type_id), "ConstantNull", (type_id,), ())

    def composite(self, type_id: int, *members: int) -> int:
        """A constant of other constants; of a cooperative matrix, of the one in all its places."""
        known = ("composite", type_id, members)
        return self._once(known, "ConstantComposite", (type_id,), members)

    def variable(self, storage: str, pointee: int) -> int:
        """A new global variable."""
        pointer = self.pointer(storage, pointee)
        found = self.id()
        words = (pointer, found, ENUMS["Storage"][storage])
        self.globals.append(instruction("Variable", *words))
        return found

    def _once(
        self, key: tuple[object, ...], name: str, before: tuple[int, ...], after: tuple[int, ...]
    ) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.id()
            self.globals.append(instruction(name, *before, found, *after))
        return found

    # ---- functions ---------------------------------------------------------------------------

    def label(self) -> int:
        """An id for a block."""
        return self.id()

    def code(self) -> Code:
        """Code in a block that does not exist yet."""
        return Code(self, self.label())

    def function(self, code: Code, first: int, variables: Sequence[Instruction] = ()) -> int:
        """A function without parameters whose code begins in block ``first``; ``variables`` are
        its own."""
        void = self.void_type()
        kind, found = self.type("Function", void), self.id()
        self.functions.append(instruction("Function", void, found, 0, kind))
        self.functions.append(instruction("Label", first))
        self.functions += variables
        self.functions += code.instructions
        self.functions.append(instruction("FunctionEnd"))
        return found

    # ---- bytes -------------------------------------------------------------------------------

    def instructions(self) -> Iterable[Instruction]:
        """Every instruction in the order of the specification's logical layout."""
        numbers = ENUMS["Capability"]
        needed = sorted(self.capabilities, key=numbers.__getitem__)
        yield from (instruction("Capability", numbers[name]) for name in needed)
        extensions = sorted({EXTENSIONS[name] for name in needed if name in EXTENSIONS})
        yield from (instruction("Extension", *string_words(name)) for name in extensions)
        for name, number in self.imports.items():
            yield instruction("ExtInstImport", number, *string_words(name))
        model = ENUMS["Addressing"][self.addressing], ENUMS["Memory"][self.memory]
        yield instruction("MemoryModel", *model)
        yield from self.entries
        yield from self.modes
        yield from self.names
        yield from self.decorations
        yield from self.globals
        yield from self.functions

    def encode(self) -> bytes:
        """The module as little-endian words."""
        return encode(self.instructions(), self.bound)


def encode(instructions: Iterable[Instruction], bound: int) -> bytes:
    """The bytes of a module with ids below ``bound``."""
    words = array("I", (MAGIC, VERSION, 0, bound, 0))
    for item in instructions:
        words.append(len(item) << 16 | item[0])
        words.extend(item[1:])
    return struct.pack(f"<{len(words)}I", *words)


def decode(data: bytes) -> tuple[list[Instruction], int]:
    """``(instructions, bound)`` of a module that ``encode`` wrote."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    found: list[Instruction] = []
    position = 5
    while position < len(words):
        length = words[position] >> 16
        found.append((words[position] & 0xFFFF, *words[position + 1 : position + length]))
        position += length
    return found, words[3]
