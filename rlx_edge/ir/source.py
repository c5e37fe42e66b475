"""Places in text: files, spans, and the caret excerpt that errors print."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        """The line and a second one with carets under the span."""
        line, column = self.file.line_column(self.start)
        text = self.file.line(line)
        width = max(1, min(self.end - self.start, len(text) - column + 1))
        return f"{text}\n{' ' * (column - 1)}{'^' * width}"
