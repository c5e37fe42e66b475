"""The common part of reading text: expecting tokens, lists, dims and types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn, TypeVar

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.dims import Dim, as_dim, parse_dim
from rlx_edge.ir.errors import ParseError, RlxError
from rlx_edge.ir.lexer import Lexer, Token
from rlx_edge.ir.source import SourceFile, Span
from rlx_edge.ir.types import DTYPES, DType, TensorType

MAX_LIST = 1 << 16
"""Entries of one list: parameters, operands, attribute values."""
MAX_RANK = 32
MAX_DIM_TOKENS = 512
MAX_DIM_OPERATORS = 64
"""``//``, ``%``, ``max`` and ``min`` of one dim; they nest, and evaluation recurses."""
INTEGER_RANGE = (-(1 << 63), (1 << 64) - 1)

_DIM_TOKENS = ("name", "int", "+", "-", "*", "//", "%", "(", ")", ",")

T = TypeVar("T")


class TokenReader:
    """One token of look-ahead over a ``Lexer``."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.lexer = Lexer(file)
        self.token = self.lexer.next()
        self.end = 0
        """Where the last taken token ended."""
        self.dims: dict[str, Dim] = {}

    def take(self) -> Token:
        token = self.token
        self.end = token.end
        self.token = self.lexer.next()
        return token

    def at(self, kind: str, text: str | None = None) -> bool:
        return self.token.kind == kind and (text is None or self.token.text == text)

    def accept(self, kind: str, text: str | None = None) -> bool:
        """Take the token if it is this one."""
        if self.at(kind, text):
            self.take()
            return True
        return False

    def expect(self, kind: str, what: str | None = None) -> Token:
        """Take a token of ``kind``; ``what`` says in words what is allowed here."""
        if self.token.kind != kind:
            self.unexpected(what or f"'{kind}'")
        return self.take()

    def keyword(self, word: str) -> Token:
        if not self.at("name", word):
            self.unexpected(f"'{word}'")
        return self.take()

    def unexpected(self, allowed: object, hint: str | None = None) -> NoReturn:
        if hint is None and self.token.kind in ("//", "%") and self.lexer.depth:
            hint = "inside brackets // divides dims; a comment starts outside of them"
        self.fail(self.token, "unexpected text", shown(self.token), allowed, hint=hint)

    def fail(
        self,
        place: Token | Span,
        what: str,
        found: object = None,
        allowed: object = None,
        *,
        code: str = "parse.syntax",
        hint: str | None = None,
    ) -> NoReturn:
        span = place if isinstance(place, Span) else self.span(place)
        raise ParseError(
            code,
            what,
            found=found,
            allowed=allowed,
            hint=hint,
            where=str(span),
            excerpt=span.excerpt(),
        )

    def span(self, token: Token) -> Span:
        return Span(self.file, token.start, max(token.end, token.start + 1))

    def since(self, first: Token) -> Span:
        """From ``first`` to the last taken token."""
        return Span(self.file, first.start, self.end)

    def items(self, close: str, read: Callable[[], T], limit: int = MAX_LIST) -> list[T]:
        """``read``, separated by commas, up to and with ``close``; a last comma is allowed."""
        found: list[T] = []
        while not self.at(close):
            if len(found) == limit:
                self.fail(
                    self.token, "a list is too long", allowed=f"at most {limit}", code="parse.limit"
                )
            found.append(read())
            if not self.accept(","):
                break
        self.expect(close, f"',' or '{close}'")
        return found

    # ---- values of one token or two ----------------------------------------------------------

    def integer(self) -> int:
        first = self.token
        negative = self.accept("-")
        value = int(self.expect("int", "an integer").text)
        value = -value if negative else value
        if not INTEGER_RANGE[0] <= value <= INTEGER_RANGE[1]:
            self.fail(self.since(first), "an integer has more than 64 bits", value)
        return value

    def number(self) -> int | float:
        """An integer or a float; ``inf`` and ``nan`` are floats."""
        first = self.token
        negative = self.accept("-")
        token = self.take()
        if token.kind == "int":
            value: int | float = int(token.text)
            if negative and value == 0:
                self.fail(self.since(first), "minus zero", allowed="-0.0 for floats, 0 otherwise")
        elif token.kind == "float" or (token.kind == "name" and token.text in ("inf", "nan")):
            value = self.finite(token, float(token.text))
        else:
            self.fail(token, "a number is missing", shown(token), "1, -0.5, 1e-05, inf, nan")
        value = -value if negative else value
        if isinstance(value, int) and not INTEGER_RANGE[0] <= value <= INTEGER_RANGE[1]:
            self.fail(self.since(first), "an integer has more than 64 bits", value)
        return value

    def finite(self, token: Token, value: float) -> float:
        """``value``, unless the digits of ``token`` are too large for it."""
        if math.isinf(value) and token.kind != "name":
            self.fail(token, "a number is too large for its type", token.text)
        return value

    def boolean(self) -> bool:
        if not (self.at("name", "true") or self.at("name", "false")):
            self.unexpected("true or false")
        return self.take().text == "true"

    def string(self) -> str:
        return self.expect("string", "a string").text

    def dtype(self) -> DType:
        return self.dtype_of(self.expect("name", "an element type"))

    def dtype_of(self, token: Token) -> DType:
        if token.text not in DTYPES:
            self.fail(token, "unknown element type", token.text, list(DTYPES), code="parse.type")
        return DTYPES[token.text]

    # ---- dims and types ----------------------------------------------------------------------

    def dim(self) -> Dim:
        """A dim up to the next comma, closing bracket or other token at its own level."""
        first = self.token
        words: list[str] = []
        depth = operators = 0
        while self.token.kind in _DIM_TOKENS:
            kind = self.token.kind
            if depth == 0 and (kind in (",", ")") or (words and self.token.first)):
                break
            depth += (kind == "(") - (kind == ")")
            operators += kind in ("//", "%") or self.token.text in ("max", "min")
            words.append(self.take().text)
            if len(words) > MAX_DIM_TOKENS or operators > MAX_DIM_OPERATORS:
                self.fail(
                    self.since(first),
                    "a dim is too long",
                    allowed=f"{MAX_DIM_TOKENS} words, {MAX_DIM_OPERATORS} of them // % max min",
                    code="parse.limit",
                )
        if not words:
            self.unexpected("a dim: integers, names, + - * // %, max(a, b), min(a, b)")
        text = " ".join(words)
        dim = self.dims.get(text)
        if dim is None:
            dim = self._new_dim(text, first)
            self.dims[text] = dim
        return dim

    def _new_dim(self, text: str, first: Token) -> Dim:
        if text.isdigit():
            return as_dim(int(text))
        try:
            return parse_dim(text)
        except RlxError as error:
            self.fail(self.since(first), error.what, error.found, error.allowed, code="parse.dim")

    def type(self) -> TensorType:
        """``f32[batch, 10]``."""
        return self.type_of(self.expect("name", "an element type"))

    def type_of(self, element: Token) -> TensorType:
        """The type whose element type was taken already."""
        dtype = self.dtype_of(element)
        self.expect("[", "'[' and the shape")
        return TensorType(dtype, tuple(self.items("]", self.dim, MAX_RANK)))

    # ---- attribute values --------------------------------------------------------------------

    def value(self, kind: str) -> Attribute:
        """A value of one of ``attributes.KINDS`` but ``expression``."""
        if kind in ("ints", "strings", "dims"):
            self.expect("[", f"'[' and a list of {kind}")
            if kind == "ints":
                return tuple(self.items("]", self.integer))
            if kind == "strings":
                return tuple(self.items("]", self.string))
            return tuple(self.items("]", self.dim))
        if kind == "float":
            return float(self.number())
        if kind == "number":
            boolean = self.at("name", "true") or self.at("name", "false")
            return self.boolean() if boolean else self.number()
        if kind == "dim":
            return self.dim()
        if kind == "int":
            return self.integer()
        if kind == "bool":
            return self.boolean()
        return self.dtype() if kind == "dtype" else self.string()

    def finish(self) -> None:
        if self.token.kind != "end":
            self.unexpected("the end of the text")


def shown(token: Token) -> str:
    """A token in a message."""
    if token.kind == "end":
        return "the end of the text"
    mark = {"value": "%", "function": "@"}.get(token.kind, "")
    return repr(mark + token.text[:80])


def parse_type(text: str, name: str = "<type>") -> TensorType:
    """The type of its text form; ``ParseError`` otherwise."""
    reader = TokenReader(SourceFile(name, text))
    found = reader.type()
    reader.finish()
    return found
