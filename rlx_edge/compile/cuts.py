"""Where a placed function can be cut: prefixes of its operations, and what crosses behind each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlx_edge.compile.passes.place import COMPILE
from rlx_edge.ir.core import Function, Op, Value
from rlx_edge.ir.dims import Dim, as_dim


@dataclass(frozen=True, slots=True)
class Cut:
    """A prefix that ends with the operation that defines ``after`` (``""`` for the empty one), and
    the ``values`` that operations behind it read from it, in the order of their definitions."""

    after: str
    values: tuple[Value, ...]

    @property
    def nbytes(self) -> Dim:
        """Bytes that cross, for sizes that a run gives."""
        return sum((value.type.nbytes for value in self.values), as_dim(0))


def cuts(function: Function) -> Iterator[Cut]:
    """Every cut behind an operation that runs, in order, the empty prefix first.

    What is computed from constants alone is made on both sides, so it never crosses.
    """
    running = [op for op in function.ops if op.attrs.get("phase") != COMPILE]
    last: dict[Value, int] = {}
    for position, op in enumerate(running):
        last.update(dict.fromkeys(op.operands, position))
    alive = [value for value in function.params if value in last]
    yield Cut("", tuple(alive))
    for position, op in enumerate(running):
        alive += [value for value in op.results if value in last]
        alive = [value for value in alive if last[value] > position]
        if op.results:
            yield Cut(_name(op), tuple(alive))


def _name(op: Op) -> str:
    return op.results[0].name
