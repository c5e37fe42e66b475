"""Contractions with packed weights on matrix units as CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template

from rlx_edge.compile.codegen.cuda.emit_epilogue import epilogue_lines, fours_of, full_slots
from rlx_edge.compile.codegen.cuda.mma_packed_text import (
    AHEAD,
    B_PLACES,
    CLUSTER_CONV,
    CLUSTER_CONV_STEP,
    CLUSTER_MATMUL,
    CLUSTER_MATMUL_STEP,
    CONV,
    CONV_NEAR,
    CONV_STEP,
    COPY_BLOCK,
    COPY_FOUR,
    COPY_PLANES,
    COPY_SINGLE,
    FINISH,
    KEEP,
    LOADS,
    MATMUL,
    MATMUL_FOURS,
    MATMUL_NEAR,
    MATMUL_PARTS,
    MATMUL_SINGLE,
    MATMUL_STEP,
    ONE_SPLIT,
    SPLITS,
    STEPS,
    TOTAL,
)
from rlx_edge.compile.codegen.cuda.template_parts import (
    conv_full_place,
    conv_store,
    fill,
    indented,
    pointers,
)
from rlx_edge.compile.epilogue_access import CHANNEL, FULL, SCALAR
from rlx_edge.compile.templates.channels_last import SCRATCH, WEIGHTS, lanes
from rlx_edge.compile.templates.gpu import BLOCKED, matmul_slots
from rlx_edge.compile.templates.mma_packed import (
    LEAST_ROUNDS,
    MOST_SPLITS,
    SPLIT_GROUPS,
    PackedTile,
    packed_tile,
    weight_words,
)
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import FP16
from rlx_edge.ir.kernel import TemplateKernel

IN_STEP = "[step][j]"
FOURS_PLACES = {FULL: "place + j", CHANNEL: "column + j", SCALAR: "0"}
"""Which element of an extra operand the ``j``-th of four columns reads."""


def packed_threads(kernel: TemplateKernel) -> int:
    """Threads of a workgroup."""
    return packed_tile(str(kernel.option("tile"))).threads


def packed_blocks(kernel: TemplateKernel) -> int:
    """Workgroups that a processor should have room for; rows of a matrix, whose places differ more
    than those of a pixel's channels, take more registers."""
    blocks = packed_tile(str(kernel.option("tile"))).blocks
    return blocks if kernel.template == "mma_conv2d" else max(blocks - 1, 1)


def emit_packed_conv(kernel: TemplateKernel, head: str) -> str:
    """A convolution as a product of pixels by taps, or parts of its sums for ``emit_result``."""
    clustered = _cluster(kernel) > 1
    step = CLUSTER_CONV_STEP if clustered else CONV_STEP
    finish = fill(FINISH, {"store": conv_store(kernel, IN_STEP)})
    values = {
        "taps": int(kernel.option("rows")) * int(kernel.option("columns")),
        "kernel_columns": kernel.option("columns"),
        "near": CONV_NEAR,
        "copy_a": COPY_BLOCK if kernel.option("input") == BLOCKED else COPY_PLANES,
        "a_row": "threadIdx.x % $rows",
        "a_quad": "(threadIdx.x / $rows + i * $a_step)",
        "a_step": packed_threads(kernel) // packed_tile(str(kernel.option("tile"))).rows,
        "weights": "b",
        **_ending(kernel, step, conv_full_place(kernel), finish),
    }
    return _filled(kernel, head, CLUSTER_CONV if clustered else CONV, values)


def emit_packed_matmul(kernel: TemplateKernel, head: str) -> str:
    """A product of a matrix by packed weights, or parts of its sums for ``emit_parts``."""
    clustered = _cluster(kernel) > 1
    step = CLUSTER_MATMUL_STEP if clustered else MATMUL_STEP
    place = "row * n + column" if kernel.option("b_vectors") else ""
    values = {
        "taps": 1,
        "near": MATMUL_NEAR,
        "copy_a": COPY_FOUR if kernel.option("a_vectors") else COPY_SINGLE,
        "a_row": "(threadIdx.x / 4 + i * $a_step)",
        "a_quad": "threadIdx.x % 4",
        "a_step": packed_threads(kernel) // 4,
        "weights": "weights",
        **_ending(kernel, step, place, TOTAL + _matmul_store(kernel, IN_STEP)),
    }
    return _filled(kernel, head, CLUSTER_MATMUL if clustered else MATMUL, values)


def _ending(kernel: TemplateKernel, step: str, place: str, finish: str) -> dict[str, str]:
    """What follows the sums of ``step``; ``place`` as in ``_ahead``."""
    if kernel.option("split") == SCRATCH:
        return {"at_step": step, "ahead": "", "finish": KEEP}
    return {"at_step": step, "ahead": _ahead(kernel, place, step), "finish": finish}


def _cluster(kernel: TemplateKernel) -> int:
    """Workgroups of a cluster."""
    split = str(kernel.option("split"))
    return int(split) if split.isdigit() else 1


def emit_parts(kernel: TemplateKernel, head: str) -> str:
    """The sums of a product from their parts, after the epilogue."""
    tile = packed_tile(str(kernel.option("tile")))
    values = {
        "head": head,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "lanes": lanes(str(kernel.option("precision"))),
        "rows": tile.rows,
        "columns": tile.columns,
        "threads": FLAT_THREADS,
        "splits": split_text(),
        "finish": TOTAL + _matmul_store(kernel, ""),
    }
    return fill(MATMUL_PARTS, values)


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


def _ahead(kernel: TemplateKernel, place: str, step: str) -> str:
    """Reading of the operands of the output's shape, into arrays that ``IN_STEP`` indexes."""
    slots = full_slots(kernel.extras) if place else []
    if not slots:
        return ""
    arrays = [f"float {slot}_fours[$steps][4];" for slot in slots]
    loads: list[str] = []
    for slot in slots:
        at = place.format(slot=slot)
        loads.append(f"const float4 {slot}_four = *(const float4*)({slot} + {at});")
        loads += [f"{slot}_fours[step][{j}] = {slot}_four.{part};" for j, part in enumerate("xyzw")]
    return indented(arrays, 3) + Template(AHEAD).safe_substitute(
        fours=indented(loads, 4), at_step=step
    )


def _matmul_store(kernel: TemplateKernel, fours: str) -> str:
    """``fours`` as in ``conv_store``."""
    in_fours = bool(kernel.option("b_vectors"))
    lines, result = epilogue_lines(
        kernel.epilogue,
        kernel.extras,
        FOURS_PLACES,
        fours=(fours or "[j]") if in_fours else "",
    )
    values = {"epilogue": indented(lines, 5), "result": result}
    if not in_fours:
        return fill(MATMUL_SINGLE, values)
    loads = "" if fours else indented(fours_of(kernel.extras, "row * n + column"), 4)
    return loads + fill(MATMUL_FOURS, values)


def _filled(kernel: TemplateKernel, head: str, text: str, values: Mapping[str, object]) -> str:
    """``text`` with the numbers of tile and precision, which ``values`` may mention."""
    precision = str(kernel.option("precision"))
    cluster = _cluster(kernel)
    if cluster > 1:
        bounds = "__launch_bounds__"
        head = head.replace(bounds, f"__cluster_dims__({cluster}, 1, 1) {bounds}", 1)
    numbers = _numbers(packed_tile(str(kernel.option("tile"))), precision, cluster)
    numbers |= {name: value for name, value in values.items() if not isinstance(value, str)}
    pieces = {
        "head": head,
        "pointers": pointers((*matmul_slots(kernel.extras), *_behind(kernel))),
        "splits": split_text() if kernel.option("split") == SCRATCH else ONE_SPLIT,
        "split_of": "tile % splits" if cluster > 1 else "tile / tile_count",
        "outputs_of": "tile / splits" if cluster > 1 else "tile",
        "load": LOADS[precision],
        "step": STEPS[precision],
        "b_place": B_PLACES[precision],
        **{name: value for name, value in values.items() if isinstance(value, str)},
    }
    return fill(text, numbers | {name: fill(piece, numbers) for name, piece in pieces.items()})


def _behind(kernel: TemplateKernel) -> tuple[str, ...]:
    return (WEIGHTS,) if len(kernel.buffers) == 5 + len(kernel.extras) else ()


def _numbers(tile: PackedTile, precision: str, cluster: int) -> dict[str, object]:
    half = precision == FP16
    threads, join = tile.threads, tile.join(precision)
    if cluster > 1:
        join = tile.warp_rows // 16
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
        "threads": threads,
        "lanes": lanes(precision),
        "a_each": tile.rows * 4 // threads,
        "b_type": "unsigned short" if half else "float",
        "b_elements": 8 if half else 4,
        "b_quads": b_quads,
        "b_each": tile.columns * b_quads // threads,
        "b_step": threads // b_quads,
        "join": join,
        "join_rows": join_rows,
        "steps": join_rows * tile.columns // 4 // threads // cluster,
        "cluster": cluster,
    }
