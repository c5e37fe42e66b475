"""Tiles of contractions on cooperative matrices: subgroups multiply small matrices together.

The device says which shapes of matrices its subgroups multiply (``VulkanTarget.matrices``); a tile
is a multiple of one. Operands lie in workgroup memory as f16, rounded as they are read, two stages
in turns. Sums go through workgroup memory, a matrix of each subgroup at a time, because which
invocation holds which element is the device's secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.targets.vulkan import Matrices, VulkanTarget

LANES = 4
HALVES = 8
"""Operands lie in workgroup memory by vectors of so many f16."""
DEPTH = 32
"""Steps of k a round and part."""
PAD = 8
"""Elements behind a row of f16: eight rows of 16 bytes meet no bank twice."""
SUM_PAD = 4
"""Elements behind a row of sums."""


@dataclass(frozen=True, slots=True)
class CooperativeTile:
    """``rows`` × ``columns`` outputs of a workgroup, ``sub_rows`` × ``sub_columns`` of a subgroup.

    ``parts`` groups of subgroups take every ``parts``-th round; their sums are added up in order.
    Lengths in workgroup memory count vectors, of ``HALVES`` f16 or of ``LANES`` f32 sums.
    """

    rows: int
    columns: int
    sub_rows: int
    sub_columns: int
    parts: int = 1

    @property
    def name(self) -> str:
        parts = f"x{self.parts}" if self.parts > 1 else ""
        return f"{self.rows}x{self.columns}{parts}:{self.sub_rows}x{self.sub_columns}"

    @property
    def is_narrow(self) -> bool:
        """Whether it is for results with few columns."""
        return self.rows > self.columns

    @property
    def enough(self) -> int:
        """Workgroups below which a smaller tile is faster, seen on an H200."""
        return 96 if self.rows >= 128 else 40

    @property
    def across(self) -> int:
        """Subgroups of a part side by side."""
        return self.columns // self.sub_columns

    @property
    def part_subgroups(self) -> int:
        return self.rows // self.sub_rows * self.across

    @property
    def subgroups(self) -> int:
        return self.part_subgroups * self.parts

    @property
    def a_pitch(self) -> int:
        """From row to row of the left operand."""
        return (DEPTH + PAD) // HALVES

    @property
    def b_pitch(self) -> int:
        """From step to step of the right operand."""
        return (self.columns + PAD) // HALVES

    @property
    def a_length(self) -> int:
        return self.rows * self.a_pitch

    @property
    def part_length(self) -> int:
        return self.a_length + DEPTH * self.b_pitch

    @property
    def stage_length(self) -> int:
        return self.parts * self.part_length

    def sum_pitch(self, matrices: Matrices) -> int:
        """From row to row of a matrix of sums."""
        return (matrices.columns + SUM_PAD) // LANES

    def sum_length(self, matrices: Matrices) -> int:
        """Of one subgroup's matrix of sums."""
        return matrices.rows * self.sum_pitch(matrices)

    def nbytes(self, matrices: Matrices) -> int:
        """Workgroup memory: two stages of f16, and sums in f32."""
        sums = self.subgroups * self.sum_length(matrices)
        return 16 * (2 * self.stage_length + sums)

    def fits(self, target: VulkanTarget) -> bool:
        """Whether a device has the memory, the invocations and matrices that divide the tile."""
        matrices = target.matrix_shape
        if matrices is None:
            return False
        threads = self.part_subgroups * matrices.subgroup
        whole = (
            self.sub_rows % matrices.rows == 0
            and self.sub_columns % matrices.columns == 0
            and DEPTH % matrices.depth == 0
            and self.rows * DEPTH % (HALVES * threads) == 0
            and self.columns * DEPTH % (HALVES * threads) == 0
        )
        return (
            whole
            and threads * self.parts <= target.most_invocations
            and self.nbytes(matrices) <= target.shared
        )


_SIZES: tuple[tuple[CooperativeTile, ...], ...] = (
    (CooperativeTile(128, 128, 64, 32),),
    (CooperativeTile(128, 64, 32, 32),),
    (CooperativeTile(128, 32, 32, 32),),
    (CooperativeTile(64, 64, 16, 32), CooperativeTile(64, 64, 32, 32)),
    (
        CooperativeTile(32, 32, 32, 32, 4),
        CooperativeTile(32, 32, 32, 32, 2),
        CooperativeTile(32, 32, 16, 32),
    ),
)
"""From many outputs to few; of each size, the first that fits is taken."""


def cooperative_tiles(target: VulkanTarget) -> Sequence[CooperativeTile]:
    """The tiles that a device has room for, none where it has no such matrices."""
    fitting = ([tile for tile in size if tile.fits(target)] for size in _SIZES)
    return tuple(found[0] for found in fitting if found)


def cooperative_tile(name: str) -> CooperativeTile:
    """The tile with this name."""
    return next(tile for size in _SIZES for tile in size if tile.name == name)
