"""Compiled modules on disk, so that a model is compiled to machine code once a machine.

An entry's name is ``<key>-<content hash>.cwasm``: the key says what the code was made from, the
hash proves that the bytes are the ones that were written, which must hold before they are mapped
as machine code. Entries are written under another name and renamed: a file that is mapped by a
running process must never be rewritten. Whatever is wrong with an entry or the folder, the module
is compiled again; the cache never makes a run fail.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import wasmtime

from rlx_edge.ir.messages import failure
from rlx_edge.wasm_runtime.engine import engine, engine_identity

SIZE_LIMIT = 512 << 20
"""Bytes of entries kept; the least recently used go first."""
SUFFIX = ".cwasm"


@dataclass(slots=True)
class CacheStatistics:
    """How often the cache helped, and why not."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    unwritable: int = 0
    evicted: int = 0


class ModuleCache:
    """Compiled modules in ``folder``, ``size_limit`` bytes at most; ``None`` keeps nothing."""

    def __init__(self, folder: Path | None = None, size_limit: int = SIZE_LIMIT) -> None:
        self.folder = folder
        self.size_limit = size_limit
        self.statistics = CacheStatistics()

    def module(self, wasm: bytes) -> wasmtime.Module:
        """The compiled module; ``DeviceError`` ``wasm.invalid`` if the bytes are no module."""
        key = module_key(wasm)
        found = self._find(key)
        if found is not None:
            self.statistics.hits += 1
            return found
        self.statistics.misses += 1
        module = compile_module(wasm)
        self._store(key, module)
        return module

    def _find(self, key: str) -> wasmtime.Module | None:
        for path in self._entries(f"{key}-"):
            module = self._read(path)
            if module is not None:
                with suppress(OSError):
                    os.utime(path)
                return module
            self.statistics.damaged += 1
            with suppress(OSError):
                path.unlink()
        return None

    def _read(self, path: Path) -> wasmtime.Module | None:
        try:
            if not path.is_file():  # opening a pipe would wait for its writer
                return None
            with path.open("rb") as file:
                if not _is_ours(os.fstat(file.fileno())):
                    return None
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != path.stem.rpartition("-")[2]:
                return None
            return wasmtime.Module.deserialize_file(engine(), str(path))
        except (OSError, ValueError, wasmtime.WasmtimeError):
            return None

    def _store(self, key: str, module: wasmtime.Module) -> None:
        if self.folder is None:
            return
        data = module.serialize()
        name = f"{key}-{hashlib.sha256(data).hexdigest()}{SUFFIX}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, scratch = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                os.replace(scratch, self.folder / name)
            except BaseException:
                with suppress(OSError):
                    os.unlink(scratch)
                raise
        except OSError:
            self.statistics.unwritable += 1
            return
        self._evict(keep=name)

    def _evict(self, keep: str) -> None:
        """Remove the entries that were used longest ago, never the one just written."""
        aged = []
        for path in self._entries(""):
            with suppress(OSError):
                status = path.stat()
                aged.append((status.st_mtime_ns, path.name, status.st_size, path))
        total = sum(size for _, _, size, _ in aged)
        for _, name, size, path in sorted(aged):
            if total <= self.size_limit:
                return
            if name != keep:
                # A mapped entry stays usable for whoever has it; where it cannot be removed, it
                # is removed another time.
                with suppress(OSError):
                    path.unlink()
                    self.statistics.evicted += 1
                total -= size

    def _entries(self, prefix: str) -> Iterator[Path]:
        if self.folder is None:
            return
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return
        for name in names:
            if name.startswith(prefix) and name.endswith(SUFFIX) and not name.startswith("."):
                yield self.folder / name


def cache_folder() -> Path:
    """``$RLX_CACHE/cwasm``, by default in the user's cache folder."""
    root = os.environ.get("RLX_CACHE")
    if root:
        return Path(root) / "cwasm"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rlx-edge" / "cwasm"


def module_key(wasm: bytes) -> str:
    """Hexadecimal name of the compiled form of ``wasm`` on this engine and machine."""
    state = hashlib.sha256(engine_identity().encode())
    state.update(b"\0")
    state.update(wasm)
    return state.hexdigest()


def compile_module(wasm: bytes, made_for: wasmtime.Engine | None = None) -> wasmtime.Module:
    """Compile without any cache, for the engine at hand unless another is given; ``DeviceError``
    ``wasm.invalid`` if the bytes are no module."""
    try:
        return wasmtime.Module(made_for or engine(), wasm)
    except wasmtime.WasmtimeError as error:
        raise failure("wasm.invalid", reason=_first_line(str(error))) from None


def _is_ours(status: os.stat_result) -> bool:
    """Machine code is only taken from files of this user."""
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
