"""Which layouts an operation can work in: the constraints of the layout pass.

``PLAIN`` (NCHW of any rank) and ``BLOCKED`` (NCHW4c) are fixed; ``OWN`` is the layout that the
pass chooses for the operation's result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rlx_edge.compile.epilogue_access import (
    BATCH_CHANNEL,
    CHANNEL,
    FULL,
    SCALAR,
    load_accesses,
)
from rlx_edge.compile.physical import LANES
from rlx_edge.ir.core import Op
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.ops import definition_expression, lookup, root_name, root_operand_count
from rlx_edge.ir.types import F32, TensorType

PLAIN = "NCHW"
BLOCKED = "NCHW4c"
OWN = "own"

WINDOW_POOLS = ("rlxc::max_pool2d", "rlxc::average_pool2d")
REDUCTIONS = (
    "rlxc::reduce_sum",
    "rlxc::reduce_mean",
    "rlxc::reduce_max",
    "rlxc::reduce_min",
    "rlxc::reduce_prod",
    "rlxc::reduce_l2",
)
ALONG_CHANNELS = (
    *WINDOW_POOLS,
    "rlxc::global_average_pool",
    "rlxc::global_max_pool",
    "rlxc::copy",
)
"""Operators that treat every channel alone, whatever their attributes are."""
MANY_CHANNELS = 16
"""From this many input channels a dense convolution reads blocks even with a ragged last one."""


@dataclass(frozen=True, slots=True)
class Demand:
    """``operands``: a layout for each operand; ``result``: ``PLAIN`` or ``OWN``."""

    operands: tuple[str, ...]
    result: str


def demand_of(op: Op) -> Demand:
    """What ``op`` accepts; all plain where no blocked form exists."""
    plain = Demand((PLAIN,) * len(op.operands), PLAIN)
    if len(op.results) != 1 or not _is_image(op.result.type) or op.attrs["phase"] != "execute":
        return plain
    root = root_name(op.name)
    if root == "rlxc::conv2d":
        return _convolution(op, _root_count(op))
    if "elementwise" in lookup(op.name).traits:
        return _elementwise(op, plain)
    if _treats_channels_alone(op, root):
        count = _root_count(op)
        extras = _extra_layouts(op, count)
        return plain if extras is None else Demand((OWN,) * count + extras, OWN)
    return plain


def _is_image(type: TensorType) -> bool:
    return type.rank == 4 and type.dtype is F32


def _root_count(op: Op) -> int:
    epilogue = op.attrs.get("epilogue")
    fused = epilogue if isinstance(epilogue, Expr) else None
    return root_operand_count(lookup(op.name), len(op.operands), fused)


# ---- convolutions ----------------------------------------------------------------------------


def reads_blocks(op: Op) -> bool:
    """Whether a conv2d's template reads its input in blocks of four channels.

    Dense: many channels, or a multiple of four. Grouped: multiples of four in every group, in and
    out, or depthwise (each group one channel in, one out).
    """
    channels, out = op.operands[0].type.shape[1], op.operands[1].type.shape[0]
    groups = cast(int, op.attrs["groups"])
    if groups == 1:
        many = channels.is_constant and channels.value >= MANY_CHANNELS
        return many or channels.divisible_by(LANES)
    depthwise = channels == out and channels.is_constant and channels.value == groups
    return depthwise or (channels.divisible_by(LANES * groups) and out.divisible_by(LANES * groups))


def writes_blocks(op: Op) -> bool:
    """Whether a conv2d can store blocks: groups must not share one."""
    groups = cast(int, op.attrs["groups"])
    return groups == 1 or reads_blocks(op)


def _convolution(op: Op, count: int) -> Demand:
    extras = _extra_layouts(op, count)
    blocked = extras is not None and writes_blocks(op)
    source = BLOCKED if reads_blocks(op) else PLAIN
    operands = (source, *(PLAIN,) * (count - 1))
    if not blocked or extras is None:
        return Demand(operands + (PLAIN,) * (len(op.operands) - count), PLAIN)
    return Demand(operands + extras, OWN)


# ---- elementwise and channelwise ---------------------------------------------------------------


def _elementwise(op: Op, plain: Demand) -> Demand:
    layouts = _layouts(op, definition_expression(op)[1], range(len(op.operands)))
    return plain if layouts is None or OWN not in layouts else Demand(layouts, OWN)


def _extra_layouts(op: Op, count: int) -> tuple[str, ...] | None:
    """Layouts of the operands that only the epilogue reads; ``None`` when one has no form."""
    epilogue = op.attrs.get("epilogue")
    if not isinstance(epilogue, Expr):
        return ()
    return _layouts(op, epilogue, range(count, len(op.operands)))


def _layouts(op: Op, value: Expr, slots: range) -> tuple[str, ...] | None:
    types = [operand.type for operand in op.operands]
    forms = load_accesses(value, types, op.result.type, 1)
    layouts: list[str] = []
    for slot in slots:
        form = forms.get(slot, SCALAR)
        if form in (CHANNEL, SCALAR):
            layouts.append(PLAIN)
        elif form in (FULL, BATCH_CHANNEL) and _is_image(types[slot]):
            layouts.append(OWN)
        else:
            return None
    return tuple(layouts)


def _treats_channels_alone(op: Op, root: str) -> bool:
    source = op.operands[0].type if op.operands else op.result.type
    if not _is_image(source):
        return False
    if root in ALONG_CHANNELS:
        return True
    if root in REDUCTIONS:
        axes = cast("tuple[int, ...]", op.attrs["axes"])
        return op.attrs["keepdims"] is True and all(axis >= 2 for axis in axes)
    if root == "rlxc::resize":
        return op.attrs["mode"] == "nearest" and source.shape[:2] == op.result.type.shape[:2]
    if root == "rlxc::concat":
        operands = op.operands[: _root_count(op)]
        return op.attrs["axis"] == 1 and all(
            item.type.shape[1].divisible_by(LANES) for item in operands
        )
    return False
