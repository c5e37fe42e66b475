"""The local `nvcc` as an assembler: figures of kernels on a machine without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from rlx_edge.compile import Assembler, CudaTarget
from rlx_edge.ir.errors import DeviceError

OPTIONS = ("-std=c++17", "-fmad=false", "-diag-suppress=177", "-cubin", "-Xptxas", "-v")
SECONDS = 600


def find_nvcc() -> str | None:
    """The program, by `PATH` or `CUDA_HOME`."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    return shutil.which("nvcc") or (shutil.which("nvcc", path=f"{home}/bin") if home else None)


def assembler_of(target: CudaTarget) -> Assembler | None:
    """What `nvcc` says of code for an architecture; ``None`` where it is not installed."""
    program = find_nvcc()
    return None if program is None else Assembler(partial(_words, program, target), target.limits)


def _words(program: str, target: CudaTarget, source: bytes) -> str:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "kernels.cu"
        path.write_bytes(source)
        command = [program, f"-arch={target.arch}", *OPTIONS, "-o", f"{name}/kernels.cubin"]
        done = subprocess.run(
            [*command, str(path)], capture_output=True, text=True, check=False, timeout=SECONDS
        )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line]
        raise DeviceError(
            "cuda.compile",
            "nvcc does not compile the kernels",
            found=(lines or [f"exit {done.returncode}"])[0][:200],
            where=target.arch,
        )
    return done.stdout + done.stderr
