"""Sizes that a model says are equal although they have different names.

``x: [n, seq] + w: [512]`` only works where ``seq`` is 512. When inference finds two sizes that do
not agree and one of them is the bare name of an input's dim, the import starts again with that
name replaced, so that the parameter's type itself states the requirement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.dims import ONE, Dim
from rlx_edge.ir.types import TensorType


class Unify(Exception):
    """``symbol`` must be ``dim``."""

    def __init__(self, symbol: str, dim: Dim) -> None:
        super().__init__(symbol, dim)
        self.symbol = symbol
        self.dim = dim


def find(
    name: str,
    types: Sequence[TensorType],
    attrs: Mapping[str, Attribute],
    elementwise: bool,
) -> Unify | None:
    """The first replacement that would make the operands of ``name`` agree."""
    for a, b in _equal_sizes(name, [item.shape for item in types], attrs, elementwise):
        for left, right in ((b, a), (a, b)):
            symbol = bare_symbol(left)
            if symbol is not None and (right.is_constant or bare_symbol(right) is not None):
                return Unify(symbol, right)
    return None


def bare_symbol(dim: Dim) -> str | None:
    """The name if ``dim`` is nothing but a symbol."""
    names = dim.symbols()
    return names[0] if len(names) == 1 and str(dim) == names[0] else None


def _equal_sizes(
    name: str,
    shapes: Sequence[tuple[Dim, ...]],
    attrs: Mapping[str, Attribute],
    elementwise: bool,
) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of different sizes that the operator needs to be equal."""
    pairs: Iterator[tuple[Dim, Dim]]
    if elementwise:
        pairs = _broadcast_pairs(shapes)
    elif name == "rlxc::matmul" and min(map(len, shapes)) > 0:
        pairs = _matmul_pairs(shapes[0], shapes[1])
    elif name in ("rlxc::conv2d", "rlxc::conv_transpose2d"):
        groups = attrs.get("groups")
        count = groups if isinstance(groups, int) else 1
        transposed = name == "rlxc::conv_transpose2d"
        inner = shapes[1][0] if transposed else shapes[1][1] * count
        pairs = iter([(shapes[0][1], inner)])
    elif name == "rlxc::concat":
        axis = attrs.get("axis")
        pairs = (
            (a, b)
            for shape in shapes[1:]
            for at, (a, b) in enumerate(zip(shapes[0], shape, strict=False))
            if at != axis
        )
    elif name in ("rlxc::batch_norm", "rlxc::layer_norm"):
        at = 1 if name == "rlxc::batch_norm" else -1
        pairs = ((shapes[0][at], shape[-1]) for shape in shapes[1:] if shape)
    else:
        pairs = iter(())
    return ((a, b) for a, b in pairs if a is not b)


def _broadcast_pairs(shapes: Sequence[tuple[Dim, ...]]) -> Iterator[tuple[Dim, Dim]]:
    for at, shape in enumerate(shapes):
        for other in shapes[at + 1 :]:
            for a, b in zip(reversed(shape), reversed(other), strict=False):
                if a is not ONE and b is not ONE:
                    yield a, b


def _matmul_pairs(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> Iterator[tuple[Dim, Dim]]:
    yield a[-1], b[-2] if len(b) > 1 else b[-1]
    yield from _broadcast_pairs((a[:-2], b[:-2]))
