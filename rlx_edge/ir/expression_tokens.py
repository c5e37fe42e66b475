"""Tokens of scalar expressions, and what their operand names mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

from rlx_edge.ir.errors import ParseError
from rlx_edge.ir.lexer import MAX_DIGITS, unquote
from rlx_edge.ir.source import SourceFile, Span

MAX_LENGTH = 1 << 20
"""Characters of one expression."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<name>\$?[A-Za-z_][A-Za-z0-9_]*)
  | (?P<float>[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
  | (?P<int>[0-9]+)
  | (?P<value>%(?:[A-Za-z0-9_][A-Za-z0-9_.]*|"(?:[^"\\\n]|\\.)*")(?:\#[0-9]{1,9})?)
  | (?P<punct>//|==|!=|<=|>=|[-+*/%<>()\[\],;=])
    """,
    re.VERBOSE,
)
_OPERAND_END = ("name", "float", "int", ")", "]")

Place: TypeAlias = Callable[[int, int], Span]
"""Maps a range of an expression's text to the file that it stands in."""


class Token(NamedTuple):
    """``kind``: ``name``, ``int``, ``float``, ``value``, ``end`` or the punctuation itself."""

    kind: str
    text: str
    start: int
    end: int


def loaded_slots(text: str, operands: Sequence[str], place: Place | None = None) -> frozenset[int]:
    """Slots that an expression's text loads, found before the types that it needs are known."""
    tokens = tokenize(text, place or own_place(text))
    slots = (slot_of(token.text, operands) for token in tokens if token.kind == "value")
    return frozenset(slot for slot in slots if slot is not None)


def own_place(text: str) -> Place:
    """Places in an expression that stands alone."""
    file = SourceFile("<expression>", text)
    return lambda start, end: Span(file, start, end)


def tokenize(text: str, place: Place) -> list[Token]:
    """All tokens, one of kind ``end`` last; ``ParseError`` where none fits."""
    if len(text) > MAX_LENGTH:
        fail(place(0, 1), "the expression is too long", len(text), f"at most {MAX_LENGTH}")
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        if text[position] == "%" and tokens and tokens[-1].kind in _OPERAND_END:
            tokens.append(Token("%", "%", position, position + 1))
            position += 1
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            fail(
                place(position, position + 1),
                "no token of an expression starts with this character",
                repr(text[position]),
            )
        kind, found = match.lastgroup or "", match.group()
        if kind in ("int", "float") and len(found) > MAX_DIGITS:
            fail(place(position, match.end()), "a number is too long", len(found), MAX_DIGITS)
        if kind != "space":
            kind = found if kind == "punct" else kind
            tokens.append(Token(kind, found, position, match.end()))
        position = match.end()
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def slot_of(text: str, operands: Sequence[str]) -> int | None:
    """The slot that ``%name`` or ``%name#slot`` means."""
    name, mark, number = text[1:].rpartition("#")
    if not mark or not number.isdigit():
        name, number = text[1:], ""
    try:
        name = unquote(name) if name.startswith('"') else name
    except ValueError:
        return None
    if number:
        slot = int(number)
        return slot if slot < len(operands) and operands[slot] == name else None
    return operands.index(name) if name in operands else None


def fail(
    span: Span, what: str, found: object = None, allowed: object = None, hint: str | None = None
) -> NoReturn:
    """Raise a ``ParseError`` with the excerpt of ``span``."""
    raise ParseError(
        "parse.expression",
        what,
        found=found,
        allowed=allowed,
        hint=hint,
        where=str(span),
        excerpt=span.excerpt(),
    )
