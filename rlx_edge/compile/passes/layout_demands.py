"""Which layouts an operation can work in: the constraints of the layout pass.

``PLAIN`` (NCHW of any rank) and ``BLOCKED`` (NCHW4c) are fixed; ``OWN`` is the layout that the
pass chooses for the operation's result; ``ANY`` is an operand whose bytes are the same in both.
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
from rlx_edge.ir.dims import ONE
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.ops import definition_expression, lookup, root_name, root_operand_count
from rlx_edge.ir.types import F32, TensorType

PLAIN = "NCHW"
BLOCKED = "NCHW4c"
OWN = "own"
ANY = "any"

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
    """``operands``: a layout for each operand; ``result``: ``PLAIN``, ``BLOCKED`` or ``OWN``."""

    operands: tuple[str, ...]
    result: str


def demand_of(op: Op) -> Demand:
    """What ``op`` accepts; all plain where no blocked form exists."""
    plain = Demand((PLAIN,) * len(op.operands), PLAIN)
    if len(op.results) != 1 or not _is_image(op.result.type) or op.attrs["phase"] != "execute":
        return plain
    root = root_name(op.name)
    if op.name == "rlxc::convert_layout":
        return Demand((ANY,), str(op.attrs["memory_layout"]))
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


def same_bytes(type: TensorType) -> bool:
    """Whether NCHW and NCHW4c store an image alike: one pixel, whole blocks of channels."""
    _, c, h, w = type.shape
    return h is ONE and w is ONE and c.divisible_by(LANES)


def _root_count(op: Op) -> int:
    epilogue = op.attrs.get("epilogue")
    fused = epilogue if isinstance(epilogue, Expr) else None
    return root_operand_count(lookup(op.name), len(op.operands), fused)


# ---- convolutions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConvForm:
    """Layouts of a conv2d's input and result."""

    input: str
    result: str


def conv_form(op: Op) -> ConvForm:
    """How templates run a conv2d.

    Dense with many input channels, or a multiple of four: reads blocks, writes either. Dense with
    few: reads planes, writes either. Depthwise (each group one channel in, one out): blocks only.
    Other groups: blocks where they hold whole ones, in and out, otherwise planes.
    """
    channels, out = op.operands[0].type.shape[1], op.operands[1].type.shape[0]
    groups = cast(int, op.attrs["groups"])
    if groups == 1:
        many = channels.is_constant and channels.value >= MANY_CHANNELS
        return ConvForm(BLOCKED if many or channels.divisible_by(LANES) else PLAIN, OWN)
    if channels == out and channels.is_constant and channels.value == groups:
        return ConvForm(BLOCKED, BLOCKED)
    whole = channels.divisible_by(LANES * groups) and out.divisible_by(LANES * groups)
    return ConvForm(BLOCKED, OWN) if whole else ConvForm(PLAIN, PLAIN)


def _convolution(op: Op, count: int) -> Demand:
    form = conv_form(op)
    extras = _extra_layouts(op, count)
    first = (form.input, *(PLAIN,) * (count - 1))
    if extras is None:
        return Demand(first + (PLAIN,) * (len(op.operands) - count), PLAIN)
    if form.result != OWN:
        extras = tuple(form.result if layout == OWN else layout for layout in extras)
    return Demand(first + extras, form.result)


# ---- elementwise and channelwise ---------------------------------------------------------------


def _elementwise(op: Op, plain: Demand) -> Demand:
    layouts = _layouts(op, definition_expression(op)[1], range(len(op.operands)))
    if layouts is None or not {OWN, ANY} & set(layouts):
        return plain
    return Demand(layouts, OWN)


def _extra_layouts(op: Op, count: int) -> tuple[str, ...] | None:
    """Layouts of the operands that only the epilogue reads; ``None`` when one has no form."""
    epilogue = op.attrs.get("epilogue")
    if not isinstance(epilogue, Expr):
        return ()
    return _layouts(op, epilogue, range(count, len(op.operands)))


def _layouts(op: Op, value: Expr, slots: range) -> tuple[str, ...] | None:
    types = [operand.type for operand in op.operands]
    forms = load_accesses(value, types, op.result.type, 1)
    layouts = [_layout_of(forms.get(slot, SCALAR), types[slot]) for slot in slots]
    return None if None in layouts else tuple(layout for layout in layouts if layout is not None)


def _layout_of(form: str | None, type: TensorType) -> str | None:
    """The layout of an operand that is read in this form; vectors are read as plain bytes."""
    if form == FULL:
        return OWN if _is_image(type) else None
    if form not in (CHANNEL, SCALAR, BATCH_CHANNEL):
        return None
    return ANY if _is_image(type) and same_bytes(type) else PLAIN


def _treats_channels_alone(op: Op, root: str) -> bool:
    source = op.operands[0].type if op.operands else op.result.type
    if not _is_image(source):
        return False
    if root in ALONG_CHANNELS:
        return True
    if root in REDUCTIONS:
        axes = cast("tuple[int, ...]", op.attrs["axes"])
        return op.attrs["keepdims"] is True and all(axis >= 2 for axis in axes)
    if root == "rlxc::reshape":
        return source.shape[:2] == op.result.type.shape[:2]
    if root == "rlxc::resize":
        return op.attrs["mode"] == "nearest" and source.shape[:2] == op.result.type.shape[:2]
    if root == "rlxc::concat":
        operands = op.operands[: _root_count(op)]
        return op.attrs["axis"] == 1 and all(
            item.type.shape[1].divisible_by(LANES) for item in operands
        )
    return False
