"""Changes of shape: views, permutations and repetition. Values are moved, never computed."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir.dims import Dim, as_dim
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import ANY, attr_dims, attribute, dims, example, operand
from rlx_edge.ir.types import TensorType


def linear_index(shape: Sequence[Dim], at: Sequence[Dim]) -> Dim:
    """Row-major position of ``at`` in ``shape``."""
    flat = as_dim(0)
    for dim, place in zip(shape, at, strict=True):
        flat = flat * dim + place
    return flat


def split_index(shape: Sequence[Dim], flat: Dim) -> list[Dim]:
    """Indices of row-major position ``flat`` in ``shape``."""
    places: list[Dim] = []
    stride = as_dim(1)
    for axis in range(len(shape) - 1, -1, -1):
        place = flat // stride
        places.append(place if axis == 0 else place % shape[axis])
        stride = stride * shape[axis]
    return places[::-1]


def _reshape_type(ctx: InferContext) -> TensorType:
    result = TensorType(ctx.types[0].dtype, attr_dims(ctx, "shape"))
    difference = result.size - ctx.types[0].size
    if difference.is_constant and difference.value != 0:
        raise ctx.error(
            "the new shape holds another number of elements",
            found=f"{result} from {ctx.types[0]}",
            allowed=f"{ctx.types[0].size} elements",
        )
    return result


def _reshape(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    flat = linear_index(ctx.result.shape, at)
    return ctx.load("x", split_index(ctx.type("x").shape, flat))


OPS = (
    OpDef(
        "rlxc::reshape",
        (operand("x", ANY),),
        (attribute("shape", "dims"),),
        _reshape_type,
        Expression(_reshape),
        frozenset({"view"}),
        doc="The same bytes under another shape (ONNX Reshape, Flatten, Squeeze, Unsqueeze).",
        examples=(example("flatten", "f32[n, 3, 4]", shape=dims("n", 12)),),
    ),
)
