"""Operator definitions to loop kernels: one nest around one store, in physical offsets.

``lower_expression`` takes the element of a result as an expression over its logical indices and
gives kernels over flat offsets: it maps indices through the layouts of operands and result, drops
loops of extent 1, merges adjacent loops that every access walks contiguously, and splits a nest
where a condition on one loop variable chooses between two values (concatenation), so that no
element evaluates both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.bounds import Ranges, is_nonnegative, simplify_dim, simplify_expression
from rlx_edge.compile.physical import LANES, Physical
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.expression import (
    Expr,
    const,
    index,
    index_dim,
    load,
    reduce,
    reduce_parts,
    replace_loads,
    rewrite,
    select,
    substitute,
    walk,
)
from rlx_edge.ir.kernel import Loop, LoopKernel
from rlx_edge.ir.types import DType


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest under construction: slot 0 of ``buffers`` is the result."""

    loops: tuple[Loop, ...]
    offset: Dim
    value: Expr
    lanes: bool

    def ranges(self, unbounded: frozenset[str]) -> Ranges:
        return Ranges({loop.var: loop.extent for loop in self.loops}, unbounded)


@dataclass(frozen=True, slots=True)
class LoweredNest:
    """A kernel and which operands its buffer slots 1, 2, … are."""

    kernel: LoopKernel
    slots: tuple[int, ...]


def lower_expression(
    value: Expr,
    result: Physical,
    operands: Sequence[Physical],
    unbounded: frozenset[str] = frozenset(),
) -> list[LoweredNest]:
    """Kernels that store ``value`` (over logical indices ``_i0``, …) into ``result``.

    ``unbounded`` names symbols that may be zero or negative. The kernels write disjoint parts of
    the result.
    """
    nest = _nest(value, result, any(operand.is_blocked for operand in operands))
    ranges = nest.ranges(unbounded)
    nest = Nest(nest.loops, nest.offset, simplify_expression(nest.value, ranges), nest.lanes)

    def physical(slot: int, indices: tuple[Expr, ...], dtype: DType) -> Expr:
        operand = operands[slot]
        return load(slot, dtype, [operand.offset(_inside_channels(indices, operand, result))])

    kernels: list[LoweredNest] = []
    for part in _split_conditions(nest, unbounded):
        offsets = replace_loads(part.value, physical)
        ranges = part.ranges(unbounded)
        offsets = simplify_expression(offsets, ranges)
        shaped = _merge(
            _drop_unit_loops(
                Nest(part.loops, simplify_dim(part.offset, ranges), offsets, part.lanes)
            )
        )
        kernels.append(_finish(shaped, result.type.dtype, operands))
    return kernels


def _finish(nest: Nest, dtype: DType, operands: Sequence[Physical]) -> LoweredNest:
    """Keep only the operands that are read; number variables and slots canonically."""
    slots: list[int] = []

    def renumber(slot: int, indices: tuple[Expr, ...], of: DType) -> Expr:
        if slot not in slots:
            slots.append(slot)
        return load(slots.index(slot) + 1, of, indices)

    lanes = nest.loops[-1].var if nest.lanes else ""
    names = {
        loop.var: "_l" if loop.var == lanes else f"_v{position}"
        for position, loop in enumerate(nest.loops)
    }
    renames = {old: symbol(new) for old, new in names.items()}
    value = substitute(replace_loads(nest.value, renumber), renames)
    kernel = LoopKernel(
        tuple(Loop(names[loop.var], loop.extent) for loop in nest.loops),
        (dtype, *(operands[slot].type.dtype for slot in slots)),
        nest.offset.substitute(renames),
        value,
        lanes=nest.lanes,
    )
    return LoweredNest(kernel, tuple(slots))


def _inside_channels(
    indices: tuple[Expr, ...], operand: Physical, result: Physical
) -> tuple[Expr, ...]:
    """Indices that stay inside ``operand`` for the pad lanes of a blocked result.

    A channel vector may be over-read by three elements (every buffer ends with that slack), a
    blocked operand has pad lanes of its own; any other operand gets its channel clamped.
    """
    if not result.is_blocked or result.type.shape[1].divisible_by(LANES) or operand.is_blocked:
        return indices
    clamped = list(indices)
    for axis, (item, extent) in enumerate(zip(indices, operand.type.shape, strict=True)):
        dim = index_dim(item)
        if dim is not None and "_l" in dim.symbols() and operand.strides[axis] is not ONE:
            clamped[axis] = index(dim_min(dim, extent - 1))
    return tuple(clamped)


def _nest(value: Expr, result: Physical, from_blocks: bool) -> Nest:
    """Loops over the result's storage order; blocked: the channel is ``4 · block + lane``.

    A plain result that is read from blocked operands gets the same pair of loops for its channels
    where they are whole blocks, so that their offsets are linear.
    """
    names = [f"_i{axis}" for axis in range(result.type.rank)]
    if not result.is_blocked:
        if from_blocks and result.type.rank == 4 and result.type.shape[1].divisible_by(LANES):
            return _plain_from_blocks(value, result)
        loops = tuple(Loop(n, e) for n, e in zip(names, result.type.shape, strict=True))
        offset = index_dim(result.offset([index(symbol(name)) for name in names]))
        assert offset is not None
        return Nest(loops, offset, value, lanes=False)
    n, c, h, w = result.type.shape
    blocks = result.extents[1]
    channel = symbol("_b") * LANES + symbol("_l")
    loops = (
        Loop("_i0", n),
        Loop("_b", blocks),
        Loop("_i2", h),
        Loop("_i3", w),
        Loop("_l", as_dim(LANES)),
    )
    strides = result.strides
    offset = result.origin + symbol("_l")
    for name, stride in zip(("_i0", "_b", "_i2", "_i3"), strides[:4], strict=True):
        offset = offset + symbol(name) * stride
    value = substitute(value, {"_i1": channel})
    if not c.divisible_by(LANES):
        # Pad lanes hold +0. A channel index beyond C would leave a plain operand: clamp it there.
        inside = index(channel) < index(c)
        value = select(inside, value, const(0, value.dtype))
    return Nest(loops, offset, value, lanes=True)


def _plain_from_blocks(value: Expr, result: Physical) -> Nest:
    n, c, h, w = result.type.shape
    channel = symbol("_b") * LANES + symbol("_l")
    indices = (symbol("_i0"), channel, symbol("_i2"), symbol("_i3"))
    offset = index_dim(result.offset([index(item) for item in indices]))
    assert offset is not None
    loops = (
        Loop("_i0", n),
        Loop("_b", c // LANES),
        Loop("_l", as_dim(LANES)),
        Loop("_i2", h),
        Loop("_i3", w),
    )
    return Nest(loops, offset, substitute(value, {"_i1": channel}), lanes=False)


def _drop_unit_loops(nest: Nest) -> Nest:
    unit = {
        loop.var: 0
        for loop in nest.loops
        if loop.extent is ONE and not (nest.lanes and loop is nest.loops[-1])
    }
    if not unit:
        return nest
    return Nest(
        tuple(loop for loop in nest.loops if loop.var not in unit),
        nest.offset.substitute(unit),
        substitute(nest.value, unit),
        nest.lanes,
    )


# ---- merging ---------------------------------------------------------------------------------


def _merge(nest: Nest) -> Nest:
    """Merge adjacent loops, and adjacent reduction axes, that all accesses walk contiguously."""
    loops = list(nest.loops)
    offset, value = nest.offset, nest.value
    position = len(loops) - (3 if nest.lanes else 2)
    while position >= 0:
        outer, inner = loops[position], loops[position + 1]
        dims = [offset, *_index_dims(value)]
        if all(_contiguous(dim, outer.var, inner.var, inner.extent) for dim in dims):
            loops[position : position + 2] = [Loop(inner.var, outer.extent * inner.extent)]
            offset = offset.substitute({outer.var: 0})
            value = substitute(value, {outer.var: 0})
        position -= 1
    return Nest(tuple(loops), offset, rewrite(value, _merge_reduction), nest.lanes)


def _merge_reduction(node: Expr) -> Expr | None:
    if node.op != "reduce":
        return None
    kind, names, sizes, body = reduce_parts(node)
    axes = list(zip(names, sizes, strict=True))
    position = len(axes) - 2
    while position >= 0:
        (outer, outer_size), (inner, inner_size) = axes[position : position + 2]
        if all(_contiguous(dim, outer, inner, inner_size) for dim in _index_dims(body)):
            axes[position : position + 2] = [(inner, outer_size * inner_size)]
            body = substitute(body, {outer: 0})
        position -= 1
    return reduce(kind, [name for name, _ in axes], [size for _, size in axes], body)


def _index_dims(value: Expr) -> list[Dim]:
    return [dim for node in walk(value) if (dim := index_dim(node)) is not None]


def _contiguous(dim: Dim, outer: str, inner: str, extent: Dim) -> bool:
    """Whether ``outer`` enters ``dim`` exactly as ``extent`` steps of ``inner`` would."""
    outer_stride, inner_stride = linear_coefficient(dim, outer), linear_coefficient(dim, inner)
    if outer_stride is None or inner_stride is None:
        return False
    return outer_stride is inner_stride * extent


def linear_coefficient(dim: Dim, name: str) -> Dim | None:
    """The coefficient of a variable, ``None`` unless it enters linearly and outside functions."""
    total = ZERO
    for mono, coef in dim.terms:
        plain = [atom for atom in mono if atom.op == "symbol" and atom.name == name]
        hidden = any(
            name in arg.symbols() for atom in mono if atom.op != "symbol" for arg in atom.args
        )
        if hidden or len(plain) > 1:
            return None
        if plain:
            rest = tuple(atom for atom in mono if atom is not plain[0])
            total = total + Dim.make({rest: coef})
    return total


# ---- splitting -------------------------------------------------------------------------------

MAX_PARTS = 4096
"""Nests that one operator may split into; beyond it the conditions stay in the loop."""


def _split_conditions(nest: Nest, unbounded: frozenset[str]) -> list[Nest]:
    """Split ``select(variable < bound, a, b)`` at the root into two nests."""
    done: list[Nest] = []
    pending = [nest]
    while pending:
        current = pending.pop(0)
        parts = _split_once(current, unbounded) if len(done) + len(pending) < MAX_PARTS else None
        if parts is None:
            done.append(current)
        else:
            pending = parts + pending
    return done


def _split_once(nest: Nest, unbounded: frozenset[str]) -> list[Nest] | None:
    value = nest.value
    if value.op != "select" or value.args[0].op not in ("lt", "ge"):
        return None
    left, right = index_dim(value.args[0].args[0]), index_dim(value.args[0].args[1])
    if left is None or right is None:
        return None
    below, above = value.args[1:] if value.args[0].op == "lt" else value.args[:0:-1]
    for position, loop in enumerate(nest.loops):
        if nest.lanes and position == len(nest.loops) - 1:
            continue
        bound = right - left + symbol(loop.var)
        if any(name.startswith("_") for name in bound.symbols()):
            continue
        inside = Ranges({}, unbounded)
        if not (is_nonnegative(bound, inside) and is_nonnegative(loop.extent - bound, inside)):
            continue
        return [
            _part(nest, position, ZERO, bound, below, unbounded),
            _part(nest, position, bound, loop.extent - bound, above, unbounded),
        ]
    return None


def _part(
    nest: Nest, position: int, start: Dim, extent: Dim, value: Expr, unbounded: frozenset[str]
) -> Nest:
    loop = nest.loops[position]
    loops = list(nest.loops)
    loops[position] = Loop(loop.var, extent)
    move = {loop.var: symbol(loop.var) + start}
    moved = Nest(tuple(loops), nest.offset.substitute(move), substitute(value, move), nest.lanes)
    return Nest(
        moved.loops,
        moved.offset,
        simplify_expression(moved.value, moved.ranges(unbounded)),
        moved.lanes,
    )


def fill_kernels(result: Physical, value: float | int | bool) -> list[LoweredNest]:
    """Kernels that store one literal into every logical element."""
    return lower_expression(const(value, result.type.dtype), result, [])


def border_kernels(storage: Physical, merged: bool = False) -> list[LoweredNest]:
    """Kernels that write +0 into a border: before the first row, between rows, after the last.

    ``merged``: one kernel, where a launch costs more than finding out which part an element is in.
    """
    top, left, bottom, right = storage.border
    planes = storage.extents[0] * storage.extents[1]
    lanes = LANES if storage.is_blocked else 1
    height, width = storage.type.shape[2:4]
    row = storage.extents[3] * lanes
    plane = storage.extents[2] * row
    zero = const(0, storage.type.dtype)
    buffers = (storage.type.dtype,)
    head = row * top + left * lanes
    between = as_dim((left + right) * lanes)
    tail = row * bottom + right * lanes
    at_plane = symbol("_v0") * plane
    if merged and between is not ZERO:
        # Element i of a plane's border lies behind as many image rows as i has passed.
        position = symbol("_v1")
        passed = dim_min(dim_max((position - head) // between, -1), height - 1) + 1
        offset = at_plane + position + passed * width * lanes
        whole = (Loop("_v0", planes), Loop("_v1", head + between * (height - 1) + tail))
        return [LoweredNest(LoopKernel(whole, buffers, offset, zero), ())]

    def strip(start: Dim, count: Dim) -> LoweredNest:
        loops = (Loop("_v0", planes), Loop("_v1", count))
        return LoweredNest(LoopKernel(loops, buffers, at_plane + start + symbol("_v1"), zero), ())

    kernels = [
        strip(head_start, count)
        for head_start, count in (
            (ZERO, head),
            (row * (top + height) - right * lanes, tail),
        )
        if count is not ZERO
    ]
    if between is not ZERO:
        loops = (Loop("_v0", planes), Loop("_v1", height - 1), Loop("_v2", between))
        start = row * top + (width + left) * lanes
        offset = at_plane + symbol("_v1") * row + start + symbol("_v2")
        kernels.append(LoweredNest(LoopKernel(loops, buffers, offset, zero), ()))
    return kernels
