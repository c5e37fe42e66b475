"""Attention recognised: a product of weights and values whose weights are a softmax of products.

From ``matmul`` over an optional scale and an optional bias, ``softmax``, an optional replacement of
NaN by 0 and another ``matmul`` to one ``rlxc::attention``, where no other operation reads what lies
between and the kernel takes the shapes. What multiplies queries or keys goes into the scale, and
axes that are moved only to have heads apart stay where they are. Sums change their order, so the
pass belongs to pipelines of precisions that allow that.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import SPLAT, copy_module
from rlx_edge.compile.passes.rewrite import Applied, Rewriter, Rule, rewrite
from rlx_edge.compile.templates.attention import fuses
from rlx_edge.ir.attributes import TF32, Attribute
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.dims import product
from rlx_edge.ir.expression import round_f32
from rlx_edge.ir.ops.attention import ROWS_FIRST

RESHAPE = "rlxc::reshape"
TRANSPOSE = "rlxc::transpose"
MATMUL = "rlxc::matmul"
ATTENTION = "rlxc::attention"


@dataclass(frozen=True, slots=True)
class FuseAttention:
    """See the module's docstring; ``precision`` decides which shapes have a kernel."""

    name: str = "fuse-attention"
    precision: str = TF32

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        precision = self.precision
        rules = (turned_batches, attention_rule(precision), rows_first_rule(precision))
        rewrite(module, rules, log)
        return module


def attention_rule(precision: str) -> Rule:
    """The rule at the last product."""

    def fuse_attention(op: Op, rewriter: Rewriter) -> Value | None:
        if op.name != MATMUL or op.attrs.get("precision", precision) != precision:
            return None
        weights, v = op.operands
        found = _softmax(weights, rewriter)
        if found is None:
            return None
        softmax, zero_empty = found
        if softmax.attrs["axis"] != weights.type.rank - 1:
            return None
        scores, bias = _split_bias(softmax.operands[0], rewriter)
        scores, scale = _split_scale(scores, rewriter)
        first = scores.producer
        if first is None or first.name != MATMUL or not rewriter.read_once(scores):
            return None
        if first.attrs.get("precision", precision) != precision:
            return None
        q, q_scale = _split_scale(first.operands[0], rewriter)
        keys, keys_scale = _split_scale(first.operands[1], rewriter)
        scale *= q_scale * keys_scale
        operands = [q, keys, v, *bias]
        if any(_is_splat(item) for item in operands) or not _one_batch(operands[:3]):
            return None
        if not fuses(precision, [item.type for item in operands]):
            return None
        attrs: dict[str, Attribute] = {
            "scale": round_f32(scale),
            "causal": False,
            "zero_empty": zero_empty,
            ROWS_FIRST: False,
        }
        return rewriter.op(ATTENTION, operands, attrs, hint=op.result.name)

    return fuse_attention


def turned_batches(op: Op, rewriter: Rewriter) -> Value | None:
    """A permutation of matrices whose batch axes are merged for it and apart again is one of the
    last axes; so with a factor in between."""
    if op.name != RESHAPE:
        return None
    value, factor = _split_scale(op.operands[0], rewriter)
    turned = value.producer
    if turned is None or turned.name != TRANSPOSE or turned.attrs["perm"] != (0, 2, 1):
        return None
    merged = turned.operands[0].producer
    if merged is None or merged.name != RESHAPE:
        return None
    x = merged.operands[0]
    *outer, rows, columns = x.type.shape
    if op.result.type.shape != (*outer, columns, rows):
        return None
    if merged.result.type.shape != (product(outer), rows, columns):
        return None
    rank = x.type.rank
    perm = (*range(rank - 2), rank - 1, rank - 2)
    found = rewriter.op(TRANSPOSE, [x], {"perm": perm}, hint=op.result.name)
    if factor == 1.0:
        return found
    return rewriter.op("rlxc::mul", [found, rewriter.splat(factor, found.type.dtype)])


def rows_first_rule(precision: str) -> Rule:
    """The rule at the permutation that brings heads together again."""

    def rows_first(op: Op, rewriter: Rewriter) -> Value | None:
        whole = op.operands[0].producer if op.name == TRANSPOSE else None
        if whole is None or whole.name != ATTENTION or whole.attrs[ROWS_FIRST]:
            return None
        rank = op.result.type.rank
        perm = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
        if rank < 3 or op.attrs["perm"] != perm or not rewriter.read_once(whole.result):
            return None
        q, keys, v, *bias = whole.operands
        sources = [item.producer for item in (q, v)]
        if any(
            item is None or item.name != TRANSPOSE or item.attrs["perm"] != perm for item in sources
        ):
            return None
        before, after = (item.operands[0] for item in sources if item is not None)
        operands = [before, keys, after, *bias]
        if not fuses(precision, [item.type for item in operands], rows_first=True):
            return None
        attrs = {**whole.attrs, ROWS_FIRST: True}
        return rewriter.op(ATTENTION, operands, attrs, hint=op.result.name)

    return rows_first


def _softmax(weights: Value, rewriter: Rewriter) -> tuple[Op, bool] | None:
    """The softmax that the weights are, and whether NaN of it becomes 0."""
    producer = weights.producer
    if producer is None or not rewriter.read_once(weights):
        return None
    if producer.name == "rlxc::softmax":
        return producer, False
    if producer.name != "rlxc::where":
        return None
    condition, zero, value = producer.operands
    test, softmax = condition.producer, value.producer
    if (
        test is None
        or softmax is None
        or test.name != "rlxc::is_nan"
        or test.operands[0] is not value
        or softmax.name != "rlxc::softmax"
        or not _is_splat(zero)
        or _number(zero) != 0
        or len(rewriter.users(value)) != 2
        or rewriter.is_returned(value)
    ):
        return None
    return softmax, True


def _split_bias(scores: Value, rewriter: Rewriter) -> tuple[Value, list[Value]]:
    """What is added to scores, apart from them."""
    producer = scores.producer
    if producer is None or producer.name != "rlxc::add" or not rewriter.read_once(scores):
        return scores, []
    for value, bias in (producer.operands, producer.operands[::-1]):
        inner, _ = _split_scale(value, rewriter)
        made = inner.producer
        if value.type == scores.type and made is not None and made.name == MATMUL:
            return value, [bias]
    return scores, []


def _split_scale(scores: Value, rewriter: Rewriter) -> tuple[Value, float]:
    """What scores are multiplied with or divided by, apart from them."""
    producer = scores.producer
    if producer is None or not rewriter.read_once(scores):
        return scores, 1.0
    if producer.name not in ("rlxc::mul", "rlxc::div"):
        return scores, 1.0
    value, factor = producer.operands
    if producer.name == "rlxc::mul" and _is_splat(value):
        value, factor = factor, value
    if not _is_splat(factor) or value.type != scores.type:
        return scores, 1.0
    number = _number(factor)
    if producer.name == "rlxc::mul":
        return value, number
    return (value, round_f32(1.0 / number)) if number else (scores, 1.0)


def _one_batch(operands: list[Value]) -> bool:
    q, keys, v = (item.type.shape[:-2] for item in operands)
    return q == keys == v


def _is_splat(value: Value) -> bool:
    return value.producer is not None and value.producer.name == SPLAT


def _number(splat: Value) -> float:
    assert splat.producer is not None
    number = splat.producer.attrs["value"]
    assert isinstance(number, (int, float))
    return float(number)
