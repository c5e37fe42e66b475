"""The candidates of CUDA: the contract's kernels, and what precisions beyond it add.

In ``fixed`` precision there is one way to a result. Elsewhere sums may take any order, so several
kernels and the vendor's libraries stand beside each other; the unit measures them once a kernel,
class of shapes and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlx_edge.compile.claims.cuda_attention import claim_attention
from rlx_edge.compile.claims.gpu import Tiled, Ways, offers, split_parts
from rlx_edge.compile.physical import LANES
from rlx_edge.compile.select import Pack, Part, template_kernel
from rlx_edge.compile.targets.cuda import CudaTarget
from rlx_edge.compile.templates.channels_last import (
    PACK_WORDS,
    SCRATCH_SLOTS,
    Shape,
    Window,
    element_bytes,
    wide,
)
from rlx_edge.compile.templates.mma import MMA_TILES
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import FIXED, FP16, RELAXED, TF32
from rlx_edge.ir.dims import ONE, as_dim, ceildiv, dim_max, dim_min, product

CUBLAS = "cublas"
CUDNN = "cudnn"
"""Templates of what the unit hands to a library."""
SCRATCH_LIMIT = 256 << 20
"""Bytes beyond which no memory is planned for a way by cuDNN."""


def precisions(target: CudaTarget) -> Sequence[str]:
    """What an architecture offers: matrix units for tf32 and m16n8k16 came with sm_80."""
    return (FIXED, RELAXED, TF32, FP16) if target.limits.asynchronous_copy else (FIXED, RELAXED)


def candidates(tiled: Tiled, precision: str) -> Ways:
    """Ways to a contraction; the first is the plain template."""
    if precision == FIXED:
        return Ways([split_parts(tiled, tiled.config)])
    if tiled.window is None or tiled.shape is None:
        ways = _own(tiled, precision)
        return Ways([*ways, _cublas(tiled, precision)] if tiled.template == "matmul" else ways)
    return _with_cudnn(tiled, tiled.shape, tiled.window, precision)


def _own(tiled: Tiled, precision: str) -> list[list[Part]]:
    """Ways by our kernels."""
    ways = [split_parts(tiled, {**tiled.config, "fused": True})]
    if precision != RELAXED:
        ways += [[part] for part in _matrix_units(tiled, precision)]
    return ways


def _matrix_units(tiled: Tiled, precision: str) -> Sequence[Part]:
    config = {name: value for name, value in tiled.config.items() if name != "chain"}
    return [
        (
            tiled.kernel(
                f"mma_{tiled.template}",
                {**config, "precision": precision, "tile": tile.name},
            ),
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


def _with_cudnn(tiled: Tiled, shape: Shape, window: Window, precision: str) -> Ways:
    """Our kernels, and cuDNN between two that turn channels round in scratch memory, as far as it
    stays within ``SCRATCH_LIMIT``; beyond it our first way runs in its place."""
    tiled = replace(tiled, behind=len(SCRATCH_SLOTS))
    ways = _own(tiled, precision)
    need = shape.scratch_bytes(window, precision)
    fits = dim_min(as_dim(SCRATCH_LIMIT) // dim_max(need, 1), 1)
    config: dict[str, int | str | bool] = {**window.config, "precision": precision}
    layouts = {name: tiled.config[name] for name in ("input", "output")}
    turned = replace(tiled.kernel("channels_last", {**config, **layouts}), epilogue=None)
    library = replace(tiled.kernel(CUDNN, config), epilogue=None)
    result = tiled.kernel("channels_last_result", {"precision": precision, **layouts})
    inputs = shape.input_elements(window, precision)
    outputs = shape.result_elements(precision)
    by_library: list[Part] = [
        (turned, fits * shape.turns(inputs, shape.slices * wide(shape.channels, precision))),
        (library, fits),
        (result, fits * shape.turns(outputs, shape.slices * wide(shape.n, precision))),
    ]
    instead = [(kernel, groups - groups * fits) for kernel, groups in ways[0]]
    return Ways([*ways, [*by_library, *instead]], _weights(shape, window, precision), need * fits)


def _weights(shape: Shape, window: Window, precision: str) -> Pack:
    """Weights as ``channels_last.py`` says."""
    taps = as_dim(window.taps[0] * window.taps[1])
    kernel = template_kernel("channels_last_weights", {"precision": precision}, 2, PACK_WORDS)
    channels, outputs = wide(shape.channels, precision), wide(shape.n, precision)
    elements = product((shape.slices, outputs, taps, channels))
    return Pack(
        kernel,
        elements * element_bytes(precision),
        (shape.slices, shape.n, shape.channels, taps),
        ceildiv(elements // LANES, as_dim(FLAT_THREADS)),
    )


_TILED = offers(candidates, precisions)
OFFERS = replace(_TILED, claims={**_TILED.claims, "rlxc::attention": claim_attention})
"""What CUDA offers."""
