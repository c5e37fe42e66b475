"""Annotated text of a WebAssembly binary: offset, bytes, meaning; one instruction a line.

The text is what golden tests compare, so that a change of generated code reads as a diff. It shows
whatever the bytes say, valid or not; it fails only where bytes cannot be decoded at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from rlx_edge.compile.codegen.wasm import opcodes
from rlx_edge.compile.codegen.wasm.encoder import EMPTY, VALUE_TYPE_NAMES
from rlx_edge.compile.codegen.wasm.opcodes import INSTRUCTIONS, Instruction
from rlx_edge.compile.codegen.wasm.sections import MAGIC
from rlx_edge.ir.errors import RlxError

KINDS = ("function", "table", "memory", "global")
SECTION_NAMES = {
    0: "custom",
    1: "types",
    2: "imports",
    3: "functions",
    4: "tables",
    5: "memories",
    6: "globals",
    7: "exports",
    8: "start",
    9: "elements",
    10: "code",
    11: "data",
    12: "data count",
}
MAX_BYTES = 8
"""Bytes shown on a line; longer spans end in `..`."""

_BY_OPCODE: dict[bytes, Instruction] = {row.opcode: row for row in INSTRUCTIONS.values()}
_PREFIXES = (opcodes.PREFIX_BULK, opcodes.PREFIX_VECTOR, opcodes.PREFIX_ATOMIC)


def dump(wasm: bytes) -> str:
    """The annotated text of a module.

    Raises:
        RlxError: the bytes end early, or hold an unknown section, opcode or type.
    """
    return _Dump(wasm).run()


class _Dump:
    def __init__(self, wasm: bytes) -> None:
        self.wasm = wasm
        self.at = 0
        self.lines: list[str] = []
        self.imported_functions = 0
        self.function_names: dict[int, str] = {}
        self.local_names: dict[int, dict[int, str]] = {}
        self.names_here: dict[int, str] = {}

    def run(self) -> str:
        if self.wasm[:8] != MAGIC:
            raise self.error("not a WebAssembly binary", self.wasm[:8].hex(), MAGIC.hex())
        self.find_names()
        self.at = 8
        self.line(0, "module")
        while self.at < len(self.wasm):
            self.section()
        return "\n".join(self.lines) + "\n"

    # ---- reading -----------------------------------------------------------------------------

    def error(self, what: str, found: str, allowed: str = "") -> RlxError:
        where = f"byte {self.at:#x}"
        return RlxError("dump.binary", what, found=found, allowed=allowed or None, where=where)

    def take(self, count: int) -> bytes:
        data = self.wasm[self.at : self.at + count]
        if len(data) != count:
            raise self.error("the binary ends early", f"{len(data)} bytes", f"{count} bytes")
        self.at += count
        return data

    def byte(self) -> int:
        return self.take(1)[0]

    def leb(self) -> tuple[int, int, int]:
        """Value, bits and last byte of an integer of at most ten bytes."""
        value = 0
        for shift in range(0, 70, 7):
            part = self.byte()
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value, shift + 7, part
        raise self.error("an integer is too long", "more than 10 bytes")

    def unsigned(self) -> int:
        return self.leb()[0]

    def signed(self) -> int:
        value, bits, last = self.leb()
        return value - (1 << bits) if last & 0x40 else value

    def name(self) -> str:
        return self.take(self.unsigned()).decode("utf-8", "backslashreplace")

    def value_type(self) -> str:
        code = self.byte()
        if code not in VALUE_TYPE_NAMES:
            raise self.error("unknown value type", hex(code))
        return VALUE_TYPE_NAMES[code]

    def limits(self) -> str:
        flags = self.byte()
        minimum = self.unsigned()
        maximum = f" max {self.unsigned()}" if flags & 1 else ""
        return f"min {minimum}{maximum}{' shared' if flags & 2 else ''}"

    def kind_text(self, kind: int) -> str:
        if kind >= len(KINDS):
            raise self.error("unknown kind of import or export", str(kind), "0 to 3")
        return KINDS[kind]

    # ---- names -------------------------------------------------------------------------------

    def find_names(self) -> None:
        """Read the custom section `name` first, so that listings can use it."""
        self.at = 8
        while self.at < len(self.wasm):
            section, size = self.byte(), self.unsigned()
            end = self.at + size
            if section == 0 and self.name() == "name":
                while self.at < end:
                    part, length = self.byte(), self.unsigned()
                    stop = self.at + length
                    if part == 1:
                        self.function_names = self.name_map()
                    elif part == 2:
                        self.local_names = {
                            self.unsigned(): self.name_map() for _ in range(self.unsigned())
                        }
                    self.at = stop
            self.at = end

    def name_map(self) -> dict[int, str]:
        return {self.unsigned(): self.name() for _ in range(self.unsigned())}

    def function_text(self, index: int) -> str:
        name = self.function_names.get(index)
        return f"{index} <{name}>" if name else str(index)

    # ---- sections ----------------------------------------------------------------------------

    def line(self, start: int, text: str, depth: int = 0) -> None:
        data = self.wasm[start : self.at]
        shown = data[:MAX_BYTES].hex(" ") + (" .." if len(data) > MAX_BYTES else "")
        self.lines.append(f"{start:#08x} | {shown:{3 * MAX_BYTES + 2}} | {'  ' * depth}{text}")

    def section(self) -> None:
        start = self.at
        identifier = self.byte()
        size = self.unsigned()
        if identifier not in SECTION_NAMES:
            raise self.error("unknown section", str(identifier), "0 to 12")
        end = self.at + size
        if end > len(self.wasm):
            raise self.error("a section ends behind the binary", str(end), str(len(self.wasm)))
        title = f"section {SECTION_NAMES[identifier]}, {size} bytes"
        if identifier == 0:
            self.line(start, title)
            self.entry(lambda: f"custom {self.name()!r}")
            start, self.at = self.at, end
            self.line(start, f"{end - start} bytes of contents", 1)
        elif identifier == 8:
            self.line(start, title)
            self.entry(lambda: f"start function {self.function_text(self.unsigned())}")
        elif identifier == 12:
            self.line(start, title)
            self.entry(lambda: f"{self.unsigned()} segments")
        else:
            count = self.unsigned()
            self.line(start, f"{title}, {count} entries")
            reader = _ENTRIES[identifier]
            for index in range(count):
                reader(self, index)
        if self.at != end:
            raise self.error("a section's size and contents disagree", str(self.at), str(end))

    def entry(self, read: Callable[[], str], depth: int = 1) -> None:
        start = self.at
        text = read()
        self.line(start, text, depth)

    def table_entry(self, index: int) -> str:
        return f"table {index}: {self.value_type()} {self.limits()}"

    def memory_entry(self, index: int) -> str:
        return f"memory {index}: {self.limits()}"

    def type_entry(self, index: int) -> str:
        self.byte()
        parameters = [self.value_type() for _ in range(self.unsigned())]
        results = [self.value_type() for _ in range(self.unsigned())]
        return f"type {index}: ({', '.join(parameters)}) -> ({', '.join(results)})"

    def import_entry(self, index: int) -> str:
        module, name, kind = self.name(), self.name(), self.byte()
        if kind == 0:
            detail = f"type {self.unsigned()}"
            self.imported_functions += 1
        elif kind == 1:
            detail = f"{self.value_type()} {self.limits()}"
        elif kind == 2:
            detail = self.limits()
        else:
            detail = f"{self.value_type()}{' mutable' if self.byte() else ''}"
        return f"import {index}: {self.kind_text(kind)} {module}.{name} {detail}"

    def function_entry(self, index: int) -> str:
        number = self.imported_functions + index
        return f"function {self.function_text(number)}: type {self.unsigned()}"

    def global_entry(self, index: int) -> str:
        value_type, mutable = self.value_type(), self.byte()
        initial = self.expression()
        return f"global {index}: {value_type}{' mutable' if mutable else ''} = {initial}"

    def export_entry(self, index: int) -> str:
        name, kind, target = self.name(), self.byte(), self.unsigned()
        text = self.function_text(target) if kind == 0 else str(target)
        return f"export {index}: {name!r} is {self.kind_text(kind)} {text}"

    def element_entry(self, index: int) -> str:
        flags = self.unsigned()
        if flags not in (0, 3):
            raise self.error("unsupported kind of element segment", str(flags), "0 or 3")
        where = f"at {self.expression()}" if flags == 0 else "declarative"
        if flags == 3:
            self.byte()
        items = [self.function_text(self.unsigned()) for _ in range(self.unsigned())]
        return f"elements {index}: {where}: {', '.join(items)}"

    def data_entry(self, index: int) -> str:
        flags = self.unsigned()
        where = f"at {self.expression()}" if flags == 0 else "passive"
        return f"data {index}: {where}: {len(self.take(self.unsigned()))} bytes"

    def expression(self) -> str:
        parts: list[str] = []
        while True:
            row, text = self.instruction()
            if row.name == "end":
                return " ".join(parts)
            parts.append(text)

    # ---- code --------------------------------------------------------------------------------

    def body(self, index: int) -> None:
        start = self.at
        end = self.unsigned() + self.at
        number = self.imported_functions + index
        self.line(start, f"body of function {self.function_text(number)}", 1)
        self.names_here = self.local_names.get(number, {})
        for _ in range(self.unsigned()):
            self.entry(lambda: f"{self.unsigned()} locals {self.value_type()}", 2)
        depth = 2
        while self.at < end:
            start = self.at
            row, text = self.instruction()
            if row.name in ("end", "else"):
                depth -= 1
            self.line(start, text, max(depth, 1))
            if row.name in ("block", "loop", "if", "else"):
                depth += 1
        if self.at != end:
            raise self.error("a body's size and contents disagree", str(self.at), str(end))

    def instruction(self) -> tuple[Instruction, str]:
        start = self.at
        opcode = self.take(1)
        if opcode[0] in _PREFIXES:
            opcode += opcodes.unsigned_leb(self.unsigned())
        row = _BY_OPCODE.get(opcode)
        if row is None:
            self.at = start
            raise self.error("unknown opcode", opcode.hex(" "))
        parts = [self.immediate(kind, row) for kind in row.immediates]
        return row, " ".join([row.name, *(part for part in parts if part)])

    def immediate(self, kind: str, row: Instruction) -> str:
        if kind == opcodes.MEMARG:
            align, offset = self.unsigned(), self.unsigned()
            shown = [f"offset={offset}"] if offset else []
            if align != row.align:
                shown.append(f"align=2**{align}")
            return " ".join(shown)
        if kind == opcodes.LOCAL:
            index = self.unsigned()
            name = self.names_here.get(index)
            return f"{index} <{name}>" if name else str(index)
        if kind == opcodes.FUNCTION:
            return self.function_text(self.unsigned())
        if kind == opcodes.MEMORY:
            index = self.unsigned()
            return str(index) if index else ""
        if kind == opcodes.BLOCK:
            return self.block_type()
        reader = _IMMEDIATES.get(kind)
        return reader(self) if reader else str(self.unsigned())

    def block_type(self) -> str:
        code = self.signed()
        if code >= 0:
            return f"type {code}"
        byte = code & 0x7F
        return "" if byte == EMPTY else VALUE_TYPE_NAMES.get(byte, hex(byte))


def _labels(reader: _Dump) -> str:
    targets = [reader.unsigned() for _ in range(reader.unsigned())]
    return f"{' '.join(map(str, targets))} default {reader.unsigned()}"


def _lanes(reader: _Dump) -> str:
    lanes = reader.take(16)
    words = [lanes[start] // 4 for start in range(0, 16, 4)]
    if lanes == bytes(4 * word + byte for word in words for byte in range(4)):
        return f"words {' '.join(map(str, words))}"
    return " ".join(map(str, lanes))


def _vector_constant(reader: _Dump) -> str:
    data = reader.take(16)
    return "i32x4 " + " ".join(f"{word:#x}" for word in struct.unpack("<4I", data))


def _zero(reader: _Dump) -> str:
    reader.byte()
    return ""


_IMMEDIATES: dict[str, Callable[[_Dump], str]] = {
    opcodes.LANE: lambda reader: str(reader.byte()),
    opcodes.LABELS: _labels,
    opcodes.LANES: _lanes,
    opcodes.I32: lambda reader: str(reader.signed()),
    opcodes.I64: lambda reader: str(reader.signed()),
    opcodes.F32: lambda reader: repr(struct.unpack("<f", reader.take(4))[0]),
    opcodes.F64: lambda reader: repr(struct.unpack("<d", reader.take(8))[0]),
    opcodes.V128: _vector_constant,
    opcodes.REFERENCE: _Dump.value_type,
    opcodes.VALUE_TYPES: lambda reader: " ".join(
        reader.value_type() for _ in range(reader.unsigned())
    ),
    opcodes.ZERO: _zero,
}


def _line_reader(read: Callable[[_Dump, int], str]) -> Callable[[_Dump, int], None]:
    return lambda reader, index: reader.entry(lambda: read(reader, index))


_ENTRIES: dict[int, Callable[[_Dump, int], None]] = {
    1: _line_reader(_Dump.type_entry),
    2: _line_reader(_Dump.import_entry),
    3: _line_reader(_Dump.function_entry),
    4: _line_reader(_Dump.table_entry),
    5: _line_reader(_Dump.memory_entry),
    6: _line_reader(_Dump.global_entry),
    7: _line_reader(_Dump.export_entry),
    9: _line_reader(_Dump.element_entry),
    10: _Dump.body,
    11: _line_reader(_Dump.data_entry),
}
