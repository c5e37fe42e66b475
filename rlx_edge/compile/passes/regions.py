"""Regions of fusion: operations that become one fused operation, and what that says.

The operation stands at the place of the region's last member, whose result it takes over; its
operands are the root's, then what else the epilogue reads, its epilogue is the expression of the
absorbed operations (``ir/ops/__init__.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.compile.passes.graph import SPLAT
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Op, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, acc, const, load, replace_loads, walk
from rlx_edge.ir.opdef import Expression, OpDef
from rlx_edge.ir.ops import FUSED_PREFIX, OPS, definition_expression, root_name
from rlx_edge.ir.types import DType


def expression_definition(op: Op) -> OpDef | None:
    """The definition of an operation that is not fused and has an expression."""
    found = OPS.get(op.name)
    return found if found is not None and isinstance(found.define, Expression) else None


@dataclass(frozen=True, slots=True)
class Region:
    """``members`` in program order, and the fused operation that stands for them: ``root``'s
    attributes, ``operands`` and ``epilogue``."""

    members: tuple[Op, ...]
    root: str
    attrs: Mapping[str, Attribute]
    operands: tuple[Value, ...]
    epilogue: Expr

    @staticmethod
    def from_root(root: Op, absorbed: Sequence[Op]) -> Region:
        """A root and the operations that it absorbs."""
        epilogue, extras = fused_epilogue(root, absorbed)
        operands = (*root.operands, *extras)
        return Region((root, *absorbed), root.name, root.attrs, operands, epilogue)


def fused_name(root: str, last: str) -> str:
    """``rlxc::fused_<root>_<last>``; ``pass.fused_name`` where it would name another root."""
    name = f"{FUSED_PREFIX}{root.partition('::')[2]}_{last.partition('::')[2]}"
    if root_name(name) != root:
        raise RlxError(
            "pass.fused_name",
            "the name of a fused operation does not lead back to its root",
            found=f"{name} reads as {root_name(name)}",
            allowed=root,
        )
    return name


def extra_operands(ops: Iterable[Op], inside: dict[Value, None]) -> list[Value]:
    """Values that the operations read from outside the region, splats excepted."""
    values = [operand for op in ops for operand in op.operands]
    return [value for value in dict.fromkeys(values) if value not in inside and not is_splat(value)]


def is_splat(value: Value) -> bool:
    return value.producer is not None and value.producer.name == SPLAT


def fused_epilogue(root: Op, absorbed: Sequence[Op]) -> tuple[Expr, list[Value]]:
    """The epilogue of ``absorbed`` over ``acc``, and the values that its extra slots read.

    Extra slots follow the root's operands even where the epilogue reads one of those again, so
    that the slots an epilogue loads are exactly the extra ones.
    """
    known: dict[Value, Expr] = {root.result: acc(root.result.type.dtype)}
    extras: dict[Value, int] = {}
    for op in absorbed:
        operands = op.operands

        def read(
            slot: int, indices: tuple[Expr, ...], dtype: DType, operands: list[Value] = operands
        ) -> Expr:
            value = operands[slot]
            if value in known:
                return known[value]
            producer = value.producer
            if producer is not None and producer.name == SPLAT:
                return const(producer.attrs["value"], dtype)  # type: ignore[arg-type]
            place = extras.setdefault(value, len(root.operands) + len(extras))
            return load(place, dtype, indices)

        known[op.result] = replace_loads(definition_expression(op)[1], read)
    return _dense(known[absorbed[-1].result], len(root.operands), list(extras))


def _dense(epilogue: Expr, first: int, extras: list[Value]) -> tuple[Expr, list[Value]]:
    """Drop extra slots that simplification left unread."""
    loaded = {node.attr for node in walk(epilogue) if node.op == "load"}
    kept = [place for place in range(len(extras)) if first + place in loaded]
    moved = {first + place: first + rank for rank, place in enumerate(kept)}
    if len(kept) < len(extras):
        epilogue = replace_loads(
            epilogue, lambda slot, indices, dtype: load(moved[slot], dtype, indices)
        )
    return epilogue, [extras[place] for place in kept]
