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
AffineGrid align_corners>=20
And axis<7 broadcast<7
ArgMax axis keepdims select_last_index>=12
ArgMin axis keepdims select_last_index>=12
Asin
Asinh
Atan
Atanh
Attention is_causal>=23 kv_num_heads>=23 left_window_size>=25 q_num_heads>=23 \
    qk_matmul_output_mode>=23 right_window_size>=25 scale>=23 softcap>=23 softmax_precision>=23
AveragePool auto_pad ceil_mode>=10 count_include_pad>=7 dilations>=19 kernel_shape pads strides
BatchNormalization epsilon is_test<7 momentum spatial<9 training_mode>=14
Cast round_mode>=24 saturate>=19 to
CastLike round_mode>=24 saturate>=19
CausalConvWithState activation>=27
Ceil
Celu alpha>=12
CenterCropPad axes>=18
Clip max<11 min<11
Concat axis
Constant sparse_value>=11 value value_float>=12 value_floats>=12 value_int>=12 value_ints>=12 \
    value_string>=12 value_strings>=12
ConstantOfShape value>=9
Conv auto_pad dilations group kernel_shape pads strides
ConvTranspose auto_pad dilations group kernel_shape output_padding output_shape pads strides
Cos
Cosh
CumSum exclusive>=11 reverse>=11
DepthToSpace blocksize mode>=11
Div axis<7 broadcast<7
Dropout is_test<7 ratio<12 seed>=12
Elu alpha
Equal axis<7 broadcast<7
Erf
Exp
Expand
EyeLike dtype>=9 k>=9
Flatten axis
Floor
Gather axis
GatherElements axis>=11
GatherND batch_dims>=12
Gelu approximate>=20
Gemm alpha beta broadcast<7 transA transB
GlobalAveragePool
GlobalMaxPool
Greater axis<7 broadcast<7
GreaterOrEqual
GridSample align_corners>=16 mode>=16 padding_mode>=16
GroupNormalization epsilon>=18 num_groups>=18 stash_type>=21
HardSigmoid alpha beta
HardSwish
Hardmax axis
Identity
If else_branch then_branch
InstanceNormalization epsilon
IsInf detect_negative>=10 detect_positive>=10
IsNaN
LRN alpha beta bias size
LayerNormalization axis>=17 epsilon>=17 stash_type>=17
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
MeanVarianceNormalization axes>=9
Min
Mish
Mod fmod>=10
Mul axis<7 broadcast<7
Neg
NegativeLogLikelihoodLoss ignore_index>=12 reduction>=12
NonZero
Not
OneHot axis>=9
Or axis<7 broadcast<7
PRelu
Pad mode pads<11 value<11
Pow axis<7 broadcast<7
RMSNormalization axis>=23 epsilon>=23 stash_type>=23
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
    exclude_outside>=11 extrapolation_value>=11 keep_aspect_ratio_policy>=18 mode>=10 \
    nearest_mode>=11
RotaryEmbedding interleaved>=23 num_heads>=23 rotary_embedding_dim>=23
Round
Selu alpha gamma
Shape end>=15 start>=15
Shrink bias>=9 lambd>=9
Sigmoid
Sign
Sin
Sinh
Size
Slice axes<10 ends<10 starts<10
Softmax axis
SoftmaxCrossEntropyLoss ignore_index>=12 reduction>=12
Softplus
Softsign
SpaceToDepth blocksize mode>=28
Split axis num_outputs>=18 split<13
Sqrt
Squeeze axes<13
Sub axis<7 broadcast<7
Sum
Swish alpha>=24
Tan
Tanh
ThresholdedRelu alpha>=10
Tile
Transpose perm
Trilu upper>=14
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
