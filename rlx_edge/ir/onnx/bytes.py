"""Bytes by range: where model files and weights come from without being read whole.

A ``ByteSource`` may be a file, bytes in memory, an HTTP resource with ranges or a browser
``Blob``; all that is asked of it is ``read(offset, length)``. A ``ByteRange`` names part of one
and is what a weight is until a runtime copies it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlx_edge.ir.errors import ModelError

CHUNK = 1 << 20
"""Bytes read at a time when a range is streamed."""


class ByteSource(Protocol):
    """Random-access bytes. ``name`` is for messages only and never part of an output."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``; ``ModelError`` ``bytes.range`` outside."""
        ...


class MemorySource:
    """Bytes that are already in memory; slices are copied only when read."""

    __slots__ = ("_view", "name")

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "<bytes>") -> None:
        self._view = memoryview(data).cast("B")
        self.name = name

    @property
    def size(self) -> int:
        return len(self._view)

    def read(self, offset: int, length: int) -> bytes:
        check_range(self, offset, length)
        return bytes(self._view[offset : offset + length])


class FileSource:
    """A file on disk, opened for each read so that no handle outlives its use.

    Size and modification time are taken once; a file that changes afterwards is an error
    (``bytes.changed``) instead of a mixture of two files.
    """

    __slots__ = ("_stamp", "name", "path", "size")

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path = Path(path)
        self.name = str(path) if name is None else name
        try:
            status = self.path.stat()
        except OSError as error:
            raise _unreadable(self.name, error) from None
        except ValueError:  # a zero character
            raise ModelError("bytes.file", "not a file name", where=repr(self.name)) from None
        if not self.path.is_file():
            raise ModelError("bytes.file", "not a file", where=self.name)
        self.size = status.st_size
        self._stamp = (status.st_size, status.st_mtime_ns)

    def read(self, offset: int, length: int) -> bytes:
        check_range(self, offset, length)
        try:
            with self.path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if (status.st_size, status.st_mtime_ns) != self._stamp:
                    raise ModelError(
                        "bytes.changed", "the file changed while it was in use", where=self.name
                    )
                file.seek(offset)
                return _read_fully(file, length, self.name)
        except OSError as error:
            raise _unreadable(self.name, error) from None


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


def _read_fully(file: _Readable, length: int, name: str) -> bytes:
    """One ``read`` may return less than asked for (2 GiB at most on Linux)."""
    data = file.read(length) or b""
    while len(data) < length:
        more = file.read(length - len(data))
        if not more:
            raise ModelError(
                "bytes.changed", "the file became shorter while it was in use", where=name
            )
        data += more
    return data


def _unreadable(name: str, error: OSError) -> ModelError:
    missing = isinstance(error, FileNotFoundError)
    code = "bytes.missing" if missing else "bytes.file"
    reason = "no such file" if missing else f"cannot read the file ({error.strerror})"
    return ModelError(code, reason, where=name)


def check_range(source: ByteSource, offset: int, length: int) -> None:
    """``ModelError`` ``bytes.range`` unless ``[offset, offset + length)`` lies inside."""
    if offset < 0 or length < 0 or offset + length > source.size:
        raise ModelError(
            "bytes.range",
            "range beyond the file",
            found=f"offset {offset}, length {length}",
            allowed=f"0 to {source.size}",
            where=source.name,
        )


@dataclass(frozen=True, slots=True)
class ByteRange:
    """``length`` bytes of ``source`` from ``offset``; checked to lie inside when built."""

    source: ByteSource
    offset: int
    length: int

    def __post_init__(self) -> None:
        check_range(self.source, self.offset, self.length)

    @classmethod
    def of(cls, data: bytes, name: str = "<bytes>") -> ByteRange:
        """A range over bytes in memory."""
        return cls(MemorySource(data, name), 0, len(data))

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        """``length`` bytes from ``start`` within the range (all that is left by default)."""
        count = self.length - start if length is None else length
        if start < 0 or count < 0 or start + count > self.length:
            raise ModelError(
                "bytes.range",
                "range beyond the named part",
                found=f"start {start}, length {count}",
                allowed=f"0 to {self.length}",
                where=self.source.name,
            )
        return self.source.read(self.offset + start, count)

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """The content in order, at most ``size`` bytes at a time."""
        for start in range(0, self.length, size):
            yield self.read(start, min(size, self.length - start))

    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the content, streamed."""
        state = hashlib.sha256()
        for chunk in self.chunks():
            state.update(chunk)
        return state.hexdigest()
