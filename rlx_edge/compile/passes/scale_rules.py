"""Constant scales and shifts after a convolution go into its weights and its bias.

A *chain* is a convolution, or a convolution plus a constant per channel (its bias). For a factor
``k`` and a shift per channel: ``conv(x, w) * k`` becomes ``conv(x, w * k)``, the bias ``b`` becomes
``b * k``; two constants added one after the other become one. A batch norm of a chain is exactly

    k = scale / sqrt(var + epsilon)      w1 = w * k      b1 = shift + (bias - mean) * k

The arithmetic on constants is left in the graph: ``fold`` evaluates it or has it run once.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.rewrite import Rewriter, Rule
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import ONE, Dim, as_dim
from rlx_edge.ir.types import F32

CONV = "rlxc::conv2d"
CONV_TRANSPOSE = "rlxc::conv_transpose2d"
ADD = "rlxc::add"
MUL = "rlxc::mul"


@dataclass(frozen=True, slots=True)
class Chain:
    """A convolution with constant weights that nothing but this chain reads, and its bias."""

    conv: Op
    bias: Value | None

    @property
    def channels(self) -> Dim:
        return self.conv.result.type.shape[1]


def chain_of(value: Value, rewriter: Rewriter) -> Chain | None:
    """The chain that ends in ``value``; every value of it has one reader."""
    producer = value.producer
    if producer is None or not rewriter.read_once(value):
        return None
    if producer.name in (CONV, CONV_TRANSPOSE):
        weights_known = rewriter.is_constant(producer.operands[1])
        if not weights_known or len(producer.operands) != 2 or value.type.dtype is not F32:
            return None
        return Chain(producer, None)
    if producer.name == ADD:
        inner = chain_of(producer.operands[0], rewriter)
        bias = producer.operands[1]
        if inner is None or inner.bias is not None or not _per_channel(bias, value, rewriter):
            return None
        return Chain(inner.conv, bias)
    return None


def _per_channel(value: Value, image: Value, rewriter: Rewriter) -> bool:
    """A constant that broadcasts to ``image`` along the channels, or a constant scalar."""
    if image.type.rank != 4 or value.type.rank > 4 or not rewriter.is_constant(value):
        return False
    shape = (ONE,) * (4 - value.type.rank) + value.type.shape
    n, c, h, w = shape
    return n is ONE and h is ONE and w is ONE and c in (ONE, image.type.shape[1])


def _as_column(value: Value, rewriter: Rewriter) -> Value:
    """``[C, 1, 1]`` of a constant per channel, ``[]`` of a scalar."""
    many = [dim for dim in value.type.shape if dim is not ONE]
    return _reshaped(value, (*many, ONE, ONE) if many else (), rewriter)


def _reshaped(value: Value, shape: tuple[Dim, ...], rewriter: Rewriter) -> Value:
    if value.type.shape == shape:
        return value
    return rewriter.op("rlxc::reshape", [value], {"shape": shape}, hint=value.name)


def _scaled(chain: Chain, factor: Value, rewriter: Rewriter) -> Value | None:
    """The convolution with weights times ``factor`` (``[C, 1, 1]`` or ``[]``)."""
    conv = chain.conv
    x, weight = conv.operands
    if factor.type.rank:
        one = as_dim(1)
        channels = factor.type.shape[0]
        if conv.name == CONV:
            shape: tuple[Dim, ...] = (channels, one, one, one)
        elif conv.attrs["groups"] == 1:
            shape = (one, channels, one, one)
        else:
            return None
        factor = _reshaped(factor, shape, rewriter)
    scaled = rewriter.op(MUL, [weight, factor], hint=weight.name)
    return rewriter.again(conv, [x, scaled])


def batch_norm_of_chain(op: Op, rewriter: Rewriter) -> Value | None:
    """Batch norm with constant parameters after a convolution: new weights and bias."""
    if op.name != "rlxc::batch_norm" or not all(map(rewriter.is_constant, op.operands[1:])):
        return None
    chain = chain_of(op.operands[0], rewriter)
    if chain is None:
        return None
    _, scale, shift, mean, var = op.operands
    k = _factor(op, scale, var, rewriter)
    conv = _scaled(chain, _column(k, rewriter), rewriter)
    if conv is None:
        return None
    if chain.bias is None:
        offset = rewriter.op("rlxc::neg", [mean], hint=mean.name)
    else:
        bias = _reshaped(chain.bias, _flat(chain.bias), rewriter)
        offset = rewriter.op("rlxc::sub", [bias, mean], hint=shift.name)
    bias = rewriter.op(ADD, [shift, rewriter.op(MUL, [offset, k])], hint=shift.name)
    return rewriter.op(ADD, [conv, _column(bias, rewriter)], hint=op.result.name)


def _factor(op: Op, scale: Value, var: Value, rewriter: Rewriter) -> Value:
    """``scale / sqrt(var + epsilon)``."""
    epsilon = op.attrs["epsilon"]
    assert isinstance(epsilon, float)
    shifted = rewriter.op(ADD, [var, rewriter.splat(epsilon, var.type.dtype, hint="epsilon")])
    deviation = rewriter.op("rlxc::sqrt", [shifted], hint="deviation")
    return rewriter.op("rlxc::div", [scale, deviation], hint=scale.name)


def _column(vector: Value, rewriter: Rewriter) -> Value:
    return _reshaped(vector, (vector.type.shape[0], ONE, ONE), rewriter)


def _flat(value: Value) -> tuple[Dim, ...]:
    return tuple(dim for dim in value.type.shape if dim is not ONE)


def batch_norm_as_scale(op: Op, rewriter: Rewriter) -> Value | None:
    """Any other batch norm with constant parameters is ``x * k + (shift - mean * k)``."""
    if op.name != "rlxc::batch_norm" or not all(map(rewriter.is_constant, op.operands[1:])):
        return None
    x, scale, shift, mean, var = op.operands
    k = _factor(op, scale, var, rewriter)
    offset = rewriter.op("rlxc::sub", [shift, rewriter.op(MUL, [mean, k])], hint=shift.name)
    shape = (k.type.shape[0], *(ONE for _ in range(x.type.rank - 2)))
    scaled = rewriter.op(MUL, [x, _reshaped(k, shape, rewriter)])
    return rewriter.op(ADD, [scaled, _reshaped(offset, shape, rewriter)], hint=op.result.name)


def scale_of_chain(op: Op, rewriter: Rewriter) -> Value | None:
    """A constant factor after a convolution goes into weights and bias."""
    if op.name != MUL or not _per_channel(op.operands[1], op.operands[0], rewriter):
        return None
    if op.result.type != op.operands[0].type:
        return None
    chain = chain_of(op.operands[0], rewriter)
    if chain is None:
        return None
    factor = _as_column(op.operands[1], rewriter)
    conv = _scaled(chain, factor, rewriter)
    if conv is None or chain.bias is None:
        return conv
    bias = rewriter.op(MUL, [_as_column(chain.bias, rewriter), factor], hint=chain.bias.name)
    return rewriter.op(ADD, [conv, bias], hint=op.result.name)


def shift_of_chain(op: Op, rewriter: Rewriter) -> Value | None:
    """Two constants added after a convolution are one."""
    if op.name != ADD or not _per_channel(op.operands[1], op.operands[0], rewriter):
        return None
    chain = chain_of(op.operands[0], rewriter)
    if chain is None or chain.bias is None or op.result.type != op.operands[0].type:
        return None
    left, right = _as_column(chain.bias, rewriter), _as_column(op.operands[1], rewriter)
    bias = rewriter.op(ADD, [left, right], hint=chain.bias.name)
    return rewriter.op(ADD, [chain.conv.result, bias], hint=op.result.name)


RULES: tuple[Rule, ...] = (
    batch_norm_of_chain,
    batch_norm_as_scale,
    scale_of_chain,
    shift_of_chain,
)
