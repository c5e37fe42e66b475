"""Changes of shape: views, permutations, pieces and repetition. Values move, none is computed."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir.dims import Dim, as_dim, ceildiv, dim_max, dim_min
from rlx_edge.ir.expression import Expr, binary, const, index, select
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops.signature import (
    ANY,
    COMPUTED,
    attr_axes,
    attr_axis,
    attr_dims,
    attr_ints,
    attribute,
    broadcast_shapes,
    dims,
    example,
    operand,
    require_same,
    same_as_first,
)
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
    shape = ctx.type("x").shape
    if shape == ctx.result.shape:
        return ctx.load("x", at)
    return ctx.load("x", split_index(shape, linear_index(ctx.result.shape, at)))


def _permutation(ctx: InferContext) -> tuple[int, ...]:
    perm = attr_ints(ctx, "perm", ctx.types[0].rank)
    if sorted(perm) != list(range(len(perm))):
        raise ctx.error(
            "perm is not a permutation",
            found=list(perm),
            allowed=f"each of 0 to {len(perm) - 1} once",
        )
    return perm


def _transpose_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    return TensorType(x.dtype, tuple(x.shape[axis] for axis in _permutation(ctx)))


def _transpose(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    places = dict(zip(ctx.attrs["perm"], at, strict=True))
    return ctx.load("x", [places[axis] for axis in range(len(at))])


def _concat_type(ctx: InferContext) -> TensorType:
    first = ctx.types[0]
    axis = attr_axis(ctx, "axis", first.rank)
    total = as_dim(0)
    for found in ctx.types:
        if found.rank != first.rank:
            raise ctx.error("operands differ in rank", found=found, allowed=first)
        for position, (a, b) in enumerate(zip(found.shape, first.shape, strict=True)):
            if position != axis:
                require_same(ctx, a, b, f"sizes of axis {position}")
        total = total + found.shape[axis]
    shape = list(first.shape)
    shape[axis] = total
    return TensorType(first.dtype, tuple(shape))


def _concat(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    axis = ctx.attrs["axis"]
    ends: list[Dim] = []
    pieces: list[Expr] = []
    begin = as_dim(0)
    for slot, found in enumerate(ctx.types):
        place = at[axis] - begin
        last = found.shape[axis] - 1
        # Every piece is evaluated everywhere, so each index is kept inside its operand.
        inside = place if len(ctx.types) == 1 else dim_max(dim_min(place, last), 0)
        pieces.append(ctx.load(slot, (*at[:axis], inside, *at[axis + 1 :])))
        begin = begin + found.shape[axis]
        ends.append(begin)
    return _choose(at[axis], pieces, ends)


def _choose(place: Dim, pieces: Sequence[Expr], ends: Sequence[Dim]) -> Expr:
    """The piece whose end is the first above ``place``, by halves."""
    if len(pieces) == 1:
        return pieces[0]
    half = len(pieces) // 2
    return select(
        index(place) < index(ends[half - 1]),
        _choose(place, pieces[:half], ends[:half]),
        _choose(place, pieces[half:], ends[half:]),
    )


def slice_size(start: Dim, end: Dim, step: int) -> Dim:
    """Elements of ``[start, end)`` walked with ``step``."""
    return ceildiv(end - start, abs(step))


def _slice_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    axes = attr_axes(ctx, "axes", x.rank)
    starts, ends = attr_dims(ctx, "starts", len(axes)), attr_dims(ctx, "ends", len(axes))
    steps = attr_ints(ctx, "steps", len(axes))
    shape = list(x.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise ctx.error("a step is 0", found=list(steps), allowed="any other integer")
        for smaller, larger in ((as_dim(0), start), (start, end), (end, x.shape[axis])):
            room = larger - smaller
            if room.is_constant and room.value < 0:
                raise ctx.error(
                    f"the slice of axis {axis} leaves it",
                    found=f"[{start}, {end})",
                    allowed=f"0 <= start <= end <= {x.shape[axis]}",
                )
        shape[axis] = slice_size(start, end, step)
    return TensorType(x.dtype, tuple(shape))


def _slice(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    places = list(at)
    attrs = ctx.attrs
    for axis, start, end, step in zip(
        attrs["axes"], attrs["starts"], attrs["ends"], attrs["steps"], strict=True
    ):
        origin = as_dim(start) if step > 0 else as_dim(end) - 1
        places[axis] = origin + at[axis] * step
    return ctx.load("x", places)


def _pad_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    pads = attr_dims(ctx, "pads", 2 * x.rank)
    sizes: list[Dim] = []
    for axis, dim in enumerate(x.shape):
        before, after = pads[axis], pads[axis + x.rank]
        size = dim + before + after
        if size.is_constant and size.value < 0:
            raise ctx.error(
                f"padding of axis {axis} removes more than there is", found=f"{before} and {after}"
            )
        if ctx.attrs["mode"] == "reflect":
            for pad in (before, after):
                room = dim - 1 - pad
                if room.is_constant and room.value < 0:
                    raise ctx.error(
                        f"axis {axis} is too short to reflect",
                        found=pad,
                        allowed=f"at most {dim - 1}",
                    )
        sizes.append(size)
    return TensorType(x.dtype, tuple(sizes))


def _pad(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    shape = ctx.type("x").shape
    pads = ctx.attrs["pads"]
    zero = as_dim(0)
    inside: Expr | None = None
    places: list[Dim] = []
    for axis, (place, dim) in enumerate(zip(at, shape, strict=True)):
        before, after = as_dim(pads[axis]), as_dim(pads[axis + len(shape)])
        if before is zero and after is zero:
            places.append(place)
            continue
        source = place - before
        last = dim - 1
        if ctx.attrs["mode"] == "constant":
            both = binary("and", index(source) >= index(0), index(source) < index(dim))
            inside = both if inside is None else binary("and", inside, both)
        elif ctx.attrs["mode"] == "reflect":
            source = dim_max(source, -source)
            source = last - dim_max(last - source, source - last)
        elif ctx.attrs["mode"] == "wrap":
            source = source % dim
        places.append(dim_max(dim_min(source, last), 0))
    value = ctx.load("x", places)
    return (
        value
        if inside is None
        else select(inside, value, const(ctx.attrs["value"], ctx.result.dtype))
    )


def _expand_type(ctx: InferContext) -> TensorType:
    shape = broadcast_shapes(ctx, [ctx.types[0].shape, attr_dims(ctx, "shape")])
    return TensorType(ctx.types[0].dtype, shape)


def _expand(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return ctx.broadcast("x", at)


def _tile_type(ctx: InferContext) -> TensorType:
    x = ctx.types[0]
    repeats = attr_dims(ctx, "repeats", x.rank)
    return TensorType(
        x.dtype, tuple(dim * count for dim, count in zip(x.shape, repeats, strict=True))
    )


def _tile(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    one = as_dim(1)
    return ctx.load(
        "x",
        [
            place if as_dim(count) is one else place % dim
            for place, dim, count in zip(at, ctx.type("x").shape, ctx.attrs["repeats"], strict=True)
        ],
    )


def _identity(ctx: ExpressionContext, at: tuple[Dim, ...]) -> Expr:
    return ctx.load("x", at)


OPS = (
    OpDef(
        "rlxc::reshape",
        (operand("x", ANY),),
        (attribute("shape", "dims"),),
        _reshape_type,
        Expression(_reshape),
        frozenset({"view"}),
        "The same bytes under another shape (ONNX Reshape, Flatten, Squeeze, Unsqueeze).",
        (
            example("flatten", "f32[n, 3, 4]", shape=dims("n", 12)),
            example("regroup", "i64[4, 6]", shape=dims(2, 3, 4)),
        ),
    ),
    OpDef(
        "rlxc::transpose",
        (operand("x", ANY),),
        (attribute("perm", "ints"),),
        _transpose_type,
        Expression(_transpose),
        frozenset(),
        "Axes in another order: result axis i is operand axis perm[i] (ONNX Transpose).",
        (
            example("matrix", "f32[n, 3]", perm=(1, 0)),
            example("cube", "f32[2, 3, 4]", perm=(2, 0, 1)),
        ),
    ),
    OpDef(
        "rlxc::concat",
        (operand("inputs", ANY, variadic=True),),
        (attribute("axis", "int"),),
        _concat_type,
        Expression(_concat),
        frozenset(),
        "Operands one after the other along an axis (ONNX Concat).",
        (
            example("two", "f32[2, n]", "f32[2, 3]", axis=1),
            example("three", "f32[1, 2]", "f32[2, 2]", "f32[3, 2]", axis=0),
        ),
    ),
    OpDef(
        "rlxc::slice",
        (operand("x", ANY),),
        (
            attribute("axes", "ints"),
            attribute("starts", "dims"),
            attribute("ends", "dims"),
            attribute("steps", "ints"),
        ),
        _slice_type,
        Expression(_slice),
        frozenset(),
        "Elements of [start, end) with 0 <= start <= end <= size; a negative step walks the same "
        "range from end - 1 downwards (ONNX Slice, bounds normalised).",
        (
            example("middle", "f32[5, n]", axes=(0,), starts=dims(1), ends=dims(4), steps=(2,)),
            example(
                "reversed",
                "f32[6, 3]",
                axes=(0, 1),
                starts=dims(1, 0),
                ends=dims(6, 2),
                steps=(-2, 1),
            ),
        ),
    ),
    OpDef(
        "rlxc::pad",
        (operand("x", COMPUTED),),
        (
            attribute("pads", "dims"),
            attribute("mode", "string", "constant", "reflect", "edge", "wrap"),
            attribute("value", "number"),
        ),
        _pad_type,
        Expression(_pad),
        frozenset(),
        "Elements added (or, when negative, removed) before and after each axis: pads = all "
        "befores, then all afters; value fills in mode constant (ONNX Pad).",
        (
            example("constant", "f32[2, n]", pads=dims(1, 0, 0, 2), mode="constant", value=1.5),
            example("reflect", "f32[3, 4]", pads=dims(1, 2, 2, 3), mode="reflect", value=0.0),
            example("edge", "f32[3, 4]", pads=dims(1, 2, 0, 5), mode="edge", value=0.0),
        ),
    ),
    OpDef(
        "rlxc::expand",
        (operand("x", ANY),),
        (attribute("shape", "dims"),),
        _expand_type,
        Expression(_expand),
        frozenset(),
        "Broadcast to the common shape of x and ``shape`` (ONNX Expand).",
        (example("rows", "f32[3, 1]", shape=dims(2, 1, "n")),),
    ),
    OpDef(
        "rlxc::tile",
        (operand("x", ANY),),
        (attribute("repeats", "dims"),),
        _tile_type,
        Expression(_tile),
        frozenset(),
        "The operand repeated along each axis (ONNX Tile).",
        (example("both", "f32[2, n]", repeats=dims(3, 2)),),
    ),
    OpDef(
        "rlxc::convert_layout",
        (operand("x", ANY),),
        (),
        same_as_first,
        Expression(_identity),
        frozenset({"blocked"}),
        "The same values stored in the layout and border that the placement attributes name.",
        (example("image", "f32[1, 3, 4, n]"),),
    ),
    OpDef(
        "rlxc::copy",
        (operand("x", ANY),),
        (),
        same_as_first,
        Expression(_identity),
        frozenset({"blocked"}),
        "The same values in storage of their own (ONNX Identity where it must not alias).",
        (example("matrix", "f32[2, n]"),),
    ),
)
