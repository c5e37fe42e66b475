"""Remove operations whose results nobody reads, and constants nobody names."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import copy_module, erase_dead
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.ir.core import Module


@dataclass(frozen=True, slots=True)
class EliminateDead:
    """Dead code elimination: every operation of the language is free of side effects."""

    name: str = "eliminate-dead"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        for op in erase_dead(module):
            if log is not None:
                log.append(Applied(self.name, str(op), ""))
        return module
