"""The words of a template kernel by name, and its extra operands at an output position."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared
from rlx_edge.compile.codegen.spirv.region import Region
from rlx_edge.ir.kernel import TemplateKernel

OUT, A, B, EXTRAS = 0, 1, 2, 3
"""Buffer slots: output, operands, the first extra."""


class TemplateWords:
    """A kernel's interface whose parameters have ``names``."""

    def __init__(self, shared: Shared, kernel: TemplateKernel, names: Sequence[str]) -> None:
        self.kernel = kernel
        self.names = {name: position for position, name in enumerate(names)}
        words = len(kernel.buffers) + len(names)
        self.io = Interface(shared, Region(shared.module.code()), kernel.buffers, words)

    @property
    def root(self) -> Code:
        """Where the kernel begins."""
        return self.io.root.code

    def __getitem__(self, name: str) -> int:
        """The word of a parameter."""
        return self.io.parameter(self.names[name])
