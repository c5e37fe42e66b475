"""Places in text: files, spans, and the caret excerpt that errors print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_EXCERPT = 160
"""Characters of a source line that an excerpt shows."""
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Text of one IR file; ``name`` is what messages show."""

    name: str
    text: str = field(repr=False)

    def line_column(self, position: int) -> tuple[int, int]:
        """1-based line and column of a character position."""
        before = self.text[:position]
        return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1

    def line(self, number: int) -> str:
        """Line ``number`` (1-based) without its newline."""
        return self.text.split("\n")[number - 1]


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start`` to ``end`` (exclusive) of ``file``."""

    file: SourceFile
    start: int
    end: int

    def __str__(self) -> str:
        line, column = self.file.line_column(self.start)
        return f"{self.file.name}:{line}:{column}"

    def excerpt(self) -> str:
        """The line and a second one with carets under the span; a long line is cut around it."""
        line, column = self.file.line_column(self.start)
        text, at = self.file.line(line).rstrip("\r"), column - 1
        end = min(len(text), at + max(1, self.end - self.start))
        before, after = "", ""
        if len(text) > MAX_EXCERPT:
            first = max(0, min(at - MAX_EXCERPT // 4, len(text) - MAX_EXCERPT))
            last = first + MAX_EXCERPT
            before, after = "… " if first else "", " …" if last < len(text) else ""
            text, at, end = text[first:last], at - first, min(end - first, MAX_EXCERPT)
        shown = f"{before}{_HIDDEN.sub(' ', text)}{after}"
        return f"{shown}\n{' ' * (len(before) + at)}{'^' * max(1, end - at)}"


@dataclass(frozen=True, slots=True)
class OpSpan(Span):
    """An operation's place: its first line, and ``parts`` such as ``attribute stride``."""

    parts: Mapping[str, Span] = field(default_factory=dict, repr=False, compare=False)
