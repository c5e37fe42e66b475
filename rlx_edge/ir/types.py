"""Element types and tensor types.

Names follow MLIR's short forms (``f32``, ``i64``); the mapping to ONNX ``TensorProto.DataType``
numbers is part of the table. ``bool`` is stored as one byte holding 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.ir.dims import Dim, DimLike, as_dim, product
from rlx_edge.ir.errors import RlxError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: ``kind`` is ``float``, ``int``, ``uint`` or ``bool``."""

    name: str
    kind: str
    bytes: int
    onnx: int
    struct: str
    """``struct``/``array``/``memoryview`` format character, ``""`` where none exists."""

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


F32 = DType("f32", "float", 4, 1, "f")
F64 = DType("f64", "float", 8, 11, "d")
F16 = DType("f16", "float", 2, 10, "e")
BF16 = DType("bf16", "float", 2, 16, "")
I8 = DType("i8", "int", 1, 3, "b")
I16 = DType("i16", "int", 2, 5, "h")
I32 = DType("i32", "int", 4, 6, "i")
I64 = DType("i64", "int", 8, 7, "q")
U8 = DType("u8", "uint", 1, 2, "B")
U16 = DType("u16", "uint", 2, 4, "H")
U32 = DType("u32", "uint", 4, 12, "I")
U64 = DType("u64", "uint", 8, 13, "Q")
BOOL = DType("bool", "bool", 1, 9, "?")

DTYPES: dict[str, DType] = {
    dtype.name: dtype for dtype in (F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
}
BY_ONNX: dict[int, DType] = {dtype.onnx: dtype for dtype in DTYPES.values()}


def dtype_named(name: str, *, where: str | None = None) -> DType:
    """The ``DType`` called ``name``; ``RlxError`` code ``type.unknown`` otherwise."""
    try:
        return DTYPES[name]
    except KeyError:
        raise RlxError(
            "type.unknown", "unknown element type", found=name, allowed=list(DTYPES), where=where
        ) from None


@dataclass(frozen=True, slots=True)
class TensorType:
    """``f32[batch, 10]``: an element type and a (possibly symbolic) shape; rank 0 is ``f32[]``."""

    dtype: DType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(dim) for dim in self.shape)}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> Dim:
        return self.size * self.dtype.bytes

    @property
    def is_static(self) -> bool:
        return all(dim.is_constant for dim in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as integers; ``ValueError`` where a dim is symbolic."""
        return tuple(dim.value for dim in self.shape)


def tensor_type(dtype: DType, *shape: DimLike) -> TensorType:
    """``tensor_type(F32, "batch", 10)``."""
    return TensorType(dtype, tuple(as_dim(dim) for dim in shape))
