"""What a contraction reads and writes: the part in which matmul and conv2d differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.contraction_shape import LANES
from rlx_edge.compile.codegen.spirv.interface import Interface
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.ir.kernel import TemplateKernel

Extras: TypeAlias = list[list[int]]
"""Of each extra operand, its value for each of four neighbouring columns."""


@dataclass(slots=True)
class Place:
    """Where a workgroup is: slice, first row and column of the tile."""

    slice: int
    row: int
    column: int


class Operands(ABC):
    """What a contraction reads and writes; everything is emitted by ``emit_contraction``.

    ``rows``, ``columns``, ``depth`` are words; k beyond ``depth`` is never asked for.
    """

    io: Interface
    slices: int
    rows: int
    columns: int
    depth: int
    chain: int
    """Steps of k in one chain, 0 where the kernel has none."""
    fused: bool
    """Whether a product may be added to its chain with one rounding."""
    a_quads: bool
    """Whether A is read four k at a time, else one element."""
    a_fours: bool = False
    """Whether four k of A, read one by one, have an address in common (``a_four``)."""
    b_quads: bool
    """Whether B is read four columns at a time."""
    a_rows_first: bool
    """Whether A's rows lie side by side in memory, else its k."""

    @abstractmethod
    def at_row(self, code: Code, place: Place, row: int) -> int:
        """What ``a`` needs of a row (of all), computed once a tile; rows beyond the last too."""

    @abstractmethod
    def a(self, code: Code, base: int, k: int, inside: int) -> int:
        """An element of A, or four k of it; anything that can be read unless ``inside``."""

    def a_four(self, code: Code, base: int, k: int, inside: int) -> list[int]:
        """Four elements of A from ``k`` on, a multiple of four; anything that can be read where
        ``a_exists`` does not hold."""
        w, found = Words(code), []
        for lane in range(LANES):
            at = w.plus(k, lane)
            found.append(self.a(code, base, at, self.a_exists(code, at, inside)))
        return found

    def a_exists(self, code: Code, k: int, inside: int) -> int:
        """Whether an element that is ``inside`` is one, and no padding of k."""
        del code, k
        return inside

    @abstractmethod
    def at_column(self, code: Code, place: Place, column: int) -> int:
        """What ``b`` needs of a column, computed once a tile."""

    @abstractmethod
    def b(self, code: Code, base: int, k: int, inside: int) -> int:
        """An element of B, or four columns of it; anything that can be read unless ``inside``."""

    @abstractmethod
    def locate(self, code: Code, place: Place, row: int) -> list[int]:
        """What the three below need of a row of the result; rows beyond the last too."""

    @abstractmethod
    def column_extras(self, code: Code, place: Place, column: int) -> Extras:
        """Extra operands at four columns, ``[]`` for those that depend on the row."""

    @abstractmethod
    def row_extras(
        self, code: Code, place: Place, at: list[int], column: int, inside: int, known: Extras
    ) -> Extras:
        """All extra operands of a row; anything that can be read unless ``inside``."""

    @abstractmethod
    def store(
        self,
        code: Code,
        place: Place,
        at: list[int],
        column: int,
        totals: list[int],
        extras: Extras,
    ) -> None:
        """Epilogue and store of four neighbouring columns; the row is inside."""


def chain_of(kernel: TemplateKernel) -> tuple[int, bool]:
    """``Operands.chain`` and ``Operands.fused`` of a kernel."""
    options = dict(kernel.config)
    return int(options.get("chain", 0)), bool(options.get("fused"))
