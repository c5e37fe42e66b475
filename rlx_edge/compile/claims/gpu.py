"""The templates of GPU targets: contractions by workgroup tiles, weights packed by loop nests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from rlx_edge.compile.epilogue_access import BATCH_CHANNEL
from rlx_edge.compile.loops import lower_expression
from rlx_edge.compile.physical import LANES, Physical
from rlx_edge.compile.select import (
    Claim,
    ClaimOperand,
    Epilogue,
    Geometry,
    MakeClaim,
    Offers,
    Pack,
    Part,
    full_storage,
    geometry_of,
    only_fixed,
    precision_of,
    template_kernel,
)
from rlx_edge.compile.targets.target import Target
from rlx_edge.compile.templates.channels_last import Shape, Window, window_of
from rlx_edge.compile.templates.gpu import (
    BLOCKED,
    FEW_CHAINS,
    FEW_TILES,
    MATMUL_WORDS,
    PLANES,
    SPLIT,
    GpuTile,
    choose_gpu_tile,
    conv_arguments,
    conv_words,
    matmul_slots,
    packed_columns,
)
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import ONE, Dim, as_dim, ceildiv, dim_max, dim_min, product, symbol
from rlx_edge.ir.expression import Expr, binary, const, index, load, select, walk
from rlx_edge.ir.kernel import Loop, LoopKernel, TemplateKernel
from rlx_edge.ir.ops.contraction import CHAIN, chain_blocks
from rlx_edge.ir.types import F32, TensorType


def _claim_matmul(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: Target,
    *,
    tiling: Tiling,
) -> Claim | None:
    a, b = operands[:2]
    if not (a.is_plain and b.is_plain and result.is_plain) or BATCH_CHANNEL in epilogue.kinds:
        return None
    shape_a, shape_b = a.type.shape, b.type.shape
    if len(shape_a) < 2 or len(shape_b) < 2:
        return None
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    batch_a, batch_b = shape_a[:-2], shape_b[:-2]
    slices, a_slice, b_slice = product(result.type.shape[:-2]), m * k, k * n
    if product(batch_b) is ONE:
        m, slices, a_slice, b_slice = product(shape_a[:-1]), ONE, as_dim(0), as_dim(0)
    elif product(batch_a) is ONE:
        a_slice = as_dim(0)
    elif batch_a != batch_b:
        return None
    tile = choose_gpu_tile(n.value if n.is_constant else None)
    config: dict[str, int | str | bool] = {
        "chain": CHAIN,
        # Four neighbours are one load where every row starts at a multiple of 16 bytes.
        "a_vectors": k.divisible_by(LANES),
        "b_vectors": n.divisible_by(LANES),
    }
    sizes, chains = (slices, m, n), ceildiv(k, CHAIN)
    tiled = Tiled("matmul", config, MATMUL_WORDS, epilogue, tile, sizes, chains, target)
    if _is_ready(op.operands[1]) and len(shape_b) == 2:
        tiled = replace(tiled, depth=k)
    ways = tiling(tiled, precision_of(op))
    ((kernel, groups), *others), *alternatives = ways.parts
    return Claim(
        kernel,
        _operands(epilogue, None, ways.again),
        ways.scratch,
        (slices, m, n, k, a_slice, b_slice),
        result.type.size * k * 2,
        groups,
        tuple(others),
        tuple(tuple(parts) for parts in alternatives),
    )


@dataclass(frozen=True, slots=True)
class Tiled:
    """A contraction whose kernels differ in the tile only.

    ``sizes`` are slices, rows and columns of the result; ``chains`` those of one element;
    ``target`` is the device's, of the kind whose offers are asked.
    """

    template: str
    config: Mapping[str, int | str | bool]
    words: tuple[str, ...]
    epilogue: Epilogue
    tile: GpuTile
    sizes: tuple[Dim, Dim, Dim]
    chains: Dim
    target: Any
    shape: Shape | None = None
    window: Window | None = None
    """Of a convolution, the window if all its numbers are known."""
    depth: Dim | None = None
    """Of a matrix product whose operand 1 is one matrix that is known before the run."""
    behind: int = 0
    """Slots behind the extra operands."""

    def groups(self, rows: int, columns: int) -> Dim:
        """Workgroups with tiles of ``rows`` × ``columns``."""
        slices, m, n = self.sizes
        return slices * ceildiv(m, rows) * ceildiv(n, columns)

    def kernel(self, template: str, config: Mapping[str, int | str | bool]) -> TemplateKernel:
        """A kernel with the contraction's slots, words and epilogue."""
        slots = len(matmul_slots(self.epilogue.kinds)) + self.behind
        return template_kernel(template, config, slots, self.words, self.epilogue)

    def part(self, tile: GpuTile, config: Mapping[str, int | str | bool]) -> Part:
        """The plain template with ``tile``."""
        kernel = self.kernel(self.template, {**config, "tile": tile.name})
        return kernel, self.groups(tile.rows, tile.columns)


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to a contraction, each of kernels between which the plan decides; the first needs no
    measuring.

    ``weights`` is the form of a convolution's operand 1, if it is not the usual one. Slots behind
    the extra operands: ``again`` another form of operand 1, ``scratch`` bytes of memory.
    """

    parts: Sequence[Sequence[Part]]
    weights: Pack | None = None
    again: Pack | None = None
    scratch: Dim | None = None


Tiling: TypeAlias = Callable[[Tiled, str], Ways]
"""``tiling(contraction, precision)``."""


def split_parts(tiled: Tiled, config: Mapping[str, int | str | bool]) -> list[Part]:
    """The claim's tile, and chains side by side where there are few outputs."""
    (kernel, tiles), (split, split_groups) = (
        tiled.part(tile, config) for tile in (tiled.tile, SPLIT)
    )
    # 1 where there are fewer tiles than FEW_TILES and chains enough to share out, else 0.
    few = dim_min(as_dim(FEW_TILES - 1) // dim_max(tiles, 1), 1)
    few = few * dim_min(tiled.chains // FEW_CHAINS, 1)
    return [(kernel, tiles - tiles * few), (split, split_groups * few)]


def _is_ready(value: Value) -> bool:
    """Whether the value is there before a run: a constant, or what ``prepare`` makes of some."""
    producer = value.producer
    return producer is not None and producer.attrs.get("phase", "compile") == "compile"


def _operands(
    epilogue: Epilogue,
    pack: Pack | None = None,
    other: Pack | None = None,
    first: Pack | None = None,
) -> tuple[ClaimOperand, ...]:
    extras = (ClaimOperand(slot) for slot in epilogue.operands)
    again = () if other is None else (ClaimOperand(1, other),)
    return (ClaimOperand(0, first), ClaimOperand(1, pack), *extras, *again)


def _claim_conv(
    op: Op,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    target: Target,
    *,
    tiling: Tiling,
    blocks: Callable[[str], bool],
) -> Claim | None:
    x, w = operands[:2]
    if not w.is_plain or not all(dim.is_constant for dim in w.type.shape):
        return None
    geometry = geometry_of(op, w.type)
    if any(have < need for have, need in zip(x.border, geometry.padding, strict=True)):
        return None
    groups = int(str(geometry.groups))
    channels, outputs, inner = x.type.shape[1], w.type.shape[0].value, w.type.shape[1].value
    per_group = outputs // groups
    single = channels.is_constant and 1 < groups == channels.value == outputs
    if single and x.is_blocked and result.is_blocked:
        return _claim_depthwise(x, result, operands, epilogue, geometry)
    if groups > 1 and (
        (x.is_blocked and inner % LANES) or (result.is_blocked and per_group % LANES)
    ):
        return None
    image_pack: Pack | None = None
    if groups == 1 and not x.is_blocked and blocks(precision_of(op)):
        x, image_pack = _in_blocks(x)
    rows, columns = w.type.shape[2].value, w.type.shape[3].value
    tile = choose_gpu_tile(per_group)
    config = _conv_config(x, result, rows, columns)
    images, _, height, width = result.type.shape
    words = conv_words(epilogue.kinds)
    steps = -(-inner // LANES) * rows * columns * LANES
    chains = as_dim(-(-steps // int(config["chain"])))
    sizes = (as_dim(groups), images * height * width, as_dim(per_group))
    shape = Shape(images, height, width, as_dim(groups), as_dim(per_group), as_dim(inner))
    tiled = Tiled(
        "conv2d",
        config,
        words,
        epilogue,
        tile,
        sizes,
        chains,
        target,
        shape,
        window_of(geometry),
    )
    ways = tiling(tiled, precision_of(op))
    ((kernel, workgroups), *others), *alternatives = ways.parts
    return Claim(
        kernel,
        _operands(epilogue, ways.weights or _weight_pack(w.type, groups), ways.again, image_pack),
        ways.scratch,
        conv_arguments(x, result, geometry, epilogue.kinds, full_storage(epilogue, operands)),
        result.type.size * inner * rows * columns * 2,
        workgroups,
        tuple(others),
        tuple(tuple(parts) for parts in alternatives),
    )


def _in_blocks(x: Physical) -> tuple[Physical, Pack]:
    """An image in planes as blocks of channels, its border with it."""
    whole = TensorType(x.type.dtype, x.extents)
    blocked = Physical(whole, "NCHW4c")
    place = [index(symbol(f"_i{axis}")) for axis in range(whole.rank)]
    (nest,) = lower_expression(load(0, whole.dtype, place), blocked, [Physical(whole)])
    return Physical(x.type, "NCHW4c", x.border), Pack(nest.kernel, blocked.nbytes)


def _conv_config(
    x: Physical, result: Physical, rows: int, columns: int
) -> dict[str, int | str | bool]:
    return {
        "rows": rows,
        "columns": columns,
        "chain": chain_blocks(as_dim(rows), as_dim(columns)).value * rows * columns * LANES,
        "input": BLOCKED if x.is_blocked else PLANES,
        "output": BLOCKED if result.is_blocked else PLANES,
    }


def _weight_pack(weight: TensorType, groups: int) -> Pack:
    """``[group][block][row][column][lane][n]``: k by k as the chain walks it, +0 beyond edges."""
    outputs, inner, rows, columns = (dim.value for dim in weight.shape)
    n = outputs // groups
    blocks, wide = -(-inner // LANES), packed_columns(as_dim(n)).value
    extents = (groups, blocks, rows, columns, LANES, wide)
    at = [symbol(f"_v{position}") for position in range(len(extents))]
    group, block, row, column, lane, output = at
    channel = block * LANES + lane
    place = (group * n + dim_min(output, n - 1)) * inner + dim_min(channel, inner - 1)
    value = load(1, F32, [(place * rows + row) * columns + column])
    return _pack(extents, at, _inside(value, ((output, n, wide), (channel, inner, blocks * LANES))))


def _claim_depthwise(
    x: Physical,
    result: Physical,
    operands: Sequence[Physical],
    epilogue: Epilogue,
    geometry: Geometry,
) -> Claim:
    rows, columns = (dim.value for dim in operands[1].type.shape[2:])
    images, channels, height, width = result.type.shape
    kernel = template_kernel(
        "depthwise",
        _conv_config(x, result, rows, columns),
        3 + len(epilogue.kinds),
        conv_words(epilogue.kinds),
        epilogue,
    )
    items = images * ceildiv(channels, LANES) * height * width
    whole = Geometry(geometry.kernel, geometry.stride, geometry.dilation, geometry.padding)
    return Claim(
        kernel,
        _operands(epilogue, _tap_pack(operands[1].type)),
        None,
        conv_arguments(x, result, whole, epilogue.kinds, full_storage(epilogue, operands)),
        result.type.size * rows * columns * 2,
        ceildiv(items, FLAT_THREADS),
    )


def _tap_pack(weight: TensorType) -> Pack:
    """``[block][row][column][lane]`` of depthwise weights."""
    channels, _, rows, columns = (dim.value for dim in weight.shape)
    blocks = -(-channels // LANES)
    extents = (blocks, rows, columns, LANES)
    at = [symbol(f"_v{position}") for position in range(len(extents))]
    block, row, column, lane = at
    channel = block * LANES + lane
    value = load(1, F32, [(dim_min(channel, channels - 1) * rows + row) * columns + column])
    return _pack(extents, at, _inside(value, ((channel, channels, blocks * LANES),)))


def _inside(value: Expr, limits: Sequence[tuple[Dim, int, int]]) -> Expr:
    """The value where each place is below its limit, else +0; no test where it always is."""
    condition: Expr | None = None
    for place, limit, extent in limits:
        if extent > limit:
            test = index(place) < index(limit)
            condition = test if condition is None else binary("and", condition, test)
    return value if condition is None else select(condition, value, const(0.0, F32))


def _pack(extents: Sequence[int], at: Sequence[Dim], value: Expr) -> Pack:
    offset = as_dim(0)
    for place, extent in zip(at, extents, strict=True):
        offset = offset * extent + place
    loops = tuple(Loop(f"_v{position}", as_dim(extent)) for position, extent in enumerate(extents))
    total = product(as_dim(extent) for extent in extents)
    return Pack(LoopKernel(loops, (F32, F32), offset, value), total * F32.bytes)


def takes_epilogue(expression: Expr) -> bool:
    """Scalar code after the chain: no loops, no indices of its own."""
    return all(
        node.op not in ("reduce", "index") and not (node.op == "load" and node.args)
        for node in walk(expression)
    )


def never(precision: str) -> bool:
    """Images are read as they lie."""
    del precision
    return False


def offers(
    tiling: Tiling,
    precisions: Callable[[Any], Sequence[str]] = only_fixed,
    blocks: Callable[[str], bool] = never,
) -> Offers:
    """The contractions of a GPU whose kernels ``tiling`` chooses; ``blocks`` says in which
    precisions a convolution gets an image that lies in planes as blocks of channels."""
    claims: dict[str, MakeClaim] = {
        "rlxc::matmul": partial(_claim_matmul, tiling=tiling),
        "rlxc::conv2d": partial(_claim_conv, tiling=tiling, blocks=blocks),
    }
    return Offers(claims, takes_epilogue, precisions)
