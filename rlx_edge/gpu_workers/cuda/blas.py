"""cuBLAS: matrix products in f32 storage, operands rounded as the precision allows.

CuPy finds and loads the library; its own wrappers refuse calls while a graph is captured, which
cuBLAS allows with a workspace of the caller's, so the C interface is called here.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_size_t, c_void_p
from typing import Any

import numpy as np

from rlx_edge.gpu_workers.cuda.library import cupy, reason, runtime
from rlx_edge.ir.attributes import FP16, RELAXED, TF32
from rlx_edge.ir.errors import DeviceError

# cublasOperation_t, cudaDataType_t, cublasComputeType_t, cublasGemmAlgo_t.
PLAIN = 0
F32 = 0
COMPUTE = {RELAXED: 68, TF32: 77, FP16: 74}
"""CUBLAS_COMPUTE_32F, _32F_FAST_TF32, _32F_FAST_16F: sums are f32 in all of them."""
DEFAULT = -1
WORKSPACE = 32 << 20
"""Bytes, as cuBLAS recommends for its newest architecture."""
_MATRIX = (c_void_p, c_int, c_int, c_longlong)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (c_void_p,),
    "cublasDestroy_v2": (c_void_p,),
    "cublasGetProperty": (c_int, c_void_p),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_void_p, c_void_p, c_size_t),
    "cublasGemmStridedBatchedEx": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p),
        *(*_MATRIX, *_MATRIX, c_void_p, *_MATRIX),
        *(c_int, c_int, c_int),
    ),
}


class Blas:
    """A handle on one stream; the stream's device is current at every call.

    ``DeviceError`` ``cuda.library`` where cuBLAS is absent or refuses.
    """

    def __init__(self, stream: int) -> None:
        self._handle = c_void_p()
        self._workspace = 0
        self._library = _load()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._workspace = int(runtime().malloc(WORKSPACE))
        self._call("cublasSetStream_v2", self._handle, stream)
        self._call("cublasSetWorkspace_v2", self._handle, self._workspace, WORKSPACE)
        self._one = np.array(1, np.float32)
        self._zero = np.array(0, np.float32)

    def matmul(
        self,
        precision: str,
        pointers: tuple[int, int, int],
        sizes: tuple[int, int, int, int],
        strides: tuple[int, int],
    ) -> None:
        """``out = a b`` for row-major matrices.

        ``pointers`` are those of out, a and b, ``sizes`` slices, m, n and k, ``strides`` elements
        from slice to slice of a and b. cuBLAS counts by columns: it gets out' = b' a'.
        """
        out, a, b = pointers
        slices, m, n, k = sizes
        self._call(
            "cublasGemmStridedBatchedEx",
            *(self._handle, PLAIN, PLAIN, n, m, k, self._one.ctypes.data),
            *(b, F32, n, strides[1]),
            *(a, F32, k, strides[0]),
            self._zero.ctypes.data,
            *(out, F32, n, m * n),
            *(slices, COMPUTE[precision], DEFAULT),
        )

    @staticmethod
    def version() -> str:
        """Of the library; needs no device."""
        library, number = _load(), c_int()
        numbers = []
        for part in range(3):  # libraryPropertyType: major, minor, patch
            status = library.cublasGetProperty(part, ctypes.byref(number))
            if status:
                raise _failed(f"cublasGetProperty returns {status}")
            numbers.append(str(number.value))
        return ".".join(numbers)

    def close(self) -> None:
        """After everything in the stream."""
        try:
            self._call("cublasDestroy_v2", self._handle)
            runtime().free(self._workspace)
        except runtime().CUDARuntimeError as error:
            raise _failed(reason(error)) from None

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise _failed(f"{name} returns {status}")


def _load() -> ctypes.CDLL:
    """The library that CuPy has loaded."""
    try:
        assert cupy().cuda.cublas
        library = ctypes.CDLL(f"libcublas.so.{runtime().runtimeGetVersion() // 1000}")
    except (ImportError, AttributeError, OSError) as error:
        raise _failed(reason(error)) from None
    for name, signature in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = signature, c_int
    return library


def _failed(found: str) -> DeviceError:
    return DeviceError("cuda.library", "cuBLAS cannot be used", found=found)
