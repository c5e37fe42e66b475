"""Which hand-designed template an operation gets, if any.

A *claim* is made when every requirement of a template holds for the operation at hand; sizes may
be symbolic. It names the template with its baked configuration, the operands to pack, and the
argument dims that the plan evaluates. Without a claim the operation runs as the loop nest of its
definition, with the same bits.

Here is what all targets share; a target's offers are in ``claims/``, by the name of the root
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlx_edge.compile.epilogue_access import (
    BATCH_CHANNEL,
    CHANNEL,
    FULL,
    SCALAR,
    channel_axis,
    load_accesses,
)
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.targets.target import Target
from rlx_edge.ir.attributes import FIXED
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import ONE, Dim, DimLike
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, acc, const, load, replace_acc, replace_loads
from rlx_edge.ir.kernel import LoopKernel, TemplateKernel
from rlx_edge.ir.ops import epilogue_slots, root_name
from rlx_edge.ir.types import F32, DType, TensorType


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one convolution; kernel, stride, dilation as (vertical, horizontal).

    ``padding`` is (top, left, bottom, right) in pixels, as in ``Physical.border``.
    """

    kernel: tuple[DimLike, DimLike]
    stride: tuple[DimLike, DimLike] = (1, 1)
    dilation: tuple[DimLike, DimLike] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: DimLike = 1


@dataclass(frozen=True, slots=True)
class Pack:
    """What brings an operand into the form that a template reads, ``nbytes`` bytes of it.

    A template kernel with its arguments, and its workgroups for targets that have them, or a loop
    nest over slot 1 with sizes of its own.
    """

    kernel: TemplateKernel | LoopKernel
    nbytes: Dim
    arguments: tuple[Dim, ...] = ()
    groups: Dim | None = None


@dataclass(frozen=True, slots=True)
class ClaimOperand:
    """A buffer that the template reads: operand ``index`` of the op, packed first if asked; an
    operand may be given in several forms."""

    index: int
    pack: Pack | None = None


Part: TypeAlias = tuple[TemplateKernel, Dim]
"""A kernel and its workgroups."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A template kernel, its buffers after the output, its scratch bytes and argument dims.

    ``groups`` is the number of workgroups, for targets that have them. ``others`` are further
    kernels with the same buffers and arguments, for other sizes: the plan gives all but one of them
    no workgroups. ``alternatives`` are other ways to the result, kernels with the same buffers and
    arguments run one after another; the unit measures which is fastest. There are none where the
    bits are defined.
    """

    kernel: TemplateKernel
    operands: tuple[ClaimOperand, ...]
    scratch: Dim | None
    arguments: tuple[Dim, ...]
    flops: Dim
    groups: Dim | None = None
    others: tuple[Part, ...] = ()
    alternatives: tuple[tuple[Part, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows the chain: an expression over ``acc`` and extras, and the extras' operands."""

    expression: Expr | None
    kinds: tuple[str, ...]
    operands: tuple[int, ...]


def only_fixed(target: Target) -> Sequence[str]:
    """The precisions of targets that keep the contract and know nothing else."""
    del target
    return (FIXED,)


MakeClaim: TypeAlias = Callable[[Op, Physical, Sequence[Physical], Epilogue, Any], Claim | None]
"""``make(op, result, operands, epilogue, target)``: the claim, if the requirements hold."""


@dataclass(frozen=True, slots=True)
class Offers:
    """A target's templates by root operator, which epilogues they can take, and which precisions a
    target offers."""

    claims: Mapping[str, MakeClaim]
    takes_epilogue: Callable[[Expr], bool]
    precisions: Callable[[Any], Sequence[str]] = only_fixed


def check_precision(op: Op, target: Target, offers: Offers) -> None:
    """``RlxError`` ``precision.device`` where the target does not offer the op's precision."""
    offered = offers.precisions(target)
    if precision_of(op) not in offered:
        raise RlxError(
            "precision.device",
            f"the {target.kind} target does not offer this precision",
            found=precision_of(op),
            allowed=list(offered),
            where=str(op),
        )


def precision_of(op: Op) -> str:
    """What the op may do to its numbers."""
    return str(op.attrs.get("precision", FIXED))


def claim(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    literals: Mapping[Value, float | int | bool],
    target: Target,
    offers: Offers,
) -> Claim | None:
    """The claim of the template for ``op``'s root, ``None`` when its requirements do not hold."""
    root = root_name(op.name)
    make = offers.claims.get(root)
    types = [physical.type for physical in operands]
    if make is None or result.type.dtype is not F32 or any(t.dtype is not F32 for t in types[:2]):
        return None
    if any(operand in literals for operand in op.operands[:2]):
        return None
    epilogue = _epilogue(op, root, result, operands, literals, offers)
    return None if epilogue is None else make(op, result, operands, epilogue, target)


# ---- epilogues -------------------------------------------------------------------------------


def _epilogue(
    op: Op,
    root: str,
    result: Physical,
    operands: Sequence[Physical],
    literals: Mapping[Value, float | int | bool],
    offers: Offers,
) -> Epilogue | None:
    """The op's epilogue in a template's terms; ``None`` when an access has no such form."""
    fused = op.attrs.get("epilogue")
    expression = fused if isinstance(fused, Expr) else acc(F32)
    channel = channel_axis(root, result.type.rank)
    if _has_bias(op, root):
        bias = load(2, F32, [f"_i{channel}"])
        expression = replace_acc(expression, acc(F32) + bias)

    def inline(slot: int, indices: tuple[Expr, ...], dtype: DType) -> Expr:
        value = op.operands[slot]
        if value in literals:
            return const(literals[value], dtype)
        return Expr.make("load", dtype, indices, slot)

    expression = replace_loads(expression, inline)
    if expression is acc(F32):
        return Epilogue(None, (), ())
    types = [physical.type for physical in operands]
    accesses = load_accesses(expression, types, result.type, channel)
    slots = sorted(accesses)
    kinds: list[str] = []
    for slot in slots:
        kind = accesses[slot]
        if (
            kind is None
            or types[slot].dtype is not F32
            or not _stored_right(kind, operands[slot], result)
        ):
            return None
        kinds.append(kind)
    numbered = replace_loads(expression, lambda slot, _, dtype: load(slots.index(slot), dtype, ()))
    if not offers.takes_epilogue(numbered):
        return None
    return Epilogue(numbered, tuple(kinds), tuple(slots))


def _has_bias(op: Op, root: str) -> bool:
    if root != "rlxc::conv2d" or len(op.operands) < 3:
        return False
    fused = op.attrs.get("epilogue")
    if not isinstance(fused, Expr):
        return True
    return 2 not in epilogue_slots(fused)


def _stored_right(kind: str, operand: Physical, result: Physical) -> bool:
    if kind == FULL:
        return operand.layout == result.layout
    if kind in (CHANNEL, SCALAR):
        return _bytes_are_plain(operand)
    return kind == BATCH_CHANNEL and _bytes_are_plain(operand)


def _bytes_are_plain(operand: Physical) -> bool:
    """Plain storage, or a blocked vector of whole blocks, whose bytes are the same."""
    if operand.is_plain:
        return True
    shape = operand.type.shape
    unit = all(dim is ONE for dim in shape[2:])
    return unit and operand.border == (0, 0, 0, 0) and shape[1].divisible_by(4)


# ---- for the makers of claims ------------------------------------------------------------------


def template_kernel(
    template: str,
    config: Mapping[str, int | str | bool],
    slots: int,
    parameters: Sequence[str],
    epilogue: Epilogue | None = None,
) -> TemplateKernel:
    """The record of a template with ``slots`` f32 buffers."""
    return TemplateKernel(
        template,
        tuple(sorted(config.items())),
        (F32,) * slots,
        epilogue.expression if epilogue else None,
        epilogue.kinds if epilogue else (),
        len(parameters),
    )


def geometry_of(op: Op, weight: TensorType) -> Geometry:
    """The geometry of a conv2d from its attributes and its weight's type."""
    attrs: Mapping[str, Any] = op.attrs
    kernel = (weight.shape[2], weight.shape[3])
    padding: tuple[int, int, int, int] = tuple(attrs["padding"])
    return Geometry(
        kernel, tuple(attrs["stride"]), tuple(attrs["dilation"]), padding, attrs["groups"]
    )


def full_storage(epilogue: Epilogue, operands: Sequence[Physical]) -> list[Physical | None]:
    """The storage of each extra operand of kind ``full``, ``None`` for the others."""
    return [
        operands[slot] if kind == FULL else None
        for kind, slot in zip(epilogue.kinds, epilogue.operands, strict=True)
    ]
