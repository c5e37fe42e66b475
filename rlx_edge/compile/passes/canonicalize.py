"""Rewrites that keep every bit: operations without effect, one spelling for equal computations.

What changes values (batch norm into weights) is the business of ``absorb``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.arithmetic_rules import RULES as ARITHMETIC
from rlx_edge.compile.passes.graph import copy_module, erase_dead
from rlx_edge.compile.passes.movement_rules import RULES as MOVEMENT
from rlx_edge.compile.passes.rewrite import Applied, Rule, rewrite
from rlx_edge.ir.core import Module

RULES: tuple[Rule, ...] = (*MOVEMENT, *ARITHMETIC)


@dataclass(frozen=True, slots=True)
class Canonicalize:
    """Apply ``RULES`` until none applies; results keep their bits (every NaN counts as one)."""

    name: str = "canonicalize"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        erase_dead(module)
        rewrite(module, RULES, log)
        return module
