"""Loop variables of a block of lanes, and dims evaluated over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from rlx_edge.ir.dims import Atom, Dim

REMEMBERED = 128
"""Values kept of one part by the loop variables that it depends on."""

Cache = dict[tuple[int, ...], Any]


class Lanes:
    """``lanes`` (name, extent) are counted row-major; a block is ``count`` of them from ``start``.

    Other loop variables have one value for all lanes, in ``env``. Caches hold what was computed
    for this block, by the values of such variables.
    """

    def __init__(self, lanes: Sequence[tuple[str, int]], env: dict[str, int]) -> None:
        self.lanes = tuple(lanes)
        self.names = frozenset(name for name, _ in lanes)
        self.env = env
        self.start = 0
        self.count = 1
        self.caches: list[Cache] = []
        self.atoms: dict[Atom, Cache] = {}
        self.vectors: dict[str, list[int]] = {}

    def move(self, start: int, stop: int) -> None:
        """Make ``start`` … ``stop - 1`` the block."""
        if (start, stop - start) == (self.start, self.count):
            return
        self.start, self.count = start, stop - start
        self.vectors.clear()
        for cache in self.caches:
            cache.clear()

    def split(self, dim: Dim) -> tuple[Dim, Dim]:
        """Terms that differ between lanes, and the others."""
        moving: dict[Any, int] = {}
        common: dict[Any, int] = {}
        for mono, coefficient in dim.terms:
            names = {name for atom in mono for name in _atom_symbols(atom)}
            (common if names.isdisjoint(self.names) else moving)[mono] = coefficient
        return Dim.make(moving), Dim.make(common)

    def vector(self, name: str) -> list[int]:
        """Values of a lane variable in this block."""
        found = self.vectors.get(name)
        if found is None:
            stride = 1
            for lane, extent in reversed(self.lanes):
                if lane == name:
                    stop = self.start + self.count
                    found = [at // stride % extent for at in range(self.start, stop)]
                    break
                stride *= extent
            assert found is not None
            self.vectors[name] = found
        return found

    def dim_value(self, dim: Dim) -> int | list[int]:
        """A dim in this block: one integer, or one a lane."""
        total: int | list[int] = 0
        for mono, coefficient in dim.terms:
            value: int | list[int] = coefficient
            for atom in mono:
                value = _lanewise(lambda a, b: a * b, value, self.atom_value(atom))
            total = _lanewise(lambda a, b: a + b, total, value)
        return total

    def atom_value(self, atom: Atom) -> int | list[int]:
        if atom.op == "symbol":
            if atom.name in self.names:
                return self.vector(atom.name)
            return self.env[atom.name]
        names = [name for name in _atom_symbols(atom) if name not in self.names]
        cache = self.atoms.get(atom)
        if cache is None:
            cache = self.atoms[atom] = self.new_cache()
        key = tuple(self.env[name] for name in names)
        value = cache.get(key)
        if value is None:
            a, b = (self.dim_value(arg) for arg in atom.args)
            value = _lanewise(_ATOM_FUNCTIONS[atom.op], a, b)
            remember(cache, key, value)
        return value

    def new_cache(self) -> Cache:
        """Values by loop variables, forgotten with the block."""
        cache: Cache = {}
        self.caches.append(cache)
        return cache


_ATOM_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


def _lanewise(
    function: Callable[[int, int], int], a: int | list[int], b: int | list[int]
) -> int | list[int]:
    if isinstance(a, int):
        if isinstance(b, int):
            return function(a, b)
        return list(map(function, repeat(a), b))
    return list(map(function, a, repeat(b) if isinstance(b, int) else b))


def _atom_symbols(atom: Atom) -> tuple[str, ...]:
    if atom.op == "symbol":
        return (atom.name,)
    return tuple(name for arg in atom.args for name in arg.symbols())


def compiled_dim(dim: Dim) -> Callable[[Mapping[str, int]], int]:
    """A dim as a function of the loop variables."""
    if dim.is_constant:
        value = dim.value
        return lambda env: value
    linear: list[tuple[str, int]] = []
    for mono, coefficient in dim.terms:
        if len(mono) > 1 or (mono and mono[0].op != "symbol"):
            return dim.evaluate
        if mono:
            linear.append((mono[0].name, coefficient))
    base = dim.constant_term
    return lambda env: base + sum(coefficient * env[name] for name, coefficient in linear)


def remember(cache: Cache, key: tuple[int, ...], value: Any) -> None:
    """Keep a value; a full cache starts over."""
    if len(cache) >= REMEMBERED:
        cache.clear()
    cache[key] = value
