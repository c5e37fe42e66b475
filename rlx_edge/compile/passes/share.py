"""Share equal computations: the same operator on the same operands is done once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rlx_edge.compile.passes.graph import copy_module, drop_unread_constants, replace_returns
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Module, Op, Value

OWN_STORAGE = ("tensor::alloc", "rlxc::copy")
"""Operators whose results must stay apart even where they are equal."""


@dataclass(frozen=True, slots=True)
class Share:
    """Common subexpression elimination, constants included; the first of equals stays.

    Two outputs of the function are never made one value.
    """

    name: str = "share"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        function = module.function
        known: dict[Hashable, Op] = {}
        instead: dict[Value, Value] = {}
        kept: list[Op] = []
        for op in function.ops:
            op.operands = [instead.get(operand, operand) for operand in op.operands]
            first = known.setdefault(_key(op), op)
            returned = [
                any(result in function.returns for result in item.results) for item in (op, first)
            ]
            if first is op or op.name in OWN_STORAGE or all(returned):
                kept.append(op)
                continue
            for mine, theirs in zip(op.results, first.results, strict=True):
                instead[mine] = theirs
                replace_returns(function, mine, theirs)
            if log is not None:
                log.append(Applied(self.name, str(op), str(first)))
        function.ops = kept
        drop_unread_constants(module)
        return module


def _key(op: Op) -> Hashable:
    attrs = tuple(sorted((name, _exact(value)) for name, value in op.attrs.items()))
    return op.name, tuple(op.operands), attrs, tuple(result.type for result in op.results)


def _exact(value: Attribute) -> tuple[str, Hashable]:
    """Tells apart what compares equal: 1, 1.0 and true, 0.0 and -0.0."""
    if isinstance(value, float):
        return "float", value.hex()
    return type(value).__name__, value if not isinstance(value, tuple) else tuple(map(str, value))
