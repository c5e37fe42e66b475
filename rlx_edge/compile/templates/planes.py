"""Stores of channel vectors into the planes of an NCHW tensor.

The accumulator buffer holds four channels of one pixel in a vector, the output four pixels of one
channel. Where four rows are four neighbouring pixels, a transpose in registers makes four vector
stores of sixteen single ones; single stores do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder
from rlx_edge.compile.codegen.wasm.transpose import transpose_lanes
from rlx_edge.compile.templates.offsets import add_constant
from rlx_edge.compile.templates.tiles import LANES

PIXEL_BYTES = 4


@dataclass(frozen=True, slots=True)
class PlaneRows:
    """Locals that walk over the rows of a block, changed by the stores.

    Attributes:
        source: address of the row's vector in the accumulator buffer.
        pitch: bytes from there to the next row's.
        entry: address of the row's pointer to its pixel.
        left: rows that are not stored yet, at least 1.
    """

    source: int
    pitch: int
    entry: int
    left: int


def emit_plane_stores(
    body: FunctionBuilder, rows: PlaneRows, at: int, plane: int, lanes: int
) -> None:
    """Store one vector of channels of every row.

    Locals: `at` is the byte offset of the first channel from a pixel, `plane` the bytes from
    channel to channel, `lanes` how many of the four channels there are (more than four count as
    four).
    """
    pointer = body.local(I32, "pixel")
    body.loop("pixels").block("stored").block("single")
    body.local_get(rows.left).i32_const(LANES).i32_lt_u().br_if("single")
    body.local_get(lanes).i32_const(LANES).i32_lt_s().br_if("single")
    body.local_get(rows.entry).i32_load(4 * (LANES - 1))
    body.local_get(rows.entry).i32_load().local_tee(pointer).i32_sub()
    body.i32_const(PIXEL_BYTES * (LANES - 1)).i32_ne().br_if("single")
    _store_tile(body, rows, pointer, at, plane)
    body.br("stored").end()
    _store_single(body, rows, pointer, at, plane, lanes)
    body.end().local_get(rows.left).br_if("pixels").end()
    body.release(pointer)


def _store_tile(body: FunctionBuilder, rows: PlaneRows, pointer: int, at: int, plane: int) -> None:
    """Four neighbouring pixels of four channels."""
    vectors = body.local_array(V128, "pixel", LANES)
    for vector in vectors:
        body.local_get(rows.source).v128_load().local_set(vector)
        body.local_get(rows.source).local_get(rows.pitch).i32_add().local_set(rows.source)
    channels = transpose_lanes(body, vectors, lambda: body.local(V128))
    body.local_get(pointer).local_get(at).i32_add().local_set(pointer)
    for number, channel in enumerate(channels):
        if number:
            body.local_get(pointer).local_get(plane).i32_add().local_set(pointer)
        body.local_get(pointer).local_get(channel).v128_store()
    add_constant(body, rows.entry, 4 * LANES)
    add_constant(body, rows.left, -LANES)


def _store_single(
    body: FunctionBuilder, rows: PlaneRows, pointer: int, at: int, plane: int, lanes: int
) -> None:
    """One pixel; channels past the last are not stored."""
    vector = body.local(V128)
    body.local_get(rows.source).v128_load().local_set(vector)
    body.local_get(rows.entry).i32_load().local_get(at).i32_add().local_tee(pointer)
    body.local_get(vector).v128_store32_lane(0).block("last")
    for lane in range(1, LANES):
        body.local_get(lanes).i32_const(lane).i32_le_s().br_if("last")
        body.local_get(pointer).local_get(plane).i32_add().local_tee(pointer)
        body.local_get(vector).v128_store32_lane(lane)
    body.end()
    body.local_get(rows.source).local_get(rows.pitch).i32_add().local_set(rows.source)
    add_constant(body, rows.entry, 4)
    add_constant(body, rows.left, -1)
