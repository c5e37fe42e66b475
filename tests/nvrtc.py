"""NVRTC 12 in an environment of its own: CUDA 13 makes no code for sm_70 any more.

usage: python -m tests.nvrtc LIBRARY ARCHITECTURE < SOURCE

Compiles with the options of the product and prints what the assembler says. Needs no driver.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import venv
from pathlib import Path

from rlx_edge.gpu_workers.cuda.compiler import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "nvrtc12"
PACKAGE = "nvidia-cuda-nvrtc-cu12==12.9.86"
SECONDS = 300


def library() -> Path | None:
    """NVRTC 12, where the environment was made."""
    found = sorted(FOLDER.glob("lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
    return found[0] if found else None


def install() -> Path:
    """The library, after making the environment where it is absent."""
    found = library()
    if found is None:
        venv.create(FOLDER, with_pip=True)
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        subprocess.run([str(FOLDER / "bin" / "python"), *words], check=True, timeout=SECONDS)
        found = library()
    if found is None:
        raise FileNotFoundError(f"{PACKAGE} has no libnvrtc.so.12")
    return found


def words(source: bytes, arch: str, path: Path) -> str:
    """What the assembler says, by a process that loads that library and no other NVRTC;
    ``RuntimeError`` with the compiler's errors."""
    command = [sys.executable, "-m", "tests.nvrtc", str(path), arch]
    done = subprocess.run(
        command, input=source, capture_output=True, check=False, cwd=ROOT, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    return done.stdout.decode()


def _compile(path: str, arch: str, source: bytes) -> str:
    nvrtc = ctypes.CDLL(path)
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture={arch}", *OPTIONS, "--no-cache"]
    texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), texts)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.value.decode()
    if failed:
        raise SystemExit(f"NVRTC ended with {failed}:\n{text}")
    return text


if __name__ == "__main__":
    print(_compile(sys.argv[1], sys.argv[2], sys.stdin.buffer.read()))
