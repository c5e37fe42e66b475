"""Attention in one kernel: which shapes it takes, the tiles of its ways, its words.

A workgroup has some rows of queries and walks over the keys, a tile at a time, with the largest
score so far and the sums that go with it (Milakov and Gimelshein 2018; Dao et al. 2022). Nothing of
the size of the scores reaches memory. Products are those of matrix units, 16 rows a warp, or fused
multiply-adds in f32, a block of rows and keys a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.templates.mma import PER_WORD
from rlx_edge.ir.attributes import FP16, RELAXED, TF32
from rlx_edge.ir.dims import ONE, ZERO, Dim, product
from rlx_edge.ir.types import F32, TensorType

MOST = 128
"""The longest rows of queries and values."""
SHARED_BYTES = 49152
REGISTERS = 65536
"""Of a processor."""
KEYS_PAD = 8
VALUE_PADS = {TF32: 4, FP16: 8}
"""Words behind a row in shared memory: fragments meet no bank twice."""
LANES = 16
"""Threads that share a row of scores where there are no matrix units."""
BUSY = {RELAXED: 84, TF32: 57, FP16: 48}
"""Registers of a thread beside the numbers that it keeps: addresses, operands on their way."""
FULL_REGISTERS = (128, 168)
"""With so many registers a thread a processor has four and three groups of 128 threads."""
LEAST_THREADS = 256
"""A step is smaller where a processor would not have more threads."""
MOST_REGISTERS = 218
"""Beyond so many nothing is loaded ahead."""
THREAD_REGISTERS = 255
FEW_ROWS = 4
"""Queries of a workgroup where there are few, whose threads share out the keys."""
FEW_THREADS = 256
FEW_BLOCKS = 2
FEW_QUERIES = 64
"""Up to so many queries the kernel for few of them is a way."""
ATTENTION_WORDS = (
    *("slices", "queries", "keys"),
    *("bias_repeat", "bias_count", "bias_slice", "bias_row"),
)
"""Slice s reads the bias from ``s / bias_repeat % bias_count * bias_slice`` on, a row of it every
``bias_row`` elements."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """``rows`` of queries and ``keys`` of a step for ``threads`` threads; ``depth`` and ``width``
    are the lengths of rows of queries and values."""

    precision: str
    rows: int
    keys: int
    threads: int
    depth: int
    width: int

    @property
    def is_mma(self) -> bool:
        """Whether matrix units multiply."""
        return self.precision in PER_WORD

    @property
    def key_words(self) -> int:
        """Words of shared memory for keys: columns of them, by words of depth."""
        if not self.is_mma:
            return self.depth * self.keys
        return self.depth // PER_WORD[self.precision] * (self.keys + KEYS_PAD)

    @property
    def value_stride(self) -> int:
        return self.width + VALUE_PADS.get(self.precision, 0)

    @property
    def value_words(self) -> int:
        return self.keys // PER_WORD.get(self.precision, 1) * self.value_stride

    @property
    def weight_words(self) -> int:
        """Words for weights: with matrix units they stay in registers."""
        return 0 if self.is_mma else self.keys * self.rows

    @property
    def weights_replace_keys(self) -> bool:
        """Whether weights lie where the keys have been, for want of room."""
        apart = self.depth * self.rows + self.key_words + self.value_words + self.weight_words
        return not self.is_mma and 4 * apart > SHARED_BYTES

    @property
    def shared_bytes(self) -> int:
        if self.is_mma:
            return 4 * (self.key_words + self.value_words)
        keys = self.key_words + self.weight_words
        if self.weights_replace_keys:
            keys = max(self.key_words, self.weight_words)
        return 4 * (self.depth * self.rows + keys + self.value_words)

    @property
    def kept(self) -> int:
        """Numbers that a thread keeps: scores, sums, and its queries as fragments."""
        if self.is_mma:
            return self.depth // (2 * PER_WORD[self.precision]) + self.width // 2 + self.keys // 2
        columns = self.keys // LANES + self.width // LANES
        return self.rows * LANES // self.threads * (columns + 1)

    @property
    def ahead(self) -> int:
        """Elements of a step's keys and values a thread."""
        return -(-self.keys * (self.depth + self.width) // self.threads)

    @property
    def registers(self) -> int:
        """About as many as a thread needs."""
        return self.kept + self.ahead + BUSY[self.precision]

    @property
    def loads_ahead(self) -> bool:
        """Whether a step's loads run during the step before."""
        return not self.is_mma or self.registers <= MOST_REGISTERS

    @property
    def fits(self) -> bool:
        return self.shared_bytes <= SHARED_BYTES and self.registers <= THREAD_REGISTERS

    @property
    def blocks(self) -> int:
        """Workgroups of a processor that its registers are shared out for."""
        fitting = [limit for limit in FULL_REGISTERS if self.registers <= limit]
        return max(1, REGISTERS // (fitting[0] * self.threads)) if fitting else 1


def attention_tiles(precision: str, q: TensorType, v: TensorType) -> tuple[AttentionTile, ...]:
    """The tiles for operands of these types, none where the parts run by themselves."""
    depth, width = q.shape[-1], v.shape[-1]
    if not (depth.is_constant and width.is_constant):
        return ()
    if not (0 < depth.value <= MOST and 0 < width.value <= MOST):
        return ()
    if precision == RELAXED:
        if depth.value % 4 or width.value % LANES:
            return ()
        rows_threads: tuple[tuple[int, int], ...] = ((64, 128), (64, 256), (32, 128))
    elif precision in PER_WORD:
        if depth.value % (8 * PER_WORD[precision]) or width.value % 8:
            return ()
        rows_threads = ((64, 128), (128, 256))
    else:
        return ()
    found = [
        _tile(precision, rows, threads, depth.value, width.value) for rows, threads in rows_threads
    ]
    return tuple(dict.fromkeys(tile for tile in found if tile is not None))


def _tile(precision: str, rows: int, threads: int, depth: int, width: int) -> AttentionTile | None:
    """More keys a step where shared memory and registers have room."""
    tiles = [AttentionTile(precision, rows, keys, threads, depth, width) for keys in (64, 32)]
    fitting = [tile for tile in tiles if tile.fits]
    roomy = [tile for tile in fitting if tile.blocks * threads > LEAST_THREADS]
    return next(iter(roomy or fitting[-1:]), None)


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
    if any(item.dtype is not F32 for item in types) or not attention_tiles(precision, q, v):
        return False
    scores = (*q.shape[:-1], keys.shape[-1])
    return not bias or bias_words(bias[0], scores) is not None
