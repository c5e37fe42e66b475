"""The contraction micro-kernels that matmul and conv2d share.

A micro-kernel computes `rows x 4 * vectors` chains `acc = acc + a * b` for ascending k from +0.0,
multiplication and addition rounded separately, so every tile gives the same bits. It reads B
from a packed panel `[k][4 * vectors]` and writes raw chains to an accumulator buffer
`[row][4 * vectors]`; the epilogue is another function, so that one set of micro-kernels serves
every layer of a module and reaches the engine's optimising tier early.

Operand A comes in one of two ways:

* `spread`: copied first to `[k][row][4]` with each element in all four lanes, and read by plain
  vector loads. One 16-byte load replaces load and broadcast, which Cranelift never fuses.
* `splat`: read in place through row pointers with `v128.load32_splat` (one instruction in V8).

In both, element k of a row lies at `row pointer + offset(k)`, and the source says what the offset
is: `stride` (k times a byte step), `quads` (a table of byte offsets, one for four consecutive
elements) or `singles` (a table with one offset for each k).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.ir.errors import RlxError

LANES = 4
VECTOR_BYTES = 16
SOURCES = ("stride", "quads", "singles")
STYLES = ("v8", "cranelift")
ZERO = bytes(VECTOR_BYTES)


@dataclass(frozen=True, slots=True)
class Tile:
    """Shape and form of a micro-kernel.

    Attributes:
        access: `spread` or `splat`.
        rows: rows of a full tile; smaller kernels for 1 .. rows - 1 handle the edge.
        vectors: 4-column vectors of a full tile; smaller kernels handle the last panel.
        unroll: steps of k in one iteration, 1, 2 or 4; `spread` takes 1.
    """

    access: str
    rows: int
    vectors: int
    unroll: int = 1

    @property
    def name(self) -> str:
        """Text such as `spread3x12` or `splat6x8u4`, accepted by `parse_tile`."""
        suffix = "" if self.unroll == 1 else f"u{self.unroll}"
        return f"{self.access}{self.rows}x{LANES * self.vectors}{suffix}"

    @property
    def columns(self) -> int:
        """Columns of a full panel of packed B."""
        return LANES * self.vectors


TILES: dict[str, tuple[Tile, ...]] = {
    "v8": (
        Tile("spread", 4, 2),
        Tile("splat", 4, 2),
        Tile("splat", 4, 2, 4),
        Tile("splat", 6, 2, 2),
        Tile("splat", 2, 4),
    ),
    "cranelift": (
        Tile("spread", 3, 3),
        Tile("spread", 4, 2),
        Tile("spread", 2, 4),
        Tile("spread", 5, 1),
    ),
}
"""Tiles offered for each emit style; the first is the default for many columns."""


def variants(style: str) -> tuple[Tile, ...]:
    """The tiles of an emit style, the default first.

    Raises:
        RlxError: unknown style.
    """
    if style not in TILES:
        raise RlxError("template.style", "unknown emit style", found=style, allowed=STYLES)
    return TILES[style]


def parse_tile(name: str) -> Tile:
    """The tile of that name in any style.

    Raises:
        RlxError: no style offers it.
    """
    known = {tile.name: tile for style in STYLES for tile in TILES[style]}
    if name not in known:
        raise RlxError("template.tile", "unknown tile", found=name, allowed=tuple(known))
    return known[name]


def multiply_add(body: FunctionBuilder, total: int, a: Callable[[], object], b: int) -> None:
    """`total = total + a * b` with two roundings; `a` pushes the activation operand."""
    body.local_get(total)
    a()
    body.local_get(b).f32x4_mul().f32x4_add().local_set(total)


def add_constant(body: FunctionBuilder, local: int, value: int) -> None:
    """Add a constant to an i32 local."""
    body.local_get(local).i32_const(value).i32_add().local_set(local)


def emit_micro_kernel(
    module: ModuleBuilder, tile: Tile, rows: int, vectors: int, source: str
) -> int:
    """Function index of the `rows x vectors` kernel of a tile's family.

    Parameters of the function: `a` (spread tile, or table of row pointers), `b` (panel), `k`,
    `acc`, `tiles` (at least 1), and for `splat` also `taps` (offset table) and `step` (bytes).
    """
    if tile.access == "spread":
        key = ("micro", "spread", rows, vectors)
        return module.once(key, lambda: _emit_spread(module, rows, vectors))
    unroll = 1 if source == "singles" else tile.unroll
    key = ("micro", "splat", rows, vectors, unroll, source)
    return module.once(key, lambda: _emit_splat(module, rows, vectors, unroll, source))


def _emit_spread(module: ModuleBuilder, rows: int, vectors: int) -> FunctionBuilder:
    parameters = [(name, I32) for name in ("a", "b", "k", "acc", "tiles")]
    body = module.function(f"contract_spread_{rows}x{LANES * vectors}", parameters)
    a, b, k, target, tiles = range(5)
    panel, end = body.local(I32, "panel"), body.local(I32, "end")
    totals = [body.local_array(V128, f"acc{row}_", vectors) for row in range(rows)]
    columns = body.local_array(V128, "b", vectors)
    value = body.local(V128, "a_value")
    body.local_get(b).local_get(k).i32_const(VECTOR_BYTES * vectors).i32_mul().i32_add()
    body.local_set(end)
    body.loop("tile")
    _clear(body, totals)
    body.local_get(b).local_set(panel)
    body.block("chains").local_get(k).i32_eqz().br_if("chains").loop("k")
    _load_columns(body, panel, columns, 0)
    for row, chain in enumerate(totals):
        body.local_get(a).v128_load(VECTOR_BYTES * row).local_set(value)
        for total, column in zip(chain, columns, strict=True):
            multiply_add(body, total, lambda: body.local_get(value), column)
    add_constant(body, a, VECTOR_BYTES * rows)
    body.local_get(panel).i32_const(VECTOR_BYTES * vectors).i32_add().local_tee(panel)
    body.local_get(end).i32_lt_u().br_if("k").end().end()
    _store(body, target, totals)
    body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
    return body


def _emit_splat(
    module: ModuleBuilder, rows: int, vectors: int, unroll: int, source: str
) -> FunctionBuilder:
    names = ("table", "b", "k", "acc", "tiles", "taps", "step")
    label = f"contract_splat_{rows}x{LANES * vectors}_{source}_u{unroll}"
    body = module.function(label, [(name, I32) for name in names])
    table, b, k, target, tiles, taps, step = range(7)
    panel, left = body.local(I32, "panel"), body.local(I32, "left")
    offset, tap = body.local(I32, "offset"), body.local(I32, "tap")
    pointers = body.local_array(I32, "row", rows)
    totals = [body.local_array(V128, f"acc{row}_", vectors) for row in range(rows)]
    columns = body.local_array(V128, "b", vectors)
    value = body.local(V128, "a_value")

    def steps(count: int) -> None:
        for number in range(count):
            _load_columns(body, panel, columns, number)
            for pointer, chain in zip(pointers, totals, strict=True):
                body.local_get(pointer).local_get(offset).i32_add()
                body.v128_load32_splat(4 * number).local_set(value)
                for total, column in zip(chain, columns, strict=True):
                    multiply_add(body, total, lambda: body.local_get(value), column)
        add_constant(body, panel, count * VECTOR_BYTES * vectors)

    def next_while_left(count: int, label: str) -> None:
        body.local_get(left).i32_const(count).i32_sub().local_tee(left)
        body.i32_const(count).i32_ge_s().br_if(label)

    def chain_by_stride() -> None:
        body.i32_const(0).local_set(offset)
        if unroll > 1:
            body.local_get(step).i32_const(4).i32_eq().local_get(k).i32_const(unroll).i32_ge_s()
            body.i32_and().if_().loop("steps")
            steps(unroll)
            add_constant(body, offset, 4 * unroll)
            next_while_left(unroll, "steps")
            body.end().end()
        body.local_get(left).if_().loop("single")
        steps(1)
        body.local_get(offset).local_get(step).i32_add().local_set(offset)
        next_while_left(1, "single")
        body.end().end()

    def chain_by_table(elements: int) -> None:
        body.local_get(taps).local_set(tap)
        body.block("done").local_get(left).i32_eqz().br_if("done").loop("tap")
        body.local_get(tap).i32_load(0).local_set(offset)
        if elements > unroll:
            quad = body.local(I32, "quad")
            body.i32_const(elements // unroll).local_set(quad).loop("element")
            steps(unroll)
            add_constant(body, offset, 4 * unroll)
            body.local_get(quad).i32_const(1).i32_sub().local_tee(quad).br_if("element").end()
        else:
            steps(elements)
        add_constant(body, tap, 4)
        next_while_left(elements, "tap")
        body.end().end()

    body.loop("tile")
    for row, pointer in enumerate(pointers):
        body.local_get(table).i32_load(4 * row).local_set(pointer)
    _clear(body, totals)
    body.local_get(b).local_set(panel).local_get(k).local_set(left)
    if source == "stride":
        chain_by_stride()
    else:
        chain_by_table(LANES if source == "quads" else 1)
    _store(body, target, totals)
    add_constant(body, table, 4 * rows)
    body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
    return body


def _clear(body: FunctionBuilder, totals: Sequence[Sequence[int]]) -> None:
    for chain in totals:
        for total in chain:
            body.v128_const(ZERO).local_set(total)


def _load_columns(body: FunctionBuilder, panel: int, columns: Sequence[int], step: int) -> None:
    for number, column in enumerate(columns):
        offset = VECTOR_BYTES * (step * len(columns) + number)
        body.local_get(panel).v128_load(offset).local_set(column)


def _store(body: FunctionBuilder, target: int, totals: Sequence[Sequence[int]]) -> None:
    vectors = len(totals[0])
    for row, chain in enumerate(totals):
        for number, total in enumerate(chain):
            offset = VECTOR_BYTES * (row * vectors + number)
            body.local_get(target).local_get(total).v128_store(offset)
    add_constant(body, target, len(totals) * vectors * VECTOR_BYTES)


def wide_panels(tile: Tile) -> int:
    """Panels that the single-row kernel of a tile takes at once, enough to hide latency."""
    return max(1, 8 // tile.vectors)


def emit_wide_row(module: ModuleBuilder, vectors: int, panels: int) -> int:
    """Function index: the chains of one spread row with several full panels.

    Parameters of the function: `a` (`[k][4]`), `b` (first panel), `k`, `acc`.
    """

    def emit() -> FunctionBuilder:
        body = module.function(
            f"contract_row_{panels}x{LANES * vectors}",
            [(name, I32) for name in ("a", "b", "k", "acc")],
        )
        a, b, k, target = range(4)
        pointers = body.local_array(I32, "panel", panels)
        totals = [body.local_array(V128, f"acc{panel}_", vectors) for panel in range(panels)]
        value, end = body.local(V128, "a_value"), body.local(I32, "end")
        row_bytes = VECTOR_BYTES * vectors
        body.local_get(b).local_set(pointers[0])
        for before, pointer in pairwise(pointers):
            body.local_get(k).i32_const(row_bytes).i32_mul().local_get(before).i32_add()
            body.local_set(pointer)
        body.local_get(k).i32_const(VECTOR_BYTES).i32_mul().local_get(a).i32_add().local_set(end)
        _clear(body, totals)
        body.block("done").local_get(k).i32_eqz().br_if("done").loop("k")
        body.local_get(a).v128_load().local_set(value)
        for pointer, chain in zip(pointers, totals, strict=True):
            for number, total in enumerate(chain):
                body.local_get(total).local_get(value)
                body.local_get(pointer).v128_load(VECTOR_BYTES * number)
                body.f32x4_mul().f32x4_add().local_set(total)
            add_constant(body, pointer, row_bytes)
        body.local_get(a).i32_const(VECTOR_BYTES).i32_add().local_tee(a)
        body.local_get(end).i32_lt_u().br_if("k").end().end()
        _store(body, target, totals)
        return body

    return module.once(("wide row", vectors, panels), emit)


def emit_spreader(module: ModuleBuilder, rows: int, source: str) -> int:
    """Function index of the copy of `rows` rows to `[k][rows][4]`.

    Parameters of the function: `table` (row pointers), `k`, `target`, `tiles` (at least 1), `taps`
    and `step` as for the micro-kernels.
    """
    key = ("spread", rows, source)
    return module.once(key, lambda: _emit_spreader(module, rows, source))


def _emit_spreader(module: ModuleBuilder, rows: int, source: str) -> FunctionBuilder:
    names = ("table", "k", "target", "tiles", "taps", "step")
    body = module.function(f"spread_{rows}_{source}", [(name, I32) for name in names])
    table, k, target, tiles, taps, step = range(6)
    offset, left, tap = (body.local(I32, name) for name in ("offset", "left", "tap"))
    pointers = body.local_array(I32, "row", rows)
    value = body.local(V128, "value")

    def quad() -> None:
        for row, pointer in enumerate(pointers):
            body.local_get(pointer).local_get(offset).i32_add().v128_load().local_set(value)
            for lane in range(LANES):
                body.local_get(target).local_get(value).local_get(value)
                body.i32x4_shuffle([lane] * LANES).v128_store(VECTOR_BYTES * (lane * rows + row))
        add_constant(body, target, LANES * rows * VECTOR_BYTES)

    def single() -> None:
        for row, pointer in enumerate(pointers):
            body.local_get(target).local_get(pointer).local_get(offset).i32_add()
            body.f32_load().f32x4_splat().v128_store(VECTOR_BYTES * row)
        add_constant(body, target, rows * VECTOR_BYTES)

    def count_down(count: int, label: str) -> None:
        body.local_get(left).i32_const(count).i32_sub().local_tee(left)
        body.i32_const(count).i32_ge_s().br_if(label)

    body.loop("tile")
    for row, pointer in enumerate(pointers):
        body.local_get(table).i32_load(4 * row).local_set(pointer)
    body.local_get(k).local_set(left)
    if source == "stride":
        body.i32_const(0).local_set(offset)
        body.local_get(step).i32_const(4).i32_eq().local_get(k).i32_const(LANES).i32_ge_s()
        body.i32_and().if_().loop("quads")
        quad()
        add_constant(body, offset, VECTOR_BYTES)
        count_down(LANES, "quads")
        body.end().end().local_get(left).if_().loop("singles")
        single()
        body.local_get(offset).local_get(step).i32_add().local_set(offset)
        count_down(1, "singles")
        body.end().end()
    else:
        body.local_get(taps).local_set(tap)
        body.local_get(k).if_().loop("taps")
        body.local_get(tap).i32_load().local_set(offset)
        (quad if source == "quads" else single)()
        add_constant(body, tap, 4)
        count_down(LANES if source == "quads" else 1, "taps")
        body.end().end()
    add_constant(body, table, 4 * rows)
    body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
    return body


def emit_spread_block(module: ModuleBuilder, tile: Tile, source: str) -> int:
    """Function index: spread a block of any number of rows in the tiles of `emit_panel`.

    Parameters of the function: `table`, `k`, `target`, `rows`, `taps`, `step`.
    """

    def emit() -> FunctionBuilder:
        callees = {rows: emit_spreader(module, rows, source) for rows in range(1, tile.rows + 1)}
        names = ("table", "k", "target", "rows", "taps", "step")
        body = module.function(
            f"spread_block_{tile.rows}_{source}", [(name, I32) for name in names]
        )
        table, k, target, rows, taps, step = range(6)

        def call(height: int, tiles: int) -> None:
            body.local_get(table).local_get(k).local_get(target).local_get(tiles)
            body.local_get(taps).local_get(step).call(callees[height])

        def advance(count: int) -> None:
            body.local_get(count).i32_const(4).i32_mul().local_get(table).i32_add()
            body.local_set(table)
            body.local_get(count).local_get(k).i32_mul().i32_const(VECTOR_BYTES).i32_mul()
            body.local_get(target).i32_add().local_set(target)

        for_each_tile(body, tile.rows, rows, call, advance)
        return body

    return module.once(("spread_block", tile.rows, source), emit)


def emit_panel(module: ModuleBuilder, tile: Tile, vectors: int, source: str) -> int:
    """Function index: the chains of a block of rows with one panel of `vectors` vectors.

    Parameters of the function: `a` (spread block, or table of row pointers), `b`, `k`, `acc`,
    `rows`, `taps`, `step`.
    """

    def emit() -> FunctionBuilder:
        callees = {
            rows: emit_micro_kernel(module, tile, rows, vectors, source)
            for rows in range(1, tile.rows + 1)
        }
        names = ("a", "b", "k", "acc", "rows", "taps", "step")
        body = module.function(
            f"panel_{tile.name}_{vectors}_{source}", [(name, I32) for name in names]
        )
        a, b, k, target, rows, taps, step = range(7)

        def call(height: int, tiles: int) -> None:
            body.local_get(a).local_get(b).local_get(k).local_get(target).local_get(tiles)
            if tile.access == "splat":
                body.local_get(taps).local_get(step)
            body.call(callees[height])

        def advance(count: int) -> None:
            body.local_get(count)
            if tile.access == "splat":
                body.i32_const(4).i32_mul()
            else:
                body.local_get(k).i32_mul().i32_const(VECTOR_BYTES).i32_mul()
            body.local_get(a).i32_add().local_set(a)
            body.local_get(count).i32_const(vectors * VECTOR_BYTES).i32_mul()
            body.local_get(target).i32_add().local_set(target)

        for_each_tile(body, tile.rows, rows, call, advance)
        return body

    spread = tile.access == "spread"
    key = ("panel", tile if not spread else tile.rows, vectors, None if spread else source)
    return module.once(key, emit)


def for_each_tile(
    body: FunctionBuilder,
    height: int,
    rows: int,
    call: Callable[[int, int], None],
    advance: Callable[[int], None],
) -> None:
    """Full tiles in one call, then the rest in at most two tiles of balanced height.

    `call(height, tiles)` emits the call for a number of tiles in a local, `advance(count)` moves
    the pointers by a number of rows in a local.
    """
    full, rest, second = (body.local(I32, name) for name in ("full", "rest", "second"))
    count = body.local(I32, "count")
    body.local_get(rows).i32_const(height).i32_div_u().local_tee(full)
    body.i32_const(height).i32_mul().local_tee(count).local_get(rows).i32_sub()
    body.i32_const(-1).i32_mul().local_set(rest)
    if height > 3:
        body.local_get(rest).i32_const(0).i32_ne().local_get(full).i32_const(0).i32_ne()
        body.i32_and().local_get(rest).i32_const(height - 1).i32_lt_u().i32_and().if_()
        body.local_get(full).i32_const(1).i32_sub().local_set(full)
        add_constant(body, count, -height)
        add_constant(body, rest, height)
        body.local_get(rest).i32_const(1).i32_shr_u().local_set(second)
        body.local_get(rest).local_get(second).i32_sub().local_set(rest)
        body.end()
    body.local_get(full).if_()
    call(height, full)
    advance(count)
    body.end()
    one = body.local(I32, "one")
    body.i32_const(1).local_set(one)
    body.block("done").loop("rest").local_get(rest).i32_eqz().br_if("done")
    for size in range(height - 1, 0, -1):
        body.local_get(rest).i32_const(size).i32_eq().if_()
        call(size, one)
        body.end()
    advance(rest)
    body.local_get(second).local_set(rest).i32_const(0).local_set(second).br("rest")
    body.end().end()
