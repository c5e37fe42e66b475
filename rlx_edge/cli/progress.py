"""Progress bars, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def is_shown() -> bool:
    """Whether somebody looks at stderr."""
    return sys.stderr.isatty()


def tracked(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """``items`` with a bar on stderr when that is a terminal; nothing is drawn for one item."""
    if not is_shown() or total == 1:
        yield from items
        return
    from tqdm import tqdm

    yield from tqdm(items, desc=title, total=total, file=sys.stderr, leave=False)


class Steps:
    """One line on stderr that says which step is under way."""

    def __init__(self) -> None:
        self._shown = is_shown()
        self._width = 0
        self._last = ""

    def __call__(self, step: str) -> None:
        if self._shown and step != self._last:
            self._last = step
            print(f"\r{step + ' …':<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = max(self._width, len(step) + 2)

    def clear(self) -> None:
        """Remove the line."""
        if self._shown and self._width:
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr, flush=True)
            self._width, self._last = 0, ""
