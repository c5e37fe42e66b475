"""Attention in one kernel as CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping

from rlx_edge.compile.codegen.cuda.attention_fma_text import (
    CHANGE_TILED,
    FEW,
    JOIN,
    KEYS_READ,
    SCRATCH,
    TILED,
)
from rlx_edge.compile.codegen.cuda.attention_packed_text import ATTENTION as PACKED_ATTENTION
from rlx_edge.compile.codegen.cuda.attention_packed_text import HALVES, PACK
from rlx_edge.compile.codegen.cuda.attention_text import (
    ATTENTION,
    BIAS,
    BIAS_SLICE,
    CHANGE_SCORES,
    JOIN_TILE,
    QUERY_WORD,
    VALUE_NEXT,
    VALUE_ROW,
    WEIGHTS,
)
from rlx_edge.compile.codegen.cuda.attention_text import JOIN as JOIN_PARTS
from rlx_edge.compile.codegen.cuda.mma_text import KEEP_B
from rlx_edge.compile.codegen.cuda.template_parts import Words, fill, pointers
from rlx_edge.compile.templates.attention import (
    ATTENTION_WORDS,
    FEW_BLOCKS,
    FEW_ROWS,
    FEW_THREADS,
    HALVES_PAD,
    KEYS_PAD,
    LANES,
    PACKED,
    AttentionTile,
    halves_stride,
)
from rlx_edge.compile.templates.mma import PER_WORD, WARP
from rlx_edge.ir.kernel import TemplateKernel

LOG2_E = "1.44269504f"
GROWTH = "8.0f"
"""Weights of up to 2 ** 8 are within f16, as sums of them are within f32."""
VECTORS = {1: "float", 2: "float2", 4: "float4"}


def attention_words(kernel: TemplateKernel) -> Words:
    """The slots, with scratch memory for the ways that have use for it, and the parameters."""
    bias = ("bias",) if kernel.option("biased") else ()
    return ("out", "q", "k", "v", *bias, "scratch"), ATTENTION_WORDS


def attention_threads(kernel: TemplateKernel) -> int:
    """Threads of a workgroup."""
    return int(dict(kernel.config).get("threads", FEW_THREADS))


def attention_blocks(kernel: TemplateKernel) -> int:
    """Workgroups that a processor is to have."""
    return _tile(kernel).blocks if "rows" in dict(kernel.config) else FEW_BLOCKS


def _tile(kernel: TemplateKernel) -> AttentionTile:
    rows, keys, threads, depth, width = (
        int(kernel.option(name)) for name in ("rows", "keys", "threads", "depth", "width")
    )
    packed, biased = kernel.template == PACKED, bool(kernel.option("biased"))
    precision, parts = str(kernel.option("precision")), int(kernel.option("parts"))
    return AttentionTile(precision, rows, keys, threads, depth, width, biased, packed, parts)


def _common(kernel: TemplateKernel, head: str, rows: int) -> dict[str, object]:
    """What every kind of kernel fills in; ``rows`` are the queries of a workgroup."""
    slots, _ = attention_words(kernel)
    causal = bool(kernel.option("causal"))
    quotient = "value * inverse"
    return {
        "head": head,
        "pointers": pointers(slots[:-1]),
        "rows": rows,
        "threads": attention_threads(kernel),
        "depth": kernel.option("depth"),
        "width": kernel.option("width"),
        "log_e": LOG2_E,
        "log_scale": f"({kernel.option('scale')} * {LOG2_E})",
        "bias_slice": BIAS_SLICE if "bias" in slots else "",
        "unseen": "(column >= keys || column > row)" if causal else "column >= keys",
        # Keys behind the last query of the tile are seen by none.
        "stop": f"lesser_integer<int>(keys, row_first + {rows})" if causal else "keys",
        "result": f"whole > 0.0f ? {quotient} : 0.0f" if kernel.option("zero_empty") else quotient,
    }


def _tiled(kernel: TemplateKernel, head: str) -> tuple[AttentionTile, dict[str, object]]:
    """A kernel that walks over tiles of keys."""
    tile = _tile(kernel)
    numbers = _common(kernel, head, tile.rows)
    edge = f"first + {tile.step_keys} > keys"
    if kernel.option("causal"):
        edge = f"{edge} || first + {tile.step_keys} > row_first"
    part_threads = tile.threads // tile.parts
    numbers |= {
        "keys": tile.keys,
        "step_keys": tile.step_keys,
        "key_words": tile.key_words,
        "at_edge": edge,
        "part": f"threadIdx.x / {part_threads}" if tile.parts > 1 else "0",
        "parts": tile.parts,
        "part_threads": part_threads,
    }
    return tile, numbers


def emit_mma_attention(kernel: TemplateKernel, head: str) -> str:
    """``out = softmax(q k * scale + bias) v``, operands of both products rounded."""
    tile, numbers = _tiled(kernel, head)
    precision = tile.precision
    # Of scores that grow with their products the largest is known before they are scaled.
    folds = not tile.is_biased and is_positive(str(kernel.option("scale")))
    numbers |= {
        "value_words": tile.value_words,
        "k_stride": tile.step_keys + KEYS_PAD,
        "v_stride": tile.value_stride,
        "depth_steps": tile.depth // (8 * PER_WORD[precision]),
        "weight_steps": tile.keys // (8 * PER_WORD[precision]),
        "key_tiles": tile.keys // 8,
        "width_tiles": tile.width // 8,
        "m_tiles": tile.warp_rows // 16,
        "warp_rows": tile.warp_rows,
        "row_warps": tile.rows // tile.warp_rows,
        "joined": tile.warp_rows // 8 * tile.join_row * (tile.parts - 1),
        "joined_each": tile.warp_rows // 8 * tile.join_row,
        "joined_row": tile.join_row,
        "value_row": VALUE_ROW[precision],
        "value_next": VALUE_NEXT[precision],
        "growth": GROWTH,
        "k_each": -(-tile.depth * tile.step_keys // 8 // tile.threads),
        "v_each": -(-tile.width * tile.step_keys // 8 // tile.threads),
        "multiply": f"multiply_{precision}",
        "factor": numbers["log_scale"] if folds else "1.0f",
        "fetch_first": "    fetch(0);\n" if tile.loads_ahead else "",
        "fetch_now": "" if tile.loads_ahead else "      fetch(first);\n",
        "fetch_next": f"      fetch(first + {tile.step_keys});\n" if tile.loads_ahead else "",
    }
    pieces = {
        "query_word": QUERY_WORD[precision],
        "weights": WEIGHTS[precision],
        "change_scores": "" if folds else CHANGE_SCORES,
        "join_tile": JOIN_TILE if tile.parts > 1 else "",
        "join": JOIN_PARTS if tile.parts > 1 else "",
    }
    if tile.is_packed:
        numbers |= {
            "k_stride": halves_stride(tile.step_keys),
            "v_stride": halves_stride(tile.width),
            "pad": HALVES_PAD,
            "pointers": f"{numbers['pointers']}{HALVES}",
        }
        return _filled(PACKED_ATTENTION, numbers, pieces, tile.is_biased)
    keep = KEEP_B[precision]
    pieces |= {
        "keep_k": keep.replace("b_tile", "k_tile").replace("$b_stride", "$k_stride"),
        "keep_v": keep.replace("b_tile", "v_tile").replace("$b_stride", "$v_stride"),
    }
    return _filled(ATTENTION, numbers, pieces, tile.is_biased)


def emit_pack_attention(kernel: TemplateKernel, head: str) -> str:
    """Keys and values as f16 in scratch memory."""
    numbers: dict[str, object] = {
        "head": head,
        "pointers": pointers(("out", "k", "v")) + HALVES,
        "threads": FEW_THREADS,
        "pad": HALVES_PAD,
        "depth": kernel.option("depth"),
        "width": kernel.option("width"),
    }
    return fill(PACK, numbers)


def emit_attention(kernel: TemplateKernel, head: str) -> str:
    """The same in f32 with fused multiply-adds, for many queries."""
    tile, numbers = _tiled(kernel, head)
    row_each = tile.rows * LANES // tile.threads
    key_each, width_each = tile.keys // LANES, tile.width // LANES
    step = next(step for step in (4, 2, 1) if width_each % step == 0)
    replace = tile.weights_replace_keys
    weights = f"  __shared__ __align__(16) float w_tile[{tile.weight_words}];\n"
    numbers |= {
        "key_words": tile.key_words if not replace else max(tile.key_words, tile.weight_words),
        "weight_tile": "" if replace else weights,
        "keys_read": KEYS_READ if replace else "",
        "fetch_first": "    fetch_keys(0);\n" if tile.loads_ahead else "",
        "store_unroll": f"      #pragma unroll{'' if tile.loads_ahead else ' 4'}",
        "next_keys": "k_next[each]" if tile.loads_ahead else "keys_at(first, each)",
        "next_values": "v_next[each]" if tile.loads_ahead else "values_at(first, each)",
        "keys_ahead": f"      fetch_keys(first + {tile.step_keys});\n" if tile.loads_ahead else "",
        "values_ahead": "      fetch_values(first);\n" if tile.loads_ahead else "",
        "row_each": row_each,
        "key_each": key_each,
        "width_each": width_each,
        "width_step": step,
        "unroll": 2 if width_each <= 8 else 1,
        "width_vector": VECTORS[step],
        "k_each": -(-tile.depth * tile.step_keys // 4 // tile.threads),
        "v_each": -(-tile.width * tile.step_keys // 4 // tile.threads),
    }
    return _filled(
        TILED,
        numbers,
        {"change_scores": CHANGE_TILED if tile.is_biased else ""},
        tile.is_biased,
    )


def emit_few_attention(kernel: TemplateKernel, head: str) -> str:
    """The same for few queries."""
    numbers = _common(kernel, head, FEW_ROWS)
    width = int(kernel.option("width"))
    numbers |= {
        "warps": FEW_THREADS // WARP,
        "groups": FEW_THREADS // (width // 4),
        "unroll": 16,
        "unroll_values": 4,
        "pointers": f"{numbers['pointers']}{SCRATCH}",
    }
    return _filled(FEW, numbers, {}, bool(kernel.option("biased")))


def emit_join_attention(kernel: TemplateKernel, head: str) -> str:
    """What workgroups have that shared out the keys of few queries."""
    numbers = _common(kernel, head, FEW_ROWS)
    return fill(JOIN, {**numbers, "pointers": pointers(("out",)) + SCRATCH})


def _filled(
    text: str, numbers: Mapping[str, object], pieces: Mapping[str, str], has_bias: bool
) -> str:
    """``text`` with pieces that have names of numbers inside."""
    numbers = {**numbers, "bias": fill(BIAS, numbers) if has_bias else ""}
    return fill(text, {**numbers, **{name: fill(piece, numbers) for name, piece in pieces.items()}})


def is_positive(literal: str) -> bool:
    """Of a number as the code has it; ``False`` where it is not plain decimal."""
    try:
        return float(literal.removesuffix("f")) > 0
    except ValueError:
        return False
