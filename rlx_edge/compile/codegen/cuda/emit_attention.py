"""Attention in one kernel as CUDA C++."""

from __future__ import annotations

from rlx_edge.compile.codegen.cuda.attention_text import (
    ATTENTION,
    BIAS,
    BIAS_SLICE,
    QUERY_WORD,
    WEIGHTS,
)
from rlx_edge.compile.codegen.cuda.mma_text import KEEP_B
from rlx_edge.compile.codegen.cuda.template_parts import Words, fill, pointers
from rlx_edge.compile.templates.attention import (
    ATTENTION_WORDS,
    KEYS_PAD,
    QUERIES,
    THREADS,
    AttentionTile,
)
from rlx_edge.compile.templates.mma import PER_WORD
from rlx_edge.ir.kernel import TemplateKernel


def attention_words(kernel: TemplateKernel) -> Words:
    """The slots, with a bias where there are five, and the parameters."""
    return ("out", "q", "k", "v", "bias")[: len(kernel.buffers)], ATTENTION_WORDS


def emit_attention(kernel: TemplateKernel, head: str) -> str:
    """``out = softmax(q k * scale + bias) v``, operands of both products rounded."""
    precision = str(kernel.option("precision"))
    tile = AttentionTile(
        precision,
        int(kernel.option("keys")),
        int(kernel.option("depth")),
        int(kernel.option("width")),
    )
    slots, _ = attention_words(kernel)
    causal = bool(kernel.option("causal"))
    unseen = "column >= keys || column > row" if causal else "column >= keys"
    quotient = "total[j][half * 2 + odd] / whole"
    numbers: dict[str, object] = {
        "rows": QUERIES,
        "threads": THREADS,
        "keys": tile.keys,
        "depth": tile.depth,
        "width": tile.width,
        "key_words": tile.key_words,
        "value_words": tile.value_words,
        "k_stride": tile.keys + KEYS_PAD,
        "v_stride": tile.value_stride,
        "depth_steps": tile.depth // (8 * PER_WORD[precision]),
        "weight_steps": tile.keys // (8 * PER_WORD[precision]),
        "key_tiles": tile.keys // 8,
        "width_tiles": tile.width // 8,
        "multiply": f"multiply_{precision}",
        "scale": f"{kernel.option('scale')}",
    }
    keep = KEEP_B[precision]
    pieces = {
        "query_word": QUERY_WORD[precision],
        "keep_k": keep.replace("b_tile", "k_tile").replace("$b_stride", "$k_stride"),
        "keep_v": keep.replace("b_tile", "v_tile").replace("$b_stride", "$v_stride"),
        "weights": WEIGHTS[precision],
    }
    filled = {name: fill(value, numbers) for name, value in pieces.items()}
    return fill(
        ATTENTION,
        {
            **numbers,
            **filled,
            "head": head,
            "pointers": pointers(slots),
            "bias_slice": BIAS_SLICE if "bias" in slots else "",
            "bias": BIAS if "bias" in slots else "",
            "unseen": f"({unseen})",
            # Keys behind the last query of the tile are seen by none.
            "stop": f"lesser_integer<int>(keys, row_first + {QUERIES})" if causal else "keys",
            "result": f"whole > 0.0f ? {quotient} : 0.0f"
            if kernel.option("zero_empty")
            else quotient,
        },
    )
