"""One CUDA C++ source from a list of kernels, with an entry for each.

Kernel i takes the base of the arena and the words of its launch record as a struct:
``__global__ void k3_matmul(char* arena, K3 words)``. Addresses among the words are in units of
``targets.cuda.ADDRESS_UNIT`` bytes. The same kernels and target give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.backends import Backend, Code
from rlx_edge.compile.claims.cuda import CUBLAS, CUDNN, OFFERS
from rlx_edge.compile.codegen.cuda.attention_packed_text import FUNCTIONS as COPY_FUNCTIONS
from rlx_edge.compile.codegen.cuda.attention_text import FUNCTIONS as ATTENTION_FUNCTIONS
from rlx_edge.compile.codegen.cuda.attention_text import LOAD_FOUR
from rlx_edge.compile.codegen.cuda.emit_expression import function_names, function_text
from rlx_edge.compile.codegen.cuda.emit_loops import emit_loop_kernel, loop_bounds, words_struct
from rlx_edge.compile.codegen.cuda.emit_template import (
    emit_template,
    is_attention,
    library_routine,
    template_bounds,
    template_struct,
    template_threads,
    template_words,
    uses_matrix_units,
)
from rlx_edge.compile.codegen.cuda.mma_text import FUNCTIONS as MATRIX_FUNCTIONS
from rlx_edge.compile.codegen.cuda.prelude import base
from rlx_edge.compile.codegen.cuda.ptxas import unfit
from rlx_edge.compile.codegen.cuda.rows_text import FUNCTIONS as ROW_FUNCTIONS
from rlx_edge.compile.codegen.cuda.writer import identifier
from rlx_edge.compile.codegen.kernel_form import kernel_name
from rlx_edge.compile.targets.cuda import ADDRESS_UNIT, CudaTarget
from rlx_edge.compile.templates.attention import PACKED
from rlx_edge.compile.workgroups import REDUCTIONS, groups, spread
from rlx_edge.ir.kernel import Kernel, LoopKernel, TemplateKernel
from rlx_edge.ir.program import Entry, LaunchInfo
from rlx_edge.ir.scalar_functions import FUNCTIONS


def emit_source(
    kernels: Sequence[Kernel], target: CudaTarget, uses: Sequence[LaunchInfo] = ()
) -> Code:
    """The text of ``kernels``; ``RlxError`` where a type, operator or template has no code.

    ``uses[i]`` is the first launch of kernel i, for its comment.
    """
    del target  # One text serves every architecture; the compiler of the text takes it from there.
    called: set[str] = set()
    for kernel in kernels:
        value = kernel.value if isinstance(kernel, LoopKernel) else kernel.epilogue
        if value is not None:
            called |= function_names(value)
    texts = [base(ADDRESS_UNIT), *(function_text(name) for name in FUNCTIONS if name in called)]
    if any(isinstance(kernel, LoopKernel) and spread(kernel).rows for kernel in kernels):
        texts.append(ROW_FUNCTIONS)
    if any(isinstance(kernel, TemplateKernel) and uses_matrix_units(kernel) for kernel in kernels):
        texts.append(MATRIX_FUNCTIONS)
    if any(isinstance(kernel, TemplateKernel) and is_attention(kernel) for kernel in kernels):
        texts += [ATTENTION_FUNCTIONS, LOAD_FOUR]
    if any(isinstance(kernel, TemplateKernel) and kernel.template == PACKED for kernel in kernels):
        texts.append(COPY_FUNCTIONS)
    entries: list[Entry] = []
    for position, kernel in enumerate(kernels):
        text, entry = _kernel(kernel, position, uses[position] if uses else None)
        if text:
            texts.append(text)
        entries.append(entry)
    return Code("\n".join(texts).encode("utf-8"), tuple(entries))


def _kernel(kernel: Kernel, position: int, use: LaunchInfo | None) -> tuple[str, Entry]:
    name = identifier(f"k{position}_{kernel_name(kernel)}")
    struct = f"K{position}"
    if isinstance(kernel, LoopKernel):
        form = spread(kernel)
        # Canonical loops have the kernel's own parameters, so the words are those of its record.
        threads, declared = form.threads, words_struct(struct, form.kernel)
        count = len(kernel.buffers) + kernel.parameters
        body = emit_loop_kernel(form, _head(name, struct, loop_bounds(form)))
    else:
        count = sum(len(names) for names in template_words(kernel))
        if kernel.template in (CUBLAS, CUDNN):
            return "", Entry(name, 0, count, library_routine(kernel))
        threads, declared = template_threads(kernel), template_struct(struct, kernel)
        body = emit_template(kernel, _head(name, struct, template_bounds(kernel)))
    comment = f"// first for %{use.value} = {use.op}\n" if use is not None else ""
    return f"{comment}{declared}\n{body}", Entry(name, threads, count)


def _head(name: str, struct: str, bounds: str) -> str:
    return (
        f'extern "C" __global__ void __launch_bounds__({bounds})\n'
        f"{name}(char* arena, const {struct} words)"
    )


BACKEND = Backend(OFFERS, emit_source, groups, unfit, REDUCTIONS)
"""The CUDA backend's row."""
