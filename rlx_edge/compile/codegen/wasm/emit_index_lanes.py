"""Index values in four lanes: dims evaluated as i32x4 along the vector variable.

What the variable enters linearly is its value in lane 0 plus multiples of the coefficient; minima,
maxima and divisions by powers of two are computed on vectors. Any other dim has no lane form.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_address import push_index, split_linear
from rlx_edge.compile.codegen.wasm.emit_region import (
    Emission,
    Region,
    lane_index,
    moving_variables,
)
from rlx_edge.compile.codegen.wasm.vector_table import LANES
from rlx_edge.ir.dims import ONE, ZERO, Atom, Dim, Monomial


def has_lane_form(dim: Dim, variable: str) -> bool:
    """Whether ``push_dim_lanes`` can evaluate the dim."""
    _, _, nonlinear = split_linear(dim, variable)
    for mono, _ in nonlinear.terms:
        moving = [atom for atom in mono if variable in _single(atom).symbols()]
        if len(moving) > 1 or not _atom_has_lane_form(moving[0], variable):
            return False
    return True


def _atom_has_lane_form(atom: Atom, variable: str) -> bool:
    if atom.op == "symbol":
        return False
    a, b = atom.args
    if atom.op in ("max", "min"):
        return has_lane_form(a, variable) and has_lane_form(b, variable)
    power = b.is_constant and b.value > 0 and b.value & (b.value - 1) == 0
    return power and has_lane_form(a, variable)


def push_dim_lanes(em: Emission, dim: Dim, region: Region) -> None:
    """Push the dim's values in the four lanes of the region's vector variable."""
    region.body.local_get(dim_lanes(em, dim, region))


def dim_lanes(em: Emission, dim: Dim, region: Region) -> int:
    """The local with the dim's lane values, computed where its variables are bound."""
    key = ("index lanes", dim)
    found = region.find(key)
    if found is None:
        home = region.home(moving_variables(dim))
        _compute(em, dim, home, region.vector)
        found = em.temp(encoder.V128)
        home.body.local_set(found)
        home.memo[key] = found
    return found


def lane_offsets(em: Emission, dim: Dim, size: int, region: Region) -> list[int]:
    """Locals with ``dim · size`` in each lane."""
    key = ("lane offsets", dim, size)
    home = region.home(moving_variables(dim))
    found = [region.find((key, lane)) for lane in range(LANES)]
    if None in found:
        vector = dim_lanes(em, dim, home)
        found = []
        for lane in range(LANES):
            home.body.local_get(vector)
            home.body.i32x4_extract_lane(lane)
            if size > 1:
                home.body.i32_const(size.bit_length() - 1).i32_shl()
            local = em.counter()
            home.body.local_set(local)
            home.memo[(key, lane)] = local
            found.append(local)
    return [local for local in found if local is not None]


def _compute(em: Emission, dim: Dim, home: Region, variable: str) -> None:
    body = home.body
    if dim.is_constant:
        body.i32x4_const([dim.value] * LANES)
        return
    rest, coefficient, nonlinear = split_linear(dim, variable)
    pushed = False
    if coefficient is not ZERO or rest is not ZERO:
        first = lane_index(home, 0) if coefficient is not ZERO else ZERO
        push_index(em, rest + coefficient * first, home)
        body.i32x4_splat()
        if coefficient is not ZERO:
            body.local_get(_lane_steps(em, coefficient, home)).i32x4_add()
        pushed = True
    for mono, coef in nonlinear.terms:
        atom = next(atom for atom in mono if variable in _single(atom).symbols())
        _push_atom(em, atom, home, variable, alone=dim is _single(atom))
        factor = _factor(mono, atom, coef)
        if factor is not ONE:
            push_index(em, factor, home)
            body.i32x4_splat().i32x4_mul()
        if pushed:
            body.i32x4_add()
        pushed = True


def _push_atom(em: Emission, atom: Atom, home: Region, variable: str, alone: bool) -> None:
    if not alone:
        push_dim_lanes(em, _single(atom), home)
        return
    a, b = atom.args
    body = home.body
    push_dim_lanes(em, a, home)
    if atom.op in ("max", "min"):
        push_dim_lanes(em, b, home)
        (body.i32x4_max_s if atom.op == "max" else body.i32x4_min_s)()
    elif atom.op == "floordiv":
        body.i32_const(b.value.bit_length() - 1).i32x4_shr_s()
    else:
        body.i32x4_const([b.value - 1] * LANES).v128_and()


def _factor(mono: Monomial, atom: Atom, coef: int) -> Dim:
    others = list(mono)
    others.remove(atom)
    return Dim.make({tuple(others): coef})


def _single(atom: Atom) -> Dim:
    return Dim.make({(atom,): 1})


def _lane_steps(em: Emission, coefficient: Dim, region: Region) -> int:
    """The local with ``(0, c, 2c, 3c)``."""
    key = ("lane steps", coefficient)
    found = region.find(key)
    if found is not None:
        return found
    home = region.home(moving_variables(coefficient))
    body = home.body
    if coefficient.is_constant:
        body.i32x4_const([lane * coefficient.value for lane in range(LANES)])
    else:
        push_index(em, coefficient, home)
        body.i32x4_splat().i32x4_const((0, 1, 2, 3)).i32x4_mul()
    local = em.temp(encoder.V128)
    body.local_set(local)
    home.memo[key] = local
    return local
