"""Template kernels: from a ``TemplateKernel`` record to the emitter of its template."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlx_edge.compile.codegen.spirv.emit_conv import emit_conv2d
from rlx_edge.compile.codegen.spirv.emit_cooperative import (
    emit_cooperative_conv,
    emit_cooperative_matmul,
)
from rlx_edge.compile.codegen.spirv.emit_depthwise import emit_depthwise
from rlx_edge.compile.codegen.spirv.emit_matmul import emit_matmul
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry

_TEMPLATES: Mapping[str, Callable[[Shared, TemplateKernel, str], Entry]] = {
    "matmul": emit_matmul,
    "conv2d": emit_conv2d,
    "depthwise": emit_depthwise,
    "mma_matmul": emit_cooperative_matmul,
    "mma_conv2d": emit_cooperative_conv,
}


def emit_template(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point; ``RlxError`` ``codegen.template`` for an unknown template."""
    emit = _TEMPLATES.get(kernel.template)
    if emit is None:
        raise RlxError(
            "codegen.template",
            "no such template",
            found=kernel.template,
            allowed=list(_TEMPLATES),
        )
    return emit(shared, kernel, name)
