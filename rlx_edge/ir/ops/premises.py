"""What must hold of the sizes so that an operator reads inside its operands.

Type inference refuses what is wrong for every size and accepts what only some sizes break: a
reshape from ``n`` to ``m`` elements, a slice up to ``k``. ``premises`` states those conditions as
guards; what the sizes' definition already proves is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Guard
from rlx_edge.ir.dims import Atom, Dim, as_dim
from rlx_edge.ir.opdef import InferContext
from rlx_edge.ir.ops.signature import attr_axes, attr_dims
from rlx_edge.ir.types import TensorType

ZERO = as_dim(0)


def premises(
    root: str,
    types: Sequence[TensorType],
    attrs: Mapping[str, Attribute],
    result: TensorType,
    sizes: frozenset[str],
) -> tuple[Guard, ...]:
    """Guards of one op: ``root`` is its (root) operator's name, ``types`` its operands', ``sizes``
    the symbols that are at least 1 (others may be any integer)."""
    ctx = InferContext(root, types, attrs)
    wanted: list[Guard] = []
    if root == "rlxc::reshape" and types[0].size is not result.size:
        wanted.append(Guard(types[0].size, "==", result.size, "a reshape keeps all elements"))
    elif root == "rlxc::slice":
        wanted += _slice_premises(ctx)
    elif root == "rlxc::pad" and attrs["mode"] == "reflect":
        wanted += _reflect_premises(ctx)
    for dim in result.shape:
        wanted.append(Guard(ZERO, "<=", dim, "a size is not negative"))
    unproven = [
        guard
        for guard in wanted
        if guard.relation == "==" or not proves(guard.left, guard.right, sizes)
    ]
    return tuple(dict.fromkeys(unproven))


def _slice_premises(ctx: InferContext) -> Iterator[Guard]:
    axes = attr_axes(ctx, "axes", ctx.types[0].rank)
    starts, ends = attr_dims(ctx, "starts"), attr_dims(ctx, "ends")
    for axis, start, end in zip(axes, starts, ends, strict=True):
        reason = f"a slice stays inside axis {axis}"
        yield Guard(ZERO, "<=", start, reason)
        yield Guard(start, "<=", end, reason)
        yield Guard(end, "<=", ctx.types[0].shape[axis], reason)


def _reflect_premises(ctx: InferContext) -> Iterator[Guard]:
    shape = ctx.types[0].shape
    for position, pad in enumerate(attr_dims(ctx, "pads")):
        dim = shape[position % len(shape)]
        yield Guard(pad, "<=", dim - 1, "reflection needs as many elements as it adds, and one")


# ---- proofs ----------------------------------------------------------------------------------


def proves(low: Dim, high: Dim, sizes: frozenset[str]) -> bool:
    """Whether ``low <= high`` for all sizes at least 1; False where that is not seen."""
    room = least(high - low, sizes)
    if room is not None and room >= 0:
        return True
    lower, upper = _only_atom(low), _only_atom(high)
    if lower is not None and lower.op == "min":
        return any(proves(arg, high, sizes) for arg in lower.args)
    if upper is not None and upper.op == "max":
        return any(proves(low, arg, sizes) for arg in upper.args)
    if lower is not None and lower.op == "max":
        return all(proves(arg, high, sizes) for arg in lower.args)
    if upper is not None and upper.op == "min":
        return all(proves(low, arg, sizes) for arg in upper.args)
    return False


def least(dim: Dim, sizes: frozenset[str]) -> int | None:
    """A lower bound of ``dim``, ``None`` where none is seen."""
    total = 0
    for mono, coefficient in dim.terms:
        bound = coefficient
        for atom in mono:
            floor = _least_of_atom(atom, sizes)
            if coefficient < 0 or floor is None or floor < 0:
                return None
            bound *= floor
        total += bound
    return total


def _least_of_atom(atom: Atom, sizes: frozenset[str]) -> int | None:
    if atom.op == "symbol":
        return 1 if atom.name in sizes else None
    a, b = atom.args
    positive = b.is_constant and b.value > 0
    if atom.op == "mod":
        return 0 if positive else None
    first = least(a, sizes)
    if atom.op == "floordiv":
        return first // b.value if positive and first is not None else None
    second = least(b, sizes)
    if atom.op == "min":
        return None if first is None or second is None else min(first, second)
    found = [bound for bound in (first, second) if bound is not None]
    return max(found) if found else None


def _only_atom(dim: Dim) -> Atom | None:
    """The atom of a dim that is one ``max`` or ``min``."""
    if len(dim.terms) != 1 or dim.terms[0][1] != 1 or len(dim.terms[0][0]) != 1:
        return None
    return dim.terms[0][0][0]
