"""Builds plan programs: dims become SSA integer instructions, equal ones once.

``PlanBuilder`` folds constants, so a fully static model has a plan of literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rlx_edge.ir.core import Guard
from rlx_edge.ir.dims import Atom, Dim, DimLike, as_dim
from rlx_edge.ir.plan import PlanGuard

_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


class PlanBuilder:
    """Collects instructions; every method returns the SSA number of a value."""

    def __init__(self) -> None:
        self.symbols: list[str] = []
        self.instructions: list[tuple[str, int, int]] = []
        self.guards: list[PlanGuard] = []
        self._known: dict[tuple[str, int, int], int] = {}
        self._dims: dict[Dim, int] = {}

    def const(self, value: int) -> int:
        return self._emit("const", value, 0)

    def symbol(self, name: str) -> int:
        if name not in self.symbols:
            self.symbols.append(name)
        return self._emit("symbol", self.symbols.index(name), 0)

    def apply(self, opcode: str, a: int, b: int) -> int:
        """``opcode`` of two values, folded when both are literals or one is neutral."""
        left, right = self.literal(a), self.literal(b)
        if left is not None and right is not None:
            return self.const(_FOLD[opcode](left, right))
        if (opcode == "add" and right == 0) or (opcode == "mul" and right == 1):
            return a
        if (opcode == "add" and left == 0) or (opcode == "mul" and left == 1):
            return b
        if opcode in ("max", "min") and a == b:
            return a
        return self._emit(opcode, a, b)

    def literal(self, value: int) -> int | None:
        """The integer of a literal, ``None`` for a computed value."""
        opcode, a, _ = self.instructions[value]
        return a if opcode == "const" else None

    def align(self, value: int, n: int) -> int:
        """Rounded up to a multiple of ``n``."""
        up = self.apply("add", value, self.const(n - 1))
        return self.apply("mul", self.apply("floordiv", up, self.const(n)), self.const(n))

    def maximum(self, values: Iterable[int]) -> int:
        result = -1
        for value in values:
            result = value if result < 0 else self.apply("max", result, value)
        if result < 0:
            raise ValueError("maximum of nothing")
        return result

    def dim(self, value: DimLike) -> int:
        """The value of a dim."""
        dim = as_dim(value)
        found = self._dims.get(dim)
        if found is None:
            found = self._polynomial(dim)
            self._dims[dim] = found
        return found

    def guard(self, guard: Guard) -> None:
        """Require a relation; decided guards must hold already."""
        left, right = self.dim(guard.left), self.dim(guard.right)
        text = f"{guard} ({guard.reason})" if guard.reason else str(guard)
        self.guards.append(PlanGuard(left, guard.relation, right, text))

    def _polynomial(self, dim: Dim) -> int:
        total = self.const(0)
        for mono, coef in dim.terms:
            term = self.const(abs(coef))
            for atom in mono:
                term = self.apply("mul", term, self._atom(atom))
            total = self.apply("add" if coef > 0 else "sub", total, term)
        return total

    def _atom(self, atom: Atom) -> int:
        if atom.op == "symbol":
            return self.symbol(atom.name)
        a, b = (self.dim(arg) for arg in atom.args)
        return self.apply(atom.op, a, b)

    def _emit(self, opcode: str, a: int, b: int) -> int:
        key = (opcode, a, b)
        found = self._known.get(key)
        if found is None:
            found = len(self.instructions)
            self.instructions.append(key)
            self._known[key] = found
        return found
