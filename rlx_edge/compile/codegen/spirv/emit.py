"""One SPIR-V module from a list of kernels, an entry point each.

Types, constants and built-in inputs are shared. Entry points are named ``k<number>.<name>``. The
same kernels and target give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile import workgroups
from rlx_edge.compile.backends import Backend, Code
from rlx_edge.compile.claims.vulkan import OFFERS
from rlx_edge.compile.codegen.kernel_form import kernel_name
from rlx_edge.compile.codegen.spirv.assembler import Module, encode
from rlx_edge.compile.codegen.spirv.emit_loops import emit_loop_kernel
from rlx_edge.compile.codegen.spirv.emit_template import emit_template
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.memory_model import share_memory
from rlx_edge.compile.codegen.spirv.quirks import apply_quirks
from rlx_edge.compile.targets.vulkan import VulkanTarget
from rlx_edge.ir.kernel import Kernel, TemplateKernel
from rlx_edge.ir.program import LaunchInfo


def emit_module(
    kernels: Sequence[Kernel], target: VulkanTarget, uses: Sequence[LaunchInfo] = ()
) -> Code:
    """The module of ``kernels``; entry i = kernel i. ``RlxError`` where there is no code.

    Without kernels there are no bytes: a module needs an entry point.
    """
    del uses
    if not kernels:
        return Code(b"")
    quirks = target.quirks
    shared = Shared(
        Module(refine_roots=quirks.refine_roots, compare_words=quirks.compare_words), target
    )
    entries = []
    for position, kernel in enumerate(kernels):
        name = f"k{position}.{kernel_name(kernel)}"
        if isinstance(kernel, TemplateKernel):
            entries.append(emit_template(shared, kernel, name))
        else:
            entries.append(emit_loop_kernel(shared, kernel, name))
    module = shared.module
    if "CooperativeMatrixKHR" in module.capabilities:
        share_memory(module)
    finished, bound = apply_quirks(list(module.instructions()), module.bound, target.quirks)
    return Code(encode(finished, bound), tuple(entries))


BACKEND = Backend(OFFERS, emit_module, workgroups.groups, reductions=workgroups.REDUCTIONS)
"""The Vulkan backend's row."""
