"""Byte sources and ranges."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import CHUNK, ByteRange, FileSource, MemorySource


def test_a_file_is_read_by_range(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(range(100)))
    source = FileSource(path)
    assert source.size == 100
    assert source.read(10, 3) == bytes([10, 11, 12])
    assert source.read(100, 0) == b""


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 101), (100, 1), (5, -1)])
def test_a_range_outside_is_refused(tmp_path: Path, offset: int, length: int) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(100))
    for source in (FileSource(path), MemorySource(bytes(100))):
        with pytest.raises(ModelError) as caught:
            source.read(offset, length)
        assert caught.value.code == "bytes.range"
        with pytest.raises(ModelError):
            ByteRange(source, offset, length)


def test_a_missing_file_a_folder_and_a_changed_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file") as caught:
        FileSource(tmp_path / "absent.onnx")
    assert caught.value.code == "bytes.missing"
    with pytest.raises(ModelError, match="not a file"):
        FileSource(tmp_path)
    path = tmp_path / "model.onnx"
    path.write_bytes(bytes(10))
    source = FileSource(path)
    path.write_bytes(bytes(11))
    with pytest.raises(ModelError) as caught:
        source.read(0, 1)
    assert caught.value.code == "bytes.changed"
    os.unlink(path)
    with pytest.raises(ModelError) as caught:
        source.read(0, 1)
    assert caught.value.code == "bytes.missing"


def test_a_range_reads_inside_itself_and_streams_its_digest() -> None:
    data = os.urandom(2 * CHUNK + 17)
    part = ByteRange(MemorySource(data), 5, len(data) - 5)
    assert part.read(3, 4) == data[8:12]
    assert part.read(3) == data[8:]
    assert [len(chunk) for chunk in part.chunks()] == [CHUNK, CHUNK, 12]
    assert part.sha256() == hashlib.sha256(data[5:]).hexdigest()
    with pytest.raises(ModelError, match="beyond the named part"):
        part.read(3, len(data) - 5)
