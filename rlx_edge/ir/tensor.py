"""Tensors as plain records of the standard library, for the interpreter and for folding."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.types import BF16, BOOL, F16, DType

Buffer: TypeAlias = "bytes | bytearray | memoryview | array[int] | array[float]"
Elements: TypeAlias = "array[int] | array[float]"
Number: TypeAlias = "int | float | bool"

ARRAY_CODE = {
    "f32": "f", "f64": "d", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "bool": "B", "f16": "f", "bf16": "f",
}  # fmt: skip
"""``array`` type that holds an element type's values; f16 and bf16 are held as their f32 values."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """``data`` holds the elements row-major and little-endian, in the storage format of ``dtype``.

    Code ``tensor.size`` when ``data`` has another length than dtype and shape ask for.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: Buffer = field(repr=False)

    def __post_init__(self) -> None:
        found = memoryview(self.data).nbytes
        if found != self.nbytes:
            raise RlxError(
                "tensor.size",
                f"data do not fill {self.dtype}{list(self.shape)}",
                found=f"{found} bytes",
                allowed=f"{self.nbytes} bytes",
            )

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    def tobytes(self) -> bytes:
        """The stored bytes."""
        return memoryview(self.data).tobytes()

    def elements(self) -> Elements:
        """The values as an array (bool as 0 and 1, f16 and bf16 as f32); do not modify it."""
        code = ARRAY_CODE[self.dtype.name]
        if (
            isinstance(self.data, array)
            and self.data.typecode == code
            and self.dtype.bytes == self.data.itemsize
        ):
            return self.data
        raw = self.tobytes()
        if self.dtype is F16:
            return array("f", struct.unpack(f"<{self.size}e", raw))
        if self.dtype is BF16:
            bits = array("H", raw)
            return array("f", array("I", (value << 16 for value in bits)).tobytes())
        return array(code, raw)

    def values(self) -> list[Number]:
        """The values as Python numbers (``bool`` for bool tensors)."""
        found = self.elements()
        return [value != 0 for value in found] if self.dtype is BOOL else list(found)


def from_values(dtype: DType, shape: Sequence[int], values: Iterable[Number]) -> Tensor:
    """A tensor of values that fit ``dtype``; floats are rounded to it."""
    return store(dtype, tuple(shape), array(ARRAY_CODE[dtype.name], values))


def store(dtype: DType, shape: tuple[int, ...], elements: Elements) -> Tensor:
    """A tensor of ``elements`` as ``Tensor.elements`` returns them."""
    if dtype is F16:
        return Tensor(dtype, shape, array("H", b"".join(map(half_bytes, elements))))
    if dtype is BF16:
        bits = array("I", elements.tobytes())
        return Tensor(dtype, shape, array("H", map(bfloat16_bits, bits)))
    return Tensor(dtype, shape, elements)


def half_bytes(value: float) -> bytes:
    """The two bytes of the nearest f16 (ties to even, overflow to infinity)."""
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return b"\x00\x7c" if value > 0 else b"\x00\xfc"


def bfloat16_bits(bits: int) -> int:
    """The bf16 nearest to the f32 with these bits (ties to even); NaN stays NaN."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def zeros(dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """A tensor of zeros."""
    return Tensor(dtype, shape, bytes(prod(shape) * dtype.bytes))
