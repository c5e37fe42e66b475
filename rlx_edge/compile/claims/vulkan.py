"""The candidates of Vulkan: plain tiles, and cooperative matrices where the device has them.

The plan decides between kernels by the number of their workgroups; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.claims.gpu import Tiled, Ways, offers, split_parts
from rlx_edge.compile.codegen.spirv.contraction_shape import A_PAD, share_out
from rlx_edge.compile.select import Part
from rlx_edge.compile.targets.vulkan import VulkanTarget
from rlx_edge.compile.templates.cooperative import CooperativeTile, cooperative_tiles
from rlx_edge.compile.templates.gpu import SPLIT
from rlx_edge.ir.attributes import FIXED, FP16, RELAXED
from rlx_edge.ir.dims import ONE, dim_min


def precisions(target: VulkanTarget) -> Sequence[str]:
    """f16 matrices need the device; cooperative matrices have no type like tf32."""
    return (FIXED, RELAXED, FP16) if cooperative_tiles(target) else (FIXED, RELAXED)


def candidates(tiled: Tiled, precision: str) -> Ways:
    """One way to a contraction in each precision."""
    if precision == FP16:
        return Ways([_matrix_units(tiled)])
    fused = {"fused": True} if precision == RELAXED else {}
    config = {**tiled.config, **fused}
    if splits(tiled.target):
        return Ways([split_parts(tiled, config)])
    return Ways([[tiled.part(tiled.tile, config)]])


def splits(target: VulkanTarget) -> bool:
    """Whether a workgroup may hold the parts of ``SPLIT``."""
    shape = share_out(SPLIT, target.most_invocations, rows_first=False, pad=A_PAD)
    return shape.threads <= target.most_invocations and shape.nbytes <= target.shared


def _matrix_units(tiled: Tiled) -> list[Part]:
    """The largest tile that gives workgroups enough."""
    config = {name: value for name, value in tiled.config.items() if name != "chain"}
    found: list[Part] = []
    left, tiles = ONE, _tiles(tiled)
    for tile in tiles:
        kernel = tiled.kernel(
            f"mma_{tiled.template}", {**config, "precision": FP16, "tile": tile.name}
        )
        groups = tiled.groups(tile.rows, tile.columns)
        # 1 where the tile is taken, unless a larger one is.
        taken = ONE if tile is tiles[-1] else dim_min(groups // tile.enough, 1)
        found.append((kernel, groups * left * taken))
        left = left * (1 - taken)
    return found


def _tiles(tiled: Tiled) -> Sequence[CooperativeTile]:
    """From large to small, without those that are wider or narrower than suits the result."""
    every = cooperative_tiles(tiled.target)
    columns, least = tiled.sizes[2], every[-1].columns
    if not columns.is_constant:
        return [tile for tile in every if not tile.is_narrow]
    n = columns.value
    return [
        tile
        for tile in every
        if tile is every[-1] or (n <= least if tile.columns == least else tile.columns // 2 < n)
    ]


OFFERS = offers(candidates, precisions)
"""What Vulkan offers."""
