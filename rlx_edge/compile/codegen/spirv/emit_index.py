"""Index arithmetic: dims to 32-bit words, each part in the region where its variables are bound."""

from __future__ import annotations

from functools import cache

from rlx_edge.compile.codegen.spirv.interface import Interface
from rlx_edge.compile.codegen.spirv.region import Region
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars, scalar_rule
from rlx_edge.ir.dims import Atom, Dim, Monomial
from rlx_edge.ir.expression import INDEX
from rlx_edge.ir.kernel import is_variable
from rlx_edge.ir.types import U32


@cache
def variables(dim: Dim) -> frozenset[str]:
    """The loop variables in a dim."""
    return frozenset(name for name in dim.symbols() if is_variable(name))


def emit_index(io: Interface, dim: Dim, region: Region) -> int:
    """The word of ``dim``; every variable in it is bound in ``region`` or further out."""
    if dim.is_constant:
        return Scalars(region.code).const(dim.value, INDEX)
    home = region.home(variables(dim))
    found = home.known.get(dim)
    if found is None:
        found = _sum(io, dim, home)
        home.known[dim] = found
    return found


def _sum(io: Interface, dim: Dim, home: Region) -> int:
    """Terms by the region they belong to, the outermost first, so that outer sums are shared."""
    groups: dict[int, list[tuple[Monomial, int]]] = {}
    for mono, coefficient in dim.terms:
        names = frozenset[str]().union(*(variables(Dim.make({(atom,): 1})) for atom in mono))
        groups.setdefault(home.home(names).depth() if mono else 0, []).append((mono, coefficient))
    s = Scalars(home.code)
    total: int | None = None
    for depth in sorted(groups):
        part = Dim.make(dict(groups[depth]))
        if len(groups) > 1 and depth < max(groups):
            value = emit_index(io, part, home)
            total = value if total is None else s.op("IAdd", U32, total, value)
            continue
        for mono, coefficient in part.terms:
            term = _term(io, mono, coefficient, home)
            total = term if total is None else s.op("IAdd", U32, total, term)
    assert total is not None
    return total


def _term(io: Interface, mono: Monomial, coefficient: int, home: Region) -> int:
    s = Scalars(home.code)
    value: int | None = None
    for atom in mono:
        factor = _atom(io, atom, home)
        value = factor if value is None else s.op("IMul", U32, value, factor)
    if value is None:
        return s.const(coefficient, INDEX)
    if coefficient == 1:
        return value
    if coefficient == -1:
        return s.op("ISub", U32, s.const(0, INDEX), value)
    return s.op("IMul", U32, value, s.const(coefficient, INDEX))


def _atom(io: Interface, atom: Atom, region: Region) -> int:
    if atom.op == "symbol":
        if is_variable(atom.name):
            return region.variable(atom.name)
        return io.parameter(int(atom.name[1:]))
    home = region.home(variables(Dim.make({(atom,): 1})))
    found = home.known.get(atom)
    if found is None:
        found = _function(io, atom, home)
        home.known[atom] = found
    return found


def _function(io: Interface, atom: Atom, home: Region) -> int:
    s = Scalars(home.code)
    a, b = atom.args
    left = emit_index(io, a, home)
    if atom.op in ("floordiv", "mod") and b.is_constant and b.value > 0:
        return _by_constant(s, atom.op, left, b.value, is_nonnegative(a))
    return scalar_rule(atom.op, INDEX)(s, INDEX, (left, emit_index(io, b, home)))


def _by_constant(s: Scalars, op: str, value: int, divisor: int, positive: bool) -> int:
    shift = divisor.bit_length() - 1
    if divisor == 1 << shift:
        if op == "mod":
            return s.op("BitwiseAnd", U32, value, s.const(divisor - 1, U32))
        return s.op("ShiftRightArithmetic", U32, value, s.const(shift, U32))
    constant = s.const(divisor, U32)
    if positive:
        return s.op("UMod" if op == "mod" else "UDiv", U32, value, constant)
    quotient = s.op("SDiv", U32, value, constant)
    rest = s.op("ISub", U32, value, s.op("IMul", U32, quotient, constant))
    negative = s.test("SLessThan", rest, s.const(0, U32))
    if op == "mod":
        return s.select(U32, negative, s.op("IAdd", U32, rest, constant), rest)
    lower = s.op("ISub", U32, quotient, s.const(1, U32))
    return s.select(U32, negative, lower, quotient)


def is_nonnegative(dim: Dim) -> bool:
    """Whether no term can be below zero: loop variables count from zero, parameters may not."""
    return all(
        coefficient >= 0 and all(_atom_is_nonnegative(atom) for atom in mono)
        for mono, coefficient in dim.terms
    )


def _atom_is_nonnegative(atom: Atom) -> bool:
    if atom.op == "symbol":
        return is_variable(atom.name)
    a, b = atom.args
    constant = b.is_constant and b.value > 0
    if atom.op == "mod":
        return constant
    if atom.op == "floordiv":
        return constant and is_nonnegative(a)
    either = is_nonnegative(a), is_nonnegative(b)
    return any(either) if atom.op == "max" else all(either)
