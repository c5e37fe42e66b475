"""The WebAssembly instruction table: text name, opcode bytes, immediates.

Source: WebAssembly specification 2.0 (binary format, section "Instructions"), with the
relaxed SIMD and threads extensions. `INSTRUCTIONS` holds every instruction; the encoder derives
one method from each row and the dump decodes with the same rows, so the two cannot disagree.
"""

from __future__ import annotations

from typing import NamedTuple

# Immediate kinds, in the order in which they are encoded after the opcode.
MEMARG = "memarg"
"""Alignment exponent and byte offset."""
LANE = "lane"
"""One lane index byte."""
LOCAL = "local"
GLOBAL = "global"
FUNCTION = "function"
TABLE = "table"
TYPE = "type"
LABEL = "label"
LABELS = "labels"
"""Vector of labels and the default label of br_table."""
BLOCK = "block"
"""Block type: empty, a value type or a type index."""
MEMORY = "memory"
"""One memory index."""
DATA = "data"
ELEMENT = "element"
I32 = "i32"
I64 = "i64"
F32 = "f32"
F64 = "f64"
V128 = "v128"
"""Sixteen raw bytes."""
LANES = "lanes"
"""Sixteen lane index bytes of a shuffle."""
REFERENCE = "reference"
"""One reference type byte."""
VALUE_TYPES = "value types"
"""Vector of value types of the typed select."""
ZERO = "zero"
"""One reserved zero byte."""


class Instruction(NamedTuple):
    """One row of the table.

    Attributes:
        name: text-format name, such as `i32.add`.
        opcode: prefix and opcode bytes.
        immediates: kinds of the immediates, in encoding order.
        align: for memory accesses the default alignment exponent (log2 of bytes), else 0.
    """

    name: str
    opcode: bytes
    immediates: tuple[str, ...]
    align: int

    @property
    def method(self) -> str:
        """Name of the encoder method: dots become underscores, keywords get one appended."""
        name = self.name.replace(".", "_")
        return name + "_" if name in ("if", "else", "return") else name


def unsigned_leb(value: int) -> bytes:
    """Encode a non-negative integer as unsigned LEB128."""
    if value < 0:
        raise ValueError(f"unsigned LEB128 of a negative number: {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (0x00, "unreachable nop", ()),
    (0x02, "block loop if", (BLOCK,)),
    (0x05, "else", ()),
    (0x0B, "end", ()),
    (0x0C, "br br_if", (LABEL,)),
    (0x0E, "br_table", (LABELS,)),
    (0x0F, "return", ()),
    (0x10, "call", (FUNCTION,)),
    (0x11, "call_indirect", (TYPE, TABLE)),
    (0x1A, "drop select", ()),
    (0x1C, "select_typed", (VALUE_TYPES,)),
    (0x20, "local.get local.set local.tee", (LOCAL,)),
    (0x23, "global.get global.set", (GLOBAL,)),
    (0x25, "table.get table.set", (TABLE,)),
    (0x3F, "memory.size memory.grow", (MEMORY,)),
    (0x41, "i32.const", (I32,)),
    (0x42, "i64.const", (I64,)),
    (0x43, "f32.const", (F32,)),
    (0x44, "f64.const", (F64,)),
    (
        0x45,
        "i32.eqz i32.eq i32.ne i32.lt_s i32.lt_u i32.gt_s i32.gt_u i32.le_s i32.le_u i32.ge_s "
        "i32.ge_u i64.eqz i64.eq i64.ne i64.lt_s i64.lt_u i64.gt_s i64.gt_u i64.le_s i64.le_u "
        "i64.ge_s i64.ge_u f32.eq f32.ne f32.lt f32.gt f32.le f32.ge f64.eq f64.ne f64.lt f64.gt "
        "f64.le f64.ge i32.clz i32.ctz i32.popcnt i32.add i32.sub i32.mul i32.div_s i32.div_u "
        "i32.rem_s i32.rem_u i32.and i32.or i32.xor i32.shl i32.shr_s i32.shr_u i32.rotl i32.rotr "
        "i64.clz i64.ctz i64.popcnt i64.add i64.sub i64.mul i64.div_s i64.div_u i64.rem_s "
        "i64.rem_u i64.and i64.or i64.xor i64.shl i64.shr_s i64.shr_u i64.rotl i64.rotr f32.abs "
        "f32.neg f32.ceil f32.floor f32.trunc f32.nearest f32.sqrt f32.add f32.sub f32.mul f32.div "
        "f32.min f32.max f32.copysign f64.abs f64.neg f64.ceil f64.floor f64.trunc f64.nearest "
        "f64.sqrt f64.add f64.sub f64.mul f64.div f64.min f64.max f64.copysign i32.wrap_i64 "
        "i32.trunc_f32_s i32.trunc_f32_u i32.trunc_f64_s i32.trunc_f64_u i64.extend_i32_s "
        "i64.extend_i32_u i64.trunc_f32_s i64.trunc_f32_u i64.trunc_f64_s i64.trunc_f64_u "
        "f32.convert_i32_s f32.convert_i32_u f32.convert_i64_s f32.convert_i64_u f32.demote_f64 "
        "f64.convert_i32_s f64.convert_i32_u f64.convert_i64_s f64.convert_i64_u f64.promote_f32 "
        "i32.reinterpret_f32 i64.reinterpret_f64 f32.reinterpret_i32 f64.reinterpret_i64 "
        "i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s",
        (),
    ),
    (0xD0, "ref.null", (REFERENCE,)),
    (0xD1, "ref.is_null", ()),
    (0xD2, "ref.func", (FUNCTION,)),
)

_ACCESS: tuple[tuple[int, str, str], ...] = (
    (
        0x28,
        "i32.load i64.load f32.load f64.load i32.load8_s i32.load8_u i32.load16_s i32.load16_u "
        "i64.load8_s i64.load8_u i64.load16_s i64.load16_u i64.load32_s i64.load32_u i32.store "
        "i64.store f32.store f64.store i32.store8 i32.store16 i64.store8 i64.store16 i64.store32",
        "2 3 2 3 0 0 1 1 0 0 1 1 2 2 2 3 2 3 0 1 0 1 2",
    ),
)

_BULK: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (
        0,
        "i32.trunc_sat_f32_s i32.trunc_sat_f32_u i32.trunc_sat_f64_s i32.trunc_sat_f64_u "
        "i64.trunc_sat_f32_s i64.trunc_sat_f32_u i64.trunc_sat_f64_s i64.trunc_sat_f64_u",
        (),
    ),
    (8, "memory.init", (DATA, MEMORY)),
    (9, "data.drop", (DATA,)),
    (10, "memory.copy", (MEMORY, MEMORY)),
    (11, "memory.fill", (MEMORY,)),
    (12, "table.init", (ELEMENT, TABLE)),
    (13, "elem.drop", (ELEMENT,)),
    (14, "table.copy", (TABLE, TABLE)),
    (15, "table.grow table.size table.fill", (TABLE,)),
)

# The hint of the 16-byte accesses is that of one f32: kernels address single elements.
_VECTOR_ACCESS: tuple[tuple[int, str, str], ...] = (
    (
        0,
        "v128.load v128.load8x8_s v128.load8x8_u v128.load16x4_s v128.load16x4_u v128.load32x2_s "
        "v128.load32x2_u v128.load8_splat v128.load16_splat v128.load32_splat v128.load64_splat "
        "v128.store",
        "2 0 0 1 1 2 2 0 1 2 3 2",
    ),
    (92, "v128.load32_zero v128.load64_zero", "2 2"),
)

_VECTOR_LANE_ACCESS: tuple[tuple[int, str, str], ...] = (
    (
        84,
        "v128.load8_lane v128.load16_lane v128.load32_lane v128.load64_lane "
        "v128.store8_lane v128.store16_lane v128.store32_lane v128.store64_lane",
        "0 1 2 2 0 1 2 2",
    ),
)

_VECTOR: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (12, "v128.const", (V128,)),
    (13, "i8x16.shuffle", (LANES,)),
    (
        14,
        "i8x16.swizzle i8x16.splat i16x8.splat i32x4.splat i64x2.splat f32x4.splat f64x2.splat",
        (),
    ),
    (
        21,
        "i8x16.extract_lane_s i8x16.extract_lane_u i8x16.replace_lane i16x8.extract_lane_s "
        "i16x8.extract_lane_u i16x8.replace_lane i32x4.extract_lane i32x4.replace_lane "
        "i64x2.extract_lane i64x2.replace_lane f32x4.extract_lane f32x4.replace_lane "
        "f64x2.extract_lane f64x2.replace_lane",
        (LANE,),
    ),
    (
        35,
        "i8x16.eq i8x16.ne i8x16.lt_s i8x16.lt_u i8x16.gt_s i8x16.gt_u i8x16.le_s i8x16.le_u "
        "i8x16.ge_s i8x16.ge_u i16x8.eq i16x8.ne i16x8.lt_s i16x8.lt_u i16x8.gt_s i16x8.gt_u "
        "i16x8.le_s i16x8.le_u i16x8.ge_s i16x8.ge_u i32x4.eq i32x4.ne i32x4.lt_s i32x4.lt_u "
        "i32x4.gt_s i32x4.gt_u i32x4.le_s i32x4.le_u i32x4.ge_s i32x4.ge_u f32x4.eq f32x4.ne "
        "f32x4.lt f32x4.gt f32x4.le f32x4.ge f64x2.eq f64x2.ne f64x2.lt f64x2.gt f64x2.le f64x2.ge "
        "v128.not v128.and v128.andnot v128.or v128.xor v128.bitselect v128.any_true",
        (),
    ),
    (
        94,
        "f32x4.demote_f64x2_zero f64x2.promote_low_f32x4 i8x16.abs i8x16.neg i8x16.popcnt "
        "i8x16.all_true i8x16.bitmask i8x16.narrow_i16x8_s i8x16.narrow_i16x8_u f32x4.ceil "
        "f32x4.floor f32x4.trunc f32x4.nearest i8x16.shl i8x16.shr_s i8x16.shr_u i8x16.add "
        "i8x16.add_sat_s i8x16.add_sat_u i8x16.sub i8x16.sub_sat_s i8x16.sub_sat_u f64x2.ceil "
        "f64x2.floor i8x16.min_s i8x16.min_u i8x16.max_s i8x16.max_u f64x2.trunc i8x16.avgr_u "
        "i16x8.extadd_pairwise_i8x16_s i16x8.extadd_pairwise_i8x16_u "
        "i32x4.extadd_pairwise_i16x8_s i32x4.extadd_pairwise_i16x8_u i16x8.abs i16x8.neg "
        "i16x8.q15mulr_sat_s i16x8.all_true i16x8.bitmask i16x8.narrow_i32x4_s "
        "i16x8.narrow_i32x4_u i16x8.extend_low_i8x16_s i16x8.extend_high_i8x16_s "
        "i16x8.extend_low_i8x16_u i16x8.extend_high_i8x16_u i16x8.shl i16x8.shr_s i16x8.shr_u "
        "i16x8.add i16x8.add_sat_s i16x8.add_sat_u i16x8.sub i16x8.sub_sat_s i16x8.sub_sat_u "
        "f64x2.nearest i16x8.mul i16x8.min_s i16x8.min_u i16x8.max_s i16x8.max_u",
        (),
    ),
    (
        155,
        "i16x8.avgr_u i16x8.extmul_low_i8x16_s i16x8.extmul_high_i8x16_s "
        "i16x8.extmul_low_i8x16_u i16x8.extmul_high_i8x16_u i32x4.abs i32x4.neg",
        (),
    ),
    (163, "i32x4.all_true i32x4.bitmask", ()),
    (
        167,
        "i32x4.extend_low_i16x8_s i32x4.extend_high_i16x8_s i32x4.extend_low_i16x8_u "
        "i32x4.extend_high_i16x8_u i32x4.shl i32x4.shr_s i32x4.shr_u i32x4.add",
        (),
    ),
    (177, "i32x4.sub", ()),
    (
        181,
        "i32x4.mul i32x4.min_s i32x4.min_u i32x4.max_s i32x4.max_u i32x4.dot_i16x8_s",
        (),
    ),
    (
        188,
        "i32x4.extmul_low_i16x8_s i32x4.extmul_high_i16x8_s i32x4.extmul_low_i16x8_u "
        "i32x4.extmul_high_i16x8_u i64x2.abs i64x2.neg",
        (),
    ),
    (195, "i64x2.all_true i64x2.bitmask", ()),
    (
        199,
        "i64x2.extend_low_i32x4_s i64x2.extend_high_i32x4_s i64x2.extend_low_i32x4_u "
        "i64x2.extend_high_i32x4_u i64x2.shl i64x2.shr_s i64x2.shr_u i64x2.add",
        (),
    ),
    (209, "i64x2.sub", ()),
    (
        213,
        "i64x2.mul i64x2.eq i64x2.ne i64x2.lt_s i64x2.gt_s i64x2.le_s i64x2.ge_s "
        "i64x2.extmul_low_i32x4_s i64x2.extmul_high_i32x4_s i64x2.extmul_low_i32x4_u "
        "i64x2.extmul_high_i32x4_u f32x4.abs f32x4.neg",
        (),
    ),
    (
        227,
        "f32x4.sqrt f32x4.add f32x4.sub f32x4.mul f32x4.div f32x4.min f32x4.max f32x4.pmin "
        "f32x4.pmax f64x2.abs f64x2.neg",
        (),
    ),
    (
        239,
        "f64x2.sqrt f64x2.add f64x2.sub f64x2.mul f64x2.div f64x2.min f64x2.max f64x2.pmin "
        "f64x2.pmax i32x4.trunc_sat_f32x4_s i32x4.trunc_sat_f32x4_u f32x4.convert_i32x4_s "
        "f32x4.convert_i32x4_u i32x4.trunc_sat_f64x2_s_zero i32x4.trunc_sat_f64x2_u_zero "
        "f64x2.convert_low_i32x4_s f64x2.convert_low_i32x4_u i8x16.relaxed_swizzle "
        "i32x4.relaxed_trunc_f32x4_s i32x4.relaxed_trunc_f32x4_u i32x4.relaxed_trunc_f64x2_s_zero "
        "i32x4.relaxed_trunc_f64x2_u_zero f32x4.relaxed_madd f32x4.relaxed_nmadd "
        "f64x2.relaxed_madd f64x2.relaxed_nmadd i8x16.relaxed_laneselect "
        "i16x8.relaxed_laneselect i32x4.relaxed_laneselect i64x2.relaxed_laneselect "
        "f32x4.relaxed_min f32x4.relaxed_max f64x2.relaxed_min f64x2.relaxed_max "
        "i16x8.relaxed_q15mulr_s i16x8.relaxed_dot_i8x16_i7x16_s "
        "i32x4.relaxed_dot_i8x16_i7x16_add_s",
        (),
    ),
)

_ATOMIC_WIDTHS = (
    ("i32.atomic.{}", "", 2),
    ("i64.atomic.{}", "", 3),
    ("i32.atomic.{}8", "_u", 0),
    ("i32.atomic.{}16", "_u", 1),
    ("i64.atomic.{}8", "_u", 0),
    ("i64.atomic.{}16", "_u", 1),
    ("i64.atomic.{}32", "_u", 2),
)

PREFIX_BULK = 0xFC
PREFIX_VECTOR = 0xFD
PREFIX_ATOMIC = 0xFE


def _atomic_rows() -> list[Instruction]:
    rows = [
        _prefixed(PREFIX_ATOMIC, 0, "memory.atomic.notify", (MEMARG,), 2),
        _prefixed(PREFIX_ATOMIC, 1, "memory.atomic.wait32", (MEMARG,), 2),
        _prefixed(PREFIX_ATOMIC, 2, "memory.atomic.wait64", (MEMARG,), 3),
        _prefixed(PREFIX_ATOMIC, 3, "atomic.fence", (ZERO,), 0),
    ]
    code = 0x10
    for operation, suffixed in (("load", True), ("store", False)):
        for pattern, suffix, align in _ATOMIC_WIDTHS:
            name = pattern.format(operation) + (suffix if suffixed else "")
            rows.append(_prefixed(PREFIX_ATOMIC, code, name, (MEMARG,), align))
            code += 1
    for operation in ("add", "sub", "and", "or", "xor", "xchg", "cmpxchg"):
        for pattern, suffix, align in _ATOMIC_WIDTHS:
            name = f"{pattern.format('rmw')}.{operation}{suffix}"
            rows.append(_prefixed(PREFIX_ATOMIC, code, name, (MEMARG,), align))
            code += 1
    return rows


def _prefixed(
    prefix: int, code: int, name: str, immediates: tuple[str, ...], align: int = 0
) -> Instruction:
    return Instruction(name, bytes([prefix]) + unsigned_leb(code), immediates, align)


def _rows() -> list[Instruction]:
    rows: list[Instruction] = []
    for first, names, immediates in _ONE_BYTE:
        for index, name in enumerate(names.split()):
            rows.append(Instruction(name, bytes([first + index]), immediates, 0))
    for first, names, aligns in _ACCESS:
        for index, (name, align) in enumerate(zip(names.split(), aligns.split(), strict=True)):
            rows.append(Instruction(name, bytes([first + index]), (MEMARG,), int(align)))
    for first, names, immediates in _BULK:
        for index, name in enumerate(names.split()):
            rows.append(_prefixed(PREFIX_BULK, first + index, name, immediates))
    for table, kinds in ((_VECTOR_ACCESS, (MEMARG,)), (_VECTOR_LANE_ACCESS, (MEMARG, LANE))):
        for first, names, aligns in table:
            for index, (name, align) in enumerate(zip(names.split(), aligns.split(), strict=True)):
                rows.append(_prefixed(PREFIX_VECTOR, first + index, name, kinds, int(align)))
    for first, names, immediates in _VECTOR:
        for index, name in enumerate(names.split()):
            rows.append(_prefixed(PREFIX_VECTOR, first + index, name, immediates))
    return rows + _atomic_rows()


INSTRUCTIONS: dict[str, Instruction] = {row.name: row for row in _rows()}
"""Every instruction by its text name."""
