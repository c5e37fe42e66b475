"""Micro-kernels of depthwise convolution: chains over taps for a block of pixels of one plane.

A *plane* is a block of four channels in NCHW4c. Chains go to an accumulator buffer `[pixel][4]`.
`emit_any_chains` takes any kernel, stride and dilation through the tap table. For common kernel
widths and strides without horizontal dilation, `emit_run_chains` works on runs of pixels of one
output row: the input vectors of a kernel row are loaded once for a whole tile.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.blocks import for_each_tile
from rlx_edge.compile.templates.contraction import ZERO, getter, multiply_add
from rlx_edge.compile.templates.offsets import add_constant
from rlx_edge.compile.templates.tiles import VECTOR_BYTES

PIXELS = 6
"""Pixels of a full tile through the tap table: chains, inputs and a weight fit 16 registers."""

RUN_PIXELS = {(3, 1): 4, (3, 2): 3, (5, 1): 2, (5, 2): 2}
"""(kernel columns, stride) to pixels of a tile: chains, window and weights fit 16 registers."""


def emit_any_chains(module: ModuleBuilder) -> int:
    """Function index: the chains of one plane for a block of pixels, by tap table.

    Parameters of the function: `table` (pixel pointers), `offset` (of the plane), `weights`,
    `count` (taps, at least 1), `taps` (offsets), `acc`, `pixels`.
    """

    def emit() -> FunctionBuilder:
        callees = {pixels: _emit_any_tile(module, pixels) for pixels in range(1, PIXELS + 1)}
        names = ("table", "offset", "weights", "count", "taps", "acc", "pixels")
        body = module.function("depthwise_block", [(name, I32) for name in names])
        table, offset, weights, count, taps, target, pixels = range(7)

        def call(height: int, tiles: int) -> None:
            for name in (table, offset, weights, count, taps, target, tiles):
                body.local_get(name)
            body.call(callees[height])

        def advance(rows: int) -> None:
            for pointer, size in ((table, 4), (target, VECTOR_BYTES)):
                body.local_get(rows).i32_const(size).i32_mul().local_get(pointer).i32_add()
                body.local_set(pointer)

        for_each_tile(body, PIXELS, pixels, call, advance)
        return body

    return module.once("depthwise_block", emit)


def _emit_any_tile(module: ModuleBuilder, pixels: int) -> int:
    def emit() -> FunctionBuilder:
        names = ("table", "offset", "weights", "count", "taps", "acc", "tiles")
        body = module.function(f"depthwise_{pixels}", [(name, I32) for name in names])
        table, offset, weights, count, taps, target, tiles = range(7)
        tap, end, weight_at, at = (
            body.local(I32, name) for name in ("tap", "end", "weight_at", "at")
        )
        pointers = body.local_array(I32, "pixel", pixels)
        totals = body.local_array(V128, "acc", pixels)
        weight = body.local(V128, "weight")
        body.local_get(count).i32_const(2).i32_shl().local_get(taps).i32_add().local_set(end)
        body.loop("tile")
        for number, (pointer, total) in enumerate(zip(pointers, totals, strict=True)):
            body.local_get(table).i32_load(4 * number).local_get(offset).i32_add()
            body.local_set(pointer).v128_const(ZERO).local_set(total)
        body.local_get(taps).local_set(tap).local_get(weights).local_set(weight_at)
        body.loop("tap").local_get(tap).i32_load().local_set(at)
        body.local_get(weight_at).v128_load().local_set(weight)
        for pointer, total in zip(pointers, totals, strict=True):

            def push_pixel(pointer: int = pointer) -> None:
                body.local_get(pointer).local_get(at).i32_add().v128_load()

            multiply_add(body, total, push_pixel, getter(body, weight))
        add_constant(body, weight_at, VECTOR_BYTES)
        body.local_get(tap).i32_const(4).i32_add().local_tee(tap).local_get(end).i32_lt_u()
        body.br_if("tap").end()
        _store_totals(body, target, totals)
        add_constant(body, table, 4 * pixels)
        body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
        return body

    return module.once(("depthwise_chains", pixels), emit)


def emit_run_chains(module: ModuleBuilder, columns: int, stride: int) -> int:
    """Function index: the chains of one plane for a block of pixels, run by run.

    Parameters of the function: `table` (pixel pointers), `offset` (of the plane), `weights`,
    `rows` (of the kernel, at least 1), `row` (bytes between kernel rows), `acc`, `pixels`, `x` (of
    the first pixel in its output row), `width` (of output rows). Neighbouring pixels of a row lie
    `16 * stride` bytes apart, neighbouring taps 16 bytes.
    """
    key = ("depthwise_runs", columns, stride)
    return module.once(key, lambda: _emit_run_chains(module, columns, stride))


def _emit_run_chains(module: ModuleBuilder, columns: int, stride: int) -> FunctionBuilder:
    names = ("table", "offset", "weights", "rows", "row", "acc", "pixels", "x", "width")
    body = module.function(f"depthwise_runs_{columns}_{stride}", [(name, I32) for name in names])
    table, offset, weights, rows, row, target, pixels, x, width = range(9)
    run, pointer = body.local(I32, "run"), body.local(I32, "pointer")
    window_at, weight_at, left = (body.local(I32, name) for name in ("window", "weight", "left"))
    tile = RUN_PIXELS[columns, stride]
    all_totals = body.local_array(V128, "acc", tile)
    vectors = body.local_array(V128, "x", stride * (tile - 1) + columns)
    taps = body.local_array(V128, "w", columns)

    def chains(count: int) -> None:
        totals = all_totals[:count]
        window = vectors[: stride * (count - 1) + columns]
        for total in totals:
            body.v128_const(ZERO).local_set(total)
        body.local_get(pointer).local_set(window_at).local_get(weights).local_set(weight_at)
        body.local_get(rows).local_set(left).loop("kernel_row")
        for source, values in ((weight_at, taps), (window_at, window)):
            for number, value in enumerate(values):
                body.local_get(source).v128_load(VECTOR_BYTES * number).local_set(value)
        for column, tap in enumerate(taps):
            for number, total in enumerate(totals):
                value = window[stride * number + column]
                multiply_add(body, total, getter(body, value), getter(body, tap))
        body.local_get(window_at).local_get(row).i32_add().local_set(window_at)
        add_constant(body, weight_at, VECTOR_BYTES * columns)
        body.local_get(left).i32_const(1).i32_sub().local_tee(left).br_if("kernel_row").end()
        _store_totals(body, target, totals)
        add_constant(body, pointer, VECTOR_BYTES * stride * count)
        body.local_get(run).i32_const(count).i32_sub().local_set(run)

    body.loop("run")
    body.local_get(width).local_get(x).i32_sub().local_tee(run).local_get(pixels).i32_gt_u()
    body.if_().local_get(pixels).local_set(run).end()
    body.local_get(pixels).local_get(run).i32_sub().local_set(pixels)
    body.local_get(table).i32_load().local_get(offset).i32_add().local_set(pointer)
    body.local_get(run).i32_const(2).i32_shl().local_get(table).i32_add().local_set(table)
    for count in (tile, 2, 1) if tile > 3 else (tile, 1):
        body.block("done").loop("tile").local_get(run).i32_const(count).i32_lt_u().br_if("done")
        chains(count)
        body.br("tile").end().end()
    body.i32_const(0).local_set(x).local_get(pixels).br_if("run").end()
    return body


def _store_totals(body: FunctionBuilder, target: int, totals: list[int]) -> None:
    for number, total in enumerate(totals):
        body.local_get(target).local_get(total).v128_store(VECTOR_BYTES * number)
    add_constant(body, target, VECTOR_BYTES * len(totals))
