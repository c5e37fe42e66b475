"""Reads scalar expressions; ``expression_text.py`` says how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from rlx_edge.ir.dims import symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import (
    INDEX,
    REDUCE_KINDS,
    Expr,
    acc,
    binary,
    bitcast,
    cast,
    const,
    index,
    index_dim,
    load,
    reduce,
    select,
    unary,
)
from rlx_edge.ir.expression_check import check_size
from rlx_edge.ir.expression_text import (
    COMPARISON,
    INDEX_NAME,
    INFIX,
    SHARED_NAME,
    literal_dtype_ok,
    symbol_text,
)
from rlx_edge.ir.expression_tokens import Place, Token, fail, own_place, slot_of, tokenize
from rlx_edge.ir.scalar_ops import SCALAR_OPS
from rlx_edge.ir.spelling import near_name
from rlx_edge.ir.types import BOOL, DTYPES, DType, TensorType

MAX_NESTING = 64
"""Brackets, calls and prefix signs inside one another."""

_SIGNS = {sign: (name, level) for name, (sign, level) in INFIX.items()}
CALLS = tuple(name for name in SCALAR_OPS if name not in INFIX and name != "neg")
_TYPES: dict[str, DType] = {**DTYPES, INDEX.name: INDEX}
_REDUCE = tuple(f"reduce_{kind}" for kind in REDUCE_KINDS)


@dataclass(frozen=True, slots=True)
class Operand:
    """What an expression may load: operand ``slot`` is the position in the list given."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean: operands by slot, ``acc``'s element type (``None``: there is no ``acc``),
    the rank of the output (``None``: any) and the sizes (``None``: any name is a size)."""

    operands: Sequence[Operand] = ()
    acc: DType | None = None
    rank: int | None = None
    sizes: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class _Number:
    """A number whose element type is not known yet."""

    value: int | float
    token: Token
    infinite: bool = False


_Term: TypeAlias = Expr | _Number


def parse_expression(text: str, scope: Scope, place: Place | None = None) -> Expr:
    """The expression of its text; ``ParseError`` with a caret under the culprit.

    ``place`` maps a range of ``text`` to a span of the file that it stands in.
    """
    reader = _Reader(text, scope, place or own_place(text))
    return reader.whole()


class _Reader:
    """Precedence climbing; every rule returns an ``Expr`` or a number without a type."""

    def __init__(self, text: str, scope: Scope, place: Place) -> None:
        self.scope = scope
        self.place = place
        self.names = [operand.name for operand in scope.operands]
        self.tokens = tokenize(text, place)
        self.position = 0
        self.depth = 0
        self.shared: dict[str, Expr] = {}

    # ---- tokens ------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def take(self, kind: str | None = None) -> Token:
        token = self.token
        if kind is not None and token.kind != kind:
            self.fail(token, "unexpected text in an expression", _shown(token), repr(kind))
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def fail(
        self,
        token: Token,
        what: str,
        found: object = None,
        allowed: object = None,
        hint: str | None = None,
    ) -> NoReturn:
        fail(self.place(token.start, max(token.end, token.start + 1)), what, found, allowed, hint)

    def build(self, token: Token, make: Callable[[], Expr]) -> Expr:
        """What ``make`` returns, its errors placed at ``token``."""
        try:
            return make()
        except ZeroDivisionError:
            self.fail(token, "division of a size by zero")
        except RlxError as error:
            self.fail(token, error.what, error.found, error.allowed)

    # ---- grammar -----------------------------------------------------------------------------

    def whole(self) -> Expr:
        while (
            self.token.kind == "name"
            and SHARED_NAME.fullmatch(self.token.text)
            and self.tokens[self.position + 1].kind == "="
        ):
            name = self.take()
            if name.text in self.shared:
                self.fail(name, f"{name.text} is defined twice")
            self.take("=")
            self.shared[name.text] = self.typed(0, None)
            self.take(";")
        start = self.token
        expr = self.typed(0, None)
        if self.token.kind != "end":
            self.fail(self.token, "the expression ends before this", _shown(self.token))
        self.build(start, lambda: check_size(expr) and expr)
        return expr

    def typed(self, level: int, default: DType | None) -> Expr:
        """An expression; a number alone becomes one of ``default``, or is an error."""
        term = self.expression(level, default)
        if isinstance(term, Expr):
            return term
        if default is None:
            self.fail(
                term.token,
                "nothing says the element type of this number",
                hint=f"write it as f32({term.value})",
            )
        return self.number(term, default)

    def expression(self, level: int, default: DType | None) -> _Term:
        left = self.operand(default)
        while True:
            token = self.token
            name, strength = _SIGNS.get(token.kind, ("", -1))
            if strength < level:
                return left
            self.take()
            right = self.expression(strength + 1, default)
            left = self.combine(token, name, left, right, default)
            if strength == COMPARISON:
                level = COMPARISON + 1

    def combine(
        self, token: Token, name: str, left: _Term, right: _Term, default: DType | None
    ) -> Expr:
        a, b = self.same_type(token, left, right, default)
        return self.build(token, lambda: binary(name, a, b))

    def same_type(
        self, token: Token, left: _Term, right: _Term, default: DType | None
    ) -> tuple[Expr, Expr]:
        """Both operands, a number taking the type of the other one."""
        if isinstance(left, _Number):
            if isinstance(right, _Number):
                if default is None:
                    self.fail(
                        token,
                        "nothing says the element type of these two numbers",
                        hint=f"write one of them as f32({left.value})",
                    )
                return self.number(left, default), self.number(right, default)
            return self.number(left, right.dtype), right
        return left, self.number(right, left.dtype) if isinstance(right, _Number) else right

    def number(self, term: _Number, dtype: DType) -> Expr:
        if not literal_dtype_ok(term.value, dtype):
            self.fail(term.token, f"this number is not a value of {dtype}", term.value)
        found = const(term.value, dtype)
        if isinstance(found.attr, float) and math.isinf(found.attr) and not term.infinite:
            self.fail(term.token, f"this number is too large for {dtype}", term.value)
        return found

    def operand(self, default: DType | None) -> _Term:
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.fail(self.token, "the expression is nested too deep", allowed=MAX_NESTING)
        token = self.take()
        if token.kind == "-":
            found = self.negative(token, default)
        elif token.kind == "(":
            found = self.expression(0, default)
            self.take(")")
        elif token.kind in ("int", "float"):
            found = _Number(int(token.text) if token.kind == "int" else float(token.text), token)
        elif token.kind == "value":
            found = self.load(token)
        elif token.kind == "name":
            found = self.named(token)
        else:
            self.fail(token, "an operand is missing", _shown(token))
        self.depth -= 1
        return found

    def negative(self, sign: Token, default: DType | None) -> _Term:
        following = self.token
        if following.kind in ("int", "float") or following.text in ("inf", "nan"):
            self.take()
            value = int(following.text) if following.kind == "int" else float(following.text)
            if following.kind == "int" and value == 0:
                self.fail(sign, "minus zero", allowed="-0.0 for floats, 0 for integers")
            span = Token("number", "", sign.start, following.end)
            return _Number(-value, span, following.text == "inf")
        operand = self.operand(default)
        if isinstance(operand, _Number):
            self.fail(sign, "nothing says the element type of this number")
        return self.build(sign, lambda: unary("neg", operand))

    def named(self, token: Token) -> _Term:
        name = token.text
        if self.token.kind == "(" or name in _REDUCE:
            return self.call(token)
        if name == "acc":
            if self.scope.acc is None:
                self.fail(token, "there is no acc outside an epilogue")
            return acc(self.scope.acc)
        if name in ("true", "false"):
            return const(name == "true", BOOL)
        if name in ("inf", "nan"):
            return _Number(float(name), token, name == "inf")
        if SHARED_NAME.fullmatch(name):
            if name not in self.shared:
                self.fail(token, f"{name} is used before it is defined")
            return self.shared[name]
        match = INDEX_NAME.fullmatch(name)
        if match is not None:
            rank = self.scope.rank
            if rank is not None and (len(match[1]) > 4 or int(match[1]) >= rank):
                self.fail(token, "no such output axis", name, f"d0 to d{rank - 1}" if rank else "")
            return index(symbol(f"_i{match[1]}"))
        return self.size(token)

    def size(self, token: Token) -> Expr:
        name = token.text.removeprefix("$")
        sizes = self.scope.sizes
        if sizes is not None and name not in sizes and not name.startswith("_"):
            known = [symbol_text(size) for size in sizes]
            self.fail(token, "unknown name", token.text, ["acc", *known], _suggest(name, known))
        return self.build(token, lambda: index(symbol(name)))

    # ---- calls and loads ---------------------------------------------------------------------

    def call(self, token: Token) -> Expr:
        name = token.text
        if name in _REDUCE:
            return self.reduce(token)
        self.take("(")
        terms = [self.expression(0, None)]
        while self.token.kind == ",":
            self.take()
            terms.append(self.expression(0, None))
        self.take(")")
        if name in _TYPES:
            return self.cast(token, terms)
        if name == "select":
            return self.select(token, terms)
        if name.startswith("bitcast_") and name[8:] in _TYPES:
            operand = self.only(token, terms)
            return self.build(token, lambda: bitcast(operand, _TYPES[name[8:]]))
        if name not in CALLS:
            known = [*CALLS, *_TYPES, "select"]
            self.fail(token, "unknown function", name, known, _suggest(name, known))
        self.count(token, terms, SCALAR_OPS[name].arity)
        if len(terms) == 1:
            operand = self.only(token, terms)
            return self.build(token, lambda: unary(name, operand))
        return self.combine(token, name, terms[0], terms[1], None)

    def count(self, token: Token, terms: Sequence[_Term], count: int) -> None:
        if len(terms) != count:
            self.fail(token, f"{token.text} takes {count} operands", len(terms))

    def only(self, token: Token, terms: Sequence[_Term]) -> Expr:
        self.count(token, terms, 1)
        term = terms[0]
        if isinstance(term, _Number):
            self.fail(
                term.token,
                "nothing says the element type of this number",
                hint=f"write it as f32({term.value})",
            )
        return term

    def cast(self, token: Token, terms: Sequence[_Term]) -> Expr:
        self.count(token, terms, 1)
        dtype, term = _TYPES[token.text], terms[0]
        return self.number(term, dtype) if isinstance(term, _Number) else cast(term, dtype)

    def select(self, token: Token, terms: Sequence[_Term]) -> Expr:
        self.count(token, terms, 3)
        condition = terms[0]
        if isinstance(condition, _Number):
            self.fail(condition.token, "a condition must be bool", condition.value)
        a, b = self.same_type(token, terms[1], terms[2], None)
        return self.build(token, lambda: select(condition, a, b))

    def load(self, token: Token) -> Expr:
        slot = slot_of(token.text, self.names)
        if slot is None:
            known = [f"%{name}" for name in self.names]
            self.fail(
                token,
                "not an operand of this operation",
                token.text,
                known or "none",
                _suggest(token.text, known),
            )
        type = self.scope.operands[slot].type
        self.take("[")
        indices: list[Expr] = []
        while self.token.kind != "]":
            if indices:
                self.take(",")
            start = self.token
            at = self.typed(0, INDEX)
            if at.dtype is not INDEX:
                self.fail(start, "an index must be of type index", at.dtype, "d0, sizes, index(x)")
            indices.append(at)
        self.take("]")
        if len(indices) != type.rank:
            self.fail(token, f"operand {token.text} has {type.rank} axes", len(indices))
        return load(slot, type.dtype, indices)

    def reduce(self, token: Token) -> Expr:
        self.take("[")
        names: list[str] = []
        extents = []
        while not names or self.token.kind == ",":
            if names:
                self.take(",")
            name = self.take("name")
            if not name.text.startswith("_") or name.text in names:
                self.fail(name, "a reduction variable starts with _ and is new", name.text)
            self.take("<")
            start = self.token
            extent = index_dim(self.typed(COMPARISON + 1, INDEX))
            if extent is None:
                self.fail(start, "a reduction's extent is made of sizes and numbers")
            names.append(name.text)
            extents.append(extent)
        self.take("]")
        self.take("(")
        body = self.typed(0, None)
        self.take(")")
        kind = token.text.removeprefix("reduce_")
        return self.build(token, lambda: reduce(kind, names, extents, body))


def _shown(token: Token) -> str:
    return repr(token.text) if token.text else "the end"


def _suggest(name: str, known: Sequence[str]) -> str | None:
    near = near_name(name, known)
    return f"did you mean {near}?" if near else None
