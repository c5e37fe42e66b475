"""Where code goes: nested regions, structured loops, and values kept by region.

A region binds variables and holds code. A value belongs to the outermost region in which all its
variables are bound, so nothing that stays the same is computed in a loop. A loop's code joins its
parent's when it is closed; until then the parent can still grow, before the loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rlx_edge.compile.codegen.spirv.assembler import Code


@dataclass(eq=False, slots=True)
class Region:
    """Code with the variables that it binds (name → id) and the values computed in it."""

    code: Code
    parent: Region | None = None
    names: dict[str, int] = field(default_factory=dict)
    known: dict[Hashable, int] = field(default_factory=dict)

    def home(self, names: frozenset[str]) -> Region:
        """The outermost region from here in which all of ``names`` are bound."""
        region = self
        while region.parent is not None and region.names.keys().isdisjoint(names):
            region = region.parent
        return region

    def variable(self, name: str) -> int:
        """The id bound to a variable here or further out."""
        region: Region | None = self
        while region is not None:
            if name in region.names:
                return region.names[name]
            region = region.parent
        raise KeyError(name)

    def depth(self) -> int:
        return 0 if self.parent is None else 1 + self.parent.depth()


_CONTROLS = {None: 0, True: 1, False: 2}
"""Whether to unroll a loop → loop control."""


class StructuredLoop:
    """``while condition: body``, with values carried from one iteration to the next.

    ``carried`` are their ids inside the loop and, once it is closed, after it.
    """

    def __init__(self, parent: Code, starts: Sequence[tuple[int, int]]) -> None:
        """``starts`` are ``(type, value before the loop)``."""
        module = parent.module
        self.parent = parent
        self.starts = tuple(starts)
        self.check, self.body = module.code(), module.code()
        self.carried = [module.id() for _ in starts]
        self._first = self.check.label, self.body.label

    def close(self, condition: int, following: Sequence[int], unroll: bool | None = None) -> None:
        """End the loop: ``condition`` is computed in ``check``, ``following`` are the carried
        values of the next iteration; ``unroll`` asks the driver to unroll it, or not to."""
        parent, module = self.parent, self.parent.module
        header, again, end = module.label(), module.label(), module.label()
        before = parent.label
        parent.do("Branch", header)
        parent.start(header)
        for (kind, start), result, value in zip(self.starts, self.carried, following, strict=True):
            parent.do("Phi", kind, result, start, before, value, again)
        check, body = self._first
        parent.do("LoopMerge", end, again, _CONTROLS[unroll])
        parent.do("Branch", check)
        parent.start(check)
        parent.append(self.check)
        parent.do("BranchConditional", condition, body, end)
        parent.start(body)
        parent.append(self.body)
        parent.do("Branch", again)
        parent.start(again)
        parent.do("Branch", header)
        parent.start(end)


class Conditional:
    """``if condition: body``."""

    def __init__(self, parent: Code, condition: int) -> None:
        self.parent, self.condition = parent, condition
        self.body = parent.module.code()
        self._first = self.body.label

    def close(self, kept: Sequence[tuple[int, int, int]] = ()) -> list[int]:
        """End the conditional code; ``kept`` are ``(type, value from the body, value without)`` of
        which the ids of what was chosen are given back."""
        parent = self.parent
        end, before = parent.module.label(), parent.label
        parent.do("SelectionMerge", end, 0)
        parent.do("BranchConditional", self.condition, self._first, end)
        parent.start(self._first)
        parent.append(self.body)
        after = parent.label
        parent.do("Branch", end)
        parent.start(end)
        return [
            parent.op("Phi", kind, inside, after, outside, before) for kind, inside, outside in kept
        ]
