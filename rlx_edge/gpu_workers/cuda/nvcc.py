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

OPTIONS = ("-std=c++17", "-fmad=false", "-diag-suppress=177", "-Xptxas", "-v")
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
    return run_nvcc(program, source, target.arch, "cubin")[1]


def run_nvcc(program: str, source: bytes, arch: str, form: str) -> tuple[bytes, str]:
    """``form`` (``cubin``, ``ptx``) of a source and what the compiler prints; ``DeviceError``
    ``cuda.compile`` where it refuses."""
    with tempfile.TemporaryDirectory() as name:
        path, output = Path(name) / "kernels.cu", Path(name) / f"kernels.{form}"
        path.write_bytes(source)
        command = [program, f"-arch={arch}", *OPTIONS, f"-{form}", "-o", str(output), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        printed = done.stdout + done.stderr
        if done.returncode == 0:
            return output.read_bytes(), printed
    lines = [line for line in printed.splitlines() if "error" in line or "fatal" in line]
    raise DeviceError(
        "cuda.compile",
        "nvcc does not compile the kernels",
        found=(lines or [f"exit {done.returncode}"])[0][:200],
        where=arch,
    )
