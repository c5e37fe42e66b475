"""Losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import ONE
from rlx_edge.ir.onnx.context import Attrs, NodeContext
from rlx_edge.ir.onnx.convert.table import Converter


def _likelihood(n: NodeContext, log_prob: Value) -> Value:
    """The negative of each target's entry along axis 1, weighted, then reduced. An ignored target
    has weight 0 and is read as class 0."""
    target = n.value(1)
    shape = target.type.shape
    dtype = log_prob.type.dtype
    ignored: Value | None = None
    if n.has_attr("ignore_index"):
        index = n.splat(n.int_attr("ignore_index"), target.type.dtype)
        ignored = n.step("rlxc::equal", [target, index])
        target = n.step("rlxc::where", [ignored, n.splat(0, target.type.dtype), target])
    column = n.reshape(target, (shape[0], ONE, *shape[1:]), hint="target")
    found = n.step("rlxc::gather_elements", [log_prob, column], {"axis": 1})
    loss = n.step("rlxc::neg", [n.reshape(found, shape, hint="found")])
    weight: Value | None = None
    if n.has(2):
        weight = n.step("rlxc::gather", [n.value(2), target], {"axis": 0})
    if ignored is not None:
        taken = n.splat(1.0, dtype) if weight is None else weight
        weight = n.step("rlxc::where", [ignored, n.splat(0.0, dtype), taken])
    if weight is not None:
        loss = n.step("rlxc::mul", [loss, weight])
    return _reduced(n, loss, weight)


def _reduced(n: NodeContext, loss: Value, weight: Value | None) -> Value:
    reduction = n.string_attr("reduction", "mean")
    every: Attrs = {"axes": tuple(range(loss.type.rank)), "keepdims": False}
    if reduction == "none":
        return loss
    if reduction == "sum":
        return n.op("rlxc::reduce_sum", [loss], every)
    if reduction != "mean":
        n.fail("import.attribute", "unknown reduction", found=reduction, allowed="none, sum, mean")
    if weight is None:
        return n.op("rlxc::reduce_mean", [loss], every)
    total = n.step("rlxc::reduce_sum", [loss], every)
    return n.op("rlxc::div", [total, n.step("rlxc::reduce_sum", [weight], every)])


def _negative_log_likelihood(n: NodeContext) -> Value:
    return _likelihood(n, n.value(0))


def _softmax_cross_entropy(n: NodeContext) -> tuple[Value | None, ...]:
    hint = n.node.outputs[1] if len(n.node.outputs) > 1 and n.node.outputs[1] else "log_prob"
    log_prob = n.op("rlxc::log_softmax", [n.value(0)], {"axis": 1}, hint=hint)
    return (_likelihood(n, log_prob), log_prob)[: len(n.used)]


CONVERTERS: dict[str, Converter] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
