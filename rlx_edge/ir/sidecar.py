"""``F.weights.json`` beside ``F.rlx``: where the bytes of each constant lie.

::

    {
     "rlx.weights": "1.0",
     "constants": {
      "sha256:9f2c…": {"file": "digits.onnx", "offset": 1204, "length": 1152}
     }
    }

``file`` is relative to the folder of the IR file, with ``/``. Constants that lie in no file are
written to ``F.weights.bin``. Weights stay ranges: nothing is read before it is needed, except when
digests are checked.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from rlx_edge.ir.core import Constant, Module
from rlx_edge.ir.digest import bytes_digest, check_digest
from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import CHUNK, FileSource
from rlx_edge.ir.types import TensorType

VERSION = "1.0"
HEADER = "rlx.weights"
ALIGNMENT = 64
"""Constants start at multiples of this in ``F.weights.bin``."""
MAX_BYTES = 64 << 20
"""Size of the JSON file."""


def sidecar_path(ir_path: Path) -> Path:
    """``F.weights.json`` of ``F.rlx``."""
    return ir_path.with_suffix(".weights.json")


def binary_path(ir_path: Path) -> Path:
    """``F.weights.bin`` of ``F.rlx``."""
    return ir_path.with_suffix(".weights.bin")


def constant_types(module: Module) -> dict[str, TensorType]:
    """Digest → type of the first ``tensor::const`` that names it, in order of appearance."""
    types: dict[str, TensorType] = {}
    for op in module.function.ops:
        digest = op.attrs.get("digest")
        if op.name == "tensor::const" and isinstance(digest, str) and op.results:
            types.setdefault(digest, op.results[0].type)
    return types


# ---- writing ---------------------------------------------------------------------------------


def write_sidecar(module: Module, ir_path: Path) -> list[Path]:
    """Write the sidecar of ``ir_path``, and what it needs; the files written.

    Each file is replaced in one step. A module that was itself read from ``F.weights.bin`` must be
    loaded again when that file had to be rewritten; using it says so (``bytes.changed``).
    """
    binary = binary_path(ir_path)
    used = {digest: module.constants.get(digest) for digest in constant_types(module)}
    loose: list[Constant] = []
    files: dict[str, tuple[str, int]] = {}
    for digest, constant in used.items():
        if constant is None:
            raise ModelError(
                "sidecar.constant", "the bytes of a constant are not there", found=digest
            )
        source = constant.source
        if isinstance(source, FileSource):
            files[digest] = _relative(source.path, ir_path.parent), constant.offset
        else:
            loose.append(constant)
    written: list[Path] = []
    if loose:
        rewritten = [
            constant
            for digest, constant in used.items()
            if constant is not None and (digest not in files or files[digest][0] == binary.name)
        ]
        offsets = _write_binary(rewritten, binary)
        files.update((digest, (binary.name, offset)) for digest, offset in offsets.items())
        written.append(binary)
    entries = {
        digest: {"file": files[digest][0], "offset": files[digest][1], "length": constant.nbytes}
        for digest, constant in used.items()
        if constant is not None
    }
    path = sidecar_path(ir_path)
    replace_file(path, _sidecar_text(entries).encode("utf-8"))
    return [*written, path]


def _sidecar_text(entries: Mapping[str, Mapping[str, object]]) -> str:
    lines = ",\n".join(
        f"  {json.dumps(digest)}: {json.dumps(entry, ensure_ascii=False)}"
        for digest, entry in entries.items()
    )
    body = f"\n{lines}\n " if lines else ""
    return f'{{\n "{HEADER}": "{VERSION}",\n "constants": {{{body}}}\n}}\n'


def _relative(path: Path, folder: Path) -> str:
    try:
        found = os.path.relpath(path.resolve(), folder.resolve())
    except ValueError:
        raise ModelError(
            "sidecar.file",
            "weights and IR lie on different drives, and names are relative",
            found=path.name,
        ) from None
    return Path(found).as_posix()


def _write_binary(constants: list[Constant], path: Path) -> dict[str, int]:
    """Constants one after another; their offsets by digest."""
    offsets: dict[str, int] = {}
    check_place(path)
    partial = _partial(path)
    try:
        with partial.open("wb") as file:
            for constant in constants:
                file.write(bytes(-file.tell() % ALIGNMENT))
                offsets[constant.digest] = file.tell()
                for chunk in constant_chunks(constant):
                    file.write(chunk)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return offsets


def constant_chunks(constant: Constant, size: int = CHUNK) -> Iterator[bytes]:
    """A constant's bytes in order, ``size`` at a time."""
    for start in range(0, constant.nbytes, size):
        yield constant.read(start, min(size, constant.nbytes - start))


def check_place(path: Path) -> None:
    """``ModelError`` ``file.write`` for a folder or a device: putting a file in its place would
    remove it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing is there, or writing will say what is wrong
    if not stat.S_ISREG(mode):
        what = "it is a folder" if stat.S_ISDIR(mode) else "it is no regular file"
        raise ModelError("file.write", f"cannot write the file ({what})", where=str(path))


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one step; ``ModelError`` ``file.write`` when that is not possible."""
    check_place(path)
    partial = _partial(path)
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def _unwritable(path: Path, error: OSError) -> ModelError:
    return ModelError("file.write", f"cannot write the file ({error.strerror})", where=str(path))


# ---- reading ---------------------------------------------------------------------------------


def read_sidecar(
    module: Module, ir_path: Path, *, check_digests: bool = False
) -> dict[str, Constant]:
    """The constants of ``module`` as ranges of their files.

    ``ModelError``: ``sidecar.missing``, ``sidecar.syntax``, ``sidecar.constant`` (one is not
    listed), ``sidecar.length`` (it does not fit the type), ``sidecar.range`` (it lies beyond the
    end of its file) and what opening a file raises. ``check_digests`` reads every byte and raises
    ``DigestError`` where the content is another.
    """
    path = sidecar_path(ir_path)
    where = str(path)
    entries = _entries(path)
    sources: dict[str, FileSource] = {}
    constants: dict[str, Constant] = {}
    for digest, type in constant_types(module).items():
        if digest not in entries:
            raise ModelError(
                "sidecar.constant", "a constant is not listed", found=digest, where=where
            )
        name, offset, length = _entry(digest, entries[digest], where)
        if not type.is_static or type.nbytes.value != length:
            raise ModelError(
                "sidecar.length",
                f"the range of {digest} does not fit its type",
                found=f"{length} bytes",
                allowed=f"{type.nbytes} bytes for {type}",
                where=where,
            )
        if name not in sources:
            sources[name] = FileSource(ir_path.parent / name)
        source = sources[name]
        if offset + length > source.size:
            raise ModelError(
                "sidecar.range",
                f"a tensor range beyond the file: {digest}",
                found=f"offset {offset}, length {length}",
                allowed=f"0 to {source.size} in {name}",
                where=where,
            )
        location = PurePosixPath(name).name
        constant = Constant(digest, type, source, offset, length, location)
        if check_digests:
            found = bytes_digest(constant_chunks(constant))
            check_digest(f"the bytes in {name} and constant {digest}", digest, found, where=where)
        constants[digest] = constant
    return constants


def _entries(path: Path) -> Mapping[str, object]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _syntax(path, "the file is too long", allowed=f"at most {MAX_BYTES} bytes")
        content = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ModelError(
            "sidecar.missing",
            "the file that says where the weights lie is missing",
            where=str(path),
        ) from None
    except OSError as error:
        raise _syntax(path, f"cannot read the file ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise _syntax(path, f"not JSON ({error})") from None
    if not isinstance(content, dict) or content.get(HEADER) != VERSION:
        found = content.get(HEADER) if isinstance(content, dict) else type(content).__name__
        raise _syntax(path, "not a weights file of this version", found, f'"{HEADER}": "{VERSION}"')
    entries = content.get("constants")
    if not isinstance(entries, dict):
        raise _syntax(path, "constants are missing", allowed="digest → file, offset, length")
    return entries


def _entry(digest: str, entry: object, where: str) -> tuple[str, int, int]:
    if isinstance(entry, dict):
        name, offset, length = (entry.get(key) for key in ("file", "offset", "length"))
        named = isinstance(name, str) and name and not _is_absolute(name)
        if named and _is_size(offset) and _is_size(length):
            return str(name), offset, length
    raise ModelError(
        "sidecar.syntax",
        f"the entry of {digest} is not one",
        found=json.dumps(entry)[:200],
        allowed="a relative file name, an offset and a length in bytes",
        where=where,
    )


def _is_absolute(name: str) -> bool:
    return name.startswith(("/", "\\")) or name[1:2] == ":" or "\0" in name


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _syntax(path: Path, what: str, found: object = None, allowed: object = None) -> ModelError:
    return ModelError("sidecar.syntax", what, found=found, allowed=allowed, where=str(path))
