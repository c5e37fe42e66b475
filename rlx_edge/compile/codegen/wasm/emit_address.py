"""Index values and addresses: dims to i32 locals, strength-reduced along the loops.

A dim is split by the loop that its variables belong to. What is linear in the innermost loop's
variable becomes an induction (a pointer or counter that the loop increments); everything else is
computed in the region where its variables are bound. Arithmetic is modulo 2**32, as addresses are.
"""

from __future__ import annotations

from rlx_edge.compile.codegen.wasm.emit_region import (
    Emission,
    Family,
    Induction,
    Region,
    moving_variables,
)
from rlx_edge.compile.codegen.wasm.encoder import Body
from rlx_edge.compile.codegen.wasm.scalar_table import floor_division, scalar_rule
from rlx_edge.ir.dims import ONE, ZERO, Atom, Dim, Monomial
from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.kernel import is_variable


def split_linear(dim: Dim, variable: str) -> tuple[Dim, Dim, Dim]:
    """``(rest, coefficient, nonlinear)`` with dim = rest + coefficient·variable + nonlinear.

    Neither ``rest`` nor ``coefficient`` mention the variable.
    """
    rest: dict[Monomial, int] = {}
    linear: dict[Monomial, int] = {}
    other: dict[Monomial, int] = {}
    for mono, coef in dim.terms:
        inside = [atom for atom in mono if variable in _atom_symbols(atom)]
        if not inside:
            rest[mono] = coef
        elif len(inside) == 1 and inside[0].op == "symbol":
            linear[tuple(atom for atom in mono if atom is not inside[0])] = coef
        else:
            other[mono] = coef
    return Dim.make(rest), Dim.make(linear), Dim.make(other)


def _atom_symbols(atom: Atom) -> tuple[str, ...]:
    if atom.op == "symbol":
        return (atom.name,)
    return atom.args[0].symbols() + atom.args[1].symbols()


def split_moving(dim: Dim) -> tuple[Dim, Dim]:
    """``(terms with loop variables, terms without)``."""
    moving: dict[Monomial, int] = {}
    fixed: dict[Monomial, int] = {}
    for mono, coef in dim.terms:
        mentions = any(is_variable(name) for atom in mono for name in _atom_symbols(atom))
        (moving if mentions else fixed)[mono] = coef
    return Dim.make(moving), Dim.make(fixed)


# ---- index values ----------------------------------------------------------------------------


def push_index(em: Emission, dim: Dim, region: Region) -> None:
    """Push the value of a dim in ``region``."""
    if dim.is_constant:
        region.body.i32_const(dim.value & 0xFFFFFFFF)
        return
    region.body.local_get(index_local(em, dim, region))


def index_local(em: Emission, dim: Dim, region: Region) -> int:
    """A local that holds the dim's value, computed where its variables are bound."""
    key = ("index", dim)
    found = region.find(key)
    if found is not None:
        return found
    home = region.home(moving_variables(dim))
    plain = _existing_local(em, dim, home)
    if plain is not None:
        home.memo[key] = plain
        return plain
    _push_value(em, dim, home)
    local = em.counter()
    home.body.local_set(local)
    home.memo[key] = local
    return local


def _existing_local(em: Emission, dim: Dim, home: Region) -> int | None:
    """The local of a bare loop counter, parameter or whole-dim induction."""
    binder = home.binder
    if len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1:
        atom = dim.terms[0][0][0]
        if atom.op == "symbol" and is_variable(atom.name) and binder.family is not None:
            return counter(em, binder.family)
        if atom.op == "symbol" and not is_variable(atom.name):
            return _argument(em, em.slots + int(atom.name[1:]))
    return None


def _push_value(em: Emission, dim: Dim, home: Region) -> None:
    binder = home.binder
    if binder.variable and binder.family is None:
        push_index(em, dim.substitute({binder.variable: 0}), home)
        return
    if not binder.variable or binder.variable not in dim.symbols():
        _push_polynomial(em, dim, home)
        return
    rest, coefficient, nonlinear = split_linear(dim, binder.variable)
    body = home.body
    pushed = False
    if coefficient is not ZERO:
        assert binder.family is not None
        if coefficient is ONE:
            body.local_get(counter(em, binder.family))
        else:
            body.local_get(_scaled_counter(em, binder.family, coefficient))
        pushed = True
    if nonlinear is not ZERO:
        _push_polynomial(em, nonlinear, home)
        pushed = _join(body, pushed)
    if rest is not ZERO:
        push_index(em, rest, home)
        _join(body, pushed)


def _join(body: Body, pushed: bool) -> bool:
    if pushed:
        body.i32_add()
    return True


def counter(em: Emission, family: Family) -> int:
    """The local that holds the loop variable."""
    return _scaled_counter(em, family, ONE)


def _scaled_counter(em: Emission, family: Family, coefficient: Dim) -> int:
    key = ("index", coefficient)
    found = family.inductions.get(key)
    if found is None:
        found = Induction(em.counter(), None, coefficient)
        family.inductions[key] = found
    return found.local


def _push_polynomial(em: Emission, dim: Dim, home: Region) -> None:
    """Σ coefficient · Π atoms, each atom taken from the region of its own variables."""
    body = home.body
    for position, (mono, coef) in enumerate(dim.terms):
        if not mono:
            body.i32_const(coef & 0xFFFFFFFF)
        for number, atom in enumerate(mono):
            _push_atom(em, atom, home, alone=len(dim.terms) == 1 and len(mono) == 1 and coef == 1)
            if number:
                body.i32_mul()
        if mono and coef != 1:
            _multiply(body, coef)
        if position:
            body.i32_add()


def _multiply(body: Body, factor: int) -> None:
    if factor > 0 and factor & (factor - 1) == 0:
        body.i32_const(factor.bit_length() - 1).i32_shl()
    else:
        body.i32_const(factor & 0xFFFFFFFF).i32_mul()


def _push_atom(em: Emission, atom: Atom, home: Region, alone: bool) -> None:
    single = Dim.make({(atom,): 1})
    if atom.op == "symbol" or not alone:
        push_index(em, single, home)
        return
    a, b = atom.args
    push_index(em, a, home)
    body = home.body
    if atom.op in ("floordiv", "mod") and b.is_constant and b.value > 0:
        floor_division(b.value, atom.op == "mod")(body, em.temp)
        return
    push_index(em, b, home)
    scalar_rule(atom.op, INDEX)(body, em.temp)


def _argument(em: Emission, position: int) -> int:
    """The local that holds an argument word, read at the start of the function."""
    key = ("argument", position)
    found = em.root.memo.get(key)
    if found is None:
        kind = "slot" if position < em.slots else "p"
        number = position if position < em.slots else position - em.slots
        found = em.function.local(em.function.local_type(0), f"{kind}{number}")
        em.root.body.local_get(0).i32_load(4 * position).local_set(found)
        em.root.memo[key] = found
    return found


# ---- addresses -------------------------------------------------------------------------------


def note_access(em: Emission, slot: int, dim: Dim) -> None:
    """Make ``dim`` the origin of its pointer group unless the group has one."""
    moving, fixed = split_moving(dim)
    em.groups.setdefault((slot, moving), fixed)


def push_address(em: Emission, slot: int, dim: Dim, size: int, region: Region) -> int:
    """Push an address; the element at ``dim`` (``size`` bytes each) is at it + the result.

    Accesses of a slot with the same moving part share pointers: the first one met is the origin,
    the others add their constant or loop-invariant distance.
    """
    moving, fixed = split_moving(dim)
    origin = em.groups.setdefault((slot, moving), fixed)
    distance = (fixed - origin) * size
    pointer = _pointer(em, slot, moving, origin, size, region)
    region.body.local_get(pointer)
    if distance.is_constant and 0 <= distance.value < 1 << 20 and not region.conditional:
        return distance.value
    if distance is not ZERO:
        push_index(em, distance, region)
        region.body.i32_add()
    return 0


def _pointer(em: Emission, slot: int, dim: Dim, origin: Dim, size: int, region: Region) -> int:
    """The local with the address of element ``origin + dim``."""
    key = ("pointer", slot, dim, origin)
    found = region.find(key)
    if found is not None:
        return found
    home = region.home(moving_variables(dim))
    binder = home.binder
    if not binder.variable:
        return _base(em, slot, origin, size)
    if binder.family is None:
        assert binder.parent is not None
        flat = dim.substitute({binder.variable: 0})
        moving, fixed = split_moving(flat)
        return _pointer(em, slot, moving, origin + fixed, size, binder.parent)
    rest, coefficient, nonlinear = split_linear(dim, binder.variable)
    if nonlinear is not ZERO:
        linear = _pointer(em, slot, dim - nonlinear, origin, size, home)
        home.body.local_get(linear)
        _push_bytes(em, nonlinear, size, home)
        local = em.counter()
        home.body.i32_add().local_set(local)
        home.memo[key] = local
        return local
    family = binder.family
    induction = family.inductions.get(key)
    if induction is None:
        start = _pointer(em, slot, rest, origin, size, family.parent)
        induction = Induction(em.counter(), start, coefficient * size)
        family.inductions[key] = induction
    return induction.local


def _push_bytes(em: Emission, dim: Dim, size: int, region: Region) -> None:
    if size == 1:
        push_index(em, dim, region)
    elif len(dim.terms) > 1 or dim.terms[0][1] != 1:
        push_index(em, dim * size, region)
    else:
        push_index(em, dim, region)
        region.body.i32_const(size.bit_length() - 1).i32_shl()


def _base(em: Emission, slot: int, origin: Dim, size: int) -> int:
    """The address of a slot's element ``origin``."""
    local = _argument(em, slot)
    if origin is ZERO:
        return local
    key = ("pointer", slot, ZERO, origin)
    found = em.root.memo.get(key)
    if found is None:
        body = em.root.body.local_get(local)
        push_index(em, origin * size, em.root)
        body.i32_add()
        found = em.counter()
        body.local_set(found)
        em.root.memo[key] = found
    return found
