"""Tiles of contractions with packed weights on matrix units, and when sums are split.

A round is 16 channels. Packed weights are those of ``channels_last``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.templates.mma import WARP
from rlx_edge.ir.attributes import FP16
from rlx_edge.ir.dims import Dim, as_dim, ceildiv, dim_max, dim_min

ROUND = 16
"""Channels of a round."""
ROW_WORDS = 16
"""Words of a row of input in shared memory."""
SUM_PAD = 4
"""Words behind a row of sums."""
MOST_STEPS = 4
"""Fours of sums of a thread between two barriers, if it can be: their operands are in registers."""
SPLIT_GROUPS = 264
"""Workgroups that a split sum may have: two for each processor of a large GPU."""
MOST_SPLITS = 16
LEAST_ROUNDS = 4
"""Rounds that a part of a sum should have at least."""


@dataclass(frozen=True, slots=True)
class PackedTile:
    """``rows`` × ``columns`` outputs of a workgroup, ``warp_rows`` × ``warp_columns`` of a warp;
    ``stages`` rounds are in shared memory at a time, ``blocks`` workgroups at least on a processor.
    """

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int
    blocks: int = 1

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.columns}_{self.warp_rows}x{self.warp_columns}"

    @property
    def threads(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns) * WARP

    def stage_words(self, precision: str) -> int:
        """Shared memory of a round: input in f32, weights as they are packed."""
        return self.rows * ROW_WORDS + self.columns * weight_words(precision)

    def shared_words(self, precision: str) -> int:
        """Of all stages."""
        return self.stages * self.stage_words(precision)

    def join(self, precision: str) -> int:
        """Blocks of 16 rows of each warp whose sums go through shared memory at a time: as many as
        fit, and as give a thread no more fours than ``MOST_STEPS``, but at least one."""
        words, fours = self.shared_words(precision), MOST_STEPS * self.threads
        blocks = self.warp_rows // 16
        while blocks > 1 and (
            self.join_rows(blocks) * (self.columns + SUM_PAD) > words
            or self.join_rows(blocks) * self.columns > fours * 4
        ):
            blocks //= 2
        return blocks

    def join_rows(self, blocks: int) -> int:
        """Rows that ``blocks`` blocks of each warp have."""
        return self.rows // self.warp_rows * blocks * 16


def weight_words(precision: str) -> int:
    """Words of a row of weights in shared memory."""
    return ROUND // 2 if precision == FP16 else ROUND


CLUSTER = 4
"""Workgroups of a cluster that share out the sums of the first tile."""
PACKED_TILES = (
    PackedTile(64, 64, 32, 32, 4, 3),
    PackedTile(128, 64, 64, 32, 3, 3),
)
"""For some outputs, for many; the first needs no measuring, and its sums may be split.

Every way is a kernel for every kind of layer, so there are few. On an H200, 128 × 128 gained 2 % of
ResNet-50 in ``fp16`` and nothing in ``tf32``, clusters of 8 less than 2 % at one image, by the sum
of the ways taken.
"""


def packed_tile(name: str) -> PackedTile:
    """The tile of ``PACKED_TILES`` with this name."""
    return next(tile for tile in PACKED_TILES if tile.name == name)


def split_count(tiles: Dim, fours: Dim) -> Dim:
    """Workgroups that share out a sum over ``fours`` fours of channels; the kernels know it too."""
    rounds = ceildiv(fours, as_dim(ROUND // 4))
    wanted = dim_min(as_dim(SPLIT_GROUPS) // dim_max(tiles, 1), MOST_SPLITS)
    return dim_max(dim_min(wanted, rounds // LEAST_ROUNDS), 1)
