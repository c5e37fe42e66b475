"""Bundles: a compiled model as static files that a page runs without Python.

::

    manifest.json            what there is: variants, weights, digests of every file
    program-<digest>.json    one a variant: plan program, command lists, ports (program_text.py)
    kernels-<digest>.wasm    one a variant
    weights-<digest>.bin     canonical weights, cut every ``CHUNK`` bytes
    runtime/*.js             the runtime, and what shows it at work: index.html, example.js

Names carry the first digits of a file's digest, so a cache never mixes two bundles. Weights that
several variants use are stored once; files hold the weights of the same variants only, so a page
that needs one variant fetches no others. The same input gives the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlx_edge.compile.compiler import CompiledModule
from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.program_text import dump_program

HEADER = "rlx.bundle"
VERSION = "1.0"
MANIFEST = "manifest.json"
CHUNK = 16 << 20
"""Bytes of a weight file: small enough for caches and for hosts that limit files to 25 MB."""
STAGING = 1 << 20
"""Bytes of a weight that are held at a time."""
DIGITS = 12

_BLOCK_COMMENT = re.compile(r"^[ \t]*/\*\*(?:(?!\*/).)*\*/[ \t]*\n", re.M | re.S)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a bundle as it was stored; ``sha256`` is ``sha256:`` and hex."""

    name: str
    nbytes: int
    sha256: str


class BundleSink(Protocol):
    """Where the files of a bundle go."""

    def put(self, name: str, chunks: Iterable[bytes]) -> StoredFile:
        """Store a file; ``{digest}`` in its name stands for the first digits of its digest."""
        ...


def write_bundle(
    variants: Sequence[CompiledModule],
    sink: BundleSink,
    *,
    model: str,
    runtime: Mapping[str, bytes] | None = None,
) -> tuple[StoredFile, ...]:
    """Store the bundle of a model's compiled variants, in the order in which they are tried.

    ``model`` is a name for people. ``runtime`` are files by name that are stored as they are, or
    without their block comments where the name ends with ``.js``. Raises ``RlxError``
    ``bundle.variants`` without a variant, ``bundle.constant`` for one whose constants are absent,
    and what reading weights and storing files raise. The manifest is the last of the files.
    """
    if not variants:
        raise RlxError("bundle.variants", "a bundle needs at least one variant")
    files: list[StoredFile] = []
    rows: list[dict[str, object]] = []
    for variant in variants:
        program = variant.program
        text = dump_program(program, with_code=False).encode("ascii")
        document = sink.put("program-{digest}.json", [text])
        kernels = sink.put("kernels-{digest}.wasm", [program.code])
        files += [document, kernels]
        rows.append(
            {
                "program": document.name,
                "kernels": kernels.name,
                "target": program.target,
                "ir_digest": program.ir_digest,
                "guards": [str(guard) for guard in program.guards],
            }
        )
    weights, ranges = _write_weights(variants, sink)
    files += weights
    for name, content in sorted((runtime or {}).items()):
        files.append(sink.put(name, [_stripped(content) if name.endswith(".js") else content]))
    known = {file.name: file for file in files}
    manifest = {
        HEADER: VERSION,
        "model": model,
        "variants": rows,
        "weights": {"files": [file.name for file in weights], "constants": ranges},
        "files": {
            name: {"bytes": known[name].nbytes, "sha256": known[name].sha256}
            for name in sorted(known)
        },
    }
    return (*known.values(), sink.put(MANIFEST, [_manifest_text(manifest).encode("ascii")]))


def _manifest_text(manifest: Mapping[str, object]) -> str:
    lines = [f" {json.dumps(key)}: {_compact(value)}" for key, value in manifest.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _stripped(content: bytes) -> bytes:
    """A script without the block comments that begin a line."""
    return _BLOCK_COMMENT.sub("", content.decode("utf-8")).encode("utf-8")


# ---- weights ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """``length`` bytes of a constant from ``start``."""

    constant: Constant
    start: int
    length: int


def _write_weights(
    variants: Sequence[CompiledModule], sink: BundleSink
) -> tuple[list[StoredFile], dict[str, object]]:
    """The files, and where in them each constant lies."""
    stored: list[StoredFile] = []
    ranges: dict[str, list[dict[str, object]]] = {}
    for constants in _groups(variants):
        for pieces in _cut(constants):
            file = sink.put("weights-{digest}.bin", _bytes(pieces))
            stored.append(file)
            offset = 0
            for piece in pieces:
                ranges.setdefault(piece.constant.digest, []).append(
                    {"file": file.name, "offset": offset, "length": piece.length}
                )
                offset += piece.length
    return stored, {
        digest: parts[0] if len(parts) == 1 else parts for digest, parts in ranges.items()
    }


def _groups(variants: Sequence[CompiledModule]) -> list[list[Constant]]:
    """Constants by the variants that use them, in order of first use."""
    found: dict[str, Constant] = {}
    users: dict[str, list[int]] = {}
    for number, variant in enumerate(variants):
        for upload in variant.program.uploads:
            constant = variant.placed.constants.get(upload.digest)
            if constant is None or constant.nbytes != upload.nbytes:
                raise RlxError(
                    "bundle.constant",
                    "the program needs a constant that the IR does not have",
                    found=upload.digest,
                )
            found.setdefault(upload.digest, constant)
            if number not in users.setdefault(upload.digest, []):
                users[upload.digest].append(number)
    groups: dict[tuple[int, ...], list[Constant]] = {}
    for digest, constant in found.items():
        groups.setdefault(tuple(users[digest]), []).append(constant)
    return list(groups.values())


def _cut(constants: Sequence[Constant]) -> Iterator[list[_Piece]]:
    """The constants one after another, a list for every ``CHUNK`` bytes."""
    pieces: list[_Piece] = []
    room = CHUNK
    for constant in constants:
        start = 0
        while start < constant.nbytes:
            length = min(room, constant.nbytes - start)
            pieces.append(_Piece(constant, start, length))
            start += length
            room -= length
            if room == 0:
                yield pieces
                pieces, room = [], CHUNK
    if pieces:
        yield pieces


def _bytes(pieces: Sequence[_Piece]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, piece.length, STAGING):
            length = min(STAGING, piece.length - start)
            yield piece.constant.read(piece.start + start, length)
