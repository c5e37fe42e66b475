"""The protobuf wire format: values, windows and strict errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import MemorySource
from rlx_edge.ir.onnx.fields import Fields
from rlx_edge.ir.onnx.wire import BYTES, MAX_DEPTH, Message, WireReader


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number: int, wire: int, content: bytes) -> bytes:
    return varint(number << 3 | wire) + content


def block(number: int, content: bytes) -> bytes:
    return field(number, BYTES, varint(len(content)) + content)


class CountingSource(MemorySource):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        self.bytes_read += length
        return super().read(offset, length)


def gather(data: bytes) -> Fields:
    reader = WireReader(MemorySource(data, "m.onnx"))
    return Fields(reader, reader.root("ModelProto"))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.text(), st.floats(width=32, allow_nan=False))
def test_values_come_back(values: list[int], text: str, number: float) -> None:
    import struct

    data = (
        b"".join(field(1, 0, varint(value)) for value in values)
        + block(2, b"".join(varint(value) for value in values))
        + block(3, text.encode())
        + field(4, 5, struct.pack("<f", number))
        + block(5, struct.pack("<2f", number, 1.0))
    )
    fields = gather(data)
    assert list(fields.integers(1, "v")) == values
    assert list(fields.integers(2, "v")) == values
    assert fields.text(3, "t") == text
    assert fields.floats(4, "f") == (number,)
    assert fields.floats(5, "f") == (number, 1.0)
    if values:
        assert fields.integer(1, "v") == values[-1]


def test_large_content_is_not_read() -> None:
    data = b"".join(block(5, bytes(1 << 20)) + field(1, 0, varint(n)) for n in range(4))
    source = CountingSource(data)
    reader = WireReader(source)
    fields = Fields(reader, reader.root("GraphProto"))
    assert fields.integers(1, "n") == (0, 1, 2, 3)
    assert [item.length for item in fields.all(5)] == [1 << 20] * 4
    assert source.bytes_read < 200_000


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"\x00\x01", "import.malformed", "field number out of range"),
        (b"\x0b", "import.malformed", "unknown wire type"),
        (b"\x08" + b"\xff" * 10, "import.malformed", "longer than ten bytes"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "import.malformed", "exceeds 64 bits"),
        (b"\x08\xff", "import.truncated", "ends inside a number"),
        (b"\x08", "import.truncated", "ends inside a number"),
        (b"\x12\x05ab", "import.truncated", "field 2 of ModelProto ends at byte 7"),
        (b"\x0d\x00\x00", "import.truncated", "truncated"),
        (b"\x12" + varint(2**63), "import.truncated", "truncated"),
    ],
)
def test_broken_input_names_the_byte(data: bytes, code: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        gather(data)
    assert caught.value.code == code
    assert caught.value.where is not None
    assert caught.value.where.startswith("m.onnx: byte ")


def test_a_length_beyond_the_enclosing_message_is_malformed() -> None:
    inner = field(2, BYTES, varint(50))
    with pytest.raises(ModelError, match="longer than the message around it") as caught:
        gather(block(1, inner) + bytes(0) + block(3, bytes(100))).messages(1, "Inner")
    assert caught.value.code == "import.malformed"
    assert "50 bytes" in str(caught.value)


def test_a_number_cut_by_the_end_of_its_message_is_malformed() -> None:
    with pytest.raises(ModelError, match="the message ends inside a number") as caught:
        gather(block(1, b"\x08\xff") + block(3, bytes(10))).messages(1, "Inner")
    assert caught.value.code == "import.malformed"


def test_nesting_is_limited() -> None:
    reader = WireReader(MemorySource(block(1, b"")))
    root = reader.root("ModelProto")
    deep = Message("Deep", root.start, root.end, MAX_DEPTH)
    item = next(iter(reader.fields(deep)))
    with pytest.raises(ModelError, match="nested too deeply"):
        reader.message(item, "Deeper", deep)


def test_wrong_wire_types_and_bad_text_are_errors() -> None:
    with pytest.raises(ModelError, match="wrong wire type"):
        gather(field(1, 0, b"\x01")).text(1, "name")
    with pytest.raises(ModelError, match="wrong wire type"):
        gather(block(1, b"a")).integer(1, "version")
    with pytest.raises(ModelError, match="not UTF-8"):
        gather(block(1, b"\xff\xfe")).text(1, "name")
    with pytest.raises(ModelError, match="whole number of floats"):
        gather(block(1, b"\x00\x00\x00")).floats(1, "floats")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        fields = gather(data)
        for number in range(1, 16):
            fields.messages(number, "Inner")
    except ModelError as error:
        assert error.code in ("import.malformed", "import.truncated")
