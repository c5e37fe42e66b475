"""Epilogue fusion: elementwise operations join the operation that makes their input.

A region starts at a root and takes in the elementwise operations that follow it, in program order,
as long as they have the root's result shape and, but for the last, nobody outside reads their
values. The region becomes one ``rlxc::fused_<root>_<last>`` at the place of its last operation:
the root's operands, then the other values that the epilogue reads; the epilogue is the expression
of the absorbed operations over ``acc``. Nothing is computed twice.

Contractions choose first, later ones before earlier ones (a residual sum joins the branch that
ends next to it); other roots follow in program order. The operands that a contraction's epilogue
reads must have a form that templates know (``epilogue_access.py``).

``apart`` names regions that turned out too large, by the value that they end with (percent-encoded,
joined by ``+``). Each mention halves the operations that a kernel may take of such a region; the
rest of it forms regions of its own. Who found it too large, and why, is not the pass's business.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from rlx_edge.compile.epilogue_access import channel_axis, load_accesses
from rlx_edge.compile.passes.graph import SPLAT, copy_module, erase_dead
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, acc, const, load, replace_loads, walk
from rlx_edge.ir.opdef import Expression, OpDef
from rlx_edge.ir.ops import FUSED_PREFIX, OPS, definition_expression, root_name
from rlx_edge.ir.types import BOOL, F32, I32, U32, DType

FOUR_LANES = (F32, I32, U32, BOOL)
"""Types of which a vector holds four, as templates compute them."""
MAX_REGION = 64
"""Operations that one kernel may take in."""
MAX_EXTRAS = 12
"""Operands beyond the root's that one kernel may read."""


@dataclass(frozen=True, slots=True)
class Fuse:
    """See the module's docstring."""

    name: str = "fuse"
    apart: str = ""

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        names = [unquote(item) for item in self.apart.split("+") if item]
        fusion = _Fusion(module.function, Counter(names))
        roots = [op for op in module.function.ops if _is_root(op)]
        first = [op for op in roots if _is_contraction(op)]
        for op in (*reversed(first), *(op for op in roots if not _is_contraction(op))):
            region = fusion.grow(op)
            if region is None:
                continue
            before = "; ".join(str(member) for member in region.members)
            fused = fusion.replace(region)
            if log is not None:
                log.append(Applied(self.name, before, str(fused)))
        fusion.finish()
        erase_dead(module)
        return module


def _definition(op: Op) -> OpDef | None:
    """The definition of an operation that is not fused and has an expression."""
    found = OPS.get(op.name)
    return found if found is not None and isinstance(found.define, Expression) else None


def _is_root(op: Op) -> bool:
    found = _definition(op)
    return (
        found is not None
        and op.name.startswith("rlxc::")
        and "view" not in found.traits
        and "phase" not in op.attrs
    )


def _is_contraction(op: Op) -> bool:
    return "contraction" in OPS[op.name].traits


@dataclass(slots=True)
class Region:
    """A root and the operations it absorbs, in program order."""

    root: Op
    absorbed: list[Op] = field(default_factory=list)

    @property
    def members(self) -> list[Op]:
        return [self.root, *self.absorbed]


class _Fusion:
    """The function under change: positions, readers, what is taken."""

    def __init__(self, function: Function, halvings: dict[str, int]) -> None:
        self.function = function
        self.halvings = halvings
        self.most: dict[Op, int] = {}
        """Operation of a region that is taken apart → how many its parts may have."""
        self.position = {op: place for place, op in enumerate(function.ops)}
        self.readers: dict[Value, dict[Op, None]] = {value: {} for value in function.values()}
        self.returned = set(function.returns)  # membership only
        self.taken: set[Op] = set()
        self.fused: dict[Op, Op] = {}
        for op in function.ops:
            for operand in op.operands:
                self.readers[operand][op] = None

    # ---- growth ------------------------------------------------------------------------------

    def grow(self, root: Op) -> Region | None:
        """The longest region from ``root`` whose last value alone is read outside."""
        if root in self.taken:
            return None
        inside: dict[Value, None] = {root.result: None}
        absorbed: list[Op] = []
        ends: list[int] = [0]
        waiting: list[tuple[int, Op]] = []
        outstanding = self._enter(root.result, waiting, set())
        seen: set[Op] = set()
        while waiting and not self._leaks(root, absorbed):
            op = heapq.heappop(waiting)[1]
            if op in seen:
                continue
            seen.add(op)
            if not self._may_absorb(root, op, absorbed, inside):
                break
            absorbed.append(op)
            inside[op.result] = None
            outstanding -= sum(1 for value in dict.fromkeys(op.operands) if value in inside)
            outstanding += self._enter(op.result, waiting, seen)
            if outstanding == len(self.readers[op.result]):
                ends.append(len(absorbed))
        best = self._kept([root, *absorbed], ends)
        return Region(root, absorbed[:best]) if best else None

    def _kept(self, members: list[Op], ends: list[int]) -> int:
        """How many operations the root takes in: all, or as many as a part may have where the
        region is taken apart. ``ends`` are the numbers with which a region can end."""
        most = self.most.get(members[0], MAX_REGION + 1)
        best = max(end for end in ends if end + 1 <= most)
        while best and (halvings := self.halvings.pop(members[best].result.name, 0)):
            most = max(1, (best + 1) >> halvings)
            self.most.update(dict.fromkeys(members[: best + 1], most))
            best = max(end for end in ends if end + 1 <= most)
        return best

    def _enter(self, value: Value, waiting: list[tuple[int, Op]], seen: set[Op]) -> int:
        """Queue a region value's readers; how many there are."""
        for reader in self.readers[value]:
            if reader not in seen:
                heapq.heappush(waiting, (self.position[reader], reader))
        return len(self.readers[value])

    def _leaks(self, root: Op, absorbed: list[Op]) -> bool:
        """Whether the last value is returned: the region must end with it."""
        last = absorbed[-1] if absorbed else root
        return last.result in self.returned

    def _may_absorb(self, root: Op, op: Op, absorbed: list[Op], inside: dict[Value, None]) -> bool:
        found = _definition(op)
        if found is None or "elementwise" not in found.traits or op in self.taken:
            return False
        if "phase" in op.attrs or len(absorbed) == MAX_REGION:
            return False
        shape = root.result.type.shape
        if op.result.type.shape != shape:
            return False
        extras = _extras((*absorbed, op), inside)
        if len(extras) > MAX_EXTRAS:
            return False
        if not _is_contraction(root) or root.result.type.dtype is not F32:
            return True
        return op.result.type.dtype is root.result.type.dtype and self._templates_know(
            root, (*absorbed, op)
        )

    def _templates_know(self, root: Op, absorbed: tuple[Op, ...]) -> bool:
        """Whether a template can read what the epilogue of ``absorbed`` reads."""
        result = root.result.type
        epilogue, extras = fused_epilogue(root, absorbed)
        types = [value.type for value in (*root.operands, *extras)]
        forms = load_accesses(epilogue, types, result, channel_axis(root.name, result.rank))
        return (
            None not in forms.values()
            and all(value.type.dtype is F32 for value in extras)
            and all(node.dtype in FOUR_LANES for node in walk(epilogue) if node.op != "index")
        )

    # ---- replacement -------------------------------------------------------------------------

    def replace(self, region: Region) -> Op:
        """Build the fused operation; it stands at the last member's place."""
        root, last = region.root, region.absorbed[-1]
        epilogue, extras = fused_epilogue(root, region.absorbed)
        operands = [*root.operands, *extras]
        attrs = {**root.attrs, "epilogue": epilogue}
        name = fused_name(root.name, last.name)
        fused = Op(name, operands, attrs, [last.result], last.span)
        last.result.producer = fused
        for member in region.members:
            for operand in member.operands:
                self.readers[operand].pop(member, None)
        for operand in operands:
            self.readers[operand][fused] = None
        self.position[fused] = self.position[last]
        self.taken.update(region.members)
        self.taken.add(fused)
        self.fused[last] = fused
        return fused

    def finish(self) -> None:
        """Put the fused operations in place and drop the members."""
        self.function.ops = [
            self.fused.get(op, op)
            for op in self.function.ops
            if op not in self.taken or op in self.fused
        ]


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


def _extras(ops: Iterable[Op], inside: dict[Value, None]) -> list[Value]:
    """Values that the operations read from outside the region, splats excepted."""
    values = [operand for op in ops for operand in op.operands]
    return [
        value for value in dict.fromkeys(values) if value not in inside and not _is_splat(value)
    ]


def _is_splat(value: Value) -> bool:
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
