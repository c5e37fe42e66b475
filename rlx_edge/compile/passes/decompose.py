"""Expand operators that are defined by other operators (softmax, layer norm, …)."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import copy_module
from rlx_edge.compile.passes.rewrite import Applied, Rewriter, Rule, rewrite
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.opdef import Decomposition
from rlx_edge.ir.ops import OPS


def expand_decomposition(op: Op, rewriter: Rewriter) -> Value | None:
    """An operator whose definition is a decomposition becomes that decomposition."""
    found = OPS.get(op.name)
    if found is None or not isinstance(found.define, Decomposition):
        return None
    return found.define.fn(rewriter, op)


RULES: tuple[Rule, ...] = (expand_decomposition,)


@dataclass(frozen=True, slots=True)
class Decompose:
    """Afterwards every operator has an expression or is storage."""

    name: str = "decompose"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        rewrite(module, RULES, log)
        return module
