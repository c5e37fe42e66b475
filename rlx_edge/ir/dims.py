"""Symbolic dimensions: integer expressions over named sizes, kept in one canonical form.

A ``Dim`` is a polynomial with integer coefficients over *atoms*. An atom is a symbol (``batch``)
or an application of ``floordiv``, ``mod``, ``max`` or ``min`` to dims. Because sums and products
are always expanded and sorted, two dims are equal exactly when their canonical forms are the same
object, so ``is``/``==``/hash are cheap. Symbols stand for integers; sizes are at least 1, value
symbols (see ``core.Function.bindings``) may be any integer.

The text form is ordinary arithmetic: ``(w - 1) // 2 + 1``, ``max(n, 4)``, ``h % 2``.
``//`` rounds towards minus infinity and ``%`` has the divisor's sign, as in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from typing import ClassVar, TypeAlias, Union

from rlx_edge.ir.errors import RlxError

DimLike: TypeAlias = Union["Dim", int, str]
Monomial: TypeAlias = tuple["Atom", ...]

FUNCTIONS = ("floordiv", "mod", "max", "min")
MAX_TERMS = 4096
"""Terms of a product before like ones are joined; bounds what untrusted text can ask for."""


class Atom:
    """A symbol (``op == "symbol"``, ``name``) or a function of dims; interned."""

    __slots__ = ("args", "key", "name", "op")
    _table: ClassVar[dict[tuple[object, ...], Atom]] = {}

    op: str
    name: str
    args: tuple[Dim, ...]
    key: str

    @staticmethod
    def make(op: str, name: str, args: tuple[Dim, ...]) -> Atom:
        identity = (op, name, args)
        found = Atom._table.get(identity)
        if found is None:
            found = Atom()
            found.op, found.name, found.args = op, name, args
            found.key = _atom_text(found)
            Atom._table[identity] = found
        return found

    def __repr__(self) -> str:
        return self.key


Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


@cache
def _monomial_order(mono: Monomial) -> tuple[int, tuple[str, ...]]:
    return -len(mono), tuple(atom.key for atom in mono)


def _term_order(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return _monomial_order(term[0])


@cache
def _monomial_product(a: Monomial, b: Monomial) -> Monomial:
    return tuple(sorted(a + b, key=lambda atom: atom.key))


class Dim:
    """An interned integer polynomial; build with ``as_dim``, ``symbol`` and operators."""

    __slots__ = ("_names", "_text", "is_constant", "terms")
    _table: ClassVar[dict[Terms, Dim]] = {}

    terms: Terms
    """``((atoms, coefficient), …)`` sorted by degree (descending) then text; constant last."""
    is_constant: bool
    _text: str | None
    _names: frozenset[str] | None

    @staticmethod
    def make(terms: Mapping[Monomial, int]) -> Dim:
        kept = [term for term in terms.items() if term[1] != 0]
        if len(kept) > 1:
            kept.sort(key=_term_order)
        return Dim._of(tuple(kept))

    @staticmethod
    def _of(ordered: Terms) -> Dim:
        """The dim of terms that are in canonical order already."""
        found = Dim._table.get(ordered)
        if found is None:
            found = Dim()
            found.terms = ordered
            found.is_constant = not ordered or (len(ordered) == 1 and not ordered[0][0])
            found._text = found._names = None
            Dim._table[ordered] = found
        return found

    # ---- queries -----------------------------------------------------------------------------

    @property
    def value(self) -> int:
        """The integer of a constant dim; ``ValueError`` otherwise."""
        if not self.terms:
            return 0
        if not self.is_constant:
            raise ValueError(f"dim {self} is symbolic")
        return self.terms[0][1]

    @property
    def constant_term(self) -> int:
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols in it, sorted."""
        return tuple(sorted(self.symbol_set()))

    def symbol_set(self) -> frozenset[str]:
        """Names of the symbols in it."""
        if self._names is None:
            names: set[str] = set()
            for mono, _ in self.terms:
                for atom in mono:
                    if atom.op == "symbol":
                        names.add(atom.name)
                    for arg in atom.args:
                        names |= arg.symbol_set()
            self._names = frozenset(names)
        return self._names

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The integer for concrete symbols; ``KeyError`` names a missing symbol."""
        total = 0
        for mono, coef in self.terms:
            for atom in mono:
                coef *= _evaluate_atom(atom, env)
            total += coef
        return total

    def substitute(self, env: Mapping[str, DimLike]) -> Dim:
        """The dim with symbols replaced by dims."""
        if self.symbol_set().isdisjoint(env):
            return self
        total = ZERO
        for mono, coef in self.terms:
            term = as_dim(coef)
            for atom in mono:
                term = term * _substitute_atom(atom, env)
            total = total + term
        return total

    def divisible_by(self, n: int) -> bool:
        """Whether every coefficient is a multiple of ``n`` (a sufficient condition)."""
        return all(coef % n == 0 for _, coef in self.terms)

    # ---- arithmetic --------------------------------------------------------------------------

    def __add__(self, other: DimLike) -> Dim:
        addend = as_dim(other)
        if not addend.terms:
            return self
        if not self.terms:
            return addend
        terms = dict(self.terms)
        for mono, coef in addend.terms:
            terms[mono] = terms.get(mono, 0) + coef
        return Dim.make(terms)

    def __sub__(self, other: DimLike) -> Dim:
        return self + (-as_dim(other))

    def __neg__(self) -> Dim:
        return Dim._of(tuple((mono, -coef) for mono, coef in self.terms))

    def _scaled(self, factor: int) -> Dim:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Dim._of(tuple((mono, coef * factor) for mono, coef in self.terms))

    def __mul__(self, other: DimLike) -> Dim:
        terms: dict[Monomial, int] = {}
        factor = as_dim(other)
        if factor.is_constant:
            return self._scaled(factor.value)
        if self.is_constant:
            return factor._scaled(self.value)
        if len(self.terms) * len(factor.terms) > MAX_TERMS:
            raise RlxError(
                "dim.size",
                "a product of dims has too many terms",
                found=len(self.terms) * len(factor.terms),
                allowed=f"at most {MAX_TERMS}",
            )
        for mono_a, coef_a in self.terms:
            for mono_b, coef_b in factor.terms:
                mono = _monomial_product(mono_a, mono_b)
                terms[mono] = terms.get(mono, 0) + coef_a * coef_b
        return Dim.make(terms)

    def __floordiv__(self, other: DimLike) -> Dim:
        divisor = as_dim(other)
        if divisor.is_constant and divisor.value == 0:
            raise ZeroDivisionError(f"{self} // 0")
        if self is divisor:
            return ONE
        if not divisor.is_constant:
            exact = _exact_quotient(self, divisor)
            if exact is not None:
                return exact
            return _apply("floordiv", self, divisor)
        n = divisor.value
        if n == 1:
            return self
        if self.is_constant:
            return as_dim(self.value // n)
        # a*n*x + rest  ==>  a*x + rest // n, exact for integers.
        whole = {mono: coef // n for mono, coef in self.terms if mono and coef % n == 0}
        rest = {mono: coef for mono, coef in self.terms if not (mono and coef % n == 0)}
        constant = rest.get((), 0)
        whole[()] = constant // n
        rest[()] = constant % n
        remainder = Dim.make(rest)
        if remainder.is_constant:
            return Dim.make(whole)
        inner = _single_floordiv(remainder)
        if inner is not None and n > 0:
            return Dim.make(whole) + inner[0] // as_dim(inner[1] * n)
        return Dim.make(whole) + _apply("floordiv", remainder, divisor)

    def __mod__(self, other: DimLike) -> Dim:
        divisor = as_dim(other)
        if divisor.is_constant and divisor.value == 0:
            raise ZeroDivisionError(f"{self} % 0")
        if self is divisor or self is ZERO:
            return ZERO
        if not divisor.is_constant:
            if _exact_quotient(self, divisor) is not None:
                return ZERO
            return _apply("mod", self, divisor)
        n = divisor.value
        if self.is_constant:
            return as_dim(self.value % n)
        reduced = Dim.make({mono: coef % n for mono, coef in self.terms})
        if reduced.is_constant:
            return as_dim(reduced.value % n)
        return _apply("mod", reduced, divisor)

    def __radd__(self, other: int) -> Dim:
        return as_dim(other) + self

    def __rsub__(self, other: int) -> Dim:
        return as_dim(other) - self

    def __rmul__(self, other: int) -> Dim:
        return as_dim(other) * self

    def __str__(self) -> str:
        if self._text is None:
            self._text = _dim_text(self)
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __bool__(self) -> bool:
        raise TypeError("a Dim has no truth value; compare with `is`/`==` or use .is_constant")


# ---- construction ----------------------------------------------------------------------------

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def symbol(name: str) -> Dim:
    """The dim that stands for the symbol ``name`` (an identifier)."""
    if not _SYMBOL.match(name) or name in FUNCTIONS:
        raise RlxError(
            "dim.symbol",
            "not a usable dim name",
            found=repr(name),
            allowed="[A-Za-z_][A-Za-z0-9_]*",
        )
    return Dim.make({(Atom.make("symbol", name, ()),): 1})


def as_dim(value: DimLike) -> Dim:
    """``Dim`` of a dim, an integer or dim text such as ``"batch"`` or ``"(w - 1) // 2"``."""
    if isinstance(value, Dim):
        return value
    if isinstance(value, int):
        return Dim._of((((), int(value)),) if value else ())
    return parse_dim(value)


ZERO = Dim.make({})
ONE = as_dim(1)


def product(dims: Iterable[DimLike]) -> Dim:
    return reduce(lambda left, right: left * right, (as_dim(dim) for dim in dims), ONE)


def ceildiv(a: DimLike, b: DimLike) -> Dim:
    """``ceil(a / b)`` for positive ``b``."""
    divisor = as_dim(b)
    return (as_dim(a) + divisor - 1) // divisor


def align(a: DimLike, n: int) -> Dim:
    """``a`` rounded up to a multiple of ``n``."""
    dim = as_dim(a)
    return dim if dim.divisible_by(n) else ceildiv(dim, n) * n


def dim_max(a: DimLike, b: DimLike) -> Dim:
    return _extremum("max", as_dim(a), as_dim(b))


def dim_min(a: DimLike, b: DimLike) -> Dim:
    return _extremum("min", as_dim(a), as_dim(b))


def _extremum(op: str, a: Dim, b: Dim) -> Dim:
    difference = a - b
    if difference.is_constant:
        return a if (difference.value >= 0) == (op == "max") else b
    first, second = sorted((a, b), key=str)
    return _apply(op, first, second)


def _apply(op: str, a: Dim, b: Dim) -> Dim:
    return Dim.make({(Atom.make(op, "", (a, b)),): 1})


def _single_floordiv(dim: Dim) -> tuple[Dim, int] | None:
    """``(numerator, n)`` if ``dim`` is exactly ``numerator // n`` with positive constant ``n``."""
    if len(dim.terms) != 1 or dim.terms[0][1] != 1 or len(dim.terms[0][0]) != 1:
        return None
    atom = dim.terms[0][0][0]
    if atom.op != "floordiv" or not atom.args[1].is_constant or atom.args[1].value <= 0:
        return None
    return atom.args[0], atom.args[1].value


def _exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """``q`` with ``a == q * b`` when ``b`` is one monomial that divides every term of ``a``."""
    if len(b.terms) != 1:
        if not a.terms:
            return ZERO
        # (k * b) // b for a common integer factor k.
        mono, coef = b.terms[0]
        first = dict(a.terms).get(mono)
        if first is not None and first % coef == 0 and b * (first // coef) is a:
            return as_dim(first // coef)
        return None
    divisor, factor = b.terms[0]
    quotient: dict[Monomial, int] = {}
    for mono, coef in a.terms:
        rest = list(mono)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coef % factor:
            return None
        quotient[tuple(rest)] = coef // factor
    return Dim.make(quotient)


# ---- evaluation and text ---------------------------------------------------------------------

_EVALUATORS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


def _evaluate_atom(atom: Atom, env: Mapping[str, int]) -> int:
    if atom.op == "symbol":
        return env[atom.name]
    a, b = (arg.evaluate(env) for arg in atom.args)
    return _EVALUATORS[atom.op](a, b)


_BUILDERS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": dim_max,
    "min": dim_min,
}


def _substitute_atom(atom: Atom, env: Mapping[str, DimLike]) -> Dim:
    if atom.op == "symbol":
        return as_dim(env[atom.name]) if atom.name in env else Dim.make({(atom,): 1})
    a, b = (arg.substitute(env) for arg in atom.args)
    return _BUILDERS[atom.op](a, b)


def _atom_text(atom: Atom) -> str:
    if atom.op == "symbol":
        return atom.name
    a, b = atom.args
    if atom.op in ("max", "min"):
        return f"{atom.op}({a}, {b})"
    sign = "//" if atom.op == "floordiv" else "%"
    return f"{_operand_text(a)} {sign} {_operand_text(b)}"


def _operand_text(dim: Dim) -> str:
    simple = len(dim.terms) <= 1 and (
        dim.is_constant or (dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1)
    )
    if simple and (dim.is_constant or dim.terms[0][0][0].op in ("symbol", "max", "min")):
        return str(dim) if not dim.is_constant or dim.value >= 0 else f"({dim})"
    return f"({dim})"


def _dim_text(dim: Dim) -> str:
    if not dim.terms:
        return "0"
    parts: list[str] = []
    for index, (mono, coef) in enumerate(dim.terms):
        alone = len(mono) == 1 and abs(coef) == 1
        factors = [
            f"({atom.key})" if atom.op in ("floordiv", "mod") and not alone else atom.key
            for atom in mono
        ]
        if abs(coef) != 1 or not factors:
            factors.insert(0, str(abs(coef)))
        text = " * ".join(factors)
        if index == 0:
            parts.append(f"-{text}" if coef < 0 and not _needs_paren(mono, coef) else text)
            if coef < 0 and _needs_paren(mono, coef):
                parts[-1] = f"-({text})"
        elif coef < 0 and _needs_paren(mono, coef):
            parts.append(f"- ({text})")
        else:
            parts.append(f"{'-' if coef < 0 else '+'} {text}")
    return " ".join(parts)


def _needs_paren(mono: Monomial, coef: int) -> bool:
    return len(mono) == 1 and abs(coef) == 1 and mono[0].op in ("floordiv", "mod") and coef < 0


# ---- parsing ---------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_]*)|(//|[-+*%(),]))")
MAX_DIM_TEXT = 4096


def parse_dim(text: str) -> Dim:
    """Dim of its text form; ``RlxError`` code ``dim.syntax`` names the text and the position."""
    if len(text) > MAX_DIM_TEXT:
        raise RlxError("dim.syntax", "dim text is too long", found=len(text), allowed=MAX_DIM_TEXT)
    tokens: list[str] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise _syntax(text, position)
        tokens.append(match.group(0).strip())
        position = match.end()
    reader = _Reader(text, tokens)
    dim = reader.sum(0)
    if reader.position != len(tokens):
        raise _syntax(text, reader.position)
    return dim


def _syntax(text: str, position: int) -> RlxError:
    return RlxError(
        "dim.syntax",
        f"cannot read the dim {text!r} at token {position}",
        allowed="integers, names, + - * // %, max(a, b), min(a, b)",
    )


class _Reader:
    """Recursive descent over dim tokens: sum → product → factor."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text = text
        self.tokens = tokens
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise _syntax(self.text, self.position)
        self.position += 1
        return token

    def sum(self, depth: int) -> Dim:
        total = self.product(depth)
        while self.peek() in ("+", "-"):
            sign = self.take()
            term = self.product(depth)
            total = total + term if sign == "+" else total - term
        return total

    def product(self, depth: int) -> Dim:
        total = self.factor(depth)
        while self.peek() in ("*", "//", "%"):
            sign = self.take()
            other = self.factor(depth)
            if sign != "*" and other.is_constant and other.value == 0:
                raise _syntax(self.text, self.position)
            total = (
                total * other
                if sign == "*"
                else (total // other if sign == "//" else total % other)
            )
        return total

    def factor(self, depth: int) -> Dim:
        if depth > 64:
            raise _syntax(self.text, self.position)
        token = self.take()
        if token.isdigit():
            return as_dim(int(token))
        if token == "-":
            return -self.factor(depth + 1)
        if token == "(":
            inner = self.sum(depth + 1)
            self.take(")")
            return inner
        if token in ("max", "min"):
            self.take("(")
            a = self.sum(depth + 1)
            self.take(",")
            b = self.sum(depth + 1)
            self.take(")")
            return dim_max(a, b) if token == "max" else dim_min(a, b)
        if _SYMBOL.match(token):
            return symbol(token)
        raise _syntax(self.text, self.position - 1)
