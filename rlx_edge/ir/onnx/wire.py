"""The protobuf wire format over a ``ByteSource`` (protobuf encoding guide, "Message Structure").

A message is walked field by field: headers and small values come through one buffered window,
length-delimited content is reported as ``(offset, length)`` and skipped unless somebody asks for
it. A 2 GB tensor therefore costs a dozen bytes of reading. Everything that does not follow the
format is a ``ModelError`` with the byte offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import ByteSource

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_DEPTH = 100
"""Nested messages allowed; protobuf's own default limit."""

_WINDOW = 16 * 1024
_MAX_VARINT = 10
_WIRE_NAMES = {VARINT: "varint", FIXED64: "fixed64", BYTES: "bytes", FIXED32: "fixed32"}


class Message(NamedTuple):
    """The extent of one message; ``kind`` names it in errors (``"GraphProto"``)."""

    kind: str
    start: int
    end: int
    depth: int


class Field(NamedTuple):
    """One field: its number, wire type, scalar value (0 for bytes) and extent of the content."""

    number: int
    wire: int
    value: int
    offset: int
    length: int


class WireReader:
    """Walks messages of one source; keeps only the window of bytes read last."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._window = b""
        self._base = 0

    def root(self, kind: str) -> Message:
        """The whole source as one message."""
        return Message(kind, 0, self.source.size, 0)

    def fields(self, message: Message) -> Iterator[Field]:
        """The fields of ``message`` in file order."""
        position = message.start
        while position < message.end:
            at = position
            key, position = self._varint(position, message)
            number, wire = key >> 3, key & 7
            if number == 0 or number >= 1 << 29:
                raise self._malformed("field number out of range", at, message, found=number)
            if wire == VARINT:
                start = position
                value, position = self._varint(position, message)
                yield Field(number, wire, value, start, position - start)
            elif wire == BYTES:
                length, position = self._varint(position, message)
                self._inside(position, length, number, message)
                yield Field(number, wire, 0, position, length)
                position += length
            elif wire in (FIXED32, FIXED64):
                length = 4 if wire == FIXED32 else 8
                self._inside(position, length, number, message)
                value = int.from_bytes(self._peek(position, length), "little")
                yield Field(number, wire, value, position, length)
                position += length
            else:
                raise self._malformed("unknown wire type", at, message, found=wire)

    def message(self, field: Field, kind: str, parent: Message) -> Message:
        """The message held by ``field``."""
        self.expect(field, BYTES, kind, parent)
        if parent.depth + 1 > MAX_DEPTH:
            raise self._malformed("messages nested too deeply", field.offset, parent)
        return Message(kind, field.offset, field.offset + field.length, parent.depth + 1)

    def expect(self, field: Field, wire: int, what: str, parent: Message) -> None:
        """``field`` must have this wire type."""
        if field.wire != wire:
            raise self._malformed(
                f"{what} (field {field.number}) has the wrong wire type",
                field.offset,
                parent,
                found=_WIRE_NAMES[field.wire],
                allowed=_WIRE_NAMES[wire],
            )

    def text(self, field: Field, what: str, parent: Message) -> str:
        """A string field; it must be UTF-8."""
        data = self.data(field, what, parent)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self._malformed(f"{what} is not UTF-8 text", field.offset, parent) from None

    def data(self, field: Field, what: str, parent: Message) -> bytes:
        """The content of a bytes field (for small things: names, attribute values)."""
        self.expect(field, BYTES, what, parent)
        return self._peek(field.offset, field.length)

    def signed(self, field: Field, what: str, parent: Message) -> int:
        """An ``int32``/``int64`` field: two's complement of the varint."""
        self.expect(field, VARINT, what, parent)
        return as_signed(field.value)

    def float32(self, field: Field, what: str, parent: Message) -> float:
        """A ``float`` field, as the double of the same value."""
        self.expect(field, FIXED32, what, parent)
        return float(struct.unpack("<f", field.value.to_bytes(4, "little"))[0])

    def integers(self, field: Field, what: str, parent: Message) -> Iterator[int]:
        """The signed items of a repeated integer field, packed or single."""
        if field.wire == VARINT:
            yield as_signed(field.value)
            return
        packed = self.message(field, what, parent)
        position = packed.start
        while position < packed.end:
            value, position = self._varint(position, packed)
            yield as_signed(value)

    def floats(self, field: Field, what: str, parent: Message) -> tuple[float, ...]:
        """The items of a repeated ``float`` field, packed or single."""
        if field.wire == FIXED32:
            return (self.float32(field, what, parent),)
        data = self.data(field, what, parent)
        if len(data) % 4:
            raise self._malformed(f"{what} is not a whole number of floats", field.offset, parent)
        return struct.unpack(f"<{len(data) // 4}f", data)

    # ---- reading -----------------------------------------------------------------------------

    def _varint(self, position: int, message: Message) -> tuple[int, int]:
        """``(value, next position)``; at most ten bytes and 64 bits."""
        index = position - self._base
        if not 0 <= index <= len(self._window) - _MAX_VARINT:
            self._fill(position)
            index = 0
        window = self._window
        limit = min(message.end - position, len(window) - index)
        value = shift = 0
        for count in range(min(limit, _MAX_VARINT)):
            byte = window[index + count]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    raise self._malformed("varint exceeds 64 bits", position, message)
                return value, position + count + 1
            shift += 7
        if limit < _MAX_VARINT:
            raise self._truncated("the file ends inside a number", position, message)
        raise self._malformed("varint is longer than ten bytes", position, message)

    def _peek(self, offset: int, length: int) -> bytes:
        """Small content through the window, large content straight from the source."""
        if length > _WINDOW:
            return self.source.read(offset, length)
        index = offset - self._base
        if not (0 <= index and index + length <= len(self._window)):
            self._fill(offset)
            index = 0
        return self._window[index : index + length]

    def _fill(self, offset: int) -> None:
        self._window = self.source.read(offset, min(_WINDOW, self.source.size - offset))
        self._base = offset

    # ---- errors ------------------------------------------------------------------------------

    def _inside(self, position: int, length: int, number: int, message: Message) -> None:
        if position + length <= message.end:
            return
        end = position + length
        if end > self.source.size:
            raise self._truncated(
                f"field {number} of {message.kind} ends at byte {end}", position, message
            )
        raise self._malformed(
            f"field {number} is longer than the message around it",
            position,
            message,
            found=f"{length} bytes",
            allowed=f"{message.end - position} bytes",
        )

    def _truncated(self, what: str, position: int, message: Message) -> ModelError:
        if message.end < self.source.size:
            return self._malformed("the message ends inside a number", position, message)
        return ModelError(
            "import.truncated",
            f"the ONNX file is truncated: {what}, the file has {self.source.size} bytes",
            where=f"{self.source.name}: byte {position}",
        )

    def _malformed(
        self,
        what: str,
        position: int,
        message: Message,
        *,
        found: object = None,
        allowed: object = None,
    ) -> ModelError:
        return ModelError(
            "import.malformed",
            f"not a valid ONNX file: {what} in {message.kind}",
            found=found,
            allowed=allowed,
            where=f"{self.source.name}: byte {position}",
        )


def as_signed(value: int) -> int:
    """Two's complement of a 64-bit varint."""
    return value - (1 << 64) if value >> 63 else value
