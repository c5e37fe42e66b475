"""Attention in one kernel on CUDA: ways by tile, and a kernel of its own for few queries."""

from __future__ import annotations

from collections.abc import Sequence

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
    FEW_QUERIES,
    FEW_ROWS,
    AttentionTile,
    attention_tiles,
    bias_words,
)
from rlx_edge.ir.core import Op
from rlx_edge.ir.dims import ONE, ZERO, as_dim, ceildiv, dim_max, dim_min, product
from rlx_edge.ir.types import F32

FMA, MMA, FEW = "attention", "mma_attention", "few_attention"
"""The templates."""


def claim_attention(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: CudaTarget,
) -> Claim | None:
    """A way for each tile; in the last one few queries have a kernel of their own. The parts are no
    way: they would take the memory that one kernel saves."""
    del target
    q, keys, v, *bias = (item.type for item in operands)
    tiles = attention_tiles(precision_of(op), q, v)
    scores = (*q.shape[:-1], keys.shape[-1])
    words = bias_words(bias[0], scores) if bias else (ONE, ONE, ZERO, ZERO)
    plain = all(item.is_plain for item in (result, *operands))
    if not tiles or words is None or not plain or epilogue.expression is not None:
        return None
    depth, width = tiles[0].depth, tiles[0].width
    config: dict[str, int | str | bool] = {
        "depth": depth,
        "width": width,
        "scale": literal(float(str(op.attrs["scale"])), F32),
        "causal": bool(op.attrs["causal"]),
        "zero_empty": bool(op.attrs["zero_empty"]),
    }
    slices, queries = product(q.shape[:-2]), q.shape[-2]

    def part(template: str, rows: int, more: dict[str, int | str | bool]) -> Part:
        kernel = template_kernel(template, config | more, 1 + len(operands), ATTENTION_WORDS)
        return kernel, slices * ceildiv(queries, rows)

    def tiled(tile: AttentionTile) -> Part:
        more = {name: getattr(tile, name) for name in ("precision", "rows", "keys", "threads")}
        return part(MMA if tile.is_mma else FMA, tile.rows, more)

    (kernel, groups), *others = (tiled(tile) for tile in tiles)
    *others, (many, many_groups) = others or [(kernel, groups)]
    few, few_groups = part(FEW, FEW_ROWS, {})
    # 1 where there are few queries, else 0.
    is_few = dim_min(as_dim(FEW_QUERIES) // dim_max(queries, 1), 1)
    last = ((few, few_groups * is_few), (many, many_groups - many_groups * is_few))
    return Claim(
        kernel,
        tuple(ClaimOperand(slot) for slot in range(len(operands))),
        None,
        (slices, queries, keys.shape[-1], *words),
        slices * queries * keys.shape[-1] * (2 * (depth + width)),
        groups,
        (),
        (*((other,) for other in others), last),
    )
