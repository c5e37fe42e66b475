"""The table: every case, the operators it must cover, and the gaps that all devices share."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from tests.conformance import elementwise, layers, movement, reductions
from tests.conformance.case import Case
from tests.conformance.devices import Device

OPERATORS = (
    "Abs", "Add", "And", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat",
    "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Div", "Elu", "Equal", "Erf",
    "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "Gelu", "Gemm",
    "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "Less", "Log", "LogSoftmax",
    "MatMul", "Max", "MaxPool", "Min", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "PRelu",
    "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu",
    "Reshape", "Resize", "Round", "Sigmoid", "Sin", "Slice", "Softmax", "Split", "Sqrt",
    "Squeeze", "Sub", "Sum", "Tanh", "Tile", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
"""The operators that every device must have."""

CASES: tuple[Case, ...] = (
    *elementwise.CASES,
    *reductions.CASES,
    *movement.CASES,
    *layers.CASES,
)

F32_ONLY = "the derived scalar functions (exp, log, …) are defined for f32 only"
EMPTY = "tensors without elements are not computed"
SHARED_GAPS: Mapping[str, str] = {
    **{
        f"{operator}-f64-*": F32_ONLY
        for operator in (
            *("Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Erf", "Elu", "Gelu", "Pow"),
            *("Softmax", "LogSoftmax"),
        )
    },
    "Reduce*-empty-axes": EMPTY,
    "Resize-f32-given-scales": "float inputs do not decide sizes",
}
"""Pattern of case names → why no device can run them."""


def gap(case: Case, device: Device) -> str | None:
    """Why the case is known to fail on the device."""
    for pattern, reason in (*device.gaps.items(), *SHARED_GAPS.items()):
        if fnmatchcase(case.id, pattern):
            return reason
    return None
