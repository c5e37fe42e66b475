"""Constants of the gateway's own models, found by digest.

A client that runs a model which the gateway serves need not upload its weights: it names the file
by digest and the values that the model branches on, the gateway imports and places the file
itself, and the constants that come out have the digests that the client's text names (the passes
are deterministic).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlx_edge.compile import place_module
from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.onnx.bytes import FileSource
from rlx_edge.ir.onnx.importer import as_model, import_model

KEPT = 8
"""Imports kept, least recently used first out."""
MAX_VALUES = 64
MAX_VALUE = 1 << 24
"""Values that a stranger may have a model imported with: what is computed from them stays small."""

Values = Mapping[str, tuple[int, ...]]


class Registry:
    """The models of ``paths``. Files are read when they are asked for, in threads."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._by_digest: dict[str, Path] | None = None
        self._imports: OrderedDict[tuple[object, ...], Mapping[str, Constant]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def digests(self) -> tuple[str, ...]:
        """Of every model file, in order."""
        return tuple(await self._table())

    async def find(self, model: str, values: Values, wanted: Sequence[str]) -> dict[str, Constant]:
        """Those of the ``wanted`` constants that the model of this digest has."""
        path = (await self._table()).get(model)
        if path is None or not _are_modest(values):
            return {}
        key = (model, tuple(sorted(values.items())))
        async with self._lock:
            found = self._imports.get(key)
            if found is None:
                try:
                    found = await asyncio.to_thread(_constants, path, values)
                except RlxError:
                    return {}  # these values do not fit the model: the client uploads
                self._imports[key] = found
                if len(self._imports) > KEPT:
                    self._imports.popitem(last=False)
            self._imports.move_to_end(key)
        return {digest: found[digest] for digest in wanted if digest in found}

    async def _table(self) -> dict[str, Path]:
        if self._by_digest is None:
            digests = [await asyncio.to_thread(file_digest, path) for path in self._paths]
            self._by_digest = dict(zip(digests, self._paths, strict=True))
        return self._by_digest


def _are_modest(values: Values) -> bool:
    items = [item for row in values.values() for item in row]
    return len(items) <= MAX_VALUES and all(abs(item) <= MAX_VALUE for item in items)


def file_digest(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _constants(path: Path, values: Values) -> Mapping[str, Constant]:
    module = import_model(as_model(FileSource(path)), values=values)
    return place_module(module).constants
