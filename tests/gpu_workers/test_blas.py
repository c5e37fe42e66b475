"""cuBLAS without a device: what is called with what, and what a refusal becomes."""

# covers R15

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rlx_edge.gpu_workers.cuda import blas
from rlx_edge.ir.errors import DeviceError


class FakeLibrary:
    """Records calls; ``refuses`` is a function's name."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def function(*arguments: object) -> int:
            self.calls.append((name, arguments))
            return 15 if name == self.refuses else 0

        return function


def opened(monkeypatch: pytest.MonkeyPatch, library: FakeLibrary) -> blas.Blas:
    freed: list[int] = []
    runtime = SimpleNamespace(
        malloc=lambda nbytes: 4096, free=freed.append, CUDARuntimeError=MemoryError
    )
    monkeypatch.setattr(blas, "_load", lambda: library)
    monkeypatch.setattr(blas, "runtime", lambda: runtime)
    return blas.Blas(77)


def test_a_row_major_product_is_the_transposed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary()
    handle = opened(monkeypatch, library)
    handle.matmul("tf32", (1, 2, 3), (5, 6, 7, 8), (48, 0))
    handle.close()
    assert [name for name, _ in library.calls] == [
        "cublasCreate_v2",
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasGemmStridedBatchedEx",
        "cublasDestroy_v2",
    ]
    assert library.calls[1][1][1] == 77 and library.calls[2][1][1] == 4096
    given = library.calls[3][1]
    assert given[1:6] == (0, 0, 7, 6, 8)  # n, m, k
    assert given[7:15] == (3, 0, 7, 0, 2, 0, 8, 48)  # b with its stride, then a
    assert given[16:] == (1, 0, 7, 42, 5, blas.COMPUTE["tf32"], -1)
    assert len(given) == len(blas._SIGNATURES["cublasGemmStridedBatchedEx"])


def test_a_refusal_is_an_error_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = opened(monkeypatch, FakeLibrary("cublasGemmStridedBatchedEx"))
    with pytest.raises(DeviceError) as caught:
        handle.matmul("fp16", (1, 2, 3), (1, 1, 1, 1), (1, 1))
    assert caught.value.code == "cuda.library" and "returns 15" in str(caught.value)


def test_an_absent_library_is_an_error_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: no such file")

    cupy = SimpleNamespace(cuda=SimpleNamespace(cublas=object()))
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000)
    monkeypatch.setattr(blas, "cupy", lambda: cupy)
    monkeypatch.setattr(blas, "runtime", lambda: runtime)
    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(DeviceError, match=r"libcublas\.so\.13"):
        blas._load()
