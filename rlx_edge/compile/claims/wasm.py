"""The templates of the WebAssembly target: contractions over packed weights, four lanes wide."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.wasm.emit_epilogue import is_vector_epilogue
from rlx_edge.compile.epilogue_access import BATCH_CHANNEL
from rlx_edge.compile.physical import Physical
from rlx_edge.compile.select import (
    Claim,
    ClaimOperand,
    Epilogue,
    Geometry,
    Offers,
    Pack,
    full_storage,
    geometry_of,
    template_kernel,
)
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.compile.templates.conv2d import Conv2d, chain_length
from rlx_edge.compile.templates.depthwise import Depthwise
from rlx_edge.compile.templates.driver import longest_chain
from rlx_edge.compile.templates.finish import BLOCKED, PLANES
from rlx_edge.compile.templates.matmul import Matmul, packed_bytes
from rlx_edge.compile.templates.packing import ChannelPack, PanelPack, WeightPack
from rlx_edge.compile.templates.tiles import choose_tile
from rlx_edge.ir.core import Op
from rlx_edge.ir.dims import ONE, product


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
    packed = Pack(
        template_kernel("pack_panels", {"columns": tile.columns}, 2, pack.parameters),
        packed_bytes(n, k) * b_slices,
        pack.arguments(n, k, b_slices),
    )
    return Claim(
        template_kernel(
            "matmul", {"tile": tile.name}, len(template.slots), template.parameters, epilogue
        ),
        (
            ClaimOperand(0),
            ClaimOperand(1, packed),
            *(ClaimOperand(slot) for slot in epilogue.operands),
        ),
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
    geometry = geometry_of(op, w.type)
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
    packed = Pack(
        template_kernel(
            "pack_weights", {"columns": tile.columns, "blocked": x.is_blocked}, 2, pack.parameters
        ),
        pack.packed_bytes(groups, per_group, inner, geometry.kernel),
        pack.arguments(groups, per_group, inner, geometry.kernel),
    )
    return Claim(
        template_kernel(
            "conv2d",
            {"tile": tile.name, "input": template.input, "output": template.output},
            len(template.slots),
            template.parameters,
            epilogue,
        ),
        (
            ClaimOperand(0),
            ClaimOperand(1, packed),
            *(ClaimOperand(slot) for slot in epilogue.operands),
        ),
        template.scratch_bytes(inner, geometry.kernel),
        template.arguments(x, result, geometry, full_storage(epilogue, operands)),
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
    packed = Pack(
        template_kernel("pack_channels", {}, 2, pack.parameters),
        pack.packed_bytes(channels, geometry.kernel),
        pack.arguments(channels, geometry.kernel),
    )
    return Claim(
        template_kernel(
            "depthwise",
            {"columns": template.columns, "stride": template.stride},
            len(template.slots),
            template.parameters,
            epilogue,
        ),
        (
            ClaimOperand(0),
            ClaimOperand(1, packed),
            *(ClaimOperand(slot) for slot in epilogue.operands),
        ),
        template.scratch_bytes(geometry.kernel),
        template.arguments(x, result, geometry, full_storage(epilogue, operands)),
        result.type.size * product(geometry.kernel) * 2,
    )


OFFERS = Offers({"rlxc::matmul": _claim_matmul, "rlxc::conv2d": _claim_conv}, is_vector_epilogue)
"""What WebAssembly offers."""
