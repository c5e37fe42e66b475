"""Expressions to code: scalar form (one element) and vector form (four lanes).

Values go to the region where their variables are bound, so what a loop does not change is computed
before it; values used more than once are kept in locals. In vector form a value is *uniform* (the
same in all lanes: computed once, splatted), *native* (one instruction for four lanes) or taken
*lane by lane* from its scalar form (strided or data-dependent loads, 64-bit types, division).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_address import (
    note_access,
    push_address,
    push_index,
    split_linear,
)
from rlx_edge.compile.codegen.wasm.emit_extremum import (
    FEWEST_OPERANDS,
    Extremum,
    extremum_operands,
)
from rlx_edge.compile.codegen.wasm.emit_index_lanes import (
    has_lane_form,
    lane_offsets,
    push_dim_lanes,
)
from rlx_edge.compile.codegen.wasm.emit_region import Emission, Region
from rlx_edge.compile.codegen.wasm.emit_tile import is_transposed, push_transposed
from rlx_edge.compile.codegen.wasm.scalar_table import (
    bitcast_rule,
    cast_rule,
    emit_const,
    emit_load,
    scalar_rule,
    value_type,
)
from rlx_edge.compile.codegen.wasm.vector_patterns import (
    finish_bound,
    literal_bound,
    pseudo_extremum,
)
from rlx_edge.compile.codegen.wasm.vector_table import (
    LANE_TYPES,
    LANES,
    VECTOR_RULES,
    emit_replace_lane,
    emit_splat,
    emit_splat_const,
    emit_vector_load,
    vector_cast,
)
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import INDEX, Expr, index_dim, walk
from rlx_edge.ir.scalar_ops import SHIFTS
from rlx_edge.ir.types import BOOL, F32

MOST_DEPTH = 64
"""Operators that are emitted inside one another; deeper values go through locals."""


def settle(
    em: Emission, value: Expr, region: Region, push: Callable[[Emission, Expr, Region], None]
) -> None:
    """Put inner values of a deep expression into locals first, so that recursion stays shallow."""
    depths: dict[Expr, int] = {}
    for node in _outside_reductions(value):
        inner = () if node.op == "reduce" else node.args
        depths[node] = 1 + max((depths[arg] for arg in inner), default=0)
        if depths[node] % MOST_DEPTH == 0 and node is not value:
            em.uses[node] = em.uses.get(node, 1) + 1
            push(em, node, region)
            region.body.drop()


def _outside_reductions(value: Expr) -> list[Expr]:
    """Every node that is not only inside a reduction, operands first."""
    order = list(walk(value))
    outside = {value}
    for node in reversed(order):
        if node in outside and node.op != "reduce":
            outside.update(node.args)
    return [node for node in order if node in outside]


# ---- scalar form -----------------------------------------------------------------------------


def push_scalar(em: Emission, node: Expr, region: Region) -> None:
    """Push one element of ``node`` in ``region``."""
    if node.op == "const":
        emit_const(region.body, node.attr, node.dtype)  # type: ignore[arg-type]
        return
    dim = index_dim(node)
    if dim is not None:
        push_index(em, dim, region)
        return
    home = region.home(em.free(node))
    if home is not region:
        region.body.local_get(scalar_local(em, node, region))
        return
    found = region.find((node, "scalar"))
    if found is not None:
        region.body.local_get(found)
        return
    _compute_scalar(em, node, region)
    if em.uses.get(node, 2) > 1:
        local = em.temp(value_type(node.dtype))
        region.body.local_tee(local)
        region.memo[(node, "scalar")] = local


def scalar_local(em: Emission, node: Expr, region: Region) -> int:
    """A local with one element of ``node``, computed where its variables are bound."""
    found = region.find((node, "scalar"))
    if found is None:
        home = region.home(em.free(node))
        push_scalar_here(em, node, home)
        found = em.temp(value_type(node.dtype))
        home.body.local_set(found)
        home.memo[(node, "scalar")] = found
    return found


def push_scalar_here(em: Emission, node: Expr, home: Region) -> None:
    """Push a value whose home is ``home`` and that is not known there yet."""
    if node.op == "const" or node.op == "index":
        push_scalar(em, node, home)
    else:
        _compute_scalar(em, node, home)


def _compute_scalar(em: Emission, node: Expr, region: Region) -> None:
    body = region.body
    if node.op == "load":
        offset = push_load_address(em, node, region)
        emit_load(body, node.dtype, offset)
    elif node.op == "reduce":
        em.reduce_scalar(em, node, region)
    elif node.op == "select":
        condition, a, b = node.args
        for arg in (a, b, condition):
            push_scalar(em, arg, region)
        body.select()
    elif node.op == "cast":
        push_scalar(em, node.args[0], region)
        cast_rule(node.args[0].dtype, node.dtype)(body, em.temp)
    elif node.op == "bitcast":
        push_scalar(em, node.args[0], region)
        bitcast_rule(node.args[0].dtype, node.dtype)(body, em.temp)
    else:
        rule = scalar_rule(node.op, node.args[0].dtype if node.args else node.dtype)
        for arg in node.args:
            push_scalar(em, arg, region)
        rule(body, em.temp)


# ---- addresses of loads ----------------------------------------------------------------------


def split_offset(offset: Expr) -> tuple[Dim, list[Expr]]:
    """An element offset as a dim plus data-dependent terms."""
    dim, terms, pending = ZERO, [], [offset]
    while pending:
        node = pending.pop()
        known = index_dim(node)
        if known is not None:
            dim = dim + known
        elif node.op == "add" and node.dtype is INDEX:
            pending.extend(node.args)
        else:
            terms.append(node)
    return dim, terms


def push_load_address(em: Emission, node: Expr, region: Region) -> int:
    """Push the address of a load; the element is at it plus the returned offset."""
    slot = node.attr
    assert isinstance(slot, int)
    size = node.dtype.bytes
    dim, terms = split_offset(node.args[0])
    offset = push_address(em, slot, dim, size, region)
    for term in terms:
        _push_scaled(em, term, size, region)
        region.body.i32_add()
    if terms and offset:
        # The data-dependent part may be negative: the sum must wrap before it is an address.
        region.body.i32_const(offset).i32_add()
        return 0
    return offset


def _push_scaled(em: Emission, term: Expr, size: int, region: Region) -> None:
    """Push ``term · size``, kept in a local where the term is bound."""
    key = (term, "bytes", size)
    found = region.find(key)
    if found is None:
        home = region.home(em.free(term))
        push_scalar(em, term, home)
        if size > 1:
            home.body.i32_const(size.bit_length() - 1).i32_shl()
        found = em.counter()
        home.body.local_set(found)
        home.memo[key] = found
    region.body.local_get(found)


# ---- vector form -----------------------------------------------------------------------------


def is_contiguous(em: Emission, node: Expr, variable: str) -> bool:
    """Whether a load's offset is ``variable`` plus what does not depend on it."""
    dim, terms = split_offset(node.args[0])
    if any(variable in em.free(term) for term in terms):
        return False
    _, coefficient, nonlinear = split_linear(dim, variable)
    return coefficient is ONE and nonlinear is ZERO


def is_native(em: Emission, node: Expr, variable: str) -> bool:
    """Whether one instruction (or the vector form of a reduction) gives four lanes of ``node``."""
    if node.dtype not in LANE_TYPES:
        return False
    if node.op == "load":
        return is_contiguous(em, node, variable)
    dim = index_dim(node)
    if dim is not None:
        return has_lane_form(dim, variable)
    if node.op in ("select", "reduce"):
        return True
    if node.op == "bitcast":
        return node.args[0].dtype in LANE_TYPES
    if node.op == "cast":
        return vector_cast(node.args[0].dtype, node.dtype) is not None
    if node.op in SHIFTS and variable in em.free(node.args[1]):
        return False
    return bool(node.args) and (node.op, node.args[0].dtype) in VECTOR_RULES


def push_vector(em: Emission, node: Expr, region: Region) -> None:
    """Push four lanes of ``node`` along the region's vector variable."""
    names = em.free(node)
    uniform = region.vector not in names
    key = (node, "splat" if uniform else "vector")
    found = region.find(key)
    if found is not None:
        region.body.local_get(found)
        return
    home = region.home(names)
    if uniform:
        _push_splat(em, node, home)
    else:
        _compute_vector(em, node, home)
    if home is region and em.uses.get(node, 2) <= 1:
        return
    local = em.temp(encoder.V128)
    if home is region:
        region.body.local_tee(local)
    else:
        home.body.local_set(local)
        region.body.local_get(local)
    home.memo[key] = local


def _push_splat(em: Emission, node: Expr, home: Region) -> None:
    if node.op == "const":
        emit_splat_const(home.body, node.attr, node.dtype)  # type: ignore[arg-type]
        return
    # The scalar stays in a local: scalar loops after the vector loop use it too.
    home.body.local_get(scalar_local(em, node, home))
    emit_splat(home.body, node.dtype)


def _compute_vector(em: Emission, node: Expr, region: Region) -> None:
    body = region.body
    if not is_native(em, node, region.vector):
        _push_lanes(em, node, region)
    elif node.op == "load":
        emit_vector_load(body, node.dtype, push_load_address(em, node, region))
    elif (dim := index_dim(node)) is not None:
        push_dim_lanes(em, dim, region)
    elif node.op == "reduce":
        em.reduce_vector(em, node, region)
    elif node.op == "select":
        _push_select(em, node, region)
    elif node.op == "bitcast":
        push_vector(em, node.args[0], region)
    elif node.op == "cast":
        rule = vector_cast(node.args[0].dtype, node.dtype)
        assert rule is not None
        push_vector(em, node.args[0], region)
        rule(body, em.temp)
    elif (bound := literal_bound(node)) is not None:
        push_vector(em, bound[1], region)
        push_vector(em, bound[2], region)
        finish_bound(body, bound)
    elif len(operands := _many_operands(em, node)) >= FEWEST_OPERANDS:
        extremum = Extremum.of(em, node.op)
        extremum.start_with(body, lambda: push_vector(em, operands[0], region))
        for operand in operands[1:]:
            extremum.add(body, partial(push_vector, em, operand, region))
        extremum.push_result(body)
    else:
        push_vector(em, node.args[0], region)
        for arg in node.args[1:]:
            (push_scalar if node.op in SHIFTS else push_vector)(em, arg, region)
        VECTOR_RULES[(node.op, node.args[0].dtype)](body, em.temp)


def _push_select(em: Emission, node: Expr, region: Region) -> None:
    body = region.body
    pseudo = pseudo_extremum(node)
    if pseudo is not None:
        name, a, b = pseudo
        push_vector(em, a, region)
        push_vector(em, b, region)
        getattr(body, f"f32x4_{name}")()
        return
    condition, a, b = node.args
    push_vector(em, a, region)
    push_vector(em, b, region)
    if region.vector in em.free(condition):
        push_vector(em, condition, region)
        body.v128_bitselect()
    else:
        push_scalar(em, condition, region)
        body.select()


def _many_operands(em: Emission, node: Expr) -> list[Expr]:
    return extremum_operands(em, node) if node.op in ("max", "min") and node.dtype is F32 else []


def _push_lanes(em: Emission, node: Expr, region: Region) -> None:
    """Assemble a vector from the scalar form in each lane."""
    if node.dtype not in LANE_TYPES:
        raise RlxError("codegen.vector", "no vector form for this type", found=str(node.dtype))
    body = region.body
    if em.tile is not None and is_transposed(node, region.vector, em.tile.variable):
        push_transposed(em, node, em.tile, region)
        return
    lanes = [em.at_lane(node, region, lane) for lane in range(LANES)]
    if node.op == "load" and node.dtype.bytes == 4:
        # Addresses first: each lane load takes the address below the vector.
        offsets = _push_lane_addresses(em, node, lanes, region)
        body.v128_load32_zero(offsets[0])
        for lane in range(1, LANES):
            body.v128_load32_lane(lane, offsets[lane])
        return
    push_scalar(em, lanes[0], region)
    (body.f32x4_splat if node.dtype is F32 else body.i32x4_splat)()
    for lane in range(1, LANES):
        push_scalar(em, lanes[lane], region)
        emit_replace_lane(body, node.dtype, lane)
    if node.dtype is BOOL:
        body.i32x4_neg()


def _push_lane_addresses(em: Emission, node: Expr, lanes: list[Expr], region: Region) -> list[int]:
    """Push the addresses of a load in lanes 3 … 0; the elements are at them plus the results."""
    slot, size = node.attr, node.dtype.bytes
    assert isinstance(slot, int)
    dim, terms = split_offset(node.args[0])
    rest, coefficient, nonlinear = split_linear(dim, region.vector)
    if terms or nonlinear is ZERO or not has_lane_form(nonlinear, region.vector):
        note_access(em, slot, split_offset(lanes[0].args[0])[0])
        return [push_load_address(em, lane, region) for lane in reversed(lanes)][::-1]
    moving = nonlinear + coefficient * as_dim(region.vector)
    locals_ = lane_offsets(em, moving, size, region)
    for lane in reversed(range(LANES)):
        offset = push_address(em, slot, rest, size, region)
        region.body.local_get(locals_[lane]).i32_add()
        if offset:
            region.body.i32_const(offset).i32_add()
    return [0] * LANES
