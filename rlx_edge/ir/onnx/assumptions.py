"""What is known about symbols while a model is imported, and what was assumed on the way.

Size symbols stand for integers from 1 to ``MAX_SIZE``, value symbols for any integer. ``known``
holds the concrete values that the caller supplied; using one to choose between branches records
a guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd, prod

from rlx_edge.ir.core import Binding, Guard
from rlx_edge.ir.dims import Atom, Dim, as_dim, dim_max, dim_min
from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx import conditions
from rlx_edge.ir.onnx.conditions import Compare, Condition, Truth
from rlx_edge.ir.onnx.equalities import Equalities

MAX_SIZE = (1 << 31) - 1
"""No tensor has a longer axis: sizes are 32-bit words in the parameter block."""

Bound = int | None
"""``None`` is unbounded."""


class Assumptions:
    """Symbols of one import. Where no value decides, the import fails, unless a list is given:
    then the parameters are put there and the condition is taken to be false."""

    def __init__(
        self, known: Mapping[str, int] | None = None, *, undecided: list[str] | None = None
    ) -> None:
        self.known = dict(known or {})
        self.generic = undecided is not None
        self.bindings: dict[str, Binding] = {}
        self.guards: list[Guard] = []
        self._equalities = Equalities()
        self._floors: dict[Atom, int] = {}
        self._proven: dict[Dim, int] = {}
        self.undecided: list[str] = [] if undecided is None else undecided
        """Parameters whose values a condition needed, in the order of need."""

    # ---- bounds ------------------------------------------------------------------------------

    def lower(self, dim: Dim) -> Bound:
        """A number that ``dim`` never falls below, ``None`` if none is known."""
        return self._bound(dim, low=True)

    def upper(self, dim: Dim) -> Bound:
        """A number that ``dim`` never exceeds, ``None`` if none is known."""
        return self._bound(dim, low=False)

    def not_negative(self, dim: Dim) -> bool:
        low = self.lower(dim)
        return low is not None and low >= 0

    def _bound(self, dim: Dim, *, low: bool) -> Bound:
        total = 0
        for atoms, coefficient in dim.terms:
            bounds = [self._atom_bound(atom, low=low == (coefficient > 0)) for atom in atoms]
            signs = [self._atom_bound(atom, low=True) for atom in atoms]
            if len(atoms) > 1 and any(sign is None or sign < 0 for sign in signs):
                return None
            factors = [bound for bound in bounds if bound is not None]
            if len(factors) < len(bounds):
                return None
            total += coefficient * prod(factors)
        return total

    def _atom_bound(self, atom: Atom, *, low: bool) -> Bound:
        found = self._plain_atom_bound(atom, low=low)
        if low and atom in self._floors:
            return self._floors[atom] if found is None else max(found, self._floors[atom])
        return found

    def _plain_atom_bound(self, atom: Atom, *, low: bool) -> Bound:
        if atom.op == "symbol":
            if atom.name in self.bindings:
                return None
            return 1 if low else MAX_SIZE
        a, b = atom.args
        if atom.op in ("max", "min"):
            sides = (self._bound(a, low=low), self._bound(b, low=low))
            some = [side for side in sides if side is not None]
            if (atom.op == "max") == low:  # one side is enough
                return (max(some) if low else min(some)) if some else None
            return (min(some) if low else max(some)) if len(some) == 2 else None
        divisor = b.value if b.is_constant else None
        if atom.op == "mod" and divisor is not None and divisor > 0:
            return 0 if low else divisor - 1
        if atom.op == "floordiv":
            numerator = self._bound(a, low=low)
            if divisor is not None and divisor > 0:
                return None if numerator is None else numerator // divisor
            if self.not_negative(a) and (self.lower(b) or 0) > 0:
                return 0 if low else self._bound(a, low=False)
        return None

    # ---- arithmetic that profits from bounds -------------------------------------------------

    def largest(self, a: Dim, b: Dim) -> Dim:
        difference = a - b
        if self.not_negative(difference):
            return a
        return b if self.not_negative(-difference) else dim_max(a, b)

    def smallest(self, a: Dim, b: Dim) -> Dim:
        difference = a - b
        if self.not_negative(difference):
            return b
        return a if self.not_negative(-difference) else dim_min(a, b)

    def compare(self, left: Dim, relation: str, right: Dim) -> Truth:
        """The comparison, decided if the bounds decide it."""
        low, high = self.lower(left - right), self.upper(left - right)
        always = {
            "==": low == high == 0,
            "!=": (low is not None and low > 0) or (high is not None and high < 0),
            "<": high is not None and high < 0,
            "<=": high is not None and high <= 0,
            ">": low is not None and low > 0,
            ">=": low is not None and low >= 0,
        }
        if always[relation]:
            return True
        if always[conditions.NEGATED[relation]]:
            return False
        return Compare(left, relation, right)

    # ---- decisions ---------------------------------------------------------------------------

    def decide(self, truth: Truth, reason: str, where: str) -> bool:
        """Whether the condition holds; what made it so becomes guards.

        Value symbols need a known value: ``ModelError`` ``import.value_needed`` otherwise.
        A comparison of sizes alone with ``==`` is taken to be false where the sizes are unknown
        (they are "any size"), which the guard then says.
        """
        if isinstance(truth, bool):
            return truth
        env = dict(self.known)
        missing = [name for name in conditions.symbols(truth) if name not in env]
        if missing:
            env = self._generic_values(truth, missing, where)
        result = conditions.holds(truth, env)
        condition = truth if result else conditions.negate(truth)
        assert not isinstance(condition, bool)
        self.require(*conditions.guards(condition, env, reason))
        return result

    def require_at_least(self, dim: Dim, minimum: int, reason: str) -> None:
        """A guard unless the bounds already say so; later bounds profit from it."""
        if dim.is_constant or self._proven.get(dim, minimum - 1) >= minimum:
            return
        self._proven[dim] = minimum
        low = self.lower(dim)
        if low is not None and low >= minimum:
            return
        self.require(Guard(dim, ">=", as_dim(minimum), reason))
        symbolic = [(atoms, coefficient) for atoms, coefficient in dim.terms if atoms]
        (atoms, coefficient) = symbolic[0]
        if len(symbolic) == 1 and len(atoms) == 1 and coefficient > 0:
            self._floors[atoms[0]] = -((dim.constant_term - minimum) // coefficient)

    def value_of(self, dim: Dim) -> int | None:
        """The concrete value, if the symbols in it are known."""
        if any(name not in self.known for name in dim.symbols()):
            return None
        return dim.evaluate(self.known)

    def fixed(self, dim: Dim, reason: str, where: str) -> int | None:
        """The integer that ``dim`` is, by a guard where it depends on something with a known value;
        ``None`` if it is not known. An input whose value was not given is an error."""
        value = self.value_of(dim)
        if value is None:
            parameters = self._parameters(dim.symbols())
            self.undecided.extend(name for name in parameters if name not in self.undecided)
            if parameters and not self.generic:
                raise self._value_needed(
                    f"the model needs {dim} as a number", [], parameters, where
                )
            return None
        if not dim.is_constant:
            self.require(Guard(dim, "==", as_dim(value), reason))
        return value

    def require(self, *guards: Guard) -> None:
        """Add guards, leaving out what the ones before already say."""
        for guard in guards:
            guard = self._plainer(guard)
            if guard in self.guards or self._follows(guard):
                continue
            if guard.relation == "==":
                self._equalities.learn(guard.left, guard.right)
                self._learn_divisible(guard)
            self.guards.append(guard)

    def _follows(self, guard: Guard) -> bool:
        """Whether the bounds and the guards so far imply a guard."""
        if guard.relation == "==":
            return self._equalities.same(guard.left, guard.right)
        truth = self.compare(
            self._equalities.simplified(guard.left),
            guard.relation,
            self._equalities.simplified(guard.right),
        )
        return truth is True

    def _plainer(self, guard: Guard) -> Guard:
        """An equality of products without the factors that both have and that are not zero."""
        if guard.relation != "==" or len(guard.left.terms) != 1 or len(guard.right.terms) != 1:
            return guard
        (a, p), (b, q) = guard.left.terms[0], guard.right.terms[0]
        left, right = list(a), list(b)
        for atom in a:
            low = self._atom_bound(atom, low=True)
            if atom in right and low is not None and low > 0:
                left.remove(atom)
                right.remove(atom)
        factor = gcd(p, q)
        return Guard(
            Dim.make({tuple(left): p // factor}),
            "==",
            Dim.make({tuple(right): q // factor}),
            guard.reason,
        )

    def _learn_divisible(self, guard: Guard) -> None:
        """From ``x % k == 0``: ``k * (x // k)`` is ``x``."""
        terms = guard.left.terms
        if guard.right.terms or len(terms) != 1 or len(terms[0][0]) != 1:
            return
        (atom,) = terms[0][0]
        if atom.op == "mod":
            x, k = atom.args
            self._equalities.learn(x // k * k, x)

    def _generic_values(
        self, condition: Condition, missing: Iterable[str], where: str
    ) -> dict[str, int]:
        """Values for unknown symbols that make every equality false."""
        leaves = conditions.comparisons(condition)
        parameters = self._parameters(missing)
        equalities = all(leaf.relation in ("==", "!=") for leaf in leaves)
        self.undecided.extend(name for name in parameters if name not in self.undecided)
        if not self.generic and (parameters or not equalities):
            what = f"the model branches on {condition}"
            raise self._value_needed(what, leaves, parameters, where)
        # Distinct primes far from any constant in a model: no equality holds by accident.
        env = dict(self.known)
        for position, name in enumerate(missing):
            env[name] = _GENERIC[position % len(_GENERIC)]
        return env

    def _parameters(self, names: Iterable[str]) -> list[str]:
        """The inputs whose values these symbols are, in order."""
        found = (self.bindings[name].parameter for name in names if name in self.bindings)
        return list(dict.fromkeys(found))

    def _value_needed(
        self, what: str, leaves: Iterable[Compare], parameters: list[str], where: str
    ) -> ModelError:
        sides = [side for leaf in leaves for side in (leaf.left, leaf.right)]
        constants = sorted({side.value for side in sides if side.is_constant})
        names = ", ".join(repr(name) for name in parameters)
        subject = f"the value of the input {names}" if parameters else "a size"
        compared = f"; it is compared with {', '.join(map(str, constants))}" if constants else ""
        return ModelError(
            "import.value_needed",
            f"{what}, which needs {subject}",
            found="no value",
            allowed=f"a value{compared}",
            where=where,
        )


_GENERIC = (1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121)
