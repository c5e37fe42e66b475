"""Tiles of contractions that run on matrix units: a warp multiplies 16 × 8 outputs at a time.

Operands are rounded when they enter shared memory: to tf32, a word each, or to f16, two steps of k
a word. Either way a workgroup takes ``WORDS`` words of k a round, so one layout serves both.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.ir.attributes import FP16, TF32

WORDS = 16
"""Words of k in shared memory a round."""
WARP = 32
PER_WORD = {TF32: 1, FP16: 2}
"""Steps of k in a word."""
A_STRIDE = WORDS + 4
"""Words from row to row of the left operand: fragments of eight rows meet no bank twice."""
B_PAD = 8
"""Words behind a row of the right operand, to the same end."""


@dataclass(frozen=True, slots=True)
class MmaTile:
    """``rows`` × ``columns`` outputs of a workgroup, ``warp_rows`` × ``warp_columns`` of a warp.

    ``parts`` groups of warps take every ``parts``-th round; one adds their sums up in order.
    """

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    parts: int = 1

    @property
    def name(self) -> str:
        parts = f"x{self.parts}" if self.parts > 1 else ""
        return f"{self.rows}x{self.columns}{parts}"

    @property
    def part_threads(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns) * WARP

    @property
    def threads(self) -> int:
        return self.part_threads * self.parts

    @property
    def a_words(self) -> int:
        return self.rows * A_STRIDE

    @property
    def b_stride(self) -> int:
        return self.columns + B_PAD

    @property
    def part_words(self) -> int:
        return self.a_words + WORDS * self.b_stride


MMA_TILES = (
    MmaTile(128, 128, 64, 32),
    MmaTile(64, 64, 32, 32),
    MmaTile(32, 32, 32, 32, 4),
)
"""For many outputs, for some, for few with long sums."""


def mma_tile(name: str) -> MmaTile:
    """The tile of ``MMA_TILES`` with this name."""
    return next(tile for tile in MMA_TILES if tile.name == name)
