"""Which attributes an operator of the standard domain has in which version of the operators.

Source: the operator schemas of ONNX, https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

import re

# A line an operator; `name>=A<B`: from opset A on, until B, which has it no more. Written by
# `python -m scripts.build_attributes`.
_TABLE = """\
Abs
Acos
Acosh
Add axis<7 broadcast<7
AffineGrid align_corners
And axis<7 broadcast<7
ArgMax axis keepdims select_last_index>=12
ArgMin axis keepdims select_last_index>=12
Asin
Asinh
Atan
Atanh
Attention is_causal kv_num_heads left_window_size>=25 q_num_heads qk_matmul_output_mode \
    right_window_size>=25 scale softcap softmax_precision
AveragePool auto_pad ceil_mode>=10 count_include_pad>=7 dilations>=19 kernel_shape pads strides
BatchNormalization epsilon is_test<7 momentum spatial<9 training_mode>=14
Cast round_mode>=24 saturate>=19 to
CastLike round_mode>=24 saturate>=19
CausalConvWithState activation
Ceil
Celu alpha
CenterCropPad axes
Clip max<11 min<11
Concat axis
Constant sparse_value value value_float value_floats value_int value_ints value_string \
    value_strings
ConstantOfShape value
Conv auto_pad dilations group kernel_shape pads strides
ConvTranspose auto_pad dilations group kernel_shape output_padding output_shape pads strides
Cos
Cosh
CumSum exclusive reverse
DepthToSpace blocksize mode>=11
Div axis<7 broadcast<7
Dropout is_test<7 ratio<12 seed>=12
Elu alpha
Equal axis<7 broadcast<7
Erf
Exp
Expand
EyeLike dtype k
Flatten axis
Floor
Gather axis
GatherElements axis
GatherND batch_dims>=12
Gelu approximate
Gemm alpha beta broadcast<7 transA transB
GlobalAveragePool
GlobalMaxPool
Greater axis<7 broadcast<7
GreaterOrEqual
GridSample align_corners mode padding_mode
GroupNormalization epsilon num_groups stash_type>=21
HardSigmoid alpha beta
HardSwish
Hardmax axis
Identity
If else_branch then_branch
InstanceNormalization epsilon
IsInf detect_negative detect_positive
IsNaN
LRN alpha beta bias size
LayerNormalization axis epsilon stash_type
LeakyRelu alpha
Less axis<7 broadcast<7
LessOrEqual
Log
LogSoftmax axis
LpNormalization axis p
LpPool auto_pad ceil_mode>=18 dilations>=18 kernel_shape p pads strides
MatMul
Max
MaxPool auto_pad ceil_mode>=10 dilations>=10 kernel_shape pads storage_order>=8 strides
Mean
MeanVarianceNormalization axes
Min
Mish
Mod fmod
Mul axis<7 broadcast<7
Neg
NegativeLogLikelihoodLoss ignore_index reduction
NonZero
Not
OneHot axis
Or axis<7 broadcast<7
PRelu
Pad mode pads<11 value<11
Pow axis<7 broadcast<7
RMSNormalization axis epsilon stash_type
Range stash_type>=27
Reciprocal
ReduceL1 axes<18 keepdims noop_with_empty_axes>=18
ReduceL2 axes<18 keepdims noop_with_empty_axes>=18
ReduceLogSum axes<18 keepdims noop_with_empty_axes>=18
ReduceLogSumExp axes<18 keepdims noop_with_empty_axes>=18
ReduceMax axes<18 keepdims noop_with_empty_axes>=18
ReduceMean axes<18 keepdims noop_with_empty_axes>=18
ReduceMin axes<18 keepdims noop_with_empty_axes>=18
ReduceProd axes<18 keepdims noop_with_empty_axes>=18
ReduceSum axes<13 keepdims noop_with_empty_axes>=13
ReduceSumSquare axes<18 keepdims noop_with_empty_axes>=18
Relu
Reshape allowzero>=14
Resize antialias>=18 axes>=18 coordinate_transformation_mode>=11 cubic_coeff_a>=11 \
    exclude_outside>=11 extrapolation_value>=11 keep_aspect_ratio_policy>=18 mode \
    nearest_mode>=11
RotaryEmbedding interleaved num_heads rotary_embedding_dim
Round
Selu alpha gamma
Shape end>=15 start>=15
Shrink bias lambd
Sigmoid
Sign
Sin
Sinh
Size
Slice axes<10 ends<10 starts<10
Softmax axis
SoftmaxCrossEntropyLoss ignore_index reduction
Softplus
Softsign
SpaceToDepth blocksize mode>=28
Split axis num_outputs>=18 split<13
Sqrt
Squeeze axes<13
Sub axis<7 broadcast<7
Sum
Swish alpha
Tan
Tanh
ThresholdedRelu alpha
Tile
Transpose perm
Trilu upper
Unsqueeze axes<13
Upsample height_scale<7 mode scales>=7<9 width_scale<7
Where
Xor axis<7 broadcast<7
"""

_WORD = re.compile(r"(\w+)(?:>=(\d+))?(?:<(\d+))?")


def _versions(word: str) -> tuple[str, range]:
    found = _WORD.fullmatch(word)
    assert found is not None, word
    name, since, until = found.groups()
    return name, range(int(since or 0), int(until or 1 << 31))


_VERSIONS: dict[str, dict[str, range]] = {
    operator: dict(map(_versions, words))
    for operator, *words in (line.split() for line in _TABLE.splitlines())
}


def attribute_names(op_type: str, opset: int) -> tuple[str, ...] | None:
    """The attributes of an operator, sorted; ``None`` for an operator that is not in the table."""
    versions = _VERSIONS.get(op_type)
    if versions is None:
        return None
    return tuple(name for name, known in versions.items() if opset in known)
