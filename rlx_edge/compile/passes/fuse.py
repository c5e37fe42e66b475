"""Epilogue fusion: elementwise operations join the operation that makes their input.

A region starts at a root and takes in the elementwise operations that follow it, in program order,
as long as they have the root's result shape and, but for the last, nobody outside reads their
values. The region becomes one ``rlxc::fused_<root>_<last>`` at the place of its last operation:
the root's operands, then the other values that the epilogue reads; the epilogue is the expression
of the absorbed operations over ``acc``. Nothing is computed twice.

Contractions choose first, later ones before earlier ones (a residual sum joins the branch that
ends next to it); other roots follow in program order. The operands that a contraction's epilogue
reads must have a form that templates know (``epilogue_access.py``).

``reductions`` is how many reductions over a row one kernel may take in. From 2 on, regions over
rows (``fuse_rows.py``) come after the contractions: whole normalisations, softmax.

``apart`` names regions that turned out too large, by the value that they end with (percent-encoded,
joined by ``+``). Each mention halves the operations that a kernel may take of such a region; the
rest of it forms regions of its own. Each mention of a region over rows leaves its first reduction
to a kernel of its own. Who found it too large, and why, is not the pass's business.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from rlx_edge.compile.epilogue_access import channel_axis, load_accesses
from rlx_edge.compile.passes.fuse_rows import Around, Limits, row_region
from rlx_edge.compile.passes.graph import copy_module, erase_dead
from rlx_edge.compile.passes.regions import (
    Region,
    expression_definition,
    extra_operands,
    fused_epilogue,
    fused_name,
)
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.expression import walk
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.types import BOOL, F32, I32, U32

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
    reductions: int = 1

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        names = [unquote(item) for item in self.apart.split("+") if item]
        fusion = _Fusion(module.function, Counter(names))
        roots = [op for op in module.function.ops if _is_root(op)]
        first = [op for op in roots if _is_contraction(op)]
        others = [op for op in roots if not _is_contraction(op)]
        limits = Limits(MAX_REGION, MAX_EXTRAS, self.reductions)
        grow_rows = partial(fusion.grow_rows, limits=limits)
        steps: list[tuple[list[Op], Grow]] = [(first[::-1], fusion.grow), (others, fusion.grow)]
        if self.reductions > 1:
            steps.insert(1, (others, grow_rows))
        for seeds, grow in steps:
            for op in seeds:
                region = grow(op)
                if region is None:
                    continue
                before = "; ".join(str(member) for member in region.members)
                fused = fusion.replace(region)
                if log is not None:
                    log.append(Applied(self.name, before, str(fused)))
        fusion.finish()
        erase_dead(module)
        return module


def _is_root(op: Op) -> bool:
    found = expression_definition(op)
    return (
        found is not None
        and op.name.startswith("rlxc::")
        and "view" not in found.traits
        and "phase" not in op.attrs
    )


def _is_contraction(op: Op) -> bool:
    return "contraction" in OPS[op.name].traits


Grow = Callable[[Op], Region | None]


class _Fusion:
    """The function under change: positions, readers, what is taken."""

    def __init__(self, function: Function, halvings: Counter[str]) -> None:
        self.function = function
        self.halvings = halvings
        self.most: dict[Op, int] = {}
        """Operation of a region that is taken apart → how many its parts may have."""
        self.position = {op: place for place, op in enumerate(function.ops)}
        self.readers: dict[Value, dict[Op, None]] = {value: {} for value in function.values()}
        self.returned = frozenset(function.returns)
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
        return Region.from_root(root, absorbed[:best]) if best else None

    def grow_rows(self, seed: Op, limits: Limits) -> Region | None:
        """The region over rows from the reduction ``seed``."""
        around = Around(self.position, self.readers, self._free, self.returned)
        region = row_region(seed, around, limits)
        if region is None:
            return None
        name = region.members[-1].result.name
        if self.halvings[name]:
            self.halvings[name] -= 1
            return None
        return region

    def _free(self, op: Op) -> bool:
        return op not in self.taken and "phase" not in op.attrs

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
        found = expression_definition(op)
        if found is None or "elementwise" not in found.traits or op in self.taken:
            return False
        if "phase" in op.attrs or len(absorbed) == MAX_REGION:
            return False
        shape = root.result.type.shape
        if op.result.type.shape != shape:
            return False
        extras = extra_operands((*absorbed, op), inside)
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
        last, operands = region.members[-1], list(region.operands)
        attrs = {**region.attrs, "epilogue": region.epilogue}
        name = fused_name(region.root, last.name)
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
