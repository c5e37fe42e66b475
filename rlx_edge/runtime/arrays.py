"""How element types appear in numpy and to onnxruntime's users."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_edge.ir.errors import InputError
from rlx_edge.ir.types import BOOL, DTYPES, F16, F32, F64, DType

_NUMPY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
    "f16": np.dtype("<f2"),
    "i8": np.dtype("i1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "u8": np.dtype("u1"),
    "u16": np.dtype("<u2"),
    "u32": np.dtype("<u4"),
    "u64": np.dtype("<u8"),
    "bool": np.dtype("?"),
}

_FLOAT_NAMES = {F32: "float", F64: "double", F16: "float16", BOOL: "bool"}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """numpy's type for ``dtype``; ``InputError`` ``dtype.numpy`` for bf16, which numpy lacks."""
    try:
        return _NUMPY[dtype.name]
    except KeyError:
        raise InputError(
            "dtype.numpy", "numpy has no such element type", found=dtype, allowed=list(_NUMPY)
        ) from None


def dtype_of(found: np.dtype[Any]) -> DType | None:
    """The ``DType`` of a numpy type in either byte order, ``None`` if there is none."""
    little = found.newbyteorder("<")
    return next((DTYPES[name] for name, known in _NUMPY.items() if known == little), None)


def tensor_type_name(dtype: DType) -> str:
    """``tensor(float)``, ``tensor(int64)``, …: what onnxruntime calls the type."""
    if dtype in _FLOAT_NAMES:
        return f"tensor({_FLOAT_NAMES[dtype]})"
    if dtype.name == "bf16":
        return "tensor(bfloat16)"
    return f"tensor({'u' if dtype.kind == 'uint' else ''}int{dtype.bytes * 8})"
