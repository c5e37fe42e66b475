"""How a tile of a contraction is shared out among invocations, and its workgroup memory.

Operand A lies in workgroup memory k by k with its rows side by side, operand B behind it with its
columns, each part's after the one before. Where parts work on as many chains at once, the finished
chains take the same place, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.templates.gpu import EACH, GpuTile
from rlx_edge.ir.errors import LimitError

LANES = 4
A_PAD = 1
"""``Shape.pad`` where stores transpose A."""


ROWS, VECTORS = EACH, 1
"""Of an invocation: rows, and vectors of columns; more of both where there are fewer of them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a tile is shared out: each part's invocations have ``each`` rows by ``vectors`` of four
    columns, which lie as far apart as the part is wide.

    ``rows_first``: neighbouring invocations have neighbouring rows, else columns. ``pad``: vectors
    after each row of A, so that stores that transpose it meet other banks.
    """

    tile: GpuTile
    each: int
    vectors: int
    rows_first: bool
    pad: int

    @property
    def across(self) -> int:
        """Invocations side by side."""
        return self.tile.columns // (LANES * self.vectors)

    @property
    def down(self) -> int:
        """Invocations one below another."""
        return self.tile.rows // self.each

    @property
    def part_threads(self) -> int:
        return self.down * self.across

    @property
    def threads(self) -> int:
        return self.part_threads * self.tile.parts

    @property
    def fours(self) -> int:
        """Vectors of the result that an invocation has chains of."""
        return self.each * self.vectors

    @property
    def finished(self) -> int:
        """Rows that an invocation finishes: parts share out the sums of their chains."""
        return self.each // self.tile.parts

    @property
    def a_pitch(self) -> int:
        """Vectors from one k to the next of A."""
        return self.tile.rows // LANES + self.pad

    @property
    def b_pitch(self) -> int:
        return self.tile.columns // LANES

    @property
    def b_first(self) -> int:
        """Vectors of A, which B begins behind."""
        return self.tile.depth * self.a_pitch

    @property
    def part_vectors(self) -> int:
        return self.tile.depth * (self.a_pitch + self.b_pitch)

    @property
    def memory(self) -> int:
        """Vectors of four f32 in all."""
        chains = self.threads * self.fours if self.tile.parts > 1 else 0
        return max(self.tile.parts * self.part_vectors, chains)

    @property
    def nbytes(self) -> int:
        return 16 * self.memory


def share_out(tile: GpuTile, most: int, rows_first: bool, pad: int) -> Shape:
    """The shape for at most ``most`` invocations."""
    each, vectors = (EACH, 1) if tile.parts > 1 else (ROWS, VECTORS)
    vectors = min(vectors, tile.columns // LANES)
    while tile.parts * tile.rows // each * (tile.columns // (LANES * vectors)) > most and (
        each < tile.rows
    ):
        each *= 2
    return Shape(tile, each, vectors, rows_first, pad)


def workgroup_memory(shared: Shared, shape: Shape, name: str) -> int:
    """The array of vectors of a tile; kernels of one size share it.

    ``LimitError`` ``target.shared`` where the device has less.
    """
    module, target = shared.module, shared.target
    if shape.nbytes > target.shared:
        raise LimitError(
            "target.shared",
            f"the tile {shape.tile.name} does not fit into workgroup memory",
            found=f"{shape.nbytes} bytes",
            allowed=f"at most {target.shared}",
            where=name,
        )
    key = f"workgroup {shape.memory}"
    if key not in shared.variables:
        kind = module.array(module.vector_type(LANES), shape.memory)
        shared.variables[key] = module.variable("Workgroup", kind)
        module.name(shared.variables[key], f"tile_{shape.memory}")
    return shared.variables[key]
