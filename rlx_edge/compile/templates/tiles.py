"""Shapes and forms of the contraction micro-kernels, and which one to take."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.ir.errors import RlxError

LANES = 4
VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """Shape and form of a micro-kernel.

    Attributes:
        access: `spread`, `splat` or `scalar`.
        rows: rows of a full tile; smaller kernels for 1 .. rows - 1 handle the edge.
        vectors: 4-column vectors of a full tile; smaller kernels handle the last panel.
        unroll: steps of k in one iteration, 1, 2 or 4; `spread` has 1.
    """

    access: str
    rows: int
    vectors: int
    unroll: int = 1

    @property
    def name(self) -> str:
        """Text such as `spread3x12` or `splat6x8u4`, accepted by `parse_tile`."""
        suffix = "" if self.unroll == 1 else f"u{self.unroll}"
        return f"{self.access}{self.rows}x{LANES * self.vectors}{suffix}"

    @property
    def in_place(self) -> bool:
        """Whether operand A is read through row pointers and not copied first."""
        return self.access != "spread"

    @property
    def columns(self) -> int:
        """Columns of a full panel of packed B."""
        return LANES * self.vectors


TILES: dict[str, tuple[Tile, ...]] = {
    "v8": (
        Tile("spread", 4, 2),
        Tile("splat", 4, 2),
        Tile("splat", 4, 2, 4),
        Tile("splat", 6, 2, 2),
        Tile("splat", 2, 4),
    ),
    "cranelift": (
        Tile("spread", 3, 3),
        Tile("spread", 4, 2),
        Tile("spread", 2, 4),
        Tile("spread", 5, 1),
        Tile("scalar", 4, 2),
    ),
}
"""Tiles offered for each emit style; the first is the one for many columns."""

FEW_COLUMNS: dict[str, tuple[tuple[int, Tile], ...]] = {
    "v8": ((8, Tile("splat", 4, 2)), (16, Tile("splat", 2, 4))),
    "cranelift": ((16, Tile("scalar", 4, 2)),),
}
"""(largest number of columns, tile) where the copy of operand A would not pay."""


def variants(style: str) -> tuple[Tile, ...]:
    """The tiles of an emit style, the default first.

    Raises:
        RlxError: unknown style.
    """
    if style not in TILES:
        raise RlxError("template.style", "unknown emit style", found=style, allowed=tuple(TILES))
    return TILES[style]


def choose_tile(style: str, columns: int | None) -> Tile:
    """The fastest tile of a style for a number of output columns, `None` if it is not known.

    Raises:
        RlxError: unknown style.
    """
    default = variants(style)[0]
    if columns is None:
        return default
    return next((tile for most, tile in FEW_COLUMNS[style] if columns <= most), default)


def parse_tile(name: str) -> Tile:
    """The tile of that name in any style.

    Raises:
        RlxError: no style offers it.
    """
    known = {tile.name: tile for group in TILES.values() for tile in group}
    if name not in known:
        raise RlxError("template.tile", "unknown tile", found=name, allowed=tuple(known))
    return known[name]
