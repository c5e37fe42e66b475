"""The contraction micro-kernels that matmul and conv2d share.

A micro-kernel computes `rows x 4 * vectors` chains `acc = acc + a * b` for ascending k from +0.0,
multiplication and addition rounded separately, so every tile gives the same bits. It reads B
from a packed panel `[k][4 * vectors]` and writes raw chains to an accumulator buffer
`[row][4 * vectors]`; the epilogue is another function, so that one set of micro-kernels serves
every layer of a module and reaches the engine's optimising tier early. A contraction of several
chains calls it once a chain: the first stores, the others add to the buffer.

Operand A comes in one of three ways:

* `spread`: copied first to `[k][row][4]` with each element in all four lanes, and read by plain
  vector loads. One 16-byte load replaces load and broadcast, which Cranelift never fuses.
* `splat`: read in place through row pointers with `v128.load32_splat` (one instruction in V8).
* `scalar`: the same with `f32.load` and `f32x4.splat`, which Cranelift translates better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from rlx_edge.compile.codegen.wasm.encoder import I32, V128
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.templates.offsets import SINGLES, Walk, add_constant, load_pointers
from rlx_edge.compile.templates.tiles import LANES, VECTOR_BYTES, Tile

ZERO = bytes(VECTOR_BYTES)


def multiply_add(
    body: FunctionBuilder, total: int, a: Callable[[], object], b: Callable[[], object]
) -> None:
    """`total = total + a * b` with two roundings; `a` pushes the activation, `b` the weight."""
    body.local_get(total)
    a()
    b()
    body.f32x4_mul().f32x4_add().local_set(total)


def getter(body: FunctionBuilder, local: int) -> Callable[[], object]:
    """The push of a local."""
    return lambda: body.local_get(local)


def emit_micro_kernel(
    module: ModuleBuilder, tile: Tile, rows: int, vectors: int, source: str
) -> int:
    """Function index of the `rows x vectors` kernel of a tile's family.

    Parameters of the function: `a` (spread tile, or table of row pointers), `b` (panel), `k`,
    `acc`, `add` (1 to add the chains to `acc`, 0 to store them), `tiles` (at least 1), and where A
    is read in place also `taps` and `step` (`offsets.Walk`).
    """
    if not tile.in_place:
        key = ("micro", "spread", rows, vectors)
        return module.once(key, lambda: _emit_spread(module, rows, vectors))
    unroll = 1 if source == SINGLES else tile.unroll
    shape = Tile(tile.access, rows, vectors, unroll)
    return module.once(("micro", shape, source), lambda: _emit_in_place(module, shape, source))


def _emit_spread(module: ModuleBuilder, rows: int, vectors: int) -> FunctionBuilder:
    parameters = [(name, I32) for name in ("a", "b", "k", "acc", "add", "tiles")]
    body = module.function(f"contract_spread_{rows}x{LANES * vectors}", parameters)
    a, b, k, target, add, tiles = range(6)
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
            multiply_add(body, total, getter(body, value), getter(body, column))
    add_constant(body, a, VECTOR_BYTES * rows)
    body.local_get(panel).i32_const(VECTOR_BYTES * vectors).i32_add().local_tee(panel)
    body.local_get(end).i32_lt_u().br_if("k").end().end()
    _store(body, target, add, totals)
    body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
    return body


def _emit_in_place(module: ModuleBuilder, shape: Tile, source: str) -> FunctionBuilder:
    names = ("table", "b", "k", "acc", "add", "tiles", "taps", "step")
    body = module.function(f"contract_{shape.name}_{source}", [(name, I32) for name in names])
    table, b, k, target, add, tiles, taps, step = range(8)
    panel, offset = body.local(I32, "panel"), body.local(I32, "offset")
    pointers = body.local_array(I32, "row", shape.rows)
    totals = [body.local_array(V128, f"acc{row}_", shape.vectors) for row in range(shape.rows)]
    columns = body.local_array(V128, "b", shape.vectors)
    value = body.local(V128, "a_value")

    def steps(count: int) -> None:
        for number in range(count):
            _load_columns(body, panel, columns, number)
            for pointer, chain in zip(pointers, totals, strict=True):
                body.local_get(pointer).local_get(offset).i32_add()
                if shape.access == "splat":
                    body.v128_load32_splat(4 * number)
                else:
                    body.f32_load(4 * number).f32x4_splat()
                body.local_set(value)
                for total, column in zip(chain, columns, strict=True):
                    multiply_add(body, total, getter(body, value), getter(body, column))
        add_constant(body, panel, count * VECTOR_BYTES * shape.vectors)

    body.loop("tile")
    load_pointers(body, table, pointers)
    _clear(body, totals)
    body.local_get(b).local_set(panel)
    Walk(body, source, k, taps, step, offset).emit(steps, shape.unroll)
    _store(body, target, add, totals)
    body.local_get(tiles).i32_const(1).i32_sub().local_tee(tiles).br_if("tile").end()
    return body


def _clear(body: FunctionBuilder, totals: Sequence[Sequence[int]]) -> None:
    """Start chains at +0.0."""
    for chain in totals:
        for total in chain:
            body.v128_const(ZERO).local_set(total)


def _load_columns(body: FunctionBuilder, panel: int, columns: Sequence[int], step: int) -> None:
    for number, column in enumerate(columns):
        offset = VECTOR_BYTES * (step * len(columns) + number)
        body.local_get(panel).v128_load(offset).local_set(column)


def _store(body: FunctionBuilder, target: int, add: int, totals: Sequence[Sequence[int]]) -> None:
    """Store the chains, or add them to those before."""
    flat = [total for chain in totals for total in chain]
    body.local_get(add).if_()
    for number, total in enumerate(flat):
        body.local_get(target).local_get(target).v128_load(VECTOR_BYTES * number)
        body.local_get(total).f32x4_add().v128_store(VECTOR_BYTES * number)
    body.else_()
    for number, total in enumerate(flat):
        body.local_get(target).local_get(total).v128_store(VECTOR_BYTES * number)
    body.end()
    add_constant(body, target, VECTOR_BYTES * len(flat))


def wide_panels(tile: Tile) -> int:
    """Panels that the single-row kernel of a tile takes at once, enough to hide latency."""
    return max(1, 8 // tile.vectors)


def emit_wide_row(module: ModuleBuilder, vectors: int, panels: int) -> int:
    """Function index: the chains of one spread row with several full panels.

    Parameters of the function: `a` (`[k][4]`), `b` (first panel), `k`, `acc`, `add`, `stride`
    (bytes from panel to panel).
    """

    def emit() -> FunctionBuilder:
        body = module.function(
            f"contract_row_{panels}x{LANES * vectors}",
            [(name, I32) for name in ("a", "b", "k", "acc", "add", "stride")],
        )
        a, b, k, target, add, stride = range(6)
        pointers = body.local_array(I32, "panel", panels)
        totals = [body.local_array(V128, f"acc{panel}_", vectors) for panel in range(panels)]
        value, end = body.local(V128, "a_value"), body.local(I32, "end")
        row_bytes = VECTOR_BYTES * vectors
        body.local_get(b).local_set(pointers[0])
        for before, pointer in pairwise(pointers):
            body.local_get(before).local_get(stride).i32_add().local_set(pointer)
        body.local_get(k).i32_const(VECTOR_BYTES).i32_mul().local_get(a).i32_add().local_set(end)
        _clear(body, totals)
        body.block("done").local_get(k).i32_eqz().br_if("done").loop("k")
        body.local_get(a).v128_load().local_set(value)
        for pointer, chain in zip(pointers, totals, strict=True):
            for number, total in enumerate(chain):

                def column(pointer: int = pointer, number: int = number) -> None:
                    body.local_get(pointer).v128_load(VECTOR_BYTES * number)

                multiply_add(body, total, getter(body, value), column)
            add_constant(body, pointer, row_bytes)
        body.local_get(a).i32_const(VECTOR_BYTES).i32_add().local_tee(a)
        body.local_get(end).i32_lt_u().br_if("k").end().end()
        _store(body, target, add, totals)
        return body

    return module.once(("wide row", vectors, panels), emit)
