"""Value-changing rewrites: the only ones, all before placement.

Results stay within rounding (about 1e-6 relative per rewrite) of what the graph says; afterwards
every pass keeps every bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import copy_module
from rlx_edge.compile.passes.power_rules import RULES as POWERS
from rlx_edge.compile.passes.rewrite import Applied, Rule, rewrite
from rlx_edge.compile.passes.scale_rules import RULES as SCALES
from rlx_edge.ir.core import Module

RULES: tuple[Rule, ...] = (*SCALES, *POWERS)


@dataclass(frozen=True, slots=True)
class Revalue:
    """Batch norm and constant scales into weights, powers with a constant exponent."""

    name: str = "revalue"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        rewrite(module, RULES, log)
        return module
