"""IR files with their weights."""

# covers R1, R8, R10, R13

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings

from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Constant, Function, Module, Value
from rlx_edge.ir.digest import bytes_digest, module_digest
from rlx_edge.ir.equality import first_difference
from rlx_edge.ir.errors import DigestError, LimitError, ModelError, ParseError, VerifyError
from rlx_edge.ir.module_file import load_module, read_text, save_module
from rlx_edge.ir.onnx.bytes import FileSource, MemorySource
from rlx_edge.ir.sidecar import (
    binary_path,
    constant_types,
    read_sidecar,
    sidecar_path,
    write_sidecar,
)
from rlx_edge.ir.types import F32, tensor_type
from tests.strategies import modules

NUMBERS = [struct.pack("<4f", *(base + step for step in range(4))) for base in (0.0, 10.0, 20.0)]


def build(folder: Path) -> Module:
    """Two constants inside ``folder/model.onnx``, one in memory."""
    file = folder / "model.onnx"
    file.write_bytes(b"head" + NUMBERS[0] + b"gap" + NUMBERS[1])
    source = FileSource(file)
    places = [(source, 4), (source, 23), (MemorySource(NUMBERS[2]), 0)]
    function = Function("net", [Value("x", tensor_type(F32, "n", 4))], [], [])
    module = Module("net", function)
    builder = Builder(function)
    total = function.params[0]
    for data, (place, offset) in zip(NUMBERS, places, strict=True):
        digest = bytes_digest(data)
        type = tensor_type(F32, 4)
        constant = builder.op("tensor::const", [], {"digest": digest}, hint="w", type=type)
        module.constants[digest] = Constant(digest, type, place, offset, 16)
        total = builder.op("rlxc::add", [total, constant], hint="sum")
    function.returns = [total]
    return module


def edit(path: Path, **changes: object) -> None:
    """Change the first entry of a sidecar."""
    content = json.loads(path.read_text())
    first = next(iter(content["constants"].values()))
    first.update(changes)
    path.write_text(json.dumps(content))


def test_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "ir").mkdir()
    module = build(tmp_path)
    path = tmp_path / "ir" / "net.rlx"
    assert save_module(module, path) == [binary_path(path), sidecar_path(path), path]
    first, second, third = (bytes_digest(data) for data in NUMBERS)
    assert sidecar_path(path).read_text() == (
        '{\n "rlx.weights": "1.0",\n "constants": {\n'
        f'  "{first}": {{"file": "../model.onnx", "offset": 4, "length": 16}},\n'
        f'  "{second}": {{"file": "../model.onnx", "offset": 23, "length": 16}},\n'
        f'  "{third}": {{"file": "net.weights.bin", "offset": 0, "length": 16}}\n'
        " }\n}\n"
    )
    assert sorted(item.name for item in path.parent.iterdir()) == [
        "net.rlx",
        "net.weights.bin",
        "net.weights.json",
    ]
    assert str(tmp_path) not in path.read_text() + sidecar_path(path).read_text()


def test_what_is_read(tmp_path: Path) -> None:
    module = build(tmp_path)
    path = tmp_path / "net.rlx"
    save_module(module, path)
    again = load_module(path, check_digests=True, strict=True)
    assert first_difference(module, again) is None
    assert module_digest(module) == module_digest(again)
    assert [constant.read() for constant in again.constants.values()] == NUMBERS
    assert [constant.location for constant in again.constants.values()] == [
        "model.onnx",
        "model.onnx",
        "net.weights.bin",
    ]
    assert [constant.type for constant in again.constants.values()] == [tensor_type(F32, 4)] * 3


def test_saving_what_was_loaded_keeps_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    before = (sidecar_path(path).read_bytes(), binary_path(path).read_bytes())
    loaded = load_module(path)
    assert save_module(loaded, path) == [sidecar_path(path), path]
    assert (sidecar_path(path).read_bytes(), binary_path(path).read_bytes()) == before
    builder = Builder(loaded.function)
    more = struct.pack("<4f", 1, 1, 2, 3)
    digest = bytes_digest(more)
    constant = builder.op("tensor::const", [], {"digest": digest}, type=tensor_type(F32, 4))
    loaded.constants[digest] = Constant(digest, constant.type, MemorySource(more), 0, 16)
    loaded.function.returns = [builder.op("rlxc::add", [loaded.function.returns[0], constant])]
    save_module(loaded, path)
    again = load_module(path, check_digests=True)
    assert [item.read() for item in again.constants.values()] == [*NUMBERS, more]
    assert [item.offset for item in again.constants.values()] == [4, 23, 0, 64]
    with pytest.raises(ModelError, match="changed"):
        loaded.constants[bytes_digest(NUMBERS[2])].read()


def test_a_module_without_constants_has_no_sidecar(tmp_path: Path) -> None:
    function = Function("net", [Value("x", tensor_type(F32, "n"))], [], [])
    function.returns = [Builder(function).op("rlxc::relu", [function.params[0]])]
    path = tmp_path / "plain.rlx"
    assert save_module(Module("net", function), path) == [path]
    assert load_module(path, strict=True).constants == {}
    assert write_sidecar(Module("net", function), path) == [sidecar_path(path)]
    assert read_sidecar(Module("net", function), path) == {}


@settings(max_examples=30)
@given(module=modules(max_ops=5))
def test_any_module_survives(module: Module, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / "m.rlx"
    save_module(module, path)
    again = load_module(path, check_digests=True)
    assert first_difference(module, again) is None
    assert {digest: item.read() for digest, item in again.constants.items()} == {
        digest: module.constants[digest].read() for digest in constant_types(module)
    }


def test_weights_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    assert load_module(path, weights="ignored").constants == {}
    assert len(load_module(path, weights="optional").constants) == 3
    sidecar_path(path).unlink()
    assert load_module(path, weights="optional").constants == {}
    with pytest.raises(ModelError) as caught:
        load_module(path)
    assert caught.value.code == "sidecar.missing"
    assert str(caught.value).startswith(f"{tmp_path}/net.weights.json: ")
    with pytest.raises(VerifyError) as strict:
        load_module(path, weights="ignored", strict=True)
    assert strict.value.code == "const.missing"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"offset": 30}, "sidecar.range", ("beyond the file", "offset 30, length 16", "0 to 39")),
        ({"offset": -1}, "sidecar.syntax", ("relative file name",)),
        ({"offset": True}, "sidecar.syntax", ("relative file name",)),
        ({"length": 15}, "sidecar.length", ("15 bytes", "16 bytes for f32[4]")),
        ({"file": "nowhere.onnx"}, "bytes.missing", ("nowhere.onnx",)),
        ({"file": "/etc/passwd"}, "sidecar.syntax", ("/etc/passwd",)),
        ({"file": "c:\\x"}, "sidecar.syntax", ("relative",)),
        ({"file": ""}, "sidecar.syntax", ("relative",)),
        ({"file": 3}, "sidecar.syntax", ("relative",)),
        ({"file": "."}, "bytes.file", ("not a file",)),
    ],
)
def test_entries_that_cannot_be(
    tmp_path: Path, changes: dict[str, object], code: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    edit(sidecar_path(path), **changes)
    with pytest.raises(ModelError) as caught:
        load_module(path)
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "list"),
        (b"{}", "rlx.weights"),
        (b'{"rlx.weights": "9.0"}', "9.0"),
        (b'{"rlx.weights": "1.0"}', "constants are missing"),
        (b'{"rlx.weights": "1.0", "constants": {}}', "not listed"),
    ],
)
def test_sidecars_that_are_none(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    sidecar_path(path).write_bytes(content)
    with pytest.raises(ModelError, match=word) as caught:
        load_module(path)
    assert caught.value.where == str(sidecar_path(path))


def test_entries_are_objects(tmp_path: Path) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    content = json.loads(sidecar_path(path).read_text())
    content["constants"] = dict.fromkeys(content["constants"], 1)
    sidecar_path(path).write_text(json.dumps(content))
    with pytest.raises(ModelError, match="not one"):
        load_module(path)


def test_a_sidecar_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    monkeypatch.setattr("rlx_edge.ir.sidecar.MAX_BYTES", 10)
    with pytest.raises(ModelError, match="too long"):
        load_module(path)
    monkeypatch.undo()
    sidecar_path(path).unlink()
    sidecar_path(path).mkdir()
    with pytest.raises(ModelError, match="cannot read"):
        load_module(path)


def test_spoiled_weights_are_noticed_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "net.rlx"
    save_module(build(tmp_path), path)
    data = bytearray((tmp_path / "model.onnx").read_bytes())
    data[10] ^= 1
    (tmp_path / "model.onnx").write_bytes(data)
    load_module(path)
    with pytest.raises(DigestError) as caught:
        load_module(path, check_digests=True)
    assert bytes_digest(NUMBERS[0]) in str(caught.value)
    assert bytes_digest(bytes(data[4:20])) in str(caught.value)


def test_a_constant_without_bytes_is_not_saved(tmp_path: Path) -> None:
    module = build(tmp_path)
    module.constants.popitem()
    with pytest.raises(ModelError, match="not there"):
        save_module(module, tmp_path / "net.rlx")
    assert not (tmp_path / "net.rlx").exists()


@pytest.mark.parametrize("name", ["net.rlx", "net.weights.json", "net.weights.bin"])
def test_files_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    module = build(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).mkdir()
    with pytest.raises(ModelError) as caught:
        save_module(module, tmp_path / "out" / "net.rlx")
    assert caught.value.code == "file.write"
    assert name in str(caught.value)
    assert not [item for item in os.listdir(tmp_path / "out") if item.endswith(".partial")]


def test_another_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, start: str) -> str:
        raise ValueError(path, start)

    monkeypatch.setattr("rlx_edge.ir.sidecar.os.path.relpath", refuse)
    with pytest.raises(ModelError, match="different drives"):
        save_module(build(tmp_path), tmp_path / "net.rlx")


def test_texts_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="no such file"):
        load_module(tmp_path / "nowhere.rlx")
    with pytest.raises(ModelError, match="cannot read"):
        load_module(tmp_path)
    file = tmp_path / "binary.rlx"
    file.write_bytes(b"rlx\n\x08\x96\n")
    with pytest.raises(ParseError) as caught:
        read_text(file)
    assert str(caught.value).startswith(f"{file}:2: not text in UTF-8; found byte 0x96")
    monkeypatch.setattr("rlx_edge.ir.module_file.MAX_TEXT", 3)
    with pytest.raises(LimitError, match="too long"):
        read_text(file)
    with pytest.raises(LimitError, match="found 4 bytes"):
        read_text(Path("/dev/zero"))


def test_only_files_are_replaced(tmp_path: Path) -> None:
    module = build(tmp_path)
    pipe = tmp_path / "pipe.rlx"
    os.mkfifo(pipe)
    for name in ("folder.rlx", "json.weights.json", "binary.weights.bin"):
        (tmp_path / name).mkdir()
    before = sorted(tmp_path.iterdir())
    for name, message in (
        ("pipe.rlx", "pipe.rlx: cannot write the file .it is no regular file"),
        ("folder.rlx", "folder.rlx: cannot write the file .it is a folder"),
        ("binary.rlx", "binary.weights.bin: cannot write the file .it is a folder"),
    ):
        with pytest.raises(ModelError, match=message):
            save_module(module, tmp_path / name)
        assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(ModelError, match=r"json.weights.json: cannot write the file"):
        save_module(module, tmp_path / "json.rlx")
    assert not (tmp_path / "json.rlx").exists()
    assert pipe.is_fifo()
