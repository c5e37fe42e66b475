"""Which hand-designed template an operation gets, if any.

A *claim* is made when every requirement of a template holds for the operation at hand; sizes may
be symbolic. It names the template with its baked configuration, the operands to pack, and the
argument dims that the plan evaluates. Without a claim the operation runs as the loop nest of its
definition, with the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlx_edge.compile.codegen.wasm.emit_epilogue import is_vector_epilogue
from rlx_edge.compile.epilogue_access import (
    BATCH_CHANNEL,
    CHANNEL,
    FULL,
    SCALAR,
    channel_axis,
    load_accesses,
)
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.compile.templates.conv2d import Conv2d, Geometry, chain_length
from rlx_edge.compile.templates.depthwise import Depthwise
from rlx_edge.compile.templates.driver import longest_chain
from rlx_edge.compile.templates.finish import BLOCKED, PLANES
from rlx_edge.compile.templates.matmul import Matmul, packed_bytes
from rlx_edge.compile.templates.packing import ChannelPack, PanelPack, WeightPack
from rlx_edge.compile.templates.tiles import choose_tile
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import ONE, Dim, product
from rlx_edge.ir.expression import Expr, acc, const, load, replace_acc, replace_loads
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.ops import epilogue_slots, root_name
from rlx_edge.ir.types import F32, DType, TensorType


@dataclass(frozen=True, slots=True)
class ClaimOperand:
    """A buffer that the template reads: operand ``index`` of the op, packed first if asked."""

    index: int
    pack: TemplateKernel | None = None
    pack_arguments: tuple[Dim, ...] = ()
    pack_nbytes: Dim = ONE


@dataclass(frozen=True, slots=True)
class Claim:
    """A template kernel, its buffers after the output, its scratch bytes and argument dims."""

    kernel: TemplateKernel
    operands: tuple[ClaimOperand, ...]
    scratch: Dim | None
    arguments: tuple[Dim, ...]
    flops: Dim


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows the chain: an expression over ``acc`` and extras, and the extras' operands."""

    expression: Expr | None
    kinds: tuple[str, ...]
    operands: tuple[int, ...]


def claim(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    literals: Mapping[Value, float | int | bool],
    target: WasmTarget,
) -> Claim | None:
    """The claim of the template for ``op``'s root, ``None`` when its requirements do not hold."""
    root = root_name(op.name)
    make = _CLAIMS.get(root)
    types = [physical.type for physical in operands]
    if make is None or result.type.dtype is not F32 or any(t.dtype is not F32 for t in types[:2]):
        return None
    if any(operand in literals for operand in op.operands[:2]):
        return None
    epilogue = _epilogue(op, root, result, operands, literals)
    return None if epilogue is None else make(op, result, operands, epilogue, target)


# ---- epilogues -------------------------------------------------------------------------------


def _epilogue(
    op: Op,
    root: str,
    result: Physical,
    operands: Sequence[Physical],
    literals: Mapping[Value, float | int | bool],
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
    if not is_vector_epilogue(numbered):
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


# ---- templates -------------------------------------------------------------------------------


def _claim_matmul(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: WasmTarget,
) -> Claim | None:
    a, b = operands[:2]
    if not (a.is_plain and b.is_plain and result.is_plain):
        return None
    shape_a, shape_b = a.type.shape, b.type.shape
    if len(shape_a) < 2 or len(shape_b) < 2:
        return None
    m, k = shape_a[-2:]
    n = shape_b[-1]
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    slices, a_broadcast, b_broadcast = product(result.type.shape[:-2]), False, False
    if product(batch_b) is ONE and BATCH_CHANNEL not in epilogue.kinds:
        m, slices = product(result.type.shape[:-1]), ONE
    elif product(batch_a) is ONE:
        a_broadcast = True
    elif product(batch_b) is ONE:
        b_broadcast = True
    elif batch_a != batch_b:
        return None
    tile = choose_tile(target.style, n.value if n.is_constant else None)
    template = Matmul(tile, epilogue.kinds)
    pack = PanelPack(tile.columns)
    b_slices = product(batch_b)
    packed = ClaimOperand(
        1,
        _kernel("pack_panels", {"columns": tile.columns}, 2, pack.parameters),
        pack.arguments(n, k, b_slices),
        packed_bytes(n, k) * b_slices,
    )
    return Claim(
        _kernel("matmul", {"tile": tile.name}, len(template.slots), template.parameters, epilogue),
        (ClaimOperand(0), packed, *(ClaimOperand(slot) for slot in epilogue.operands)),
        template.scratch_bytes(k),
        template.arguments(m, n, k, slices, a_broadcast, b_broadcast),
        result.type.size * k * 2,
    )


def _claim_conv(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: WasmTarget,
) -> Claim | None:
    x, w = operands[:2]
    if not w.is_plain or not all(dim.is_constant for dim in w.type.shape):
        return None
    geometry = _geometry(op, w.type)
    if any(have < need for have, need in zip(x.border, geometry.padding, strict=True)):
        return None
    groups = int(str(geometry.groups))
    channels, outputs = x.type.shape[1], w.type.shape[0].value
    if channels.is_constant and groups == channels.value == outputs and x.is_blocked:
        return _claim_depthwise(result, operands, epilogue, geometry)
    inner = w.type.shape[1].value
    per_group = outputs // groups
    if groups > 1 and x.is_blocked and inner % 4:
        return None
    if groups > 1 and result.is_blocked and per_group % 4:
        return None
    tile = choose_tile(target.style, per_group)
    if chain_length(geometry.kernel).value > longest_chain(tile):
        return None
    template = Conv2d(
        tile,
        BLOCKED if x.is_blocked else PLANES,
        BLOCKED if result.is_blocked else PLANES,
        epilogue.kinds,
    )
    pack = WeightPack(tile.columns, x.is_blocked)
    packed = ClaimOperand(
        1,
        _kernel(
            "pack_weights", {"columns": tile.columns, "blocked": x.is_blocked}, 2, pack.parameters
        ),
        pack.arguments(groups, per_group, inner, geometry.kernel),
        pack.packed_bytes(groups, per_group, inner, geometry.kernel),
    )
    return Claim(
        _kernel(
            "conv2d",
            {"tile": tile.name, "input": template.input, "output": template.output},
            len(template.slots),
            template.parameters,
            epilogue,
        ),
        (ClaimOperand(0), packed, *(ClaimOperand(slot) for slot in epilogue.operands)),
        template.scratch_bytes(inner, geometry.kernel),
        template.arguments(x, result, geometry, _full_storage(epilogue, operands)),
        result.type.size * product(w.type.shape[1:]) * 2,
    )


def _claim_depthwise(
    result: Physical, operands: Sequence[Physical], epilogue: Epilogue, geometry: Geometry
) -> Claim | None:
    x = operands[0]
    if not result.is_blocked:
        return None
    channels = x.type.shape[1]
    template = Depthwise.for_geometry(geometry, epilogue.kinds)
    pack = ChannelPack()
    packed = ClaimOperand(
        1,
        _kernel("pack_channels", {}, 2, pack.parameters),
        pack.arguments(channels, geometry.kernel),
        pack.packed_bytes(channels, geometry.kernel),
    )
    return Claim(
        _kernel(
            "depthwise",
            {"columns": template.columns, "stride": template.stride},
            len(template.slots),
            template.parameters,
            epilogue,
        ),
        (ClaimOperand(0), packed, *(ClaimOperand(slot) for slot in epilogue.operands)),
        template.scratch_bytes(geometry.kernel),
        template.arguments(x, result, geometry, _full_storage(epilogue, operands)),
        result.type.size * product(geometry.kernel) * 2,
    )


_CLAIMS = {"rlxc::matmul": _claim_matmul, "rlxc::conv2d": _claim_conv}


def _kernel(
    template: str,
    config: Mapping[str, int | str | bool],
    slots: int,
    parameters: Sequence[str],
    epilogue: Epilogue | None = None,
) -> TemplateKernel:
    return TemplateKernel(
        template,
        tuple(sorted(config.items())),
        (F32,) * slots,
        epilogue.expression if epilogue else None,
        epilogue.kinds if epilogue else (),
        len(parameters),
    )


def _geometry(op: Op, weight: TensorType) -> Geometry:
    attrs: Mapping[str, Any] = op.attrs
    kernel = (weight.shape[2], weight.shape[3])
    padding: tuple[int, int, int, int] = tuple(attrs["padding"])
    return Geometry(
        kernel, tuple(attrs["stride"]), tuple(attrs["dilation"]), padding, attrs["groups"]
    )


def _full_storage(epilogue: Epilogue, operands: Sequence[Physical]) -> list[Physical | None]:
    return [
        operands[slot] if kind == FULL else None
        for kind, slot in zip(epilogue.kinds, epilogue.operands, strict=True)
    ]
