"""Blocks of rows: the copy of operand A and the chains of a panel, in tiles of balanced height."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.contraction import emit_micro_kernel
from rlx_edge.compile.templates.offsets import SINGLES, Walk, add_constant, load_pointers
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES, Tile


def emit_spreader(module: ModuleBuilder, rows: int, source: str) -> int:
    """Function index of the copy of `rows` rows to `[k][rows][4]`.

    Parameters of the function: `table` (row pointers), `k`, `target`, `tiles` (at least 1), `taps`
    and `step` as for the micro-kernels.
    """
    return module.once(("spread", rows, source), lambda: _emit_spreader(module, rows, source))


def _emit_spreader(module: ModuleBuilder, rows: int, source: str) -> FunctionBuilder:
    names = ("table", "k", "target", "tiles", "taps", "step")
    body = module.function(f"spread_{rows}_{source}", [(name, I32) for name in names])
    table, k, target, tiles, taps, step = range(6)
    offset = body.local(I32, "offset")
    pointers = body.local_array(I32, "row", rows)
    value = body.local(V128, "value")

    def steps(count: int) -> None:
        for row, pointer in enumerate(pointers):
            at = VECTOR_BYTES * row
            if count == 1:
                body.local_get(target).local_get(pointer).local_get(offset).i32_add()
                body.f32_load().f32x4_splat().v128_store(at)
                continue
            body.local_get(pointer).local_get(offset).i32_add().v128_load().local_set(value)
            for lane in range(LANES):
                body.local_get(target).local_get(value).local_get(value)
                body.i32x4_shuffle([lane] * LANES).v128_store(at + lane * rows * VECTOR_BYTES)
        add_constant(body, target, count * rows * VECTOR_BYTES)

    body.loop("tile")
    load_pointers(body, table, pointers)
    unroll = 1 if source == SINGLES else LANES
    Walk(body, source, k, taps, step, offset).emit(steps, unroll)
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
    `add`, `rows`, `taps`, `step`.
    """

    def emit() -> FunctionBuilder:
        callees = {
            rows: emit_micro_kernel(module, tile, rows, vectors, source)
            for rows in range(1, tile.rows + 1)
        }
        names = ("a", "b", "k", "acc", "add", "rows", "taps", "step")
        body = module.function(
            f"panel_{tile.name}_{vectors}_{source}", [(name, I32) for name in names]
        )
        a, b, k, target, add, rows, taps, step = range(8)

        def call(height: int, tiles: int) -> None:
            for name in (a, b, k, target, add, tiles):
                body.local_get(name)
            if tile.in_place:
                body.local_get(taps).local_get(step)
            body.call(callees[height])

        def advance(count: int) -> None:
            body.local_get(count)
            if tile.in_place:
                body.i32_const(4).i32_mul()
            else:
                body.local_get(k).i32_mul().i32_const(VECTOR_BYTES).i32_mul()
            body.local_get(a).i32_add().local_set(a)
            body.local_get(count).i32_const(vectors * VECTOR_BYTES).i32_mul()
            body.local_get(target).i32_add().local_set(target)

        for_each_tile(body, tile.rows, rows, call, advance)
        return body

    key = ("panel", tile, vectors, source if tile.in_place else None)
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
