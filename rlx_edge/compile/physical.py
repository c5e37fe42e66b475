"""How a value lies in memory: layout, border, strides, size.

``NCHW`` (any rank) is row-major. ``NCHW4c`` stores ``[n][ceil(C/4)][h][w][4]``; lanes beyond C hold
+0. A border (top, left, bottom, right) of +0 pixels belongs to the buffer of a rank-4 value and is
outside its logical shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.ir.dims import ONE, Dim, as_dim, ceildiv, product
from rlx_edge.ir.expression import INDEX, Expr, binary, cast, index, index_dim
from rlx_edge.ir.types import TensorType

NO_BORDER = (0, 0, 0, 0)
LANES = 4


@dataclass(frozen=True, slots=True)
class Physical:
    """The storage of one value."""

    type: TensorType
    layout: str = "NCHW"
    border: tuple[int, int, int, int] = NO_BORDER

    @property
    def is_blocked(self) -> bool:
        return self.layout == "NCHW4c"

    @property
    def is_plain(self) -> bool:
        """Row-major without border: the bytes are the logical tensor."""
        return not self.is_blocked and self.border == NO_BORDER

    @property
    def extents(self) -> tuple[Dim, ...]:
        """Stored extents, borders included; blocked: n, channel blocks, h, w, 4."""
        shape = self.type.shape
        if len(shape) != 4:
            return shape
        top, left, bottom, right = self.border
        n, c, h, w = shape
        height, width = h + top + bottom, w + left + right
        if self.is_blocked:
            return (n, ceildiv(c, LANES), height, width, as_dim(LANES))
        return (n, c, height, width)

    @property
    def strides(self) -> tuple[Dim, ...]:
        """Element strides of ``extents``."""
        extents = self.extents
        strides = [ONE] * len(extents)
        for axis in range(len(extents) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * extents[axis + 1]
        return tuple(strides)

    @property
    def elements(self) -> Dim:
        return product(self.extents)

    @property
    def nbytes(self) -> Dim:
        return self.elements * self.type.dtype.bytes

    @property
    def origin(self) -> Dim:
        """Element offset of logical index (0, 0, 0, 0)."""
        if self.border == NO_BORDER:
            return as_dim(0)
        row, pixel = self.strides[2:4]
        return row * self.border[0] + pixel * self.border[1]

    def offset(self, indices: Sequence[Expr]) -> Expr:
        """Element offset of a logical index."""
        strides = self.strides
        at = [cast(item, INDEX) for item in indices]
        if self.is_blocked:
            n, c, h, w = at
            at = [n, binary("floordiv", c, index(LANES)), h, w, binary("mod", c, index(LANES))]
        total = index(self.origin)
        for item, stride in zip(at, strides, strict=True):
            dim = index_dim(item)
            scaled = (
                index(dim * stride)
                if dim is not None
                else (item if stride is ONE else binary("mul", item, index(stride)))
            )
            total = binary("add", total, scaled)
        return total


def same_bytes(a: Physical, b: Physical) -> bool:
    """Whether a row-major view from ``a``'s shape to ``b``'s leaves every byte where it is.

    Plain storage always does; blocked images do when only their rows and columns are regrouped.
    """
    if a.is_plain and b.is_plain:
        return True
    if not (a.is_blocked and b.is_blocked and a.border == b.border == NO_BORDER):
        return False
    return a.type.shape[:2] == b.type.shape[:2]
