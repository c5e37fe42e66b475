"""Bundles: what is stored once, where it is cut, and that equal models give equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from rlx_edge.compile import CompiledModule, bundle
from rlx_edge.compile.bundle import MANIFEST, StoredFile, write_bundle
from rlx_edge.ir.core import Constant
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.program import Upload
from rlx_edge.ir.program_text import load_program
from rlx_edge.ir.types import U8, tensor_type
from tests.runtime import hand_made

# covers R11 R33


class MemorySink:
    """Keeps the files."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, chunks: Iterable[bytes]) -> StoredFile:
        data = b"".join(chunks)
        digest = hashlib.sha256(data).hexdigest()
        stored = StoredFile(name.replace("{digest}", digest[:12]), len(data), f"sha256:{digest}")
        self.files[stored.name] = data
        return stored

    @property
    def manifest(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.files[MANIFEST])
        return found

    def constant(self, digest: str) -> bytes:
        """The bytes that the manifest names for a constant."""
        ranges = self.manifest["weights"]["constants"][digest]  # type: ignore[index]
        parts = ranges if isinstance(ranges, list) else [ranges]
        return b"".join(
            self.files[part["file"]][part["offset"] : part["offset"] + part["length"]]
            for part in parts
        )


def constant(seed: int, nbytes: int) -> Constant:
    data = np.random.default_rng(seed).bytes(nbytes)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return Constant(digest, tensor_type(U8, nbytes), MemorySource(data), 0, nbytes)


def variant(*constants: Constant, target: str = "wasm32-simd128-v8") -> CompiledModule:
    """The program made by hand, with these constants."""
    module = hand_made.module()
    module.constants = {item.digest: item for item in constants}
    uploads = tuple(Upload(item.digest, 4096, item.nbytes) for item in constants)
    return CompiledModule(module, replace(hand_made.program(), uploads=uploads, target=target))


def stored(*variants: CompiledModule, **options: object) -> MemorySink:
    sink = MemorySink()
    write_bundle(variants, sink, model="hand.onnx", **options)  # type: ignore[arg-type]
    return sink


def test_files_and_their_digests() -> None:
    sink = stored(variant(constant(1, 100)), runtime={"index.html": b"<p>"})
    names = sorted(name.split("-")[0] for name in sink.files)
    assert names == ["index.html", "kernels", MANIFEST, "program", "weights"]
    listed = sink.manifest["files"]
    assert isinstance(listed, dict) and set(listed) == set(sink.files) - {MANIFEST}
    for name, row in listed.items():
        digest = hashlib.sha256(sink.files[name]).hexdigest()
        assert row == {"bytes": len(sink.files[name]), "sha256": f"sha256:{digest}"}
        assert "-" not in name or digest.startswith(name.partition("-")[2].partition(".")[0])


def test_the_program_is_the_one_that_was_compiled() -> None:
    compiled = variant(constant(1, 100))
    sink = stored(compiled)
    [row] = sink.manifest["variants"]  # type: ignore[misc]
    kernels = sink.files[row["kernels"]]
    text = sink.files[row["program"]].decode("ascii")
    assert "wasm" not in json.loads(text)
    assert load_program(text, "program", kernels) == compiled.program
    with pytest.raises(RlxError, match="wasm cannot be this"):
        load_program(text, "program")
    with pytest.raises(RlxError, match="do not belong together"):
        load_program(text, "program", kernels + b"\0")


def test_the_same_bytes_every_time() -> None:
    variants = [variant(constant(1, 100), constant(2, 50)), variant(constant(2, 50))]
    assert stored(*variants).files == stored(*variants).files


def test_weights_are_stored_once_and_apart_for_each_set_of_variants() -> None:
    first, shared, second = constant(1, 100), constant(2, 200), constant(3, 300)
    sink = stored(variant(first, shared), variant(shared, second, second))
    files = sink.manifest["weights"]["files"]  # type: ignore[index]
    assert [len(sink.files[name]) for name in files] == [100, 200, 300]
    for item in (first, shared, second):
        assert sink.constant(item.digest) == item.read()


def test_weight_files_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "CHUNK", 1000)
    monkeypatch.setattr(bundle, "STAGING", 64)
    items = [constant(1, 300), constant(2, 2500), constant(3, 200), constant(4, 1)]
    sink = stored(variant(*items))
    files = sink.manifest["weights"]["files"]  # type: ignore[index]
    assert [len(sink.files[name]) for name in files] == [1000, 1000, 1000, 1]
    for item in items:
        assert sink.constant(item.digest) == item.read()


def test_scripts_lose_block_comments_and_nothing_else() -> None:
    script = """\
/** A file. */

export const a = /** @type {any} */ (1); // stays
  /**
   * Of several lines.
   *
   * @type {number}
   */
export const b = "/** stays */";
/** @type {any} */ (a).b;
"""
    expected = """\

export const a = /** @type {any} */ (1); // stays
export const b = "/** stays */";
/** @type {any} */ (a).b;
"""
    files = {"runtime/a.js": script.encode(), "a.html": script.encode()}
    sink = stored(variant(constant(1, 10)), runtime=files)
    assert sink.files["runtime/a.js"].decode() == expected
    assert sink.files["a.html"].decode() == script


def test_what_cannot_be_a_bundle() -> None:
    with pytest.raises(RlxError) as caught:
        stored()
    assert caught.value.code == "bundle.variants"
    compiled = variant(constant(1, 100))
    compiled.placed.constants.clear()
    with pytest.raises(RlxError) as caught:
        stored(compiled)
    assert caught.value.code == "bundle.constant"
