"""The graph IR: modules, functions, operations and values in SSA form.

Structure only: what an operator means is in its ``OpDef`` (``opdef.py``, ``ops/``), how it reads
as text in ``printer.py`` and ``parser.py``, what is legal in ``verifier.py``. Values and
operations have identity (two equal operations are still two); everything else is a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.plan import relation_holds
from rlx_edge.ir.source import Span
from rlx_edge.ir.types import TensorType

SCHEMA_VERSION = "1.0"


@dataclass(eq=False, slots=True)
class Value:
    """One tensor: ``name`` without ``%``, unique in its function; ``producer`` None = parameter.

    ``span`` is a parameter's place in the text; other values have their producer's.
    """

    name: str
    type: TensorType
    producer: Op | None = field(default=None, repr=False)
    span: Span | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(eq=False, slots=True)
class Op:
    """One operation. ``name`` is ``dialect::op``; a fused op is ``rlxc::fused_<root>_<last>``.

    A fused op's operands are the root's operands followed by those that only its ``epilogue``
    attribute (an ``Expr`` over ``acc`` and loads of operand slots at output indices) reads.
    """

    name: str
    operands: list[Value]
    attrs: dict[str, Attribute]
    results: list[Value]
    span: Span | None = None

    @property
    def result(self) -> Value:
        """The only result; an error for ops with several."""
        (value,) = self.results
        return value

    def __str__(self) -> str:
        results = ", ".join(str(value) for value in self.results)
        return f"{results} = {self.name}({', '.join(str(value) for value in self.operands)})"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes and value symbols under which a function's text holds."""

    left: Dim
    relation: str
    right: Dim
    reason: str = ""
    span: Span | None = field(default=None, repr=False, compare=False)

    def holds(self, env: dict[str, int]) -> bool:
        return relation_holds(self.left.evaluate(env), self.relation, self.right.evaluate(env))

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True, slots=True)
class Binding:
    """A value symbol: element ``position`` (row-major) of the integer parameter ``parameter``."""

    symbol: str
    parameter: str
    position: int
    span: Span | None = field(default=None, repr=False, compare=False)


@dataclass(eq=False, slots=True)
class Function:
    """``params`` and ``returns`` are the model's inputs and outputs, in order."""

    name: str
    params: list[Value]
    ops: list[Op]
    returns: list[Value]
    bindings: list[Binding] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    """Public names of ``returns`` where they differ from the values' names (else empty)."""
    span: Span | None = field(default=None, repr=False)
    """The signature's place in the text."""

    def values(self) -> Iterator[Value]:
        """Parameters, then every result in order."""
        yield from self.params
        for op in self.ops:
            yield from op.results

    def size_symbols(self) -> dict[str, tuple[str, int]]:
        """Symbol → (parameter name, axis) for dims that are a bare symbol, first place wins."""
        places: dict[str, tuple[str, int]] = {}
        for param in self.params:
            for axis, dim in enumerate(param.type.shape):
                names = dim.symbols()
                if len(names) == 1 and str(dim) == names[0]:
                    places.setdefault(names[0], (param.name, axis))
        return places

    def users(self) -> dict[Value, list[Op]]:
        """Value → ops that read it, in order (one entry an operand position)."""
        table: dict[Value, list[Op]] = {value: [] for value in self.values()}
        for op in self.ops:
            for operand in op.operands:
                table[operand].append(op)
        return table


class ByteSourceLike(Protocol):
    """Bytes that are read on demand (see ``onnx/bytes.py``)."""

    def read(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Bytes of a ``tensor::const``: little-endian, row-major, at ``offset`` of ``source``.

    ``location`` names the source for sidecars and messages (a file name, never an absolute path).
    """

    digest: str
    type: TensorType
    source: ByteSourceLike = field(repr=False, compare=False)
    offset: int = field(compare=False)
    nbytes: int
    location: str = field(default="", compare=False)

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        """``length`` bytes from ``start``; code ``const.range`` when the source is short."""
        count = self.nbytes - start if length is None else length
        if start < 0 or count < 0 or start + count > self.nbytes:
            raise RlxError("const.range", "read outside a constant", found=(start, count))
        data = self.source.read(self.offset + start, count)
        if len(data) != count:
            raise RlxError(
                "const.range",
                f"constant {self.digest} lies beyond the end of its file",
                found=f"{len(data)} bytes",
                allowed=f"{count} bytes at offset {self.offset + start}",
                where=self.location or None,
            )
        return data


@dataclass(eq=False, slots=True)
class Module:
    """One function with its constants; the unit of text, digest and compilation."""

    name: str
    function: Function
    constants: dict[str, Constant] = field(default_factory=dict)
    version: str = SCHEMA_VERSION


def unique_name(hint: str, taken: Iterable[str]) -> str:
    """``hint``, or ``hint_1``, ``hint_2``, … when taken."""
    names = taken if isinstance(taken, (set, frozenset, dict)) else set(taken)
    if hint not in names:
        return hint
    count = 1
    while f"{hint}_{count}" in names:
        count += 1
    return f"{hint}_{count}"
