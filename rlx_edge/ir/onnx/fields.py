"""The fields of one protobuf message, gathered by number for the readers of ONNX records."""

from __future__ import annotations

from rlx_edge.ir.onnx.wire import BYTES, Field, Message, WireReader


class Fields:
    """Fields of ``message`` by number; a scalar that occurs twice keeps its last value."""

    __slots__ = ("_by_number", "message", "reader")

    def __init__(self, reader: WireReader, message: Message) -> None:
        self.reader = reader
        self.message = message
        self._by_number: dict[int, list[Field]] = {}
        for field in reader.fields(message):
            self._by_number.setdefault(field.number, []).append(field)

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def all(self, number: int) -> list[Field]:
        return self._by_number.get(number, [])

    def text(self, number: int, what: str, default: str = "") -> str:
        found = self.all(number)
        return self.reader.text(found[-1], what, self.message) if found else default

    def texts(self, number: int, what: str) -> tuple[str, ...]:
        return tuple(self.reader.text(field, what, self.message) for field in self.all(number))

    def integer(self, number: int, what: str, default: int = 0) -> int:
        found = self.all(number)
        return self.reader.signed(found[-1], what, self.message) if found else default

    def integers(self, number: int, what: str) -> tuple[int, ...]:
        return tuple(
            value
            for field in self.all(number)
            for value in self.reader.integers(field, what, self.message)
        )

    def floats(self, number: int, what: str) -> tuple[float, ...]:
        return tuple(
            value
            for field in self.all(number)
            for value in self.reader.floats(field, what, self.message)
        )

    def content(self, number: int, what: str) -> Field | None:
        """The extent of a bytes field, unread."""
        found = self.all(number)
        if not found:
            return None
        self.reader.expect(found[-1], BYTES, what, self.message)
        return found[-1]

    def message_at(self, number: int, kind: str) -> Fields | None:
        found = self.messages(number, kind)
        return found[-1] if found else None

    def messages(self, number: int, kind: str) -> list[Fields]:
        return [
            Fields(self.reader, self.reader.message(field, kind, self.message))
            for field in self.all(number)
        ]
