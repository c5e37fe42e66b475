"""WebAssembly binary encoder: sections and instruction bytes.

Source: WebAssembly specification 2.0, chapter "Binary Format". Nothing here validates: invalid
modules can be built on purpose. `module.py` puts sections in order and numbers indices;
`opcodes.py` holds the instruction table from which `Body` gets one chained method per
instruction (`i32.add` is `i32_add`, `local.get` is `local_get`, keywords take a trailing `_`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from rlx_edge.compile.codegen.wasm import opcodes
from rlx_edge.compile.codegen.wasm.opcodes import INSTRUCTIONS, Instruction, unsigned_leb

I32: Final = 0x7F
I64: Final = 0x7E
F32: Final = 0x7D
F64: Final = 0x7C
V128: Final = 0x7B
FUNCREF: Final = 0x70
EXTERNREF: Final = 0x6F
EMPTY: Final = 0x40
"""Block type of a block without parameters and results."""

FUNCTION: Final = 0
TABLE: Final = 1
MEMORY: Final = 2
GLOBAL: Final = 3

VALUE_TYPE_NAMES: Final = {
    I32: "i32",
    I64: "i64",
    F32: "f32",
    F64: "f64",
    V128: "v128",
    FUNCREF: "funcref",
    EXTERNREF: "externref",
}

MAGIC: Final = b"\0asm\1\0\0\0"

_SMALL_UNSIGNED: Final = tuple(unsigned_leb(value) for value in range(2048))


def signed_leb(value: int) -> bytes:
    """Encode an integer as signed LEB128."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value & 0x7F)
    return bytes(out)


def _unsigned(value: int) -> bytes:
    return _SMALL_UNSIGNED[value] if 0 <= value < 2048 else unsigned_leb(value)


def vector(items: Sequence[bytes]) -> bytes:
    """Encode a vector: count, then the items."""
    return _unsigned(len(items)) + b"".join(items)


def name_bytes(name: str) -> bytes:
    """Encode a name: byte length, then UTF-8."""
    encoded = name.encode()
    return _unsigned(len(encoded)) + encoded


class Limits(NamedTuple):
    """Limits of a memory (pages of 64 KiB) or a table (entries)."""

    minimum: int
    maximum: int | None = None
    shared: bool = False

    def encode(self) -> bytes:
        """Flag byte, minimum, and the maximum where there is one."""
        flags = (0 if self.maximum is None else 1) | (2 if self.shared else 0)
        maximum = b"" if self.maximum is None else _unsigned(self.maximum)
        return bytes([flags]) + _unsigned(self.minimum) + maximum


class Body:
    """A sink of instructions with one chained method per instruction.

    Memory accesses are called as `body.f32_load(offset, align)`, lane accesses as
    `body.v128_load32_lane(lane, offset, align)`; both operands default to offset 0 and the
    table's alignment hint. Index immediates are ints; trailing memory and table indices default
    to 0. Branch targets are label names or depths.
    """

    __slots__ = ("_labels", "code")

    def __init__(self) -> None:
        self.code = bytearray()
        self._labels: list[str | None] = []

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Self]: ...

    # Structured control.

    def block(self, label: str | None = None, result: int = EMPTY) -> Self:
        """Open a block; a branch to it continues after its end."""
        return self._open(0x02, label, result)

    def loop(self, label: str | None = None, result: int = EMPTY) -> Self:
        """Open a loop; a branch to it continues at its start."""
        return self._open(0x03, label, result)

    def if_(self, label: str | None = None, result: int = EMPTY) -> Self:
        """Open the taken arm of a conditional; pops an i32."""
        return self._open(0x04, label, result)

    def _open(self, opcode: int, label: str | None, result: int) -> Self:
        self._labels.append(label)
        self.code.append(opcode)
        self.code.append(result)
        return self

    def end(self) -> Self:
        """Close the innermost open block."""
        if self._labels:
            self._labels.pop()
        self.code.append(0x0B)
        return self

    def depth(self, target: str | int) -> int:
        """Branch depth of a label.

        Raises:
            ValueError: no open block carries the label.
        """
        if isinstance(target, int):
            return target
        for depth, label in enumerate(reversed(self._labels)):
            if label == target:
                return depth
        raise ValueError(f"no open block is labelled {target!r}; open labels: {self._labels}")

    def br(self, target: str | int) -> Self:
        """Branch to a label."""
        self.code.append(0x0C)
        self.code += _unsigned(self.depth(target))
        return self

    def br_if(self, target: str | int) -> Self:
        """Branch to a label when the popped i32 is not zero."""
        self.code.append(0x0D)
        self.code += _unsigned(self.depth(target))
        return self

    def br_table(self, targets: Sequence[str | int], default: str | int) -> Self:
        """Branch to the label selected by the popped i32."""
        self.code.append(0x0E)
        self.code += vector([_unsigned(self.depth(target)) for target in targets])
        self.code += _unsigned(self.depth(default))
        return self

    @property
    def open_blocks(self) -> int:
        """Number of blocks that are not closed."""
        return len(self._labels)

    # Constants and other immediates that are not plain indices.

    def i32_const(self, value: int) -> Self:
        """Push a 32-bit integer; values from 2**31 to 2**32 - 1 are taken as unsigned."""
        self.code.append(0x41)
        self.code += signed_leb(value - (1 << 32) if value >= 1 << 31 else value)
        return self

    def i64_const(self, value: int) -> Self:
        """Push a 64-bit integer; values from 2**63 to 2**64 - 1 are taken as unsigned."""
        self.code.append(0x42)
        self.code += signed_leb(value - (1 << 64) if value >= 1 << 63 else value)
        return self

    def f32_const(self, value: float) -> Self:
        """Push the nearest f32."""
        self.code.append(0x43)
        self.code += struct.pack("<f", value)
        return self

    def f32_const_bits(self, bits: int) -> Self:
        """Push the f32 with the given 32 bits."""
        self.code.append(0x43)
        self.code += struct.pack("<I", bits)
        return self

    def f64_const(self, value: float) -> Self:
        """Push an f64."""
        self.code.append(0x44)
        self.code += struct.pack("<d", value)
        return self

    def v128_const(self, value: bytes) -> Self:
        """Push sixteen bytes, lane 0 first."""
        self.code += b"\xfd\x0c"
        self.code += value
        return self

    def f32x4_const(self, lanes: Sequence[float]) -> Self:
        """Push four f32 lanes."""
        return self.v128_const(struct.pack("<4f", *lanes))

    def i32x4_const(self, lanes: Sequence[int]) -> Self:
        """Push four i32 lanes."""
        return self.v128_const(struct.pack("<4I", *(lane & 0xFFFFFFFF for lane in lanes)))

    def i8x16_shuffle(self, lanes: Sequence[int]) -> Self:
        """Select sixteen bytes by index out of the thirty-two of both operands."""
        self.code += b"\xfd\x0d"
        self.code += bytes(lanes)
        return self

    def i32x4_shuffle(self, lanes: Sequence[int]) -> Self:
        """`i8x16.shuffle` by 32-bit lanes: four indices in 0..8."""
        return self.i8x16_shuffle([4 * lane + byte for lane in lanes for byte in range(4)])

    def select_typed(self, types: Sequence[int]) -> Self:
        """Select with a stated result type."""
        self.code.append(0x1C)
        self.code += vector([bytes([value_type]) for value_type in types])
        return self

    def ref_null(self, reference_type: int) -> Self:
        """Push a null reference."""
        self.code += bytes([0xD0, reference_type])
        return self

    def atomic_fence(self) -> Self:
        """Order the memory accesses before and after it."""
        self.code += b"\xfe\x03\x00"
        return self

    def raw(self, data: bytes) -> Self:
        """Append bytes as they are."""
        self.code += data
        return self


_INDEX_KINDS: Final = frozenset(
    (
        opcodes.LOCAL,
        opcodes.GLOBAL,
        opcodes.FUNCTION,
        opcodes.TABLE,
        opcodes.TYPE,
        opcodes.MEMORY,
        opcodes.DATA,
        opcodes.ELEMENT,
    )
)


def _plain(row: Instruction) -> Callable[[Body], Body]:
    opcode = row.opcode

    def emit(self: Body) -> Body:
        self.code += opcode
        return self

    return emit


def _access(row: Instruction) -> Callable[..., Body]:
    hint = row.align
    prefix = row.opcode + _unsigned(hint)
    opcode = row.opcode

    def emit(self: Body, offset: int = 0, align: int = hint) -> Body:
        self.code += prefix if align == hint else opcode + _unsigned(align)
        self.code += _unsigned(offset)
        return self

    return emit


def _lane_access(row: Instruction) -> Callable[..., Body]:
    hint, opcode = row.align, row.opcode

    def emit(self: Body, lane: int, offset: int = 0, align: int = hint) -> Body:
        self.code += opcode + _unsigned(align) + _unsigned(offset)
        self.code.append(lane)
        return self

    return emit


def _lane(row: Instruction) -> Callable[[Body, int], Body]:
    opcode = row.opcode

    def emit(self: Body, lane: int) -> Body:
        self.code += opcode
        self.code.append(lane)
        return self

    return emit


def _index(row: Instruction) -> Callable[[Body, int], Body]:
    encoded = tuple(row.opcode + unsigned_leb(value) for value in range(256))
    opcode = row.opcode

    def emit(self: Body, index: int) -> Body:
        self.code += encoded[index] if 0 <= index < 256 else opcode + unsigned_leb(index)
        return self

    return emit


def _indices(row: Instruction) -> Callable[..., Body]:
    opcode, kinds = row.opcode, row.immediates
    defaulted = (opcodes.MEMORY, opcodes.TABLE)

    def emit(self: Body, *indices: int) -> Body:
        missing = kinds[len(indices) :]
        if len(indices) > len(kinds) or not all(kind in defaulted for kind in missing):
            raise TypeError(f"{row.name} takes indices {kinds}, found {indices}")
        values = (*indices, *(0 for _ in missing))
        self.code += opcode + b"".join(map(_unsigned, values))
        return self

    return emit


def _method(row: Instruction) -> Callable[..., Any]:
    kinds = row.immediates
    if not kinds:
        return _plain(row)
    if kinds == (opcodes.MEMARG,):
        return _access(row)
    if kinds == (opcodes.MEMARG, opcodes.LANE):
        return _lane_access(row)
    if kinds == (opcodes.LANE,):
        return _lane(row)
    if kinds in ((opcodes.LOCAL,), (opcodes.GLOBAL,), (opcodes.FUNCTION,)):
        return _index(row)
    if all(kind in _INDEX_KINDS for kind in kinds):
        return _indices(row)
    raise TypeError(f"{row.name} needs a hand-written method for its immediates {kinds}")


for _row in INSTRUCTIONS.values():
    if _row.method not in vars(Body):
        setattr(Body, _row.method, _method(_row))


def i32_expression(value: int) -> bytes:
    """Constant expression: an i32."""
    return bytes(Body().i32_const(value).end().code)


def encode_locals(types: Iterable[int]) -> bytes:
    """Declaration of locals: runs of one type."""
    runs: list[tuple[int, int]] = []
    for value_type in types:
        if runs and runs[-1][1] == value_type:
            runs[-1] = (runs[-1][0] + 1, value_type)
        else:
            runs.append((1, value_type))
    return vector([_unsigned(count) + bytes([value_type]) for count, value_type in runs])


class Section:
    """Entries of one section; `payload` excludes the section id and size."""

    id: int = 0

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def __len__(self) -> int:
        return len(self.entries)

    def payload(self) -> bytes:
        """The section's contents."""
        return vector(self.entries)

    def encode(self) -> bytes:
        """Section id, size and contents."""
        payload = self.payload()
        return bytes([self.id]) + _unsigned(len(payload)) + payload


class TypeSection(Section):
    """Function types."""

    id = 1

    def function(self, parameters: Sequence[int], results: Sequence[int]) -> Self:
        """Add a function type."""
        self.entries.append(
            b"\x60" + bytes([len(parameters), *parameters]) + bytes([len(results), *results])
        )
        return self


class ImportSection(Section):
    """Imports."""

    id = 2

    def _entry(self, module: str, name: str, kind: int, description: bytes) -> Self:
        self.entries.append(name_bytes(module) + name_bytes(name) + bytes([kind]) + description)
        return self

    def function(self, module: str, name: str, type_index: int) -> Self:
        """Import a function."""
        return self._entry(module, name, FUNCTION, _unsigned(type_index))

    def table(self, module: str, name: str, reference_type: int, limits: Limits) -> Self:
        """Import a table."""
        return self._entry(module, name, TABLE, bytes([reference_type]) + limits.encode())

    def memory(self, module: str, name: str, limits: Limits) -> Self:
        """Import a memory."""
        return self._entry(module, name, MEMORY, limits.encode())

    def global_(self, module: str, name: str, value_type: int, mutable: bool = False) -> Self:
        """Import a global."""
        return self._entry(module, name, GLOBAL, bytes([value_type, mutable]))


class FunctionSection(Section):
    """Type index of each function."""

    id = 3

    def function(self, type_index: int) -> Self:
        """Declare a function."""
        self.entries.append(_unsigned(type_index))
        return self


class TableSection(Section):
    """Tables."""

    id = 4

    def table(self, limits: Limits, reference_type: int = FUNCREF) -> Self:
        """Declare a table."""
        self.entries.append(bytes([reference_type]) + limits.encode())
        return self


class MemorySection(Section):
    """Memories."""

    id = 5

    def memory(self, limits: Limits) -> Self:
        """Declare a memory."""
        self.entries.append(limits.encode())
        return self


class GlobalSection(Section):
    """Globals."""

    id = 6

    def global_(self, value_type: int, mutable: bool, initial: bytes) -> Self:
        """Declare a global with a constant expression as its initial value."""
        self.entries.append(bytes([value_type, mutable]) + initial)
        return self


class ExportSection(Section):
    """Exports."""

    id = 7

    def export(self, name: str, kind: int, index: int) -> Self:
        """Export the index of a kind under a name."""
        self.entries.append(name_bytes(name) + bytes([kind]) + _unsigned(index))
        return self


class StartSection(Section):
    """The function that runs at instantiation."""

    id = 8

    def __init__(self, function_index: int) -> None:
        super().__init__()
        self.entries.append(_unsigned(function_index))

    def payload(self) -> bytes:
        """The function index."""
        return self.entries[0]


class ElementSection(Section):
    """Element segments."""

    id = 9

    def active(self, offset: bytes, functions: Sequence[int]) -> Self:
        """Fill table 0 from a constant offset expression with function indices."""
        self.entries.append(b"\x00" + offset + vector([_unsigned(item) for item in functions]))
        return self

    def declarative(self, functions: Sequence[int]) -> Self:
        """Declare functions that `ref.func` may name."""
        self.entries.append(b"\x03\x00" + vector([_unsigned(item) for item in functions]))
        return self


class DataCountSection(Section):
    """Number of data segments, needed before `memory.init` and `data.drop`."""

    id = 12

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def payload(self) -> bytes:
        """The count."""
        return _unsigned(self.count)


class CodeSection(Section):
    """Function bodies."""

    id = 10

    def function(self, local_types: Iterable[int], code: bytes | bytearray) -> Self:
        """Add a body: its locals beyond the parameters, and its code without the last `end`."""
        declared = encode_locals(local_types)
        self.entries.append(_unsigned(len(declared) + len(code) + 1) + declared + code + b"\x0b")
        return self


class DataSection(Section):
    """Data segments."""

    id = 11

    def active(self, offset: bytes, data: bytes) -> Self:
        """Copy data into memory 0 at instantiation."""
        self.entries.append(b"\x00" + offset + _unsigned(len(data)) + data)
        return self

    def passive(self, data: bytes) -> Self:
        """Data for `memory.init`."""
        self.entries.append(b"\x01" + _unsigned(len(data)) + data)
        return self


class CustomSection(Section):
    """A named section without meaning to the engine."""

    id = 0

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__()
        self.name = name
        self.data = data

    def payload(self) -> bytes:
        """Name, then the data."""
        return name_bytes(self.name) + self.data


def name_map(names: Sequence[tuple[int, str]]) -> bytes:
    """Encode (index, name) pairs in ascending order of the index."""
    return vector([_unsigned(index) + name_bytes(name) for index, name in names])


class NameSection(CustomSection):
    """Debug names of the module, its functions and their locals (custom section `name`)."""

    def __init__(
        self,
        module: str | None,
        functions: Sequence[tuple[int, str]],
        local_names: Sequence[tuple[int, Sequence[tuple[int, str]]]],
    ) -> None:
        parts = bytearray()
        if module is not None:
            parts += self._subsection(0, name_bytes(module))
        if functions:
            parts += self._subsection(1, name_map(functions))
        if local_names:
            maps = [_unsigned(index) + name_map(names) for index, names in local_names]
            parts += self._subsection(2, vector(maps))
        super().__init__("name", bytes(parts))

    @staticmethod
    def _subsection(identifier: int, data: bytes) -> bytes:
        return bytes([identifier]) + _unsigned(len(data)) + data


def encode_module(sections: Iterable[Section]) -> bytes:
    """A module of the given sections in the given order."""
    return MAGIC + b"".join(section.encode() for section in sections)
