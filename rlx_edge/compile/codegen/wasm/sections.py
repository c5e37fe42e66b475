"""WebAssembly sections as bytes.

Source: WebAssembly specification 2.0, chapter "Binary Format". Nothing here validates: invalid
modules can be built on purpose. `module.py` puts sections in order and numbers indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from rlx_edge.compile.codegen.wasm.encoder import FUNCREF, unsigned, vector

MAGIC: Final = b"\0asm\1\0\0\0"

FUNCTION: Final = 0
TABLE: Final = 1
MEMORY: Final = 2
GLOBAL: Final = 3


class Limits(NamedTuple):
    """Limits of a memory (pages of 64 KiB) or a table (entries)."""

    minimum: int
    maximum: int | None = None
    shared: bool = False

    def encode(self) -> bytes:
        """Flag byte, minimum, and the maximum where there is one."""
        flags = (0 if self.maximum is None else 1) | (2 if self.shared else 0)
        maximum = b"" if self.maximum is None else unsigned(self.maximum)
        return bytes([flags]) + unsigned(self.minimum) + maximum


def name_bytes(name: str) -> bytes:
    """Encode a name: byte length, then UTF-8."""
    encoded = name.encode()
    return unsigned(len(encoded)) + encoded


def encode_locals(types: Iterable[int]) -> bytes:
    """Declaration of locals: runs of one type."""
    runs: list[tuple[int, int]] = []
    for value_type in types:
        if runs and runs[-1][1] == value_type:
            runs[-1] = (runs[-1][0] + 1, value_type)
        else:
            runs.append((1, value_type))
    return vector([unsigned(count) + bytes([value_type]) for count, value_type in runs])


class Section:
    """Entries of one section; `payload` excludes the section id and size."""

    id: int = 0

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def __len__(self) -> int:
        return len(self.entries)

    def payload(self) -> bytes:
        """The section's contents."""
        return vector(self.entries)

    def encode(self) -> bytes:
        """Section id, size and contents."""
        payload = self.payload()
        return bytes([self.id]) + unsigned(len(payload)) + payload


class TypeSection(Section):
    """Function types."""

    id = 1

    def function(self, parameters: Sequence[int], results: Sequence[int]) -> Self:
        """Add a function type."""
        self.entries.append(
            b"\x60" + bytes([len(parameters), *parameters]) + bytes([len(results), *results])
        )
        return self


class ImportSection(Section):
    """Imports."""

    id = 2

    def _entry(self, module: str, name: str, kind: int, description: bytes) -> Self:
        self.entries.append(name_bytes(module) + name_bytes(name) + bytes([kind]) + description)
        return self

    def function(self, module: str, name: str, type_index: int) -> Self:
        """Import a function."""
        return self._entry(module, name, FUNCTION, unsigned(type_index))

    def table(self, module: str, name: str, reference_type: int, limits: Limits) -> Self:
        """Import a table."""
        return self._entry(module, name, TABLE, bytes([reference_type]) + limits.encode())

    def memory(self, module: str, name: str, limits: Limits) -> Self:
        """Import a memory."""
        return self._entry(module, name, MEMORY, limits.encode())

    def global_(self, module: str, name: str, value_type: int, mutable: bool = False) -> Self:
        """Import a global."""
        return self._entry(module, name, GLOBAL, bytes([value_type, mutable]))


class FunctionSection(Section):
    """Type index of each function."""

    id = 3

    def function(self, type_index: int) -> Self:
        """Declare a function."""
        self.entries.append(unsigned(type_index))
        return self


class TableSection(Section):
    """Tables."""

    id = 4

    def table(self, limits: Limits, reference_type: int = FUNCREF) -> Self:
        """Declare a table."""
        self.entries.append(bytes([reference_type]) + limits.encode())
        return self


class MemorySection(Section):
    """Memories."""

    id = 5

    def memory(self, limits: Limits) -> Self:
        """Declare a memory."""
        self.entries.append(limits.encode())
        return self


class GlobalSection(Section):
    """Globals."""

    id = 6

    def global_(self, value_type: int, mutable: bool, initial: bytes) -> Self:
        """Declare a global with a constant expression as its initial value."""
        self.entries.append(bytes([value_type, mutable]) + initial)
        return self


class ExportSection(Section):
    """Exports."""

    id = 7

    def export(self, name: str, kind: int, index: int) -> Self:
        """Export the index of a kind under a name."""
        self.entries.append(name_bytes(name) + bytes([kind]) + unsigned(index))
        return self


class StartSection(Section):
    """The function that runs at instantiation."""

    id = 8

    def __init__(self, function_index: int) -> None:
        super().__init__()
        self.entries.append(unsigned(function_index))

    def payload(self) -> bytes:
        """The function index."""
        return self.entries[0]


class ElementSection(Section):
    """Element segments."""

    id = 9

    def active(self, offset: bytes, functions: Sequence[int]) -> Self:
        """Fill table 0 from a constant offset expression with function indices."""
        self.entries.append(b"\x00" + offset + vector([unsigned(item) for item in functions]))
        return self

    def declarative(self, functions: Sequence[int]) -> Self:
        """Declare functions that `ref.func` may name."""
        self.entries.append(b"\x03\x00" + vector([unsigned(item) for item in functions]))
        return self


class DataCountSection(Section):
    """Number of data segments, needed before `memory.init` and `data.drop`."""

    id = 12

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def payload(self) -> bytes:
        """The count."""
        return unsigned(self.count)


class CodeSection(Section):
    """Function bodies."""

    id = 10

    def function(self, local_types: Iterable[int], code: bytes | bytearray) -> Self:
        """Add a body: its locals beyond the parameters, and its code without the last `end`."""
        declared = encode_locals(local_types)
        self.entries.append(unsigned(len(declared) + len(code) + 1) + declared + code + b"\x0b")
        return self


class DataSection(Section):
    """Data segments."""

    id = 11

    def active(self, offset: bytes, data: bytes) -> Self:
        """Copy data into memory 0 at instantiation."""
        self.entries.append(b"\x00" + offset + unsigned(len(data)) + data)
        return self

    def passive(self, data: bytes) -> Self:
        """Data for `memory.init`."""
        self.entries.append(b"\x01" + unsigned(len(data)) + data)
        return self


class CustomSection(Section):
    """A named section without meaning to the engine."""

    id = 0

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__()
        self.name = name
        self.data = data

    def payload(self) -> bytes:
        """Name, then the data."""
        return name_bytes(self.name) + self.data


def name_map(names: Sequence[tuple[int, str]]) -> bytes:
    """Encode (index, name) pairs in ascending order of the index."""
    return vector([unsigned(index) + name_bytes(name) for index, name in names])


class NameSection(CustomSection):
    """Debug names of the module, its functions and their locals (custom section `name`)."""

    def __init__(
        self,
        module: str | None,
        functions: Sequence[tuple[int, str]],
        local_names: Sequence[tuple[int, Sequence[tuple[int, str]]]],
    ) -> None:
        parts = bytearray()
        if module is not None:
            parts += self._subsection(0, name_bytes(module))
        if functions:
            parts += self._subsection(1, name_map(functions))
        if local_names:
            maps = [unsigned(index) + name_map(names) for index, names in local_names]
            parts += self._subsection(2, vector(maps))
        super().__init__("name", bytes(parts))

    @staticmethod
    def _subsection(identifier: int, data: bytes) -> bytes:
        return bytes([identifier]) + unsigned(len(data)) + data


def encode_module(sections: Iterable[Section]) -> bytes:
    """A module of the given sections in the given order."""
    return MAGIC + b"".join(section.encode() for section in sections)
