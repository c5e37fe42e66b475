"""Attention in one kernel on CUDA: ways by tile, and a kernel of its own for few queries."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.cuda.ptxas import LEAST_OCCUPANCY, SHARED_RESERVED
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
from rlx_edge.compile.targets.cuda import CudaTarget, Limits
from rlx_edge.compile.templates.attention import (
    ATTENTION_WORDS,
    FEW,
    FEW_QUERIES,
    FEW_ROWS,
    FEW_THREADS,
    FMA,
    JOIN,
    MMA,
    PACK,
    PACKED,
    AttentionTile,
    attention_tiles,
    bias_words,
    few_splits,
    halves_bytes,
    packed_tiles,
    scores_shape,
    split_bytes,
)
from rlx_edge.ir.core import Op
from rlx_edge.ir.dims import ONE, ZERO, as_dim, ceildiv, dim_max, dim_min, product
from rlx_edge.ir.ops.attention import ROWS_FIRST
from rlx_edge.ir.types import F32

TILE_OPTIONS = ("precision", "rows", "keys", "threads", "parts")


def has_room(tile: AttentionTile, limits: Limits) -> bool:
    """Whether shared memory lets a processor have threads enough."""
    blocks = limits.shared_processor // (tile.shared_bytes + SHARED_RESERVED)
    return blocks * tile.threads >= LEAST_OCCUPANCY * limits.threads_processor


def claim_attention(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: CudaTarget,
) -> Claim | None:
    """A way for each tile, and in f16 one that rounds keys and values once; in the last one few
    queries have a kernel of their own. The parts are no way: they would take the memory that one
    kernel saves."""
    q, keys, v, *bias = (item.type for item in operands)
    types = [q, keys, v, *bias]
    tiles = attention_tiles(precision_of(op), types)
    tiles = tuple(tile for tile in tiles if has_room(tile, target.limits)) or tiles
    rows_first = bool(op.attrs[ROWS_FIRST])
    scores = scores_shape(types, rows_first)
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
        "biased": bool(bias),
    }
    slices, queries = product(scores[:-2]), scores[-2]
    packed = packed_tiles(precision_of(op), types)
    # 1 where there are few queries, else 0.
    is_few = dim_min(as_dim(FEW_QUERIES) // dim_max(queries, 1), 1)
    splits = few_splits(slices, queries, keys.shape[-1])
    halves = halves_bytes(slices, keys.shape[-1], depth, width) if packed else ZERO
    scratch = dim_max(halves, split_bytes(slices, queries, splits, width) * is_few)

    def part(template: str, rows: int, more: dict[str, int | str | bool]) -> Part:
        kernel = template_kernel(template, config | more, 2 + len(operands), ATTENTION_WORDS)
        return kernel, slices * ceildiv(queries, rows)

    def tiled(tile: AttentionTile) -> Part:
        more = {name: getattr(tile, name) for name in TILE_OPTIONS}
        template = PACKED if tile.is_packed else MMA if tile.is_mma else FMA
        return part(template, tile.rows, more)

    (kernel, groups), *others = (tiled(tile) for tile in tiles)
    *others, (many, many_groups) = others or [(kernel, groups)]
    ways: list[tuple[Part, ...]] = [(other,) for other in others]
    pack, _ = part(PACK, 1, {})
    ways += [((pack, ceildiv(halves, 16 * FEW_THREADS)), tiled(tile)) for tile in packed]
    few, few_groups = part(FEW, FEW_ROWS, {})
    join, _ = part(JOIN, 1, {})
    joined = ceildiv(slices * queries * width, FEW_THREADS) * dim_min(splits - 1, 1)
    last = (
        (few, few_groups * splits * is_few),
        (join, joined * is_few),
        (many, many_groups - many_groups * is_few),
    )
    return Claim(
        kernel,
        tuple(ClaimOperand(slot) for slot in range(len(operands))),
        scratch,
        (slices, queries, keys.shape[-1], *words, splits, scores[-3] if rows_first else ONE),
        slices * queries * keys.shape[-1] * (2 * (depth + width)),
        groups,
        (),
        (*ways, last),
    )
