"""Tables of addresses that contractions on WebAssembly walk through: pointers of a block's rows,
and offsets of the taps of a filter in the contract's order of k.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlx_edge.compile.codegen.wasm.encoder import I32
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.finish import FULL, TABLE_BYTES, Output
from rlx_edge.compile.templates.offsets import QUADS, add_constant
from rlx_edge.compile.templates.tiles import LANES
from rlx_edge.compile.templates.words import Words


def emit_pointer_fill(module: ModuleBuilder) -> int:
    """Function index of the fill of a pointer table.

    Parameters of the function: `table`, `first` (row number), `count` (at least 1), `height`,
    `width` (rows are numbered image, y, x), `base`, and the byte strides `image`, `row`, `pixel`.
    """

    def emit() -> FunctionBuilder:
        names = ("table", "first", "count", "height", "width", "base", "image", "row", "pixel")
        body = module.function("fill_pointers", [(name, I32) for name in names])
        table, first, count, height, width, base, image, row, pixel = range(9)
        x, y, line, pointer = (body.local(I32, name) for name in ("x", "y", "line", "pointer"))
        body.local_get(first).local_get(width).i32_div_u().local_set(y)
        body.local_get(first).local_get(width).i32_rem_u().local_set(x)
        body.local_get(y).local_get(height).i32_div_u().local_get(image).i32_mul()
        body.local_get(base).i32_add().local_set(base)
        body.local_get(y).local_get(height).i32_rem_u().local_tee(y).local_get(row).i32_mul()
        body.local_get(base).i32_add().local_set(line)
        body.local_get(x).local_get(pixel).i32_mul().local_get(line).i32_add().local_set(pointer)
        body.loop("next").local_get(table).local_get(pointer).i32_store()
        add_constant(body, table, 4)
        body.local_get(pointer).local_get(pixel).i32_add().local_set(pointer)
        body.local_get(x).i32_const(1).i32_add().local_tee(x).local_get(width).i32_eq().if_()
        body.i32_const(0).local_set(x).local_get(line).local_get(row).i32_add().local_set(line)
        body.local_get(y).i32_const(1).i32_add().local_tee(y).local_get(height).i32_eq().if_()
        body.i32_const(0).local_set(y).local_get(base).local_get(image).i32_add().local_tee(base)
        body.local_set(line).end().local_get(line).local_set(pointer).end()
        body.local_get(count).i32_const(1).i32_sub().local_tee(count).br_if("next").end()
        return body

    return module.once("fill_pointers", emit)


def emit_tap_table(module: ModuleBuilder, source: str) -> int:
    """Function index of the fill of a tap table in the contract's order of k.

    The order is: block of four channels, kernel row, kernel column and, for `singles`, channel
    within the block. Parameters of the function: `table`, `channels`, `rows`, `columns` (kernel
    extents), and the byte strides `plane` (channel block, or channel for `singles`), `row`,
    `column`.
    """

    def emit() -> FunctionBuilder:
        names = ("table", "channels", "rows", "columns", "plane", "row", "column")
        body = module.function(f"fill_taps_{source}", [(name, I32) for name in names])
        table, channels, rows, columns, plane, row, column = range(7)
        offset, y, x, line = (body.local(I32, name) for name in ("offset", "y", "x", "line"))
        base, lane, at = (body.local(I32, name) for name in ("base", "lane", "at"))
        body.block("done").loop("block").local_get(channels).i32_const(0).i32_le_s()
        body.br_if("done")
        body.local_get(base).local_set(line).local_get(rows).local_set(y).loop("row")
        body.local_get(line).local_set(offset).local_get(columns).local_set(x).loop("column")
        if source == QUADS:
            body.local_get(table).local_get(offset).i32_store()
            add_constant(body, table, 4)
        else:
            body.local_get(offset).local_set(at).i32_const(0).local_set(lane).loop("lane")
            body.local_get(table).local_get(at).i32_store()
            add_constant(body, table, 4)
            body.local_get(at).local_get(plane).i32_add().local_set(at)
            add_constant(body, lane, 1)
            body.local_get(lane).i32_const(LANES).i32_lt_s()
            body.local_get(lane).local_get(channels).i32_lt_s().i32_and().br_if("lane").end()
        body.local_get(offset).local_get(column).i32_add().local_set(offset)
        body.local_get(x).i32_const(1).i32_sub().local_tee(x).br_if("column").end()
        body.local_get(line).local_get(row).i32_add().local_set(line)
        body.local_get(y).i32_const(1).i32_sub().local_tee(y).br_if("row").end()
        body.local_get(plane).i32_const(1 if source == QUADS else LANES).i32_mul()
        body.local_get(base).i32_add().local_set(base)
        add_constant(body, channels, -LANES)
        body.br("block").end().end()
        return body

    return module.once(("fill_taps", source), emit)


def fill_block_tables(
    body: FunctionBuilder,
    words: Words,
    output: Output,
    fill: int,
    scratch: int,
    per_slice: int | None,
    first: int,
    count: int,
) -> None:
    """Fill a block's tables: A at scratch, then the output's and those of the pointed extras.

    Locals: `scratch`, `first` and `count` of the block, and the slice number `per_slice` or None.
    """

    def push(stride: str | int | None) -> None:
        if isinstance(stride, str):
            words.push(body, stride)
        else:
            body.i32_const(stride or 0)

    def fill_table(position: int, slot: str, strides: Mapping[str, str | int]) -> None:
        body.local_get(scratch).i32_const(TABLE_BYTES * position).i32_add()
        body.local_get(first).local_get(count)
        words.push(body, "height")
        words.push(body, "width")
        words.push(body, slot)
        push(strides.get("origin"))
        body.i32_add()
        if per_slice is not None:
            body.local_get(per_slice)
            push(strides.get("slice"))
            body.i32_mul().i32_add()
        for part in ("image", "row", "pixel"):
            push(strides.get(part))
        body.call(fill)

    parts = ("origin", "slice", "image", "row", "pixel")
    fill_table(0, "a", {part: f"a_{part}" for part in parts})
    fill_table(1, "out", {part: f"out_{part}" for part in parts})
    for position, number in enumerate(output.pointed):
        slot = output.slots[number]
        strides: dict[str, str | int] = {
            part: f"{slot}_{part}" for part in parts if f"{slot}_{part}" in output.words
        }
        if output.extras[number] == FULL and output.pixel_bytes is not None:
            strides["pixel"] = output.pixel_bytes
        fill_table(2 + position, slot, strides)
