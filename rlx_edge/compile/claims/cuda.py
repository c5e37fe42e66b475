"""The candidates of CUDA: the contract's kernels, and what precisions beyond it add.

In ``fixed`` precision there is one way to a result. Elsewhere sums may take any order, so several
kernels and the vendor's library stand beside each other; the unit measures them once a kernel,
class of shapes and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx_edge.compile.claims.gpu import Tiled, offers, split_parts
from rlx_edge.compile.codegen.cuda.scalar_table import literal
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.select import (
    Claim,
    ClaimOperand,
    Epilogue,
    Part,
    precision_of,
    template_kernel,
)
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.compile.templates.attention import (
    ATTENTION_WORDS,
    QUERIES,
    attention_tile,
    bias_words,
)
from rlx_edge.compile.templates.mma import MMA_TILES
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import FIXED, FP16, RELAXED, TF32
from rlx_edge.ir.core import Op
from rlx_edge.ir.dims import ONE, ZERO, ceildiv, product
from rlx_edge.ir.types import F32

ATTENTION = "attention"
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


def _claim_attention(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: CudaTarget,
) -> Claim | None:
    """One way: its parts would take the memory that it saves."""
    del target
    q, keys, v, *bias = (item.type for item in operands)
    tile = attention_tile(precision_of(op), q, v)
    scores = (*q.shape[:-1], keys.shape[-1])
    words = bias_words(bias[0], scores) if bias else (ONE, ONE, ZERO, ZERO)
    plain = all(item.is_plain for item in (result, *operands))
    if tile is None or words is None or not plain or epilogue.expression is not None:
        return None
    config: dict[str, int | str | bool] = {
        "precision": tile.precision,
        "keys": tile.keys,
        "depth": tile.depth,
        "width": tile.width,
        "scale": literal(float(str(op.attrs["scale"])), F32),
        "causal": bool(op.attrs["causal"]),
        "zero_empty": bool(op.attrs["zero_empty"]),
    }
    kernel = template_kernel(ATTENTION, config, 1 + len(operands), ATTENTION_WORDS)
    slices = product(q.shape[:-2])
    return Claim(
        kernel,
        tuple(ClaimOperand(slot) for slot in range(len(operands))),
        None,
        (slices, q.shape[-2], keys.shape[-1], *words),
        slices * q.shape[-2] * keys.shape[-1] * (2 * (tile.depth + tile.width)),
        slices * ceildiv(q.shape[-2], QUERIES),
    )


_TILED = offers(candidates, precisions)
OFFERS = replace(_TILED, claims={**_TILED.claims, "rlxc::attention": _claim_attention})
"""What CUDA offers."""
