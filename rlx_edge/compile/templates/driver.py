"""The driver that matmul and conv2d share: blocks of rows, panels of columns, finish.

For each slice (batch entry or group) and each block of at most `BLOCK_ROWS` rows it fills the
pointer tables. A contraction is a sum of chains (`ir/ops/contraction.py`), each one *depth* of k:
for each it spreads operand A when the tile wants it and runs the micro-kernels over the panels of
at most `MOST_COLUMNS` columns, so that the spread block and the accumulators stay in a second-level
cache, one panel in the first. After the last depth each panel is finished. A row is one output
pixel: the rows of all images form one sequence, so tiles cross image rows and images.

Scratch memory of a launch, from its start: pointer tables (A, output, pointed extras),
accumulators, the tap table, the spread block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.encoder import I32
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.blocks import emit_panel, emit_spread_block
from rlx_edge.compile.templates.contraction import emit_wide_row, wide_panels
from rlx_edge.compile.templates.finish import (
    BLOCK_ROWS,
    TABLE_BYTES,
    EmitEpilogue,
    Output,
    emit_finish,
)
from rlx_edge.compile.templates.offsets import SINGLES, STRIDE, add_constant
from rlx_edge.compile.templates.tables import (
    emit_pointer_fill,
    emit_tap_table,
    fill_block_tables,
)
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES, Tile
from rlx_edge.compile.templates.words import Words
from rlx_edge.ir.dims import Dim, DimLike, align, as_dim, dim_min

SPREAD_BYTES = 384 * 1024
"""Size of the spread block that rows and one chain must keep to."""
MOST_COLUMNS = 192
"""Most columns in one pass over the depths: whole panels for each tile (8, 12 or 16 columns)."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """What the driver is generated for.

    Attributes:
        name: debug name of the kernel function.
        tile: shape and form of the micro-kernels.
        source: how operand A is addressed (`offsets`).
        output: layout of the output and kinds of the extra operands.
        channel_slices: per-channel operands advance by `n` channels with each slice.
    """

    name: str
    tile: Tile
    source: str
    output: Output
    channel_slices: bool = False


def block_rows(tile: Tile) -> int:
    """Most rows of a block: a multiple of the tile's."""
    return BLOCK_ROWS // tile.rows * tile.rows


def scratch_bytes(contraction: Contraction, k: DimLike, taps: DimLike = 0) -> Dim:
    """Bytes of scratch memory a launch needs, for chains of `k` and a table of `taps` offsets."""
    total = _taps_offset(contraction) + align(as_dim(taps) * 4, VECTOR_BYTES)
    if contraction.tile.in_place:
        return total
    return total + dim_min(as_dim(k) * VECTOR_BYTES * block_rows(contraction.tile), SPREAD_BYTES)


def longest_chain(tile: Tile) -> int:
    """Steps of k that a chain may have: in place any number, else what the spread block holds."""
    return 1 << 30 if tile.in_place else SPREAD_BYTES // (VECTOR_BYTES * tile.rows)


def _acc_offset(contraction: Contraction) -> int:
    return TABLE_BYTES * (1 + contraction.output.tables)


def _taps_offset(contraction: Contraction) -> int:
    return _acc_offset(contraction) + 4 * BLOCK_ROWS * MOST_COLUMNS


def emit_driver(
    module: ModuleBuilder,
    contraction: Contraction,
    words: Words,
    epilogue: EmitEpilogue | None,
) -> int:
    """Function index of the kernel: `(args, thread) -> ()`.

    Words, beyond the slots `out`, `a`, `b`, the extras' and `scratch`: `slices`, `images`,
    `height`, `width` (rows of an image), `n` (columns), `k`, `chain` (k of one chain); bytes of A:
    `a_origin`, `a_slice`, `a_image`, `a_row`, `a_pixel`; `b_slice`; `out_origin`, `out_slice`,
    `out_image`, `out_row`, `out_pixel` and, unless rows are contiguous, `out_plane`; `a_step` for
    the source `stride`, else
    `channels`, `kernel_rows`, `kernel_columns`, `a_plane`, `a_tap_row`, `a_tap_column`; the
    extras' as `Output.words` names them.
    """
    return _Driver(module, contraction, words, epilogue).emit().index


class _Driver:
    def __init__(
        self,
        module: ModuleBuilder,
        contraction: Contraction,
        words: Words,
        epilogue: EmitEpilogue | None,
    ) -> None:
        tile, source = contraction.tile, contraction.source
        self.contraction = contraction
        self.tile = tile
        self.words = words
        self.fill = emit_pointer_fill(module)
        self.taps = 0 if source == STRIDE else emit_tap_table(module, source)
        self.spread = 0 if tile.in_place else emit_spread_block(module, tile, source)
        self.panels = {
            vectors: emit_panel(module, tile, vectors, source)
            for vectors in range(1, tile.vectors + 1)
        }
        self.wide_row = 0
        if not tile.in_place:
            self.wide_row = emit_wide_row(module, tile.vectors, wide_panels(tile))
        self.finish = emit_finish(module, contraction.output, words, epilogue)
        self.body = module.function(contraction.name, [("args", I32), ("thread", I32)])

    def emit(self) -> FunctionBuilder:
        body, words = self.body, self.words
        self.slice = body.local(I32, "slice")
        self.first, self.count, self.limit, self.total = (
            body.local(I32, name) for name in ("first", "count", "limit", "total")
        )
        self.n, self.k = words.local(body, "n"), words.local(body, "k")
        self.scratch = words.local(body, "scratch")
        self.taps_at, self.block_at = body.local(I32, "taps"), body.local(I32, "block")
        self.step, self.depth = body.local(I32, "step"), body.local(I32, "depth")
        words.push(body, "images")
        words.push(body, "height").i32_mul()
        words.push(body, "width").i32_mul().local_set(self.total)
        body.block("empty").local_get(self.total).i32_eqz().local_get(self.n).i32_eqz().i32_or()
        words.push(body, "slices").i32_eqz().i32_or().br_if("empty")
        self.place_taps()
        self.choose_block()
        body.loop("slice").i32_const(0).local_set(self.first).loop("block")
        body.local_get(self.total).local_get(self.first).i32_sub().local_tee(self.count)
        body.local_get(self.limit).i32_gt_u().if_()
        body.local_get(self.limit).local_set(self.count).end()
        self.run_block()
        body.local_get(self.first).local_get(self.count).i32_add().local_tee(self.first)
        body.local_get(self.total).i32_lt_u().br_if("block").end()
        add_constant(body, self.slice, 1)
        body.local_get(self.slice)
        words.push(body, "slices").i32_lt_u().br_if("slice").end().end()
        return body

    def place_taps(self) -> None:
        """Fill the tap table and find the spread block behind it."""
        body, words = self.body, self.words
        body.local_get(self.scratch).i32_const(_taps_offset(self.contraction)).i32_add()
        body.local_set(self.taps_at)
        if self.contraction.source == STRIDE:
            words.push(body, "a_step").local_set(self.step)
            body.local_get(self.taps_at).local_set(self.block_at)
            return
        body.local_get(self.taps_at)
        for name in ("channels", "kernel_rows", "kernel_columns"):
            words.push(body, name)
        for name in ("a_plane", "a_tap_row", "a_tap_column"):
            words.push(body, name)
        body.call(self.taps)
        body.local_get(self.k)
        if self.contraction.source == SINGLES:
            body.i32_const(4).i32_mul()
        body.i32_const(VECTOR_BYTES - 1).i32_add().i32_const(-VECTOR_BYTES).i32_and()
        body.local_get(self.taps_at).i32_add().local_set(self.block_at)

    def choose_block(self) -> None:
        """A depth is a chain; at most as many rows as the spread block then holds, in blocks of
        nearly one size: a short last one would read all weights for a few rows."""
        body, tile, depth = self.body, self.tile, self.depth
        self.words.push(body, "chain").local_tee(depth).local_get(self.k).i32_gt_u().if_()
        body.local_get(self.k).local_set(depth).end()
        most = block_rows(tile)
        body.i32_const(most).local_set(self.limit)
        if not tile.in_place:
            vectors = SPREAD_BYTES // VECTOR_BYTES
            body.local_get(depth).i32_const(vectors // most).i32_gt_u().if_()
            body.i32_const(vectors // tile.rows).local_get(depth).i32_div_u()
            body.i32_const(tile.rows).i32_mul().local_set(self.limit).end()
        blocks = body.local(I32, "blocks")
        push_quotient(body, self.total, lambda: body.local_get(self.limit))
        body.local_set(blocks)
        push_quotient(body, self.total, lambda: body.local_get(blocks))
        body.local_set(self.limit)
        push_quotient(body, self.limit, lambda: body.i32_const(tile.rows))
        body.i32_const(tile.rows).i32_mul().local_set(self.limit)
        body.release(blocks)

    def run_block(self) -> None:
        body = self.body
        fill_block_tables(
            body,
            self.words,
            self.contraction.output,
            self.fill,
            self.scratch,
            self.slice,
            self.first,
            self.count,
        )
        names = ("from_column", "to_column", "from_k", "depth_here")
        self.from_column, self.to_column, self.from_k, self.depth_here = (
            body.local(I32, name) for name in names
        )
        body.i32_const(0).local_set(self.from_column).loop("columns")
        body.local_get(self.from_column).i32_const(MOST_COLUMNS).i32_add()
        body.local_tee(self.to_column).local_get(self.n).i32_gt_u().if_()
        body.local_get(self.n).local_set(self.to_column).end()
        body.i32_const(0).local_set(self.from_k).loop("depth")
        body.local_get(self.k).local_get(self.from_k).i32_sub().local_tee(self.depth_here)
        body.local_get(self.depth).i32_gt_u().if_()
        body.local_get(self.depth).local_set(self.depth_here).end()
        self.run_depth()
        body.local_get(self.from_k).local_get(self.depth_here).i32_add().local_tee(self.from_k)
        body.local_get(self.k).i32_lt_u().br_if("depth").end()
        body.local_get(self.to_column).local_tee(self.from_column)
        body.local_get(self.n).i32_lt_u().br_if("columns").end()

    def run_depth(self) -> None:
        """One depth over the panels of the current columns; the last one finishes them."""
        body, words = self.body, self.words
        rows_at, taps = body.local(I32, "rows_at"), body.local(I32, "taps_here")
        self.rows_at, self.taps_here = rows_at, taps
        body.local_get(self.from_k)
        if self.contraction.source == STRIDE:
            body.local_get(self.step).i32_mul().local_set(taps)
        else:
            if self.contraction.source == SINGLES:
                body.i32_const(4).i32_mul()
            body.local_get(self.taps_at).i32_add().local_set(taps)
        body.local_get(self.scratch).local_set(rows_at)
        if not self.tile.in_place:
            # A chain of one depth keeps its spread block over all columns.
            body.local_get(self.block_at).local_set(rows_at)
            body.local_get(self.from_column).i32_eqz()
            body.local_get(self.depth).local_get(self.k).i32_lt_u().i32_or().if_()
            body.local_get(self.scratch).local_get(self.depth_here).local_get(self.block_at)
            body.local_get(self.count).local_get(taps).local_get(self.step).call(self.spread)
            body.end()
        self.column, self.panel, self.vectors, self.acc = (
            body.local(I32, name) for name in ("column", "panel", "vectors", "acc")
        )
        body.local_get(self.from_column).local_tee(self.column)
        body.local_get(self.k).i32_mul().i32_const(4).i32_mul().local_get(self.slice)
        words.push(body, "b_slice").i32_mul().i32_add()
        words.push(body, "b").i32_add().local_set(self.panel)
        body.local_get(self.scratch).i32_const(_acc_offset(self.contraction)).i32_add()
        body.local_set(self.acc).loop("panel")
        self.run_panel()
        body.local_get(self.to_column).local_get(self.column).i32_gt_u().br_if("panel").end()

    def run_panel(self) -> None:
        """Chains of the panel at `column`, the finish after the last depth; step to the next."""
        body, vectors = self.body, self.vectors
        body.local_get(self.to_column).local_get(self.column).i32_sub()
        body.i32_const(LANES - 1).i32_add().i32_const(2).i32_shr_u().local_tee(vectors)
        body.i32_const(self.tile.vectors).i32_gt_u().if_()
        body.i32_const(self.tile.vectors).local_set(vectors).end()
        body.block("chained")
        if not self.tile.in_place:
            self.take_wide_row()
        for width in range(self.tile.vectors, 0, -1):
            if width > 1:
                body.local_get(vectors).i32_const(width).i32_eq().if_()
            self.push_operands(width)
            body.local_get(self.count).local_get(self.taps_here).local_get(self.step)
            body.call(self.panels[width])
            if width > 1:
                body.br("chained").end()
        body.end()
        body.local_get(self.from_k).local_get(self.depth_here).i32_add()
        body.local_get(self.k).i32_ge_u().if_()
        body.local_get(0).local_get(self.acc).local_get(self.count).local_get(vectors)
        body.local_get(self.column).local_get(self.column)
        if self.contraction.channel_slices:
            body.local_get(self.slice).local_get(self.n).i32_mul().i32_add()
        body.local_get(self.scratch).i32_const(TABLE_BYTES).i32_add().call(self.finish).end()
        self.next_panel()

    def next_panel(self) -> None:
        body, vectors = self.body, self.vectors
        # The accumulators of a chain of one depth are reused while they are in the first cache.
        body.local_get(self.depth).local_get(self.k).i32_lt_u().if_()
        body.local_get(vectors).local_get(self.count).i32_mul().i32_const(VECTOR_BYTES).i32_mul()
        body.local_get(self.acc).i32_add().local_set(self.acc).end()
        body.local_get(vectors).local_get(self.k).i32_mul().i32_const(VECTOR_BYTES).i32_mul()
        body.local_get(self.panel).i32_add().local_set(self.panel)
        body.local_get(vectors).i32_const(2).i32_shl().local_get(self.column).i32_add()
        body.local_set(self.column)

    def push_operands(self, vectors: int) -> None:
        """`a`, `b` at the current depth, `k`, `acc`, `add` of a panel of a width."""
        body = self.body
        body.local_get(self.rows_at).local_get(self.from_k).i32_const(VECTOR_BYTES * vectors)
        body.i32_mul().local_get(self.panel).i32_add().local_get(self.depth_here)
        body.local_get(self.acc).local_get(self.from_k).i32_const(0).i32_ne()

    def take_wide_row(self) -> None:
        """Several panels at once where the block is a single row."""
        body, tile, panels = self.body, self.tile, wide_panels(self.tile)
        body.local_get(self.count).i32_const(1).i32_eq()
        body.local_get(self.to_column).local_get(self.column).i32_sub()
        body.i32_const(panels * tile.columns).i32_ge_u().i32_and().if_()
        self.push_operands(tile.vectors)
        body.local_get(self.k).i32_const(VECTOR_BYTES * tile.vectors).i32_mul()
        body.call(self.wide_row).i32_const(panels * tile.vectors).local_set(self.vectors)
        body.br("chained").end()


def push_quotient(body: FunctionBuilder, value: int, push: Callable[[], object]) -> None:
    """Push local `value`, at least 1, over what `push` pushes, rounded up."""
    body.local_get(value).i32_const(1).i32_sub()
    push()
    body.i32_div_u().i32_const(1).i32_add()
