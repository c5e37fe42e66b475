"""CUDA C++ to machine code by NVRTC, kept on disk by digest.

Works without a driver, so figures of compiled kernels can be had on any machine with the library.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.gpu_workers.cuda.entries import read_entry, write_entry
from rlx_edge.gpu_workers.cuda.library import cupy, reason
from rlx_edge.ir.errors import DeviceError

OPTIONS = ("--std=c++17", "--fmad=false", "--diag-suppress=177", "--ptxas-options=-v")
"""One rounding an operation; IEEE division, square root and subnormals are NVRTC's defaults."""
OWN_CACHE = (12, 8)
"""From this version NVRTC keeps results itself, and leaves out the log of those."""
SUFFIX = ".cubin.json"
RECENT = 4
"""Results without a folder that wait for whoever asks next: first what fits, then the unit."""

_recent: OrderedDict[str, Binary] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code of one architecture and what the assembler said of it."""

    cubin: bytes
    log: str


def compile_source(source: bytes, arch: str, cache: Path | None = None) -> Binary:
    """Machine code for ``arch`` (``sm_90``); ``DeviceError`` ``cuda.compile`` where NVRTC refuses.

    ``cache`` is a folder of earlier results; whatever is wrong there, the source is compiled again.
    Without one a result is kept until it is asked for once more.
    """
    key = _key(source, arch)
    found = _taken(key) if cache is None else _read(cache / f"{key}{SUFFIX}")
    if found is not None:
        return found
    binary = _compile(source, arch)
    if cache is None:
        _keep(key, binary)
    else:
        _write(cache / f"{key}{SUFFIX}", binary)
    return binary


def _taken(key: str) -> Binary | None:
    with _lock:
        return _recent.pop(key, None)


def _keep(key: str, binary: Binary) -> None:
    with _lock:
        _recent[key] = binary
        if len(_recent) > RECENT:
            _recent.popitem(last=False)


def _compile(source: bytes, arch: str) -> Binary:
    nvrtc = cupy().cuda.nvrtc
    options = (*OPTIONS, "--no-cache") if nvrtc.getVersion() >= OWN_CACHE else OPTIONS
    program = nvrtc.createProgram(source.decode("utf-8"), "kernels.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, (f"--gpu-architecture={arch}", *options))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise DeviceError(
                "cuda.compile",
                "NVRTC does not compile the kernels",
                found=_first_error(log) or reason(error),
                where=arch,
            ) from None
        return Binary(bytes(nvrtc.getCUBIN(program)), str(nvrtc.getProgramLog(program)))
    finally:
        nvrtc.destroyProgram(program)


def _first_error(log: str) -> str:
    return next((line for line in log.splitlines() if "error" in line), "")


def _key(source: bytes, arch: str) -> str:
    """Of everything that decides the code, the version of NVRTC included."""
    version = cupy().cuda.nvrtc.getVersion()
    state = hashlib.sha256(json.dumps([arch, OPTIONS, list(version)]).encode())
    state.update(b"\0")
    state.update(source)
    return state.hexdigest()


def _read(path: Path) -> Binary | None:
    """An entry that is whole; its hash covers code and log."""
    content = read_entry(path)
    try:
        cubin, log = bytes.fromhex(content["cubin"]), str(content["log"])
        return Binary(cubin, log) if content["digest"] == _digest(cubin, log) else None
    except (ValueError, KeyError, TypeError):
        return None


def _write(path: Path, binary: Binary) -> None:
    content = {
        "digest": _digest(binary.cubin, binary.log),
        "log": binary.log,
        "cubin": binary.cubin.hex(),
    }
    write_entry(path, content)


def _digest(cubin: bytes, log: str) -> str:
    state = hashlib.sha256(cubin)
    state.update(log.encode())
    return state.hexdigest()
