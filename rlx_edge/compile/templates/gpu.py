"""Contraction templates of GPUs: their words, shared by every emitter that has them.

A workgroup computes a tile of outputs, each thread four rows by four columns of it. All strides and
origins are in elements. Chains follow the numerics contract: a thread adds products one by one, and
chains in order, so every tile gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.compile.epilogue_access import FULL
from rlx_edge.compile.physical import LANES, Physical
from rlx_edge.compile.select import Geometry
from rlx_edge.ir.dims import Dim, as_dim, ceildiv

EACH = 4
"""Rows and columns of a thread."""
BLOCKED = "blocked"
PLANES = "planes"


@dataclass(frozen=True, slots=True)
class GpuTile:
    """``rows`` × ``columns`` outputs of a workgroup, ``depth`` steps of k at a time.

    ``parts`` groups of threads work on as many chains at once; one adds them up in order.
    """

    rows: int
    columns: int
    depth: int
    parts: int = 1

    @property
    def name(self) -> str:
        parts = f"x{self.parts}" if self.parts > 1 else ""
        return f"{self.rows}x{self.columns}x{self.depth}{parts}"

    @property
    def part_threads(self) -> int:
        return self.rows // EACH * (self.columns // EACH)

    @property
    def threads(self) -> int:
        return self.part_threads * self.parts


WIDE = GpuTile(64, 64, 16)
NARROW = GpuTile(64, 32, 16)
"""For at most 32 columns."""
SPLIT = GpuTile(32, 32, 16, 4)
"""For few outputs: smaller tiles, and chains side by side."""
FEW_TILES = 256
"""With fewer workgroups than this, most of a large GPU has nothing to do."""
FEW_CHAINS = 3
"""With fewer chains than this, most parts of ``SPLIT`` have nothing to do."""


def parse_gpu_tile(name: str) -> GpuTile:
    return GpuTile(*(int(part) for part in name.split("x")))


def choose_gpu_tile(columns: int | None) -> GpuTile:
    """The tile for this many output columns, ``None`` where they are symbolic."""
    return NARROW if columns is not None and columns <= NARROW.columns else WIDE


# ---- matmul ------------------------------------------------------------------------------------


def matmul_slots(extras: Sequence[str]) -> tuple[str, ...]:
    return ("out", "a", "b", *extra_slots(extras))


def extra_slots(extras: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"e{number}" for number in range(len(extras)))


MATMUL_WORDS = ("slices", "m", "n", "k", "a_slice", "b_slice")
"""Slices (batch entries), rows, columns, depth; elements from slice to slice, 0 to broadcast."""

# ---- conv2d ------------------------------------------------------------------------------------

_CONV_WORDS = (
    *("slices", "images", "height", "width", "n", "channels", "blocks"),
    *("a_origin", "a_slice", "a_image", "a_plane"),
    *("a_row", "a_pixel", "a_tap_row", "a_tap_column", "b_row"),
)
_STORED_WORDS = ("origin", "slice", "image", "plane", "row")


def conv_words(extras: Sequence[str]) -> tuple[str, ...]:
    """Words of a conv2d or depthwise kernel: slices are groups, ``n`` output channels of one,
    ``channels`` input channels of one in ``blocks`` of four, ``b_row`` packed weights of one k."""
    stored = [slot for slot, kind in zip(extra_slots(extras), extras, strict=True) if kind == FULL]
    return (
        *_CONV_WORDS,
        *(f"out_{word}" for word in _STORED_WORDS),
        *(f"{slot}_{word}" for slot in stored for word in _STORED_WORDS),
    )


def conv_arguments(
    x: Physical,
    out: Physical,
    geometry: Geometry,
    extras: Sequence[str],
    stored: Sequence[Physical | None],
) -> tuple[Dim, ...]:
    """The dims of ``conv_words``; ``stored`` gives each ``full`` extra's storage."""
    images, channels = x.type.shape[:2]
    out_channels, height, width = out.type.shape[1:]
    groups = as_dim(geometry.groups)
    n, group_channels = out_channels // groups, channels // groups
    blocks = ceildiv(group_channels, LANES)
    image, plane, row, pixel = x.strides[:4]
    top, left = (x.border[axis] - geometry.padding[axis] for axis in (0, 1))
    values: dict[str, Dim] = {
        "slices": groups,
        "images": images,
        "height": height,
        "width": width,
        "n": n,
        "channels": group_channels,
        "blocks": blocks,
        "a_origin": row * top + pixel * left,
        "a_slice": (blocks if x.is_blocked else group_channels) * plane,
        "a_image": image,
        "a_plane": plane,
        "a_row": row * geometry.stride[0],
        "a_pixel": pixel * geometry.stride[1],
        "a_tap_row": row * geometry.dilation[0],
        "a_tap_column": pixel * geometry.dilation[1],
        "b_row": packed_columns(n),
        **_stored("out", out, n),
    }
    for slot, kind, storage in zip(extra_slots(extras), extras, stored, strict=True):
        if kind == FULL and storage is not None:
            values |= _stored(slot, storage, n)
    return tuple(values[name] for name in conv_words(extras))


def packed_columns(n: Dim) -> Dim:
    """Columns of packed weights: whole vectors of four."""
    return ceildiv(n, LANES) * LANES


def _stored(slot: str, stored: Physical, n: Dim) -> Mapping[str, Dim]:
    image, plane, row, _ = stored.strides[:4]
    return {
        f"{slot}_origin": stored.origin,
        f"{slot}_slice": (ceildiv(n, LANES) if stored.is_blocked else n) * plane,
        f"{slot}_image": image,
        f"{slot}_plane": plane,
        f"{slot}_row": row,
    }


def layout_of(stored: Physical) -> str:
    return BLOCKED if stored.is_blocked else PLANES
