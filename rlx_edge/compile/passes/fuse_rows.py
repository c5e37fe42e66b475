"""Regions over rows: reductions over the last axes with what is computed before and after them.

A row is what one combination of the leading indices leaves of a shape. A region starts at a
reduction, takes in the elementwise operations and the reductions over the same rows that follow it
in program order (normalisation, softmax: reduce, compute, reduce again, compute), and then the
elementwise operations before it whose values nobody else reads. Its values are whole rows, a number
a row with the reduced axes kept as 1, or a number a row without them. As in other regions, the last
value alone is read outside.

The region becomes one fused operation whose epilogue is the whole of it, over loads of operands:
``rlxc::fused_rows_<last>`` where the result is rows, or ``rlxc::fused_<reduction>_<last>`` where it
is a number a row. Operand 0 has the shape of the rows and gives the result its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.compile.passes.regions import Region, expression_definition, is_splat
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.dims import ONE, Dim, symbol
from rlx_edge.ir.expression import (
    Expr,
    const,
    index_dim,
    load,
    reduce,
    reduce_parts,
    replace_loads,
    rewrite,
    substitute,
)
from rlx_edge.ir.ops import OPS, definition_expression, infer_type
from rlx_edge.ir.ops.reduction import ROWS
from rlx_edge.ir.types import DType

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Operations, operands beyond the first, and reductions that one kernel may take in."""

    operations: int
    extras: int
    reductions: int


@dataclass(frozen=True, slots=True)
class Around:
    """What a region asks of the function around it."""

    position: Mapping[Op, int]
    readers: Mapping[Value, Mapping[Op, None]]
    free: Callable[[Op], bool]
    """Whether an operation may join a region: it is in none, and runs in every run."""
    returned: frozenset[Value]


def row_region(seed: Op, around: Around, limits: Limits) -> Region | None:
    """The longest region from the reduction ``seed``; ``None`` where that would be the seed alone,
    or the seed with operations on its result, which is a region of any root."""
    rows = _Rows.of(seed)
    if rows is None or not around.free(seed):
        return None
    following = _following(seed, rows, around, limits)
    for members in (_with_producers(following, rows, around, limits), following):
        reductions = sum(_is_reduction(op) for op in members)
        if reductions == 1 and members[0] is seed and rows.kind(members[-1].result) != "row":
            return None
        region = _fused(members, rows, limits)
        if region is not None:
            return region
    return None


def _is_reduction(op: Op) -> bool:
    found = expression_definition(op)
    return found is not None and "reduction" in found.traits and "axes" in op.attrs


def _is_elementwise(op: Op) -> bool:
    found = expression_definition(op)
    return found is not None and "elementwise" in found.traits


@dataclass(frozen=True, slots=True)
class _Rows:
    """Shapes of the values of a region: of rows, of a number a row, of that without its axes."""

    row: Shape
    kept: Shape
    dropped: Shape

    @staticmethod
    def of(op: Op) -> _Rows | None:
        """The rows that a reduction is over; ``None`` if its axes are not the last ones."""
        if not _is_reduction(op):
            return None
        axes = op.attrs["axes"]
        shape = op.operands[0].type.shape
        if not isinstance(axes, tuple) or not axes:
            return None
        moving = {axis for axis, dim in enumerate(shape) if dim is not ONE}
        reduced = moving & set(axes)
        if not reduced or not {axis for axis in moving if axis >= min(reduced)} <= reduced:
            return None
        kept = tuple(ONE if axis in axes else dim for axis, dim in enumerate(shape))
        dropped = tuple(dim for axis, dim in enumerate(shape) if axis not in axes)
        return _Rows(shape, kept, dropped)

    def kind(self, value: Value) -> str:
        """``row``, ``kept``, ``dropped``, or ``""``."""
        shape = value.type.shape
        shapes = (("row", self.row), ("kept", self.kept), ("dropped", self.dropped))
        return next((name for name, known in shapes if shape == known), "")

    def takes(self, op: Op, inside: Mapping[Value, None]) -> bool:
        """Whether an operation computes something of these rows from values of theirs."""
        kind = self.kind(op.result)
        read = {self.kind(value) for value in op.operands if value in inside}
        if _is_reduction(op):
            return self == _Rows.of(op) and read <= {"row"}
        if not _is_elementwise(op):
            return False
        return kind != "" and read <= ({"row", "kept"} if kind == "row" else {kind})


# ---- growth ------------------------------------------------------------------------------------


def _following(seed: Op, rows: _Rows, around: Around, limits: Limits) -> list[Op]:
    """The seed and what follows it, up to the last value that alone is read outside."""
    members = [seed]
    inside: dict[Value, None] = {seed.result: None}
    ends = [1]
    waiting = [(around.position[op], op) for op in around.readers[seed.result]]
    heapq.heapify(waiting)
    seen: set[Op] = set()
    while (
        waiting and members[-1].result not in around.returned and len(members) < limits.operations
    ):
        op = heapq.heappop(waiting)[1]
        if op in seen:
            continue
        seen.add(op)
        reductions = sum(_is_reduction(member) for member in members) + _is_reduction(op)
        if not around.free(op) or not rows.takes(op, inside) or reductions > limits.reductions:
            break
        members.append(op)
        inside[op.result] = None
        for reader in around.readers[op.result]:
            if reader not in seen:
                heapq.heappush(waiting, (around.position[reader], reader))
        if _ends(members, around):
            ends.append(len(members))
    return members[: ends[-1]]


def _ends(members: Sequence[Op], around: Around) -> bool:
    """Whether nobody outside reads any value but the last."""
    known = set(members)  # membership only
    return all(reader in known for op in members[:-1] for reader in around.readers[op.result])


def _with_producers(members: list[Op], rows: _Rows, around: Around, limits: Limits) -> list[Op]:
    """With the elementwise operations on rows that only members read, the last ones first."""
    found = list(members)
    while len(found) < limits.operations:
        known = set(found)  # membership only
        producers = {
            around.position[op]: op
            for member in found
            for value in member.operands
            if (op := value.producer) is not None
            and op not in known
            and around.free(op)
            and _is_elementwise(op)
            and rows.kind(value) == "row"
            and value not in around.returned
            and all(reader in known for reader in around.readers[value])
        }
        if not producers:
            break
        found.insert(0, producers[max(producers)])
    return sorted(found, key=around.position.__getitem__)


# ---- the fused operation -----------------------------------------------------------------------


def _fused(members: Sequence[Op], rows: _Rows, limits: Limits) -> Region | None:
    """``None`` where no operand has the shape of the rows, or there are too many."""
    last = members[-1].result
    inside = {op.result for op in members}
    outside = [
        value
        for value in dict.fromkeys(value for op in members for value in op.operands)
        if value not in inside and not is_splat(value)
    ]
    roots: Iterator[tuple[str, Mapping[str, Attribute]]] = iter([(ROWS, {})])
    if rows.kind(last) != "row":
        roots = ((op.name, op.attrs) for op in members if _is_reduction(op))
    found = next(
        (
            (value, name, attrs)
            for name, attrs in roots
            for value in outside
            if value.type.shape == rows.row
            and value.type.dtype in OPS[name].operands[0].dtypes
            and infer_type(name, [value.type], attrs).shape == last.type.shape
        ),
        None,
    )
    if found is None or len(outside) > limits.extras + 1:
        return None
    first, root, attrs = found
    operands = (first, *(value for value in outside if value is not first))
    return Region(tuple(members), root, attrs, operands, _epilogue(members, operands))


def _epilogue(members: Sequence[Op], operands: Sequence[Value]) -> Expr:
    """The last value's element at the output's index, over loads of ``operands``."""
    slots = {value: slot for slot, value in enumerate(operands)}
    known: dict[Value, Expr] = {}
    count = 0
    for op in members:
        named, count = _rename_reductions(definition_expression(op)[1], count)

        def read(
            slot: int, indices: tuple[Expr, ...], dtype: DType, values: list[Value] = op.operands
        ) -> Expr:
            value = values[slot]
            if value in known:
                at = [index_dim(item) for item in indices]
                moves = {f"_i{axis}": dim for axis, dim in enumerate(at) if dim is not None}
                return substitute(known[value], moves)
            if is_splat(value):
                assert value.producer is not None
                return const(value.producer.attrs["value"], dtype)  # type: ignore[arg-type]
            return load(slots[value], dtype, indices)

        known[op.result] = replace_loads(named, read)
    return known[members[-1].result]


def _rename_reductions(expr: Expr, count: int) -> tuple[Expr, int]:
    """Reduction variables from ``_r<count>`` on, and how many there are then."""

    def rule(node: Expr) -> Expr | None:
        nonlocal count
        if node.op != "reduce":
            return None
        kind, names, extents, body = reduce_parts(node)
        fresh = [f"_r{count + place}" for place in range(len(names))]
        count += len(names)
        moves = {old: symbol(new) for old, new in zip(names, fresh, strict=True)}
        return reduce(kind, fresh, extents, substitute(body, moves))

    return rewrite(expr, rule), count
