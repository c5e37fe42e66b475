"""A bundle as a folder: complete under its name, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from rlx_edge.compile.bundle import DIGITS, HEADER, MANIFEST, StoredFile
from rlx_edge.ir.errors import InputError


class BundleFolder:
    """``BundleSink`` for a folder, which appears under its name when the block ends well.

    A bundle that is there already is replaced. Entering makes a scratch folder beside it, so that
    a place that cannot be written is known before the long work: ``InputError`` ``cli.output``,
    also for a folder that holds something else than a bundle.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(os.path.realpath(path))
        self._shown = path
        self._scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")

    def __enter__(self) -> Self:
        try:
            if self.path.exists() and not is_replaceable(self.path):
                raise InputError(
                    "cli.output",
                    "the folder holds something else than a bundle",
                    where=self._shown,
                    hint="name a folder that is new, empty or an earlier bundle",
                )
            self._scratch.mkdir(parents=True)
        except OSError as error:
            raise self._error(error) from None
        return self

    def put(self, name: str, chunks: Iterable[bytes]) -> StoredFile:
        state = hashlib.sha256()
        nbytes = 0
        partial = self._scratch / name.replace("{digest}", "partial")
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                for chunk in chunks:
                    state.update(chunk)
                    nbytes += len(chunk)
                    file.write(chunk)
            digest = state.hexdigest()
            final = name.replace("{digest}", digest[:DIGITS])
            os.replace(partial, self._scratch / final)
        except OSError as error:
            raise self._error(error) from None
        return StoredFile(final, nbytes, f"sha256:{digest}")

    def read(self, name: str) -> bytes:
        """A file that was stored."""
        return (self._scratch / name).read_bytes()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                if self.path.is_dir():
                    shutil.rmtree(self.path)
                os.replace(self._scratch, self.path)
        except OSError as failure:
            raise self._error(failure) from None
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _error(self, error: OSError) -> InputError:
        return InputError(
            "cli.output",
            f"cannot write the bundle ({error.strerror or error})",
            where=self._shown,
        )


def is_replaceable(folder: Path) -> bool:
    """Whether it is an empty folder or a bundle."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and HEADER in content
