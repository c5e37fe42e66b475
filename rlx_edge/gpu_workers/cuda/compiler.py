"""CUDA C++ to machine code by NVRTC, kept on disk by digest.

Works without a driver, so figures of compiled kernels can be had on any machine with the library.
A source is compiled in portions, as many at a time as there are processors.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.gpu_workers.cuda.entries import read_entry, write_entry
from rlx_edge.gpu_workers.cuda.library import cupy, reason
from rlx_edge.gpu_workers.cuda.portions import Portion, split_source
from rlx_edge.ir.errors import DeviceError

OPTIONS = ("--std=c++17", "--fmad=false", "--diag-suppress=177", "--ptxas-options=-v")
"""One rounding an operation; IEEE division, square root and subnormals are NVRTC's defaults."""
OWN_CACHE = (12, 8)
"""From this version NVRTC keeps results itself, and leaves out the log of those."""
PORTION = 8
"""Kernels that are compiled together; what all share is read again for each portion."""
SUFFIX = ".cubin.json"
RECENT = 4
"""Results without a folder that wait for whoever asks next: first what fits, then the unit."""

_recent: OrderedDict[str, Binary] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Cubin:
    """A module of machine code and the names of its kernels."""

    code: bytes
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code of one architecture, a module a portion, and what the assembler said of it."""

    cubins: tuple[Cubin, ...]
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
    portions = split_source(source.decode("utf-8"), PORTION)
    with ThreadPoolExecutor(min(len(portions), os.cpu_count() or 1)) as pool:
        found = list(pool.map(lambda portion: _compile_portion(portion, arch), portions))
    return Binary(tuple(cubin for cubin, _ in found), "".join(log for _, log in found))


def _compile_portion(portion: Portion, arch: str) -> tuple[Cubin, str]:
    code, log = _translate(portion.source, arch, "cubin")
    return Cubin(code, portion.entries), log


def translate(source: bytes, arch: str, form: str) -> bytes:
    """``form`` (``cubin``, ``ptx``) of a whole source, nothing kept."""
    return _translate(source.decode("utf-8"), arch, form)[0]


def _translate(source: str, arch: str, form: str) -> tuple[bytes, str]:
    """Code and log. NVRTC works on several programs at once, without Python's lock."""
    nvrtc = cupy().cuda.nvrtc
    options = (*OPTIONS, "--no-cache") if nvrtc.getVersion() >= OWN_CACHE else OPTIONS
    program = nvrtc.createProgram(source, "kernels.cu", (), ())
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
        get = nvrtc.getCUBIN if form == "cubin" else nvrtc.getPTX
        code = get(program)
        return code.encode() if isinstance(code, str) else bytes(code), str(
            nvrtc.getProgramLog(program)
        )
    finally:
        nvrtc.destroyProgram(program)


def _first_error(log: str) -> str:
    return next((line for line in log.splitlines() if "error" in line), "")


def _key(source: bytes, arch: str) -> str:
    """Of everything that decides the code, the version of NVRTC included."""
    version = cupy().cuda.nvrtc.getVersion()
    state = hashlib.sha256(json.dumps([arch, OPTIONS, PORTION, list(version)]).encode())
    state.update(b"\0")
    state.update(source)
    return state.hexdigest()


def _read(path: Path) -> Binary | None:
    """An entry that is whole; its hash covers code and log."""
    content = read_entry(path)
    try:
        cubins = (
            Cubin(bytes.fromhex(item["code"]), tuple(map(str, item["entries"])))
            for item in content["cubins"]
        )
        found = Binary(tuple(cubins), str(content["log"]))
        return found if content["digest"] == _digest(found) else None
    except (ValueError, KeyError, TypeError):
        return None


def _write(path: Path, binary: Binary) -> None:
    content = {
        "digest": _digest(binary),
        "log": binary.log,
        "cubins": [
            {"code": cubin.code.hex(), "entries": list(cubin.entries)} for cubin in binary.cubins
        ],
    }
    write_entry(path, content)


def _digest(binary: Binary) -> str:
    state = hashlib.sha256()
    for cubin in binary.cubins:
        for part in (cubin.code, *(name.encode() for name in cubin.entries)):
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
    state.update(binary.log.encode())
    return state.hexdigest()
