"""CUDA C++ as PTX or machine code of any architecture, without a device."""

from __future__ import annotations

from rlx_edge.gpu_workers.cuda.compiler import translate
from rlx_edge.gpu_workers.cuda.library import cupy
from rlx_edge.gpu_workers.cuda.nvcc import find_nvcc, run_nvcc
from rlx_edge.ir.errors import DeviceError


def assemble(source: bytes, arch: str, form: str) -> bytes:
    """``form`` of ``source`` for ``arch`` (``sm_80``), by the NVRTC that CuPy loads where it is
    installed, else by ``nvcc``. ``DeviceError`` ``cuda.compile`` where the compiler refuses (that
    of CUDA 13 has no code for ``sm_70`` any more), ``cuda.compiler`` where there is none."""
    try:
        cupy()
    except DeviceError as error:
        program = find_nvcc()
        if program is not None:
            return run_nvcc(program, source, arch, form)[0]
        raise DeviceError(
            "cuda.compiler",
            "nothing here compiles CUDA C++",
            found=f"no nvcc; {error.found}",
            allowed=f"nvcc on the PATH, or {error.allowed}",
            where=arch,
        ) from None
    return translate(source, arch, form)
