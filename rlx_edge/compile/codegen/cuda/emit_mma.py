"""Matrix products on matrix units as CUDA C++, and the epilogue after a library's product."""

from __future__ import annotations

from collections.abc import Mapping

from rlx_edge.compile.codegen.cuda.emit_epilogue import epilogue_lines
from rlx_edge.compile.codegen.cuda.mma_text import (
    FINISH,
    JOIN_PARTS,
    KEEP_A,
    KEEP_B,
    MATMUL,
)
from rlx_edge.compile.codegen.cuda.template_parts import (
    MATMUL_PLACES,
    fill,
    indented,
    matmul_values,
    pointers,
)
from rlx_edge.compile.templates.gpu import matmul_slots
from rlx_edge.compile.templates.mma import A_STRIDE, PER_WORD, WORDS, MmaTile, mma_tile
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.kernel import TemplateKernel


def mma_threads(kernel: TemplateKernel) -> int:
    """Threads of a workgroup."""
    return _tile(kernel).threads


def emit_mma_matmul(kernel: TemplateKernel, head: str) -> str:
    """``out = epilogue(a b)`` with operands rounded to the kernel's precision."""
    return _filled(kernel, MATMUL, matmul_values(kernel, head, 6))


def emit_finish(kernel: TemplateKernel, head: str) -> str:
    """The epilogue of a matrix product, in place."""
    lines, result = epilogue_lines(kernel.epilogue, kernel.extras, MATMUL_PLACES)
    values = {
        "head": head,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "threads": FLAT_THREADS,
        "epilogue": indented(lines, 2),
        "result": result,
    }
    return fill(FINISH, values)


def _tile(kernel: TemplateKernel) -> MmaTile:
    return mma_tile(str(kernel.option("tile")))


def _filled(kernel: TemplateKernel, text: str, values: Mapping[str, object]) -> str:
    """``text`` with the tile's numbers; what ``values`` hold may mention them too."""
    tile, precision = _tile(kernel), str(kernel.option("precision"))
    depth = WORDS * PER_WORD[precision]
    numbers: dict[str, object] = {
        "rows": tile.rows,
        "columns": tile.columns,
        "warp_rows": tile.warp_rows,
        "warp_columns": tile.warp_columns,
        "parts": tile.parts,
        "part_threads": tile.part_threads,
        "part_words": tile.part_words,
        "part_sums": tile.rows * tile.columns,
        "threads": tile.threads,
        "depth": depth,
        "words": WORDS,
        "a_words": tile.a_words,
        "a_stride": A_STRIDE,
        "b_stride": tile.b_stride,
        "m_tiles": tile.warp_rows // 16,
        "n_tiles": tile.warp_columns // 8,
        "a_each": tile.rows * depth // 4 // tile.part_threads,
        "b_each": tile.columns * depth // 8 // tile.part_threads,
        "multiply": f"multiply_{precision}",
    }
    pieces = {
        "keep_a": KEEP_A[precision],
        "keep_b": KEEP_B[precision],
        "join": JOIN_PARTS if tile.parts > 1 else "",
        **values,
    }
    filled = {
        name: fill(value, numbers) if isinstance(value, str) else value
        for name, value in pieces.items()
    }
    return fill(text, numbers | filled)
