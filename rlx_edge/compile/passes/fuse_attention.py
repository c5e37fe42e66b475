"""Attention recognised: a product of weights and values whose weights are a softmax of products.

From ``matmul`` over an optional scale and an optional bias, ``softmax``, an optional replacement of
NaN by 0 and another ``matmul`` to one ``rlxc::attention``, where no other operation reads what lies
between and the kernel takes the shapes. Sums change their order, so the pass belongs to pipelines
of precisions that allow that.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import SPLAT, copy_module
from rlx_edge.compile.passes.rewrite import Applied, Rewriter, Rule, rewrite
from rlx_edge.compile.templates.attention import fuses
from rlx_edge.ir.attributes import TF32, Attribute
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.expression import round_f32

MATMUL = "rlxc::matmul"
ATTENTION = "rlxc::attention"


@dataclass(frozen=True, slots=True)
class FuseAttention:
    """See the module's docstring; ``precision`` decides which shapes have a kernel."""

    name: str = "fuse-attention"
    precision: str = TF32

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        rewrite(module, (attention_rule(self.precision),), log)
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
        operands = [*first.operands, v, *bias]
        if any(_is_splat(item) for item in operands) or not _one_batch(operands[:3]):
            return None
        if not fuses(precision, [item.type for item in operands]):
            return None
        attrs: dict[str, Attribute] = {
            "scale": scale,
            "causal": False,
            "zero_empty": zero_empty,
        }
        return rewriter.op(ATTENTION, operands, attrs, hint=op.result.name)

    return fuse_attention


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
