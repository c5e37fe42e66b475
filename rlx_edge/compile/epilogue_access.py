"""How an expression reads an operand at an output position: the forms that templates know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.ir.dims import ONE, Dim, symbol
from rlx_edge.ir.expression import Expr, index_dim, walk
from rlx_edge.ir.types import TensorType

FULL = "full"
"""The element at the output's own indices; the operand has the output's shape."""
CHANNEL = "channel"
"""One element a channel: ``[C, 1, 1]``, ``[1, C, 1, 1]``; ``[N]`` for matrices."""
BATCH_CHANNEL = "batch_channel"
"""One element an image and channel of an image: ``[N, C, 1, 1]``."""
SCALAR = "scalar"
"""The only element."""


def channel_axis(root: str, rank: int) -> int:
    """Channel axis of a contraction's result: the last of matrices, the second of images."""
    return rank - 1 if root == "rlxc::matmul" else 1


def load_accesses(
    expr: Expr, types: Sequence[TensorType], result: TensorType, channel: int
) -> dict[int, str | None]:
    """Slot → form for each operand slot that ``expr`` loads, ``None`` for any other access.

    ``expr`` is the element of ``result`` at ``(_i0, _i1, …)``, ``types`` are the slots' types.
    Where several forms fit, the first of full, scalar, channel, batch_channel is meant.
    """
    found: dict[int, str | None] = {}
    for node in walk(expr):
        if node.op != "load" or not isinstance(node.attr, int):
            continue
        form = _form(node, types[node.attr], result, channel)
        found[node.attr] = form if found.setdefault(node.attr, form) == form else None
    return found


def _form(node: Expr, operand: TensorType, result: TensorType, channel: int) -> str | None:
    axes = [_axis(item, result) for item in node.args]
    if None in axes:
        return None
    moving = [axis for axis in axes if axis is not None and axis >= 0]
    if operand.shape == result.shape and moving == _moving_axes(result):
        return FULL
    if not moving:
        return SCALAR
    if moving == [channel]:
        return CHANNEL
    if result.rank == 4 and operand.rank == 4 and channel == 1 and moving in ([0], [0, 1]):
        same = operand.shape[:2] == result.shape[:2]
        return BATCH_CHANNEL if same else None
    return None


def _axis(item: Expr, result: TensorType) -> int | None:
    """The output axis that an index walks, -1 for one that stays at 0, ``None`` for another."""
    dim = index_dim(item)
    if dim is None:
        return None
    if dim.is_constant:
        return -1 if dim.value == 0 else None
    axis = _VARIABLES.get(dim)
    if axis is None or axis >= result.rank:
        return None
    return -1 if result.shape[axis] is ONE else axis


def _moving_axes(result: TensorType) -> list[int]:
    return [axis for axis, dim in enumerate(result.shape) if dim is not ONE]


MAX_RANK = 16
_VARIABLES: Mapping[Dim, int] = {symbol(f"_i{axis}"): axis for axis in range(MAX_RANK)}
