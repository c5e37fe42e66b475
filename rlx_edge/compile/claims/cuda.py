"""The candidates of CUDA: the contract's kernels, and what precisions beyond it add.

In ``fixed`` precision there is one way to a result. Elsewhere sums may take any order, so several
kernels and the vendor's libraries stand beside each other; the unit measures them once a kernel,
class of shapes and device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rlx_edge.compile.claims.cuda_attention import claim_attention
from rlx_edge.compile.claims.gpu import Tiled, Ways, offers, split_parts
from rlx_edge.compile.physical import LANES
from rlx_edge.compile.select import Pack, Part, template_kernel
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.compile.templates.channels_last import (
    PACK_WORDS,
    SCRATCH,
    WEIGHTS,
    Shape,
    Window,
    element_bytes,
    wide,
)
from rlx_edge.compile.templates.mma import MMA_TILES
from rlx_edge.compile.templates.mma_packed import CLUSTER, PACKED_TILES, PackedTile, split_count
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import FIXED, FP16, RELAXED, TF32
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim, ceildiv, dim_max, dim_min, product

Config: TypeAlias = Mapping[str, int | str | bool]
CUBLAS = "cublas"
CUDNN = "cudnn"
"""Templates of what the unit hands to a library."""
SCRATCH_LIMIT = 256 << 20
"""Bytes beyond which no memory is planned for a way by cuDNN."""


def precisions(target: CudaTarget) -> Sequence[str]:
    """What an architecture offers: matrix units for tf32 and m16n8k16 came with sm_80."""
    return (FIXED, RELAXED, TF32, FP16) if target.limits.asynchronous_copy else (FIXED, RELAXED)


def candidates(tiled: Tiled, precision: str) -> Ways:
    """Ways to a contraction; the first needs no measuring."""
    if precision == FIXED:
        return Ways([split_parts(tiled, tiled.config)])
    if tiled.shape is not None:
        return _convolution(tiled, tiled.shape, precision)
    if tiled.depth is not None and precision != RELAXED:
        return _packed_matmul(tiled, tiled.depth, precision)
    ways = [split_parts(tiled, {**tiled.config, "fused": True})]
    if precision != RELAXED:
        ways += [[part] for part in _matrix_units(tiled, precision)]
    return Ways([*ways, _cublas(tiled, precision)])


def _packed_matmul(tiled: Tiled, depth: Dim, precision: str) -> Ways:
    """Our kernels that read packed weights, and cuBLAS, which reads them as they are."""
    _, m, n = tiled.sizes
    tiled = replace(tiled, behind=2)
    vectors = {name: tiled.config[name] for name in ("a_vectors", "b_vectors")}
    config: Config = {**vectors, "precision": precision}
    columns = wide(n, precision)
    finish = (
        tiled.kernel("mma_packed_result", {**config, "tile": PACKED_TILES[0].name}),
        ceildiv(m * (columns // LANES), as_dim(FLAT_THREADS)),
    )
    fours = wide(depth, precision) // LANES
    split = _Split(fours, m * columns, finish)
    ways, scratch = _packed_ways(tiled, "mma_packed", config, split)
    pack = _packed((ONE, n, depth, ONE), (ONE, n), precision)
    return Ways([*ways, _cublas(tiled, precision)], again=pack, scratch=scratch)


def _matrix_units(tiled: Tiled, precision: str) -> Sequence[Part]:
    config = {name: value for name, value in tiled.config.items() if name != "chain"}
    return [
        (
            tiled.kernel("mma_matmul", {**config, "precision": precision, "tile": tile.name}),
            tiled.groups(tile.rows, tile.columns),
        )
        for tile in MMA_TILES
    ]


def _cublas(tiled: Tiled, precision: str) -> list[Part]:
    """cuBLAS, then the epilogue in place."""
    product_alone = replace(tiled.kernel(CUBLAS, {"precision": precision}), epilogue=None)
    parts: list[Part] = [(product_alone, ONE)]
    if tiled.epilogue.expression is not None:
        finish = tiled.kernel("finish", {})
        parts.append((finish, ceildiv(product(tiled.sizes), FLAT_THREADS)))
    return parts


@dataclass(frozen=True, slots=True)
class _Split:
    """What a way with split sums is made of: fours of channels under a sum, results with padding,
    and the part that adds the sums up."""

    fours: Dim
    elements: Dim
    finish: Part


def _packed_ways(
    tiled: Tiled, template: str, config: Config, split: _Split
) -> tuple[list[list[Part]], Dim]:
    """A way for each tile, and ways whose sums are split, for few outputs: between the workgroups
    of a cluster, and in scratch memory, whose bytes are the second result."""

    def part(tile: PackedTile, shares: str) -> Part:
        kernel = tiled.kernel(template, {**config, "tile": tile.name, "split": shares})
        return kernel, tiled.groups(tile.rows, tile.columns)

    ways = [[part(tile, "")] for tile in PACKED_TILES]
    if tiled.target.limits.clusters:
        kernel, tiles = part(PACKED_TILES[0], str(CLUSTER))
        ways.append([(kernel, tiles * CLUSTER)])
    kernel, tiles = part(PACKED_TILES[0], SCRATCH)
    count = split_count(tiles, split.fours)
    few = dim_min(count - 1, 1)
    finish, groups = split.finish
    parts: list[Part] = [(replace(kernel, epilogue=None), tiles * count * few)]
    parts += [(finish, groups * few), *_instead(ways[0], few)]
    return [*ways, parts], split.elements * 4 * count * few


# ---- convolutions ------------------------------------------------------------------------------


def _convolution(tiled: Tiled, shape: Shape, precision: str) -> Ways:
    """Our kernels, on matrix units but in ``relaxed``, and cuDNN where the window is known."""
    packed = _weights(shape, tiled.config, precision)
    plain = precision == RELAXED
    behind = (WEIGHTS, SCRATCH) if plain else (SCRATCH,)
    tiled = replace(tiled, behind=len(behind))
    config: Config = {
        **{name: value for name, value in tiled.config.items() if name != "chain"},
        "precision": precision,
    }
    if plain:
        first = split_parts(tiled, {**tiled.config, "fused": True})
        ways, scratch = [first], ZERO
    else:
        ways, scratch = _matrix_conv(tiled, shape, config)
    if tiled.window is not None:
        way, need = _cudnn(tiled, shape, tiled.window, config)
        ways.append([*way, *_instead(ways[0], way[1][1])])
        scratch = dim_max(scratch, need)
    elif plain:
        return Ways([split_parts(replace(tiled, behind=0), {**tiled.config, "fused": True})])
    return Ways(ways, None if plain else packed, packed if plain else None, scratch)


def _instead(first: Sequence[Part], runs: Dim) -> list[Part]:
    """The first way where ``runs`` is 0; 1 where another one runs."""
    return [(kernel, groups - groups * runs) for kernel, groups in first]


def _matrix_conv(tiled: Tiled, shape: Shape, config: Config) -> tuple[list[list[Part]], Dim]:
    """Our ways on matrix units, and the scratch memory of the one with split sums."""
    precision = str(config["precision"])
    taps = as_dim(int(config["rows"]) * int(config["columns"]))
    outputs = shape.result_elements(precision)
    result = (
        tiled.kernel("channels_last_result", {**config, "tile": PACKED_TILES[0].name}),
        shape.turns(outputs, shape.slices * wide(shape.n, precision)),
    )
    fours = taps * (wide(shape.channels, precision) // LANES)
    return _packed_ways(tiled, "mma_conv2d", config, _Split(fours, outputs, result))


def _cudnn(tiled: Tiled, shape: Shape, window: Window, config: Config) -> tuple[list[Part], Dim]:
    """cuDNN between two kernels that turn channels round in scratch memory, and the bytes of that;
    nothing of it runs where those are more than ``SCRATCH_LIMIT``."""
    precision = str(config["precision"])
    need = shape.scratch_bytes(window, precision)
    fits = dim_min(as_dim(SCRATCH_LIMIT) // dim_max(need, 1), 1)
    walk: Config = {**window.config, "precision": precision}
    turned = tiled.kernel("channels_last", {**walk, "input": config["input"]})
    result = tiled.kernel("channels_last_result", {**config, "tile": ""})
    inputs, outputs = shape.input_elements(window, precision), shape.result_elements(precision)
    parts: list[Part] = [
        (
            replace(turned, epilogue=None),
            fits * shape.turns(inputs, shape.slices * wide(shape.channels, precision)),
        ),
        (replace(tiled.kernel(CUDNN, walk), epilogue=None), fits),
        (result, fits * shape.turns(outputs, shape.slices * wide(shape.n, precision))),
    ]
    return parts, need * fits


def _weights(shape: Shape, config: Config, precision: str) -> Pack:
    """Weights as ``channels_last.py`` says."""
    taps = as_dim(int(config["rows"]) * int(config["columns"]))
    sizes = (shape.slices, shape.n, shape.channels, taps)
    return _packed(sizes, (shape.channels * taps, taps), precision)


def _packed(sizes: tuple[Dim, Dim, Dim, Dim], strides: tuple[Dim, Dim], precision: str) -> Pack:
    """``sizes`` and ``strides`` are those of ``PACK_WORDS``."""
    slices, n, channels, taps = sizes
    kernel = template_kernel("channels_last_weights", {"precision": precision}, 2, PACK_WORDS)
    elements = product((slices, wide(n, precision), taps, wide(channels, precision)))
    return Pack(
        kernel,
        elements * element_bytes(precision),
        (*sizes, *strides),
        ceildiv(elements // LANES, as_dim(FLAT_THREADS)),
    )


def has_packed_kernels(precision: str) -> bool:
    """Whether contractions run on matrix units, which take four channels of an image at once."""
    return precision in (TF32, FP16)


_TILED = offers(candidates, precisions, has_packed_kernels)
OFFERS = replace(_TILED, claims={**_TILED.claims, "rlxc::attention": claim_attention})
"""What CUDA offers."""
