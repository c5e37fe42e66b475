"""cuBLAS through CuPy: matrix products in f32 storage, operands rounded as the precision allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx_edge.gpu_workers.cuda.library import cupy, reason
from rlx_edge.ir.attributes import FP16, RELAXED, TF32
from rlx_edge.ir.errors import DeviceError

# cublasOperation_t, cudaDataType_t, cublasComputeType_t, cublasGemmAlgo_t.
PLAIN = 0
F32 = 0
COMPUTE = {RELAXED: 68, TF32: 77, FP16: 74}
"""CUBLAS_COMPUTE_32F, _32F_FAST_TF32, _32F_FAST_16F: sums are f32 in all of them."""
DEFAULT = -1


class Blas:
    """A handle on one stream; the stream's device is current at every call.

    ``DeviceError`` ``cuda.library`` where cuBLAS is absent or refuses.
    """

    def __init__(self, stream: int) -> None:
        try:
            self._library: Any = cupy().cuda.cublas
            self._handle = int(self._library.create())
            self._library.setStream(self._handle, stream)
        except ImportError as error:
            raise _failed(error) from None
        except self._library.CUBLASError as error:
            raise _failed(error) from None
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
        one, zero = self._one.ctypes.data, self._zero.ctypes.data
        left, right = (b, F32, n), (a, F32, k)
        head = (self._handle, PLAIN, PLAIN, n, m, k, one)
        try:
            if slices == 1:
                self._library.gemmEx(
                    *head, *left, *right, zero, out, F32, n, COMPUTE[precision], DEFAULT
                )
            else:
                self._library.gemmStridedBatchedEx(
                    *head,
                    *(*left, strides[1]),
                    *(*right, strides[0]),
                    zero,
                    *(out, F32, n, m * n),
                    slices,
                    COMPUTE[precision],
                    DEFAULT,
                )
        except self._library.CUBLASError as error:
            raise _failed(error) from None

    def close(self) -> None:
        self._library.destroy(self._handle)


def _failed(error: BaseException) -> DeviceError:
    return DeviceError("cuda.library", "cuBLAS cannot be used", found=reason(error))
