"""Tokens of the text form.

``//`` is a comment, except after an operand inside ``(…)`` or ``[…]``, where it is the floor
division of dims; ``%`` likewise is the remainder there and starts a value name elsewhere. The
printer puts a dim that contains either outside of brackets into parentheses.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from rlx_edge.ir.errors import ParseError
from rlx_edge.ir.source import SourceFile, Span

MAX_TEXT = 64 << 20
"""Characters of one module's text."""
MAX_STRING = 1 << 20
MAX_DIGITS = 40
MAX_NAME = 1024

HEADER = "rlx.module"


class Token(NamedTuple):
    """``kind``: ``name``, ``op``, ``value``, ``function``, ``int``, ``float``, ``string``, ``end``
    or the punctuation itself. ``text`` is decoded for names and strings."""

    kind: str
    text: str
    start: int
    end: int
    first: bool
    """Whether it is the first token of its line."""


_PLAIN_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.]*"
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\r]+)
  | (?P<line>\n)
  | (?P<header>rlx\.module\b)
  | (?P<op>[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)+)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<float>[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
  | (?P<int>[0-9]+)
  | (?P<string>{_STRING})
  | (?P<value>%(?:{_PLAIN_NAME}|{_STRING}))
  | (?P<function>@(?:{_PLAIN_NAME}|{_STRING}))
  | (?P<punct>//|->|==|!=|<=|>=|[-+*%<>=()\[\]{{}},:])
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(r"//[^\n]*")
_OPERAND_END = ("name", "int", ")")
_PLAIN = re.compile(_PLAIN_NAME)


class Lexer:
    """Reads tokens one after another; ``ParseError`` where no token fits."""

    def __init__(self, file: SourceFile) -> None:
        if len(file.text) > MAX_TEXT:
            raise ParseError(
                "parse.limit",
                "the text is too long",
                found=f"{len(file.text)} characters",
                allowed=f"at most {MAX_TEXT}",
                where=file.name,
            )
        self.file = file
        self.position = 0
        self.depth = 0
        self.previous = ""
        self.first = True

    def next(self) -> Token:
        """The next token; at the end of the text one of kind ``end``, again and again."""
        text = self.file.text
        while self.position < len(text):
            start = self.position
            two = text[start : start + 2]
            if two == "//" and not self._after_operand():
                comment = _COMMENT.match(text, start)
                self.position = comment.end() if comment else len(text)
                continue
            if two[0] == "%" and self._after_operand():
                return self._token("%", "%", start, start + 1)
            match = _TOKEN.match(text, start)
            if match is None:
                self._unreadable(start)
            kind = match.lastgroup or ""
            if kind == "line":
                self.first = True
            if kind in ("space", "line"):
                self.position = match.end()
                continue
            return self._read(kind, match.group(), start, match.end())
        return self._token("end", "", len(text), len(text))

    def _after_operand(self) -> bool:
        return self.depth > 0 and self.previous in _OPERAND_END

    def _read(self, kind: str, text: str, start: int, end: int) -> Token:
        if kind == "punct":
            if text in ("(", "["):
                self.depth += 1
            elif text in (")", "]"):
                self.depth = max(0, self.depth - 1)
            return self._token(text, text, start, end)
        if kind in ("int", "float"):
            self._check_number(text, start, end)
        elif kind == "string":
            text = self._decode(text, start, end, MAX_STRING)
        elif kind in ("value", "function"):
            quoted = text[1] == '"'
            text = self._decode(text[1:], start, end, MAX_NAME) if quoted else text[1:]
            if len(text) > MAX_NAME or not text:
                self.fail("a name is empty or too long", start, end, allowed=f"1 to {MAX_NAME}")
        elif kind != "header" and len(text) > MAX_NAME:
            self.fail("a name is too long", start, end, allowed=f"at most {MAX_NAME}")
        return self._token(kind, text, start, end)

    def _token(self, kind: str, text: str, start: int, end: int) -> Token:
        token = Token(kind, text, start, end, self.first)
        self.position, self.previous, self.first = end, kind, False
        return token

    def _check_number(self, text: str, start: int, end: int) -> None:
        after = self.file.text[end : end + 1]
        if after.isalnum() or after == "_" or after == ".":
            self.fail("a number runs into the next character", start, end + 1)
        if len(text) > MAX_DIGITS:
            self.fail("a number is too long", start, end, allowed=f"at most {MAX_DIGITS} digits")

    def _decode(self, text: str, start: int, end: int, limit: int) -> str:
        if len(text) - 2 > limit:
            self.fail("a string is too long", start, end, allowed=f"at most {limit} characters")
        try:
            return unquote(text)
        except ValueError as error:
            self.fail(str(error), start, end, allowed='\\\\ \\" \\n \\r \\t \\uXXXX')

    def _unreadable(self, start: int) -> NoReturn:
        character = self.file.text[start]
        if character == '"':
            self.fail("a string does not end on its line", start, start + 1)
        self.fail("no token starts with this character", start, start + 1, found=repr(character))

    def fail(
        self, what: str, start: int, end: int, *, found: object = None, allowed: object = None
    ) -> NoReturn:
        span = Span(self.file, start, end)
        raise ParseError(
            "parse.token",
            what,
            found=found,
            allowed=allowed,
            where=str(span),
            excerpt=span.excerpt(),
        )


# ---- quoting ---------------------------------------------------------------------------------

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPES = {text[1]: char for char, text in _ESCAPES.items()}
# Characters that would break a line, hide text in a terminal or not encode as UTF-8.
_UNSAFE = re.compile(
    '["\\\\\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]'
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def quote(text: str) -> str:
    """``text`` as a string literal; what ``unquote`` reads back exactly."""
    return f'"{_UNSAFE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def unquote(literal: str) -> str:
    """The text of a string literal; ``ValueError`` for an unknown escape."""
    return _ESCAPE.sub(_unescape, literal[1:-1])


def _unescape(match: re.Match[str]) -> str:
    body = match.group(1)
    if body[0] == "u" and len(body) == 5:
        character = chr(int(body[1:], 16))
        if "\ud800" <= character <= "\udfff":
            raise ValueError("a string holds half of a surrogate pair")
        return character
    if body not in _UNESCAPES:
        raise ValueError("a string holds an unknown escape")
    return _UNESCAPES[body]


def sigil_name(sigil: str, name: str) -> str:
    """``%name``, quoted where it is not made of ASCII letters, digits, ``_`` and ``.``."""
    return f"{sigil}{name}" if _PLAIN.fullmatch(name) else f"{sigil}{quote(name)}"
