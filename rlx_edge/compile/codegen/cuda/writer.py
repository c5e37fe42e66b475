"""Text with indentation, in parts that are filled out of order.

A statement that a loop does not change belongs before the loop, and is known only while the loop's
body is written. So every scope is a ``Block`` of its own; ``nested`` puts it where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

INDENT = "  "


@dataclass(eq=False, slots=True)
class Block:
    """Lines of one scope."""

    lines: list[str] = field(default_factory=list)

    def line(self, text: str = "") -> None:
        """Append a line, which may be empty."""
        self.lines.append(text)

    def nested(self, head: str, body: Block, foot: str = "}") -> None:
        """Append ``head {``, the lines of ``body`` and ``}``."""
        self.lines.append(f"{head} {{" if head else "{")
        self.lines += [f"{INDENT}{line}" if line else "" for line in body.lines]
        self.lines.append(foot)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(slots=True)
class Names:
    """Fresh names: ``mul``, ``mul2``, ``mul3``, …"""

    used: dict[str, int] = field(default_factory=dict)

    def fresh(self, stem: str) -> str:
        count = self.used.get(stem, 0) + 1
        self.used[stem] = count
        return stem if count == 1 else f"{stem}{count}"


def identifier(text: str) -> str:
    """``text`` with everything that C++ has no names for replaced by ``_``."""
    plain = "".join(
        char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in text
    )
    return f"_{plain}" if plain[:1].isdigit() else plain
