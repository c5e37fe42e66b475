"""IR files: ``F.rlx`` with the text, ``F.weights.json`` with the places of its constants."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rlx_edge.ir.core import Module
from rlx_edge.ir.errors import LimitError, ModelError, ParseError
from rlx_edge.ir.lexer import MAX_TEXT
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.sidecar import (
    check_place,
    constant_types,
    read_sidecar,
    replace_file,
    sidecar_path,
    write_sidecar,
)
from rlx_edge.ir.verifier import verify

Weights = Literal["required", "optional", "ignored"]


def load_module(
    path: str | os.PathLike[str],
    *,
    weights: Weights = "required",
    check_digests: bool = False,
    strict: bool = False,
    inspect: Callable[[Module], None] | None = None,
) -> Module:
    """The verified module of an IR file.

    ``weights``: ``required`` reads the sidecar of a module that has constants, ``optional`` does
    so where there is one, ``ignored`` gives a module without the bytes of its constants.
    ``check_digests`` reads and checks them all. ``inspect`` sees the parsed module before it is
    verified, and may refuse it. Raises ``ParseError``, ``VerifyError`` (with
    ``excerpt``), ``ModelError``, ``DigestError``, ``LimitError``.
    """
    file = Path(path)
    module = parse_module(read_text(file), str(path))
    if inspect is not None:
        inspect(module)
    wanted = weights == "required" or (weights == "optional" and sidecar_path(file).exists())
    if wanted and constant_types(module):
        verify(module)
        module.constants = read_sidecar(module, file, check_digests=check_digests)
    verify(module, strict=strict)
    return module


def save_module(module: Module, path: str | os.PathLike[str]) -> list[Path]:
    """Write text and sidecar; the files written. A module without constants has no sidecar."""
    file = Path(path)
    check_place(file)
    written = write_sidecar(module, file) if constant_types(module) else []
    replace_file(file, print_module(module).encode("utf-8"))
    return [*written, file]


def read_text(path: Path) -> str:
    """The text of a file; ``ParseError`` ``parse.encoding`` where it is not UTF-8."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(MAX_TEXT + 1) if size <= MAX_TEXT else b""
    except FileNotFoundError:
        raise ModelError("file.missing", "no such file", where=str(path)) from None
    except OSError as error:
        raise ModelError(
            "file.read", f"cannot read the file ({error.strerror})", where=str(path)
        ) from None
    size = max(size, len(data))  # a pipe has no size, a device no end
    if size > MAX_TEXT:
        raise LimitError(
            "parse.limit",
            "the text is too long",
            found=f"{size} bytes",
            allowed=f"at most {MAX_TEXT}",
            where=str(path),
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ParseError(
            "parse.encoding",
            "not text in UTF-8",
            found=f"byte 0x{data[error.start]:02x} at offset {error.start}",
            where=f"{path}:{line}",
            hint="IR files begin with: rlx.module version",
        ) from None
