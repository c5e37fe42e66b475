"""What surrounds a library's convolution, as CUDA C++: input and weights with channels together,
the result back in its layout, with the epilogue."""

from __future__ import annotations

from rlx_edge.compile.codegen.cuda.channels_last_text import ELEMENTS, INPUT, PACK, RESULT
from rlx_edge.compile.codegen.cuda.template_parts import conv_store, fill, pointers
from rlx_edge.compile.codegen.cuda.template_text import PLANES_LOAD, QUAD_LOAD
from rlx_edge.compile.templates.channels_last import PIXELS, QUADS, lanes
from rlx_edge.compile.templates.gpu import BLOCKED, matmul_slots
from rlx_edge.compile.workgroups import FLAT_THREADS
from rlx_edge.ir.attributes import FP16
from rlx_edge.ir.kernel import TemplateKernel


def emit_input(kernel: TemplateKernel, head: str) -> str:
    """The input to scratch memory."""
    options = dict(kernel.config)
    reach = {
        f"{axis}_reach": (int(options[f"{axis}s"]) - 1) * int(options[f"{axis}_dilation"]) + 1
        for axis in ("row", "column")
    }
    values = {
        **_numbers(kernel),
        **reach,
        **{f"{axis}_stride": options[f"{axis}_stride"] for axis in ("row", "column")},
        "head": head,
        "pointers": pointers(("out", "a")),
        "load": QUAD_LOAD if options["input"] == BLOCKED else PLANES_LOAD,
    }
    return fill(INPUT, values)


def emit_result(kernel: TemplateKernel, head: str) -> str:
    """The result from scratch memory, after the epilogue."""
    values = {
        **_numbers(kernel),
        "head": head,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "store": conv_store(kernel),
    }
    return fill(RESULT, values)


def emit_pack(kernel: TemplateKernel, head: str) -> str:
    """Weights as rows of outputs, their channels together."""
    return fill(PACK, {**_numbers(kernel), "head": head, "threads": FLAT_THREADS})


def _numbers(kernel: TemplateKernel) -> dict[str, object]:
    precision = str(kernel.option("precision"))
    element, value = ELEMENTS["f16" if precision == FP16 else "f32"]
    return {
        "pixels": PIXELS,
        "quads": QUADS,
        "lanes": lanes(precision),
        "element": element,
        "value": value,
    }
