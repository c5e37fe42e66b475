"""Transposed loads: four outputs along an outer loop beside four along the innermost.

A load that is strided along the lanes but contiguous along an outer loop variable is gathered
element by element. With that outer loop taken four steps at once, four vector loads give a 4 x 4
tile that is transposed in registers: each of the four outer steps finds its vector in a local.
"""

from __future__ import annotations

from functools import partial

from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_address import note_access, push_address, split_linear
from rlx_edge.compile.codegen.wasm.emit_region import Emission, Region, Tile, lane_index
from rlx_edge.compile.codegen.wasm.transpose import transpose_lanes
from rlx_edge.compile.codegen.wasm.vector_table import LANES
from rlx_edge.ir.dims import ONE, ZERO, Dim, symbol
from rlx_edge.ir.expression import Expr, index_dim


def is_transposed(node: Expr, variable: str, outer: str) -> bool:
    """Whether a load is contiguous along ``outer`` and strided along ``variable``."""
    if node.op != "load" or node.dtype.bytes != 4:
        return False
    dim = index_dim(node.args[0])
    if dim is None:
        return False
    _, along, bent = split_linear(dim, variable)
    _, across, outer_bent = split_linear(dim, outer)
    return (
        along is not ZERO
        and along is not ONE
        and bent is ZERO
        and across is ONE
        and outer_bent is ZERO
    )


def push_transposed(em: Emission, node: Expr, tile: Tile, region: Region) -> None:
    """Push the vector of a load for the tile's current outer step."""
    dim, slot = index_dim(node.args[0]), node.attr
    assert dim is not None and isinstance(slot, int)
    first = dim.substitute({tile.variable: symbol(tile.variable) - tile.step})
    key = ("tile", slot, first)
    if region.find((key, 0)) is None:
        for step, local in enumerate(_transpose(em, slot, first, region)):
            region.memo[(key, step)] = local
    found = region.find((key, tile.step))
    assert found is not None
    region.body.local_get(found)


def _transpose(em: Emission, slot: int, first: Dim, region: Region) -> list[int]:
    body = region.body
    rows = [em.temp(encoder.V128) for _ in range(LANES)]
    places = [first.substitute({region.vector: lane_index(region, lane)}) for lane in range(LANES)]
    note_access(em, slot, places[0])
    for row, place in zip(rows, places, strict=True):
        offset = push_address(em, slot, place, 4, region)
        body.v128_load(offset, 2).local_set(row)
    return transpose_lanes(body, rows, partial(em.temp, encoder.V128))
