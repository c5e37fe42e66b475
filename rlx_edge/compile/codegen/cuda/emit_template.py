"""Template kernels as CUDA C++: contractions by tiles in shared memory.

A workgroup brings ``depth`` steps of k of its rows and columns into shared memory, then every
thread adds 4 × 4 products a step to its chains. Steps beyond the end of a chain are 0 · 0, which
changes no accumulator: none is ever -0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Template

from rlx_edge.compile.codegen.cuda.emit_attention import (
    attention_blocks,
    attention_threads,
    attention_words,
    emit_attention,
    emit_few_attention,
    emit_join_attention,
    emit_mma_attention,
    emit_pack_attention,
)
from rlx_edge.compile.codegen.cuda.emit_channels_last import emit_input, emit_pack, emit_result
from rlx_edge.compile.codegen.cuda.emit_epilogue import epilogue_lines
from rlx_edge.compile.codegen.cuda.emit_mma import (
    emit_finish,
    emit_mma_matmul,
    mma_threads,
)
from rlx_edge.compile.codegen.cuda.emit_mma_packed import (
    emit_packed_conv,
    emit_packed_matmul,
    emit_parts,
    packed_blocks,
    packed_threads,
)
from rlx_edge.compile.codegen.cuda.template_parts import (
    Words,
    conv_kernel_words,
    conv_store,
    fill,
    image_places,
    indented,
    matmul_kernel_words,
    matmul_values,
    pointers,
    stored_place,
)
from rlx_edge.compile.codegen.cuda.template_text import (
    CONV,
    CONV_A,
    CONV_B,
    DEPTHWISE,
    FUSED_STEP,
    JOIN_ONE,
    JOIN_PARTS,
    MATMUL,
    PLANES_LOAD,
    QUAD_LOAD,
    STEP,
)
from rlx_edge.compile.epilogue_access import BATCH_CHANNEL
from rlx_edge.compile.templates.channels_last import PACK_WORDS, WEIGHTS
from rlx_edge.compile.templates.gpu import (
    BLOCKED,
    GpuTile,
    matmul_slots,
    parse_gpu_tile,
)
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import RELAXED
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.kernel import TemplateKernel


def emit_template(kernel: TemplateKernel, head: str) -> str:
    """The text of a kernel: ``head`` is its declaration up to the parameters.

    ``RlxError`` ``codegen.template`` for an unknown template.
    """
    return _row(kernel).text(kernel, head)


def template_threads(kernel: TemplateKernel) -> int:
    """Threads of a workgroup."""
    return _row(kernel).threads(kernel)


def template_bounds(kernel: TemplateKernel) -> str:
    """Threads and least blocks a processor, as ``__launch_bounds__`` wants them.

    One block at least: else ptxas spills accumulators to make room for a third one.
    """
    if is_attention(kernel):
        blocks = attention_blocks(kernel)
    elif kernel.template in ("mma_conv2d", "mma_packed"):
        blocks = packed_blocks(kernel)
    else:
        blocks = 2 if kernel.template == "depthwise" else 1
    return f"{template_threads(kernel)}, {blocks}"


def template_words(kernel: TemplateKernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the slots and of the parameters, in the order of the record's words."""
    return _row(kernel).words(kernel)


def uses_matrix_units(kernel: TemplateKernel) -> bool:
    """Whether the kernel's text calls the functions of ``mma_text``."""
    return kernel.template.startswith("mma_") or (
        kernel.template in ("channels_last", "channels_last_weights")
        and kernel.option("precision") != RELAXED
    )


def is_attention(kernel: TemplateKernel) -> bool:
    """Whether the kernel's text calls the functions of ``attention_text``."""
    return kernel.template.endswith("attention")


_OF_WINDOW = ("stride", "dilation")


def library_routine(kernel: TemplateKernel) -> str:
    """What the unit hands to a library, as in ``Entry``."""
    options = dict(kernel.config)
    words = [kernel.template, str(options.pop("precision"))]
    if kernel.template == "cudnn":
        words.append(f"{options['rows']}x{options['columns']}")
        words += [f"{options[f'row_{of}']}x{options[f'column_{of}']}" for of in _OF_WINDOW]
        slots = template_words(kernel)[0]
        words += [str(slots.index(WEIGHTS if WEIGHTS in slots else "b")), str(len(slots))]
    return ":".join(words)


def template_struct(name: str, kernel: TemplateKernel) -> str:
    """The struct of a template kernel's words."""
    slots, parameters = template_words(kernel)
    return f"struct {name} {{ unsigned {', '.join(slots)}; int {', '.join(parameters)}; }};"


# ---- matmul --------------------------------------------------------------------------------------


def _tile(kernel: TemplateKernel) -> GpuTile:
    return parse_gpu_tile(str(kernel.option("tile")))


def _contraction(kernel: TemplateKernel, text: str, values: Mapping[str, object]) -> str:
    """``text`` with the tile's numbers; what ``values`` hold may mention them too."""
    tile = _tile(kernel)
    split = tile.parts > 1
    chains = f"chains[{tile.parts - 1}][16][{tile.part_threads}]"
    shared = f"  __shared__ float {chains};\n" if split else ""
    numbers: dict[str, object] = {
        "rows": tile.rows,
        "columns": tile.columns,
        "depth": tile.depth,
        "parts": tile.parts,
        "part_threads": tile.part_threads,
        "threads": tile.threads,
        "a_each": tile.rows * tile.depth // 4 // tile.part_threads,
        "b_each": tile.columns * tile.depth // 4 // tile.part_threads,
        "chain": kernel.option("chain"),
        "step": FUSED_STEP if dict(kernel.config).get("fused") else STEP,
    }
    filled = {
        name: fill(value, numbers) if isinstance(value, str) else value
        for name, value in {"join": JOIN_PARTS if split else JOIN_ONE, **values}.items()
    }
    filled["pointers"] = f"{shared}{filled['pointers']}"
    return fill(text, numbers | filled)


def _matmul(kernel: TemplateKernel, head: str) -> str:
    # Four steps of a row go to one column of shared memory each: padding spreads the banks.
    return _contraction(kernel, MATMUL, {**matmul_values(kernel, head, 4), "pad": 4})


# ---- conv2d --------------------------------------------------------------------------------------


def _conv(kernel: TemplateKernel, head: str) -> str:
    rows, columns = int(kernel.option("rows")), int(kernel.option("columns"))
    taps = {"taps": rows * columns, "kernel_columns": columns}
    load = CONV_A + (QUAD_LOAD if kernel.option("input") == BLOCKED else PLANES_LOAD)
    values = {
        "head": head,
        "pad": 0,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "load_a": Template(load).safe_substitute(taps),
        "load_b": CONV_B,
        "a_row": "item % $rows",
        "a_quad": "item / $rows",
        "store": conv_store(kernel),
        **taps,
    }
    return _contraction(kernel, CONV, values)


# ---- depthwise -----------------------------------------------------------------------------------


def _depthwise(kernel: TemplateKernel, head: str) -> str:
    rows, columns = int(kernel.option("rows")), int(kernel.option("columns"))
    full = stored_place("{slot}", "block", "x * 4") + " + j"
    places = image_places(full) | {BATCH_CHANNEL: "image * channels + channel"}
    lines, result = epilogue_lines(kernel.epilogue, kernel.extras, places)
    return fill(
        DEPTHWISE,
        {
            "head": head,
            "pointers": pointers(matmul_slots(kernel.extras)),
            "threads": FLAT_THREADS,
            "taps": rows * columns,
            "kernel_rows": rows,
            "kernel_columns": columns,
            "epilogue": indented(lines, 4),
            "result": result,
            "place": stored_place("out", "block", "x * 4"),
        },
    )


# ---- table ---------------------------------------------------------------------------------------


class _Row:
    """How one template is written, its threads, its words."""

    def __init__(
        self,
        text: Callable[[TemplateKernel, str], str],
        threads: Callable[[TemplateKernel], int],
        words: Callable[[TemplateKernel], Words],
    ) -> None:
        self.text, self.threads, self.words = text, threads, words


def _no_text(kernel: TemplateKernel, head: str) -> str:
    """The library has the code."""
    del kernel, head
    return ""


_TEMPLATES: dict[str, _Row] = {
    "matmul": _Row(
        _matmul,
        lambda kernel: _tile(kernel).threads,
        matmul_kernel_words,
    ),
    "conv2d": _Row(_conv, lambda kernel: _tile(kernel).threads, conv_kernel_words),
    "depthwise": _Row(_depthwise, lambda kernel: FLAT_THREADS, conv_kernel_words),
    "mma_matmul": _Row(emit_mma_matmul, mma_threads, matmul_kernel_words),
    "mma_conv2d": _Row(emit_packed_conv, packed_threads, conv_kernel_words),
    "mma_packed": _Row(emit_packed_matmul, packed_threads, matmul_kernel_words),
    "mma_packed_result": _Row(emit_parts, lambda kernel: FLAT_THREADS, matmul_kernel_words),
    "attention": _Row(emit_attention, attention_threads, attention_words),
    "mma_attention": _Row(emit_mma_attention, attention_threads, attention_words),
    "join_attention": _Row(emit_join_attention, attention_threads, attention_words),
    "mma_pack_attention": _Row(emit_pack_attention, attention_threads, attention_words),
    "mma_packed_attention": _Row(emit_mma_attention, attention_threads, attention_words),
    "few_attention": _Row(emit_few_attention, attention_threads, attention_words),
    "cublas": _Row(_no_text, lambda kernel: 0, matmul_kernel_words),
    "finish": _Row(emit_finish, lambda kernel: FLAT_THREADS, matmul_kernel_words),
    "channels_last": _Row(emit_input, lambda kernel: FLAT_THREADS, conv_kernel_words),
    "cudnn": _Row(_no_text, lambda kernel: 0, conv_kernel_words),
    "channels_last_result": _Row(emit_result, lambda kernel: FLAT_THREADS, conv_kernel_words),
    "channels_last_weights": _Row(
        emit_pack, lambda kernel: FLAT_THREADS, lambda kernel: (("out", "a"), PACK_WORDS)
    ),
}


def _row(kernel: TemplateKernel) -> _Row:
    found = _TEMPLATES.get(kernel.template)
    if found is None:
        raise RlxError(
            "codegen.template",
            "no such template",
            found=kernel.template,
            allowed=list(_TEMPLATES),
        )
    return found
