"""Attention in one kernel: which shapes it takes, its tile, its words.

A workgroup has ``QUERIES`` rows of queries, 16 a warp, and walks over the keys, a tile at a time,
with the largest score so far and the sums that go with it (Milakov and Gimelshein 2018; Dao et al.
2022). Nothing of the size of the scores reaches memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.templates.mma import PER_WORD
from rlx_edge.ir.attributes import FP16, TF32
from rlx_edge.ir.dims import ONE, ZERO, Dim, product
from rlx_edge.ir.types import F32, TensorType

QUERIES = 64
THREADS = 128
MOST = 128
"""The longest rows of queries and values."""
SHARED_BYTES = 49152
KEYS_PAD = 8
VALUE_PADS = {TF32: 4, FP16: 8}
"""Words behind a row in shared memory: fragments meet no bank twice."""
ATTENTION_WORDS = (
    *("slices", "queries", "keys"),
    *("bias_repeat", "bias_count", "bias_slice", "bias_row"),
)
"""Slice s reads the bias from ``s / bias_repeat % bias_count * bias_slice`` on, a row of it every
``bias_row`` elements."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """``keys`` of a step; ``depth`` and ``width`` are the lengths of rows of queries and values."""

    precision: str
    keys: int
    depth: int
    width: int

    @property
    def key_words(self) -> int:
        """Words of shared memory for keys: columns of them, by words of depth."""
        return self.depth // PER_WORD[self.precision] * (self.keys + KEYS_PAD)

    @property
    def value_stride(self) -> int:
        return self.width + VALUE_PADS[self.precision]

    @property
    def value_words(self) -> int:
        return self.keys // PER_WORD[self.precision] * self.value_stride


def attention_tile(precision: str, q: TensorType, v: TensorType) -> AttentionTile | None:
    """The tile for operands of these types; ``None`` where the parts run by themselves."""
    depth, width = q.shape[-1], v.shape[-1]
    if precision not in PER_WORD or not (depth.is_constant and width.is_constant):
        return None
    step = 8 * PER_WORD[precision]
    if depth.value % step or width.value % 8 or not 0 < max(depth.value, width.value) <= MOST:
        return None
    for keys in (64, 32):
        tile = AttentionTile(precision, keys, depth.value, width.value)
        if 4 * (tile.key_words + tile.value_words) <= SHARED_BYTES:
            return tile
    return None


def bias_words(bias: TensorType, scores: Sequence[Dim]) -> tuple[Dim, Dim, Dim, Dim] | None:
    """The words of a bias; ``None`` where its broadcasting has another form: a column for all keys,
    or batch axes that broadcast between others that do not."""
    rank = len(scores)
    shape = (*(ONE,) * (rank - bias.rank), *bias.shape)
    rows, columns = shape[-2:]
    if columns is not scores[-1]:
        return None
    full = [axis for axis in range(rank - 2) if shape[axis] is not ONE]
    repeat = count = ONE
    if full:
        inside = range(full[0], full[-1] + 1)
        if any(shape[axis] is not scores[axis] for axis in inside):
            return None
        repeat = product(scores[full[-1] + 1 : -2])
        count = product(shape[axis] for axis in inside)
    return repeat, count, rows * columns, ZERO if rows is ONE else columns


def fuses(precision: str, types: Sequence[TensorType]) -> bool:
    """Whether operands q, keys, v and maybe a bias of these types have a kernel."""
    q, keys, v, *bias = types
    if any(item.dtype is not F32 for item in types) or attention_tile(precision, q, v) is None:
        return False
    scores = (*q.shape[:-1], keys.shape[-1])
    return not bias or bias_words(bias[0], scores) is not None
