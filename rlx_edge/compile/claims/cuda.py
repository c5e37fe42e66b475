"""The candidates of CUDA: the contract's kernels, and what precisions beyond it add.

In ``fixed`` precision there is one way to a result. Elsewhere sums may take any order, so several
kernels and the vendor's library stand beside each other; the unit measures them once a kernel,
class of shapes and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx_edge.compile.claims.cuda_attention import claim_attention
from rlx_edge.compile.claims.gpu import Tiled, offers, split_parts
from rlx_edge.compile.select import (
    Part,
)
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.compile.templates.mma import MMA_TILES
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import FIXED, FP16, RELAXED, TF32
from rlx_edge.ir.dims import ONE, ceildiv, product

LIBRARY = "cublas"
"""The template of a product that the unit hands to cuBLAS."""


def precisions(target: CudaTarget) -> Sequence[str]:
    """What an architecture offers: matrix units for tf32 and m16n8k16 came with sm_80."""
    return (FIXED, RELAXED, TF32, FP16) if target.limits.asynchronous_copy else (FIXED, RELAXED)


def candidates(tiled: Tiled, precision: str) -> Sequence[Sequence[Part]]:
    """Ways to a contraction; the first is the plain template."""
    if precision == FIXED:
        return [split_parts(tiled, tiled.config)]
    fused = {**tiled.config, "fused": True}
    ways: list[list[Part]] = [split_parts(tiled, fused)]
    if precision != RELAXED:
        ways += [[part] for part in _matrix_units(tiled, precision)]
    if tiled.template == "matmul":
        ways.append(_library(tiled, precision))
    return ways


def _matrix_units(tiled: Tiled, precision: str) -> Sequence[Part]:
    config = {name: value for name, value in tiled.config.items() if name != "chain"}
    return [
        (
            tiled.kernel(
                f"mma_{tiled.template}",
                {**config, "precision": precision, "tile": tile.name},
            ),
            tiled.groups(tile.rows, tile.columns),
        )
        for tile in MMA_TILES
    ]


def _library(tiled: Tiled, precision: str) -> list[Part]:
    """cuBLAS, then the epilogue in place."""
    product_alone = replace(tiled.kernel(LIBRARY, {"precision": precision}), epilogue=None)
    parts: list[Part] = [(product_alone, ONE)]
    if tiled.epilogue.expression is not None:
        finish = tiled.kernel("finish", {})
        parts.append((finish, ceildiv(product(tiled.sizes), FLAT_THREADS)))
    return parts


_TILED = offers(candidates, precisions)
OFFERS = replace(_TILED, claims={**_TILED.claims, "rlxc::attention": claim_attention})
"""What CUDA offers."""
