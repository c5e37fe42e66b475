"""Attention, rotary embeddings and the causal convolution that goes with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ONE, ZERO, Dim, as_dim
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.positions import counted
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.types import BOOL, F32, I64

MINUS_INFINITY = float("-inf")
AFTER_SOFTCAP, WITH_BIAS, AFTER_SOFTMAX = 1, 2, 3
"""``qk_matmul_output_mode``: which scores are the fourth output."""


def _attention(n: NodeContext) -> tuple[Value | None, ...]:
    """softmax(scale * Q K' + bias) V by heads; rows without any key give zeros."""
    precision = n.int_attr("softmax_precision", F32.onnx)
    if precision != F32.onnx:
        n.unsupported("softmax_precision", found=precision, allowed=F32.onnx)
    flat = n.rank(0) == 3
    query, key, value = (_by_heads(n, index) for index in range(3))
    past = n.shape(4)[2] if n.has(4) else None
    if n.has(4):
        key = n.op("rlxc::concat", [n.value(4), key], {"axis": 2}, hint=_hint(n, 1, "key"))
        value = n.op("rlxc::concat", [n.value(5), value], {"axis": 2}, hint=_hint(n, 2, "value"))
    scores = _products(n, query, key)
    shown = scores
    softcap = n.float_attr("softcap", 0.0)
    if softcap > 0:
        cap = n.splat(softcap, scores.type.dtype)
        bounded = n.step("rlxc::tanh", [n.step("rlxc::div", [scores, cap])])
        scores = n.step("rlxc::mul", [bounded, cap])
    mode = n.int_attr("qk_matmul_output_mode", 0)
    if mode == AFTER_SOFTCAP:
        shown = scores
    bias = _bias(n, query, key, past)
    if bias is not None:
        scores = n.step("rlxc::add", [scores, bias])
    if mode == WITH_BIAS:
        shown = scores
    weights = _weights(n, scores, bias)
    if mode == AFTER_SOFTMAX:
        shown = weights
    result = _combined(n, weights, value)
    if flat:
        result = n.step("rlxc::transpose", [result], {"perm": (0, 2, 1, 3)})
        batch, length, heads, size = result.type.shape
        result = n.reshape(result, (batch, length, heads * size))
    return (result, key, value, shown)[: len(n.used)]


def _hint(n: NodeContext, output: int, other: str) -> str:
    names = n.node.outputs
    return names[output] if output < len(names) and names[output] else other


def _by_heads(n: NodeContext, index: int) -> Value:
    """``[batch, heads, length, size]`` of an input that may have heads and size in one axis."""
    x = n.value(index)
    if x.type.rank == 4:
        return x
    if x.type.rank != 3:
        n.fail("import.node", "the input has neither 3 nor 4 axes", found=str(x.type))
    heads = n.int_attr("kv_num_heads" if index else "q_num_heads")
    batch, length, hidden = x.type.shape
    if heads < 1 or not hidden.divisible_by(heads):
        n.fail("import.attribute", "the heads do not divide the input", found=heads)
    split = n.reshape(x, (batch, length, as_dim(heads), hidden // heads), hint="heads")
    return n.step("rlxc::transpose", [split], {"perm": (0, 2, 1, 3)})


def _groups(n: NodeContext, heads: Dim, shared: Dim) -> Dim:
    """Query heads that share one key head."""
    if heads is shared:
        return ONE
    if not (heads.is_constant and shared.is_constant) or heads.value % shared.value:
        n.fail("import.node", "key heads do not divide query heads", found=f"{heads}, {shared}")
    return heads // shared


def _products(n: NodeContext, query: Value, key: Value) -> Value:
    """Query times transposed key, both scaled by the root of ``scale``."""
    batch, heads, length, size = query.type.shape
    if not n.has_attr("scale") and not size.is_constant:
        n.unsupported("a head size that is not constant, without scale", found=str(size))
    scale = n.float_attr("scale") if n.has_attr("scale") else 1 / math.sqrt(size.value)
    root = n.splat(math.sqrt(scale), query.type.dtype)
    query = n.step("rlxc::mul", [query, root])
    turned = n.step("rlxc::transpose", [key], {"perm": (0, 1, 3, 2)})
    turned = n.step("rlxc::mul", [turned, root])
    groups = _groups(n, heads, key.type.shape[1])
    if groups is ONE:
        return n.op("rlxc::matmul", [query, turned], hint=_hint(n, 3, "scores"))
    shared, keys = key.type.shape[1], key.type.shape[2]
    query = n.reshape(query, (batch, shared, groups, length, size), hint="grouped")
    turned = n.reshape(turned, (batch, shared, ONE, size, keys), hint="shared")
    product = n.step("rlxc::matmul", [query, turned])
    return n.reshape(product, (batch, heads, length, keys), hint=_hint(n, 3, "scores"))


def _combined(n: NodeContext, weights: Value, value: Value) -> Value:
    batch, heads, length, keys = weights.type.shape
    groups = _groups(n, heads, value.type.shape[1])
    if groups is ONE:
        return n.op("rlxc::matmul", [weights, value])
    shared, size = value.type.shape[1], value.type.shape[3]
    weights = n.reshape(weights, (batch, shared, groups, length, keys), hint="grouped")
    value = n.reshape(value, (batch, shared, ONE, keys, size), hint="shared")
    product = n.step("rlxc::matmul", [weights, value])
    return n.reshape(product, (batch, heads, length, size))


def _bias(n: NodeContext, query: Value, key: Value, past: Dim | None) -> Value | None:
    """What is added to the scores: a float mask, and -infinity where a key is not seen."""
    rows, columns = query.type.shape[2], key.type.shape[2]
    dtype = query.type.dtype
    added: Value | None = None
    seen = _seen(n, rows, columns, past)
    if n.has(3):
        mask = _full_mask(n, n.value(3), columns)
        if mask.type.dtype is BOOL:
            seen.append(mask)
        else:
            added = mask
    if not seen:
        return added
    every = seen[0]
    for item in seen[1:]:
        every = n.step("rlxc::and", [every, item])
    kept = n.splat(0.0, dtype) if added is None else added
    return n.step("rlxc::where", [every, kept, n.splat(MINUS_INFINITY, dtype)])


def _full_mask(n: NodeContext, mask: Value, columns: Dim) -> Value:
    """The mask with keys beyond its end masked."""
    missing = columns - mask.type.shape[-1]
    if missing is ZERO:
        return mask
    fill = False if mask.type.dtype is BOOL else MINUS_INFINITY
    rank = mask.type.rank
    pads = (*(ZERO,) * (2 * rank - 1), missing)
    attrs: Attrs = {"pads": pads, "mode": "constant", "value": fill}
    return n.step("rlxc::pad", [mask], attrs)


def _seen(n: NodeContext, rows: Dim, columns: Dim, past: Dim | None) -> list[Value]:
    """Conditions on query and key positions: causality, windows, keys that are not padding."""
    left, right = n.int_attr("left_window_size", -1), n.int_attr("right_window_size", -1)
    causal = n.int_attr("is_causal", 0) != 0
    found: list[Value] = []
    keys = counted(n, columns, 2, 1)
    if causal or left >= 0 or right >= 0:
        places = counted(n, rows, 2, 0)
        if past is not None:
            places = n.step("rlxc::add", [places, n.size(past)])
        elif n.has(6):
            counts = _per_batch(n)
            before = n.step("rlxc::sub", [counts, n.size(rows)])
            places = n.step("rlxc::add", [places, before])
        ahead = n.step("rlxc::sub", [keys, places])
        if causal:
            found.append(n.step("rlxc::less_or_equal", [ahead, n.splat(0, I64)]))
        if right >= 0:
            found.append(n.step("rlxc::less_or_equal", [ahead, n.splat(right, I64)]))
        if left >= 0:
            found.append(n.step("rlxc::greater_or_equal", [ahead, n.splat(-left, I64)]))
    if n.has(6):
        found.append(n.step("rlxc::less", [keys, _per_batch(n)]))
    return found


def _per_batch(n: NodeContext) -> Value:
    """``nonpad_kv_seqlen`` as ``[batch, 1, 1, 1]``."""
    counts = n.value(6)
    return n.reshape(counts, (counts.type.shape[0], ONE, ONE, ONE), hint="counts")


def _weights(n: NodeContext, scores: Value, bias: Value | None) -> Value:
    """Softmax over the keys; a row that the bias masks whole is zero, not NaN."""
    axis = scores.type.rank - 1
    if bias is None:
        return n.step("rlxc::softmax", [scores], {"axis": axis})
    dtype = scores.type.dtype
    over: Attrs = {"axes": (axis,), "keepdims": True}
    zero, lowest = n.splat(0.0, dtype), n.splat(MINUS_INFINITY, dtype)
    top = n.step("rlxc::reduce_max", [scores], over)
    empty = n.step("rlxc::equal", [top, lowest])
    top = n.step("rlxc::where", [empty, zero, top])
    powers = n.step("rlxc::exp", [n.step("rlxc::sub", [scores, top])])
    total = n.step("rlxc::reduce_sum", [powers], over)
    none = n.step("rlxc::equal", [total, zero])
    total = n.step("rlxc::where", [none, n.splat(1.0, dtype), total])
    weights = n.step("rlxc::div", [powers, total])
    row: Attrs = {"axes": (bias.type.rank - 1,), "keepdims": True}
    masked = n.step("rlxc::equal", [n.step("rlxc::reduce_max", [bias], row), lowest])
    return n.op("rlxc::where", [masked, zero, weights], hint=_hint(n, 3, "weights"))


# ---- rotary embeddings -----------------------------------------------------------------------


def _part(n: NodeContext, x: Value, start: Dim, end: Dim, step: int = 1) -> Value:
    """Positions of the last axis."""
    attrs: Attrs = {
        "axes": (x.type.rank - 1,),
        "starts": (start,),
        "ends": (end,),
        "steps": (step,),
    }
    return n.step("rlxc::slice", [x], attrs)


def _rotary_embedding(n: NodeContext) -> Value:
    """Pairs of each head turned by the angles that the caches give at the positions."""
    x = n.value(0)
    shape = x.type.shape
    heads_axis = 1
    if len(shape) == 3:
        heads = n.int_attr("num_heads")
        if heads < 1 or not shape[2].divisible_by(heads):
            n.fail("import.attribute", "the heads do not divide the input", found=heads)
        x = n.reshape(x, (*shape[:2], as_dim(heads), shape[2] // heads), hint="heads")
        heads_axis = 2
    size = x.type.shape[3]
    rotated = n.int_attr("rotary_embedding_dim", 0)
    turned = as_dim(rotated) if rotated else size
    half = turned // 2
    cos, sin = (_angles(n, index, heads_axis) for index in (1, 2))
    if n.int_attr("interleaved", 0):
        first, second = _part(n, x, ZERO, turned, 2), _part(n, x, ONE, turned, 2)
    else:
        first, second = _part(n, x, ZERO, half), _part(n, x, half, turned)
    real = n.step(
        "rlxc::sub", [n.step("rlxc::mul", [cos, first]), n.step("rlxc::mul", [sin, second])]
    )
    imaginary = n.step(
        "rlxc::add", [n.step("rlxc::mul", [sin, first]), n.step("rlxc::mul", [cos, second])]
    )
    parts = [real, imaginary]
    if n.int_attr("interleaved", 0):
        pair = (*real.type.shape, ONE)
        columns = [n.reshape(part, pair, hint="pair") for part in parts]
        mixed = n.step("rlxc::concat", columns, {"axis": 4})
        parts = [n.reshape(mixed, (*x.type.shape[:3], turned), hint="turned")]
    if turned is not size:
        parts.append(_part(n, x, turned, size))
    result = parts[0] if len(parts) == 1 else n.step("rlxc::concat", parts, {"axis": 3})
    return n.reshape(result, shape)


def _angles(n: NodeContext, index: int, heads_axis: int) -> Value:
    """A cache at the positions, with an axis for the heads."""
    cache = n.value(index)
    if n.has(3):
        cache = n.step("rlxc::gather", [cache, n.value(3)], {"axis": 0})
    batch, length, half = _three(n, cache.type.shape)
    if heads_axis == 1:
        return n.reshape(cache, (batch, ONE, length, half), hint="angles")
    return n.reshape(cache, (batch, length, ONE, half), hint="angles")


def _three(n: NodeContext, shape: Sequence[Dim]) -> tuple[Dim, Dim, Dim]:
    if len(shape) != 3:
        n.fail("import.node", "the cache has the wrong rank", found=len(shape))
    batch, length, half = shape
    return batch, length, half


# ---- causal convolution ----------------------------------------------------------------------


def _causal_conv(n: NodeContext) -> tuple[Value | None, ...]:
    """Depthwise over a sequence after its past, which without a state is zero."""
    x, weight = n.value(0), n.value(1)
    channels, _, taps = _three(n, weight.type.shape)
    before = taps - 1
    if n.has(3):
        padded = n.step("rlxc::concat", [n.value(3), x], {"axis": 2})
    else:
        pads = (ZERO, ZERO, before, ZERO, ZERO, ZERO)
        padded = n.step("rlxc::pad", [x], {"pads": pads, "mode": "constant", "value": 0.0})
    if not channels.is_constant:
        n.unsupported("a number of channels that is not constant", found=str(channels))
    batch, _, length = padded.type.shape
    operands = [
        n.reshape(padded, (batch, channels, ONE, length), hint="image"),
        n.reshape(weight, (channels, ONE, ONE, taps), hint="kernel"),
    ]
    if n.has(2):
        operands.append(n.value(2))
    attrs: Attrs = {
        "stride": (1, 1),
        "padding": (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": channels.value,
    }
    result = n.step("rlxc::conv2d", operands, attrs)
    activation = n.string_attr("activation", "none")
    if activation in ("silu", "swish"):
        result = n.step("rlxc::mul", [result, n.step("rlxc::sigmoid", [result])])
    elif activation != "none":
        n.fail(
            "import.attribute",
            "unknown activation",
            found=activation,
            allowed="none, silu, swish",
        )
    output = n.reshape(result, (batch, channels, result.type.shape[3]))
    if len(n.used) < 2 or not n.used[1]:
        return (output,)
    return (output, _part(n, padded, length - before, length))


CONVERTERS: dict[str, Converter] = {
    "Attention": _attention,
    "CausalConvWithState": _causal_conv,
    "RotaryEmbedding": _rotary_embedding,
}
