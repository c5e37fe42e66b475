"""Constants as passes see them: splat values, bytes of small constants, new constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rlx_edge.compile.passes.graph import CONST, SPLAT
from rlx_edge.ir.core import Constant, Module, Value
from rlx_edge.ir.digest import bytes_digest
from rlx_edge.ir.expression import round_f32
from rlx_edge.ir.types import BOOL, F32, TensorType

Number = float | int | bool


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes in memory as the source of a constant."""

    data: bytes

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end."""
        return self.data[offset : offset + length]


def splat_value(value: Value) -> Number | None:
    """The number that a ``tensor::splat`` repeats (an f32 as stored); ``None`` for others."""
    if value.producer is None or value.producer.name != SPLAT:
        return None
    number = value.producer.attrs["value"]
    assert isinstance(number, (bool, int, float))
    return round_f32(number) if value.type.dtype is F32 else number


def constant_of(module: Module, value: Value) -> Constant | None:
    """The constant behind a ``tensor::const``; ``None`` for other values and absent bytes."""
    if value.producer is None or value.producer.name != CONST:
        return None
    return module.constants.get(str(value.producer.attrs["digest"]))


def element_count(type: TensorType) -> int | None:
    """Number of elements of a static type."""
    return type.size.value if type.is_static else None


def unpack(type: TensorType, data: bytes) -> tuple[Number, ...]:
    """The elements of little-endian ``data``; the type has a ``struct`` format."""
    numbers = struct.unpack(f"<{len(data) // type.dtype.bytes}{type.dtype.struct}", data)
    return tuple(bool(item) for item in numbers) if type.dtype is BOOL else numbers


def add_constant(module: Module, type: TensorType, data: bytes) -> str:
    """Enter bytes into the module's constants; their digest."""
    digest = bytes_digest(data)
    if digest not in module.constants:
        module.constants[digest] = Constant(digest, type, Bytes(data), 0, len(data))
    return digest
