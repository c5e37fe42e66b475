"""Files that commands write: checked before the work, complete or absent after it."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from rlx_edge.ir.errors import InputError

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The archive's only possible constant date: equal outputs give equal files."""


def check_output(path: str) -> None:
    """``InputError`` ``cli.output`` now, not after the work, if ``path`` cannot be written."""
    output = OutputFile(path)
    output.open()
    output.discard()


def write_output(path: str, data: bytes) -> None:
    """Write a file in one step."""
    with OutputFile(path) as output:
        output.write(data)


class OutputFile:
    """A file that appears under its name when the block ends well.

    Entering opens a scratch file beside it, so that a path that cannot be written is known before
    the long work (``InputError`` ``cli.output``). What exists and is no regular file, such as
    ``/dev/stdout``, is written to directly.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._scratch: Path | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Open the scratch file, or the device itself."""
        try:
            target = Path(os.path.realpath(self.path))
            if target.is_dir():
                raise IsADirectoryError(21, "it is a folder")
            if target.exists() and not stat.S_ISREG(target.stat().st_mode):
                self._file = target.open("wb")
                return
            if target.exists() and not os.access(target, os.W_OK):
                raise PermissionError(13, "the file is read-only")
            scratch = target.with_name(f".{target.name}.{os.getpid()}")
            self._file = scratch.open("xb")
            self._scratch = scratch
        except OSError as error:
            raise self._error(error) from None

    def discard(self) -> None:
        """Close without a result."""
        if self._file is not None:
            self._file.close()
        if self._scratch is not None:
            with suppress(OSError):
                self._scratch.unlink()

    def write(self, data: bytes) -> None:
        """Append to the content so far."""
        assert self._file is not None
        try:
            self._file.write(data)
        except OSError as error:
            raise self._error(error) from None

    def write_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """An ``.npz`` archive; any array name is allowed."""
        assert self._file is not None
        if self._scratch is None:  # a device has no positions to write the directory from
            buffer = io.BytesIO()
            _write_archive(buffer, arrays)
            self.write(buffer.getvalue())
            return
        try:
            _write_archive(self._file, arrays)
        except OSError as error:
            raise self._error(error) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        try:
            self._file.close()
            if self._scratch is not None and kind is None:
                os.replace(self._scratch, os.path.realpath(self.path))
        except OSError as failure:
            raise self._error(failure) from None
        finally:
            self.discard()

    def _error(self, error: OSError) -> InputError:
        return InputError(
            "cli.output", f"cannot write the file ({error.strerror or error})", where=str(self.path)
        )


def _write_archive(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _EARLIEST)
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
