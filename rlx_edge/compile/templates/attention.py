"""Attention in one kernel: which shapes it takes, the tiles of its ways, its words.

A workgroup has some rows of queries and walks over the keys, a tile at a time, with the largest
score so far and the sums that go with it (Milakov and Gimelshein 2018; Dao et al. 2022). Nothing of
the size of the scores reaches memory. Products are those of matrix units, 16 rows a warp, or fused
multiply-adds in f32, a block of rows and keys a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.compile.templates.mma import PER_WORD, WARP
from rlx_edge.ir.attributes import FP16, RELAXED, TF32
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim, ceildiv, dim_max, dim_min, product
from rlx_edge.ir.types import F32, TensorType

MOST = 128
"""The longest rows of queries and values."""
SHARED_BYTES = 49152
REGISTERS = 65536
"""Of a processor."""
KEYS_PAD = 8
VALUE_PADS = {TF32: 4, FP16: 8}
"""Words behind a row in shared memory: fragments meet no bank twice."""
LANES = 8
"""Threads that share a row of scores where there are no matrix units."""
BUSY = {RELAXED: 73, TF32: 57, FP16: 49}
"""Registers of a thread beside the numbers that it keeps: addresses, operands on their way."""
BIAS_BUSY, COPY_BUSY, PART_BUSY, PAIR_BUSY = 17, 8, 8, 16
"""More of them: with a bias, copies, parts, values that are read in pairs."""
FULL_REGISTERS = (128, 168)
"""With so many registers a thread a processor has four and three groups of 128 threads."""
MOST_REGISTERS = 190
"""Beyond so many nothing is loaded ahead."""
THREAD_REGISTERS = 255
HALVES_PAD = 64
"""Keys and values as f16 end with a whole number of so many keys."""
FEW_ROWS = 4
"""Queries of a workgroup where there are few, whose threads share out the keys."""
FEW_THREADS = 256
FEW_BLOCKS = 2
FEW_GROUPS, MOST_SPLITS = 256, 32
"""Keys are shared out between workgroups until there are about so many, of one row at most."""
FEW_QUERIES = 64
"""Up to so many queries the kernel for few of them is a way."""
FMA, MMA, FEW = "attention", "mma_attention", "few_attention"
JOIN = "join_attention"
PACK, PACKED = "mma_pack_attention", "mma_packed_attention"
"""The templates."""
ATTENTION_WORDS = (
    *("slices", "queries", "keys"),
    *("bias_repeat", "bias_count", "bias_slice", "bias_row"),
    *("splits", "heads"),
)
"""Slice s reads the bias from ``s / bias_repeat % bias_count * bias_slice`` on, a row of it every
``bias_row`` elements. Where there are few queries, ``splits`` workgroups share out the keys.
Rows of ``heads`` slices follow each other in q, v and the result: those of one slice are ``heads``
rows apart."""
TILES: Mapping[str, Sequence[Sequence[tuple[int, int, int, int]]]] = {
    RELAXED: (
        ((64, 64, 128, 1), (64, 32, 128, 1), (32, 32, 64, 1)),
        ((64, 64, 128, 1),),
    ),
    TF32: (
        ((64, 64, 128, 1), (64, 32, 128, 1)),
        ((128, 32, 128, 1),),
        ((32, 32, 128, 2),),
    ),
    FP16: (
        ((64, 64, 128, 1), (64, 32, 128, 1)),
        ((32, 32, 128, 2),),
    ),
}
"""For each way rows, keys, threads and parts: the first that loads ahead and for which a processor
has registers for three groups of 128 threads, else the first that loads ahead, else the last."""
SMALL = (128, 32, 256, 1)
"""Where none of them fits."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """``rows`` of queries and ``keys`` of a step for ``threads`` threads; ``depth`` and ``width``
    are the lengths of rows of queries and values. ``is_packed``: keys and values are f16 before.
    ``parts`` groups of warps have ``keys`` keys of a step each."""

    precision: str
    rows: int
    keys: int
    threads: int
    depth: int
    width: int
    is_biased: bool
    is_packed: bool = False
    parts: int = 1

    @property
    def is_mma(self) -> bool:
        """Whether matrix units multiply."""
        return self.precision in PER_WORD

    @property
    def step_keys(self) -> int:
        """Keys that all parts have of a step."""
        return self.keys * self.parts

    @property
    def join_row(self) -> int:
        """Numbers of a thread for a row: the largest score, the sums."""
        return 2 + self.width // 4

    @property
    def join_words(self) -> int:
        """Words by which parts hand over what they have."""
        rows = self.warp_rows // 8 * (self.parts - 1)
        return rows * self.join_row * self.threads // self.parts

    @property
    def key_words(self) -> int:
        """Words of shared memory for keys: columns of them, by words of depth."""
        if not self.is_mma:
            return self.depth * self.keys
        return self.depth // PER_WORD[self.precision] * (self.step_keys + KEYS_PAD)

    @property
    def query_words(self) -> int:
        """Words for queries: with matrix units they are in registers."""
        return 0 if self.is_mma else self.depth * self.rows

    @property
    def value_stride(self) -> int:
        return self.width + VALUE_PADS.get(self.precision, 0)

    @property
    def value_words(self) -> int:
        return self.step_keys // PER_WORD.get(self.precision, 1) * self.value_stride

    @property
    def weight_words(self) -> int:
        """Words for weights: with matrix units they stay in registers."""
        return 0 if self.is_mma else self.keys * self.rows

    @property
    def weights_replace_keys(self) -> bool:
        """Whether weights lie where the keys have been, for want of room."""
        apart = self.query_words + self.key_words + self.value_words + self.weight_words
        return not self.is_mma and 4 * apart > SHARED_BYTES

    @property
    def shared_bytes(self) -> int:
        if self.is_packed:
            k_halves = self.depth * halves_stride(self.step_keys)
            v_halves = self.step_keys * halves_stride(self.width)
            return 4 * (k_halves + v_halves + self.join_words)
        if self.is_mma:
            return 4 * (self.key_words + self.value_words + self.join_words)
        keys = self.key_words + self.weight_words
        if self.weights_replace_keys:
            keys = max(self.key_words, self.weight_words)
        return 4 * (self.query_words + keys + self.value_words)

    @property
    def warp_rows(self) -> int:
        """Queries of a warp."""
        return self.rows * WARP * self.parts // self.threads

    @property
    def kept(self) -> int:
        """Numbers that a thread keeps: scores, sums, and its queries as fragments."""
        if self.is_mma:
            query = self.depth // PER_WORD[self.precision]
            return self.warp_rows * (query + self.width + self.keys) // WARP
        columns = self.keys // LANES + self.width // LANES
        return self.rows * LANES // self.threads * (columns + 2)

    @property
    def ahead(self) -> int:
        """Elements of a step's keys and values a thread."""
        if self.is_packed:
            return 0
        # Without matrix units the values come when the keys have been used.
        both = self.depth + self.width if self.is_mma else max(self.depth, self.width)
        return -(-self.step_keys * both // self.threads)

    @property
    def registers(self) -> int:
        """About as many as a thread needs."""
        return self._needed + (self.ahead if self.loads_ahead or self.is_mma else 0)

    @property
    def _needed(self) -> int:
        """Registers without those of loads ahead."""
        busy = BUSY[self.precision] + (BIAS_BUSY if self.is_biased else 0)
        busy += COPY_BUSY if self.is_packed else 0
        busy += 0 if self.is_mma or self.width // LANES % 4 == 0 else PAIR_BUSY
        return self.kept + busy + (PART_BUSY if self.parts > 1 else 0)

    @property
    def loads_ahead(self) -> bool:
        """Whether a step's loads run in registers during the step before."""
        return self._needed + self.ahead <= MOST_REGISTERS

    @property
    def fits(self) -> bool:
        """Whether a workgroup has room for it."""
        return self.shared_bytes <= SHARED_BYTES and self.registers <= THREAD_REGISTERS

    @property
    def blocks(self) -> int:
        """Workgroups of a processor that its registers are shared out for."""
        fitting = [limit for limit in FULL_REGISTERS if self.registers <= limit]
        return max(1, REGISTERS // (fitting[0] * self.threads)) if fitting else 1


def packed_tiles(precision: str, types: Sequence[TensorType]) -> tuple[AttentionTile, ...]:
    """The tiles of ways that round keys and values to f16 once, in scratch memory."""
    if precision != FP16 or not attention_tiles(precision, types):
        return ()
    depth, width = (types[at].shape[-1].value for at in (0, 2))
    keys = 64 if max(depth, width) <= 64 else 32
    tile = AttentionTile(precision, 64, keys, 128, depth, width, len(types) > 3, True)
    return (tile,) if width % 16 == 0 else ()


def halves_stride(elements: int) -> int:
    """From row to row in shared memory, in f16: an odd number of 16 bytes, so that eight rows meet
    no bank twice."""
    return (elements // 8 | 1) * 8


def few_splits(slices: Dim, queries: Dim, keys: Dim) -> Dim:
    """Workgroups that share out the keys where there are few queries, else 1."""
    groups = dim_max(slices * ceildiv(queries, FEW_ROWS), 1)
    most = dim_min(ceildiv(keys, FEW_THREADS), MOST_SPLITS)
    return dim_max(dim_min(as_dim(FEW_GROUPS) // groups, most), 1)


def split_bytes(slices: Dim, queries: Dim, splits: Dim, width: int) -> Dim:
    """Scratch memory of what several workgroups have of a row, none where one has all."""
    parts = slices * ceildiv(queries, FEW_ROWS) * splits * dim_min(splits - 1, 1)
    return parts * (4 * FEW_ROWS * (width + 2))


def halves_bytes(slices: Dim, keys: Dim, depth: int, width: int) -> Dim:
    """Scratch memory of the packed ways."""
    return slices * ceildiv(keys, HALVES_PAD) * (2 * HALVES_PAD * (depth + width))


def attention_tiles(precision: str, types: Sequence[TensorType]) -> tuple[AttentionTile, ...]:
    """The tiles for operands q, keys, v and maybe a bias of these types, none where the parts run
    by themselves."""
    depth, width = types[0].shape[-1], types[2].shape[-1]
    if not (depth.is_constant and width.is_constant):
        return ()
    if not (0 < depth.value <= MOST and 0 < width.value <= MOST):
        return ()
    if precision == RELAXED:
        step = 4 if width.value % LANES == 0 else 0
    else:
        step = 8 * PER_WORD.get(precision, 0) if width.value % 8 == 0 else 0
    if step == 0 or depth.value % step:
        return ()

    def tile_of(option: tuple[int, int, int, int]) -> AttentionTile:
        rows, keys, threads, parts = option
        biased = len(types) > 3
        sizes = (rows, keys, threads, depth.value, width.value)
        return AttentionTile(precision, *sizes, biased, parts=parts)

    found: list[AttentionTile] = []
    for options in TILES[precision]:
        fitting = [tile for tile in map(tile_of, options) if tile.fits]
        ahead = [tile for tile in fitting if tile.loads_ahead]
        roomy = [tile for tile in ahead if tile.registers <= FULL_REGISTERS[-1]]
        found += roomy[:1] or ahead[:1] or fitting[-1:]
    return tuple(dict.fromkeys(found)) or tuple([tile for tile in (tile_of(SMALL),) if tile.fits])


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


def scores_shape(types: Sequence[TensorType], rows_first: bool) -> tuple[Dim, ...]:
    """Of the product of q and keys; ``rows_first`` as the operator has it."""
    q, keys = types[0].shape, types[1].shape
    return (*keys[:-2], q[-3] if rows_first else q[-2], keys[-1])


def fuses(precision: str, types: Sequence[TensorType], rows_first: bool = False) -> bool:
    """Whether operands q, keys, v and maybe a bias of these types have a kernel."""
    bias = types[3:]
    if any(item.dtype is not F32 for item in types) or not attention_tiles(precision, types):
        return False
    return not bias or bias_words(bias[0], scores_shape(types, rows_first)) is not None
