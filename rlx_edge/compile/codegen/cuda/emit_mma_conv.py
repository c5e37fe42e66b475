"""Convolutions on matrix units as CUDA C++."""

from __future__ import annotations

from rlx_edge.compile.codegen.cuda.mma_conv_text import (
    B_PLACES,
    CONV,
    COPY_BLOCK,
    COPY_PLANES,
    FINISH,
    KEEP,
    ONE_SPLIT,
    SPLITS,
    STEPS,
)
from rlx_edge.compile.codegen.cuda.template_parts import conv_store, fill, pointers
from rlx_edge.compile.templates.channels_last import lanes
from rlx_edge.compile.templates.gpu import BLOCKED, matmul_slots
from rlx_edge.compile.templates.mma_conv import (
    LEAST_ROUNDS,
    MOST_SPLITS,
    SPLIT_GROUPS,
    ConvTile,
    conv_tile,
    weight_words,
)
from rlx_edge.ir.attributes import FP16
from rlx_edge.ir.kernel import TemplateKernel


def mma_conv_threads(kernel: TemplateKernel) -> int:
    """Threads of a workgroup."""
    return _tile(kernel).threads


def emit_mma_conv(kernel: TemplateKernel, head: str) -> str:
    """A convolution as a product of pixels by taps, or parts of its sums for ``emit_result``."""
    precision = str(kernel.option("precision"))
    split = bool(kernel.option("split"))
    numbers = _numbers(_tile(kernel), precision)
    numbers |= {
        "taps": int(kernel.option("rows")) * int(kernel.option("columns")),
        "kernel_columns": kernel.option("columns"),
    }
    pieces = {
        "head": head,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "splits": split_text() if split else ONE_SPLIT,
        "copy_a": COPY_BLOCK if kernel.option("input") == BLOCKED else COPY_PLANES,
        "step": fill(STEPS[precision], numbers),
        "b_place": B_PLACES[precision],
        "finish": KEEP if split else fill(FINISH, {"store": conv_store(kernel)}),
    }
    return fill(CONV, numbers | pieces)


def split_text() -> str:
    """How many parts a sum has."""
    return fill(
        SPLITS,
        {
            "split_groups": SPLIT_GROUPS,
            "most_splits": MOST_SPLITS,
            "least_rounds": LEAST_ROUNDS,
        },
    )


def _tile(kernel: TemplateKernel) -> ConvTile:
    return conv_tile(str(kernel.option("tile")))


def _numbers(tile: ConvTile, precision: str) -> dict[str, object]:
    half = precision == FP16
    threads, join = tile.threads, tile.join(precision)
    join_rows = tile.join_rows(join)
    b_quads = weight_words(precision) // 4
    return {
        "shared_words": tile.shared_words(precision),
        "stage_words": tile.stage_words(precision),
        "stages": tile.stages,
        "rows": tile.rows,
        "columns": tile.columns,
        "warp_rows": tile.warp_rows,
        "warp_columns": tile.warp_columns,
        "m_tiles": tile.warp_rows // 16,
        "n_tiles": tile.warp_columns // 8,
        "lanes": lanes(precision),
        "a_each": tile.rows * 4 // threads,
        "a_step": threads // tile.rows,
        "b_type": "unsigned short" if half else "float",
        "b_elements": 8 if half else 4,
        "b_quads": b_quads,
        "b_each": tile.columns * b_quads // threads,
        "b_step": threads // b_quads,
        "join": join,
        "join_rows": join_rows,
        "join_step": threads // join_rows * 4,
    }
