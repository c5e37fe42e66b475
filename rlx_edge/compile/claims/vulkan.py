"""The candidates of Vulkan: the contract's kernels, chains side by side where a device has room."""

from __future__ import annotations

from rlx_edge.compile.claims.gpu import Tiled, Ways, offers, split_parts
from rlx_edge.compile.codegen.spirv.contraction_shape import A_PAD, share_out
from rlx_edge.compile.targets.vulkan import VulkanTarget
from rlx_edge.compile.templates.gpu import SPLIT


def candidates(tiled: Tiled, precision: str) -> Ways:
    """One way to a contraction: every kernel keeps the contract's order."""
    del precision
    if splits(tiled.target):
        return Ways([split_parts(tiled, tiled.config)])
    return Ways([[tiled.part(tiled.tile, tiled.config)]])


def splits(target: VulkanTarget) -> bool:
    """Whether a workgroup may hold the parts of ``SPLIT``."""
    shape = share_out(SPLIT, target.most_invocations, rows_first=False, pad=A_PAD)
    return shape.threads <= target.most_invocations and shape.nbytes <= target.shared


OFFERS = offers(candidates)
"""What Vulkan offers."""
