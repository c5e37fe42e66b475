"""Expand operators that are defined by other operators (softmax, layer norm, …)."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.fuse_attention import ATTENTION
from rlx_edge.compile.passes.graph import copy_module
from rlx_edge.compile.passes.rewrite import Applied, Rewriter, Rule, rewrite
from rlx_edge.compile.templates.attention import fuses
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.opdef import Decomposition
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.ops.attention import ROWS_FIRST


@dataclass(frozen=True, slots=True)
class Decompose:
    """Afterwards every operator has an expression or is storage.

    ``attention`` is a precision in which attention stays whole where the device has a kernel.
    """

    name: str = "decompose"
    attention: str = ""

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        rewrite(module, (self.rule(),), log)
        return module

    def rule(self) -> Rule:
        """An operator whose definition is a decomposition becomes that decomposition."""

        def expand_decomposition(op: Op, rewriter: Rewriter) -> Value | None:
            found = OPS.get(op.name)
            if found is None or not isinstance(found.define, Decomposition) or self._stays(op):
                return None
            return found.define.fn(rewriter, op)

        return expand_decomposition

    def _stays(self, op: Op) -> bool:
        precision = str(op.attrs.get("precision", self.attention))
        return (
            bool(self.attention)
            and op.name == ATTENTION
            and fuses(
                precision,
                [operand.type for operand in op.operands],
                bool(op.attrs.get(ROWS_FIRST)),
            )
        )
