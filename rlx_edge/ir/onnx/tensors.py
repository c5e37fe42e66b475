"""ONNX tensors (``TensorProto``) as shapes plus byte ranges.

``raw_data``, packed ``float_data``/``double_data`` and external files stay where they are; only
the integer fields that protobuf stores as varints are decoded, once, into little-endian bytes.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import ByteRange, ByteSource
from rlx_edge.ir.onnx.fields import Fields
from rlx_edge.ir.onnx.wire import BYTES

External = Callable[[str, str], ByteSource]
"""``(location, where) -> source`` of a file named by ``external_data``; ``where`` is for errors."""

# TensorProto.DataType -> (name, bits of an element, struct format or "").
DATA_TYPES: dict[int, tuple[str, int, str]] = {
    1: ("f32", 32, "f"),
    2: ("u8", 8, "B"),
    3: ("i8", 8, "b"),
    4: ("u16", 16, "H"),
    5: ("i16", 16, "h"),
    6: ("i32", 32, "i"),
    7: ("i64", 64, "q"),
    8: ("string", 0, ""),
    9: ("bool", 8, "?"),
    10: ("f16", 16, "e"),
    11: ("f64", 64, "d"),
    12: ("u32", 32, "I"),
    13: ("u64", 64, "Q"),
    14: ("complex64", 64, ""),
    15: ("complex128", 128, ""),
    16: ("bf16", 16, ""),
    17: ("float8e4m3fn", 8, ""),
    18: ("float8e4m3fnuz", 8, ""),
    19: ("float8e5m2", 8, ""),
    20: ("float8e5m2fnuz", 8, ""),
    21: ("uint4", 4, ""),
    22: ("int4", 4, ""),
    23: ("float4e2m1", 4, ""),
    24: ("float8e8m0", 8, ""),
    25: ("uint2", 2, ""),
    26: ("int2", 2, ""),
}
_STRING = 8
_BF16 = 16

# Typed data fields: number -> (name, array code of the stored items).
_INT32_DATA, _INT64_DATA, _UINT64_DATA = 5, 7, 11
_FLOAT_DATA, _STRING_DATA, _DOUBLE_DATA, _RAW_DATA = 4, 6, 10, 9
_DATA_FIELDS = {
    _FLOAT_DATA: "float_data",
    _INT32_DATA: "int32_data",
    _STRING_DATA: "string_data",
    _INT64_DATA: "int64_data",
    _RAW_DATA: "raw_data",
    _DOUBLE_DATA: "double_data",
    _UINT64_DATA: "uint64_data",
}


def data_type_name(number: int) -> str:
    """``f32`` for 1; ``type 99`` for a number that ONNX does not define here."""
    return DATA_TYPES[number][0] if number in DATA_TYPES else f"type {number}"


@dataclass(frozen=True, slots=True)
class TensorProto:
    """Name, shape, element type (ONNX number) and content as little-endian row-major bytes.

    ``strings`` holds the items of a string tensor, whose ``data`` is empty.
    """

    name: str
    data_type: int
    dims: tuple[int, ...]
    data: ByteRange
    strings: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    def elements(self) -> tuple[float | int | bool, ...]:
        """All elements as Python numbers; for small tensors of the types that have them."""
        name, _, code = DATA_TYPES[self.data_type]
        if self.data_type == _BF16:
            halves = struct.unpack(f"<{self.size}H", self.data.read())
            bits = struct.pack(f"<{self.size}I", *(half << 16 for half in halves))
            return struct.unpack(f"<{self.size}f", bits)
        if not code:
            raise ModelError(
                "import.data_type", "tensor elements cannot be read", found=name, where=self.name
            )
        return struct.unpack(f"<{self.size}{code}", self.data.read())


def read_tensor(fields: Fields, external: External, where: str) -> TensorProto:
    """The record of one ``TensorProto``; sizes are checked against the dims.

    Errors (``ModelError``): ``import.tensor`` for contradictions inside the file,
    ``import.external`` for external files that are missing, escape the model's folder or are too
    short.
    """
    name = fields.text(8, "TensorProto.name")
    here = f"{where}: tensor {name!r}" if name else where
    dims = fields.integers(1, "TensorProto.dims")
    if any(dim < 0 for dim in dims):
        raise ModelError("import.tensor", "negative dimension", found=list(dims), where=here)
    data_type = fields.integer(2, "TensorProto.data_type")
    if data_type not in DATA_TYPES:
        raise ModelError("import.data_type", "unknown element type", found=data_type, where=here)
    if data_type == _STRING:
        items = tuple(
            fields.reader.data(item, "string_data", fields.message) for item in fields.all(6)
        )
        return TensorProto(name, data_type, dims, ByteRange.of(b""), items)
    data = _content(fields, data_type, external, here)
    wanted = (math.prod(dims) * DATA_TYPES[data_type][1] + 7) // 8
    if data.length != wanted:
        shape = "×".join(map(str, dims)) or "scalar"
        raise ModelError(
            "import.tensor",
            f"the data does not fit the shape {shape} of {data_type_name(data_type)}",
            found=f"{data.length} bytes",
            allowed=f"{wanted} bytes",
            where=here,
        )
    return TensorProto(name, data_type, dims, data)


def _content(fields: Fields, data_type: int, external: External, where: str) -> ByteRange:
    present = [number for number in _DATA_FIELDS if number in fields]
    is_external = fields.integer(14, "TensorProto.data_location") == 1
    if is_external:
        return _external_content(fields, external, where)
    if len(present) > 1:
        raise ModelError(
            "import.tensor",
            "more than one field holds the data",
            found=[_DATA_FIELDS[number] for number in present],
            allowed="one field",
            where=where,
        )
    if not present:
        return ByteRange.of(b"")
    if present == [_RAW_DATA]:
        field = fields.all(_RAW_DATA)[-1]
        fields.reader.expect(field, BYTES, "raw_data", fields.message)
        return ByteRange(fields.reader.source, field.offset, field.length)
    return _typed_content(fields, present[0], data_type, where)


def _typed_content(fields: Fields, number: int, data_type: int, where: str) -> ByteRange:
    """Content of ``float_data`` and its like; one packed run of floats stays a range."""
    name = _DATA_FIELDS[number]
    if number in (_FLOAT_DATA, _DOUBLE_DATA):
        wanted = {_FLOAT_DATA: (1, 14), _DOUBLE_DATA: (11, 15)}[number]
        _check_typed(data_type in wanted, name, data_type, where)
        runs = fields.all(number)
        if len(runs) == 1 and runs[0].wire == BYTES:
            return ByteRange(fields.reader.source, runs[0].offset, runs[0].length)
        source = fields.reader.source
        return ByteRange.of(
            b"".join(source.read(run.offset, run.length) for run in runs), source.name
        )
    items = (
        value
        for field in fields.all(number)
        for value in fields.reader.integers(field, name, fields.message)
    )
    allowed = {_INT64_DATA: (7,), _UINT64_DATA: (12, 13)}.get(number)
    bits = DATA_TYPES[data_type][1]
    fits = data_type in allowed if allowed is not None else bits <= 32 and data_type not in (1, 12)
    _check_typed(fits, name, data_type, where)
    return ByteRange.of(_pack(items, max(bits, 8)), fields.reader.source.name)


def _check_typed(fits: bool, name: str, data_type: int, where: str) -> None:
    if not fits:
        raise ModelError(
            "import.tensor",
            f"{name} cannot hold elements of this type",
            found=data_type_name(data_type),
            where=where,
        )


def _pack(items: Iterable[int], bits: int) -> bytes:
    """The low ``bits`` of each item, little-endian."""
    mask = (1 << bits) - 1
    packed = array({8: "B", 16: "H", 32: "I", 64: "Q"}[bits], (item & mask for item in items))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _external_content(fields: Fields, external: External, where: str) -> ByteRange:
    entries = {
        entry.text(1, "external_data.key"): entry.text(2, "external_data.value")
        for entry in fields.messages(13, "StringStringEntryProto")
    }
    location = entries.get("location", "")
    if not location:
        raise ModelError("import.external", "external data without a location", where=where)
    source = external(location, where)
    offset = _entry_integer(entries, "offset", where) or 0
    length = _entry_integer(entries, "length", where)
    if length is None:
        length = max(0, source.size - offset)
    if offset + length > source.size:
        raise ModelError(
            "import.external",
            f"tensor range beyond the file {location!r}",
            found=f"offset {offset}, length {length}",
            allowed=f"0 to {source.size}",
            where=where,
        )
    return ByteRange(source, offset, length)


def _entry_integer(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ModelError(
            "import.external",
            f"external data {key} is not a number of bytes",
            found=repr(text),
            where=where,
        )
    return int(text)
