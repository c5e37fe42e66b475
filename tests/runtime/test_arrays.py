"""Element types as numpy and onnxruntime name them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from rlx_edge.ir.errors import InputError
from rlx_edge.ir.types import BF16, DTYPES, DType
from rlx_edge.runtime.arrays import dtype_of, numpy_dtype, tensor_type_name


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d is not BF16], ids=str)
def test_numpy_agrees_with_onnx(dtype: DType) -> None:
    assert numpy_dtype(dtype) == onnx.helper.tensor_dtype_to_np_dtype(dtype.onnx)
    assert numpy_dtype(dtype).itemsize == dtype.bytes
    assert dtype_of(numpy_dtype(dtype)) is dtype
    assert dtype_of(numpy_dtype(dtype).newbyteorder(">")) is dtype


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_names_are_those_of_onnxruntime(dtype: DType) -> None:
    onnx_name = onnx.TensorProto.DataType.Name(dtype.onnx).lower()
    assert tensor_type_name(dtype) == f"tensor({onnx_name})"


def test_what_numpy_lacks() -> None:
    with pytest.raises(InputError) as caught:
        numpy_dtype(BF16)
    assert caught.value.code == "dtype.numpy"
    assert dtype_of(np.dtype("U3")) is None
    assert dtype_of(np.dtype("complex64")) is None
