"""WebAssembly instructions as bytes.

Source: WebAssembly specification 2.0, chapter "Binary Format". Nothing here validates: invalid
code can be built on purpose. `sections.py` encodes what is around the code;
`opcodes.py` holds the instruction table from which `Body` gets one chained method per instruction
(`i32.add` is `i32_add`, `local.get` is `local_get`, keywords take a trailing `_`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

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

VALUE_TYPE_NAMES: Final = {
    I32: "i32",
    I64: "i64",
    F32: "f32",
    F64: "f64",
    V128: "v128",
    FUNCREF: "funcref",
    EXTERNREF: "externref",
}

_SMALL_UNSIGNED: Final = tuple(unsigned_leb(value) for value in range(2048))


def signed_leb(value: int) -> bytes:
    """Encode an integer as signed LEB128."""
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value & 0x7F)
    return bytes(out)


def unsigned(value: int) -> bytes:
    return _SMALL_UNSIGNED[value] if 0 <= value < 2048 else unsigned_leb(value)


def vector(items: Sequence[bytes]) -> bytes:
    """Encode a vector: count, then the items."""
    return unsigned(len(items)) + b"".join(items)


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
        self.code += unsigned(self.depth(target))
        return self

    def br_if(self, target: str | int) -> Self:
        """Branch to a label when the popped i32 is not zero."""
        self.code.append(0x0D)
        self.code += unsigned(self.depth(target))
        return self

    def br_table(self, targets: Sequence[str | int], default: str | int) -> Self:
        """Branch to the label selected by the popped i32."""
        self.code.append(0x0E)
        self.code += vector([unsigned(self.depth(target)) for target in targets])
        self.code += unsigned(self.depth(default))
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
    prefix = row.opcode + unsigned(hint)
    opcode = row.opcode

    def emit(self: Body, offset: int = 0, align: int = hint) -> Body:
        self.code += prefix if align == hint else opcode + unsigned(align)
        self.code += unsigned(offset)
        return self

    return emit


def _lane_access(row: Instruction) -> Callable[..., Body]:
    hint, opcode = row.align, row.opcode

    def emit(self: Body, lane: int, offset: int = 0, align: int = hint) -> Body:
        self.code += opcode + unsigned(align) + unsigned(offset)
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
        self.code += opcode + b"".join(map(unsigned, values))
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
