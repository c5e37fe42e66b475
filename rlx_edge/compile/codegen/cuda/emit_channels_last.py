"""What surrounds a library's convolution, as CUDA C++: input and weights with channels together,
the result back in its layout, with the epilogue."""

from __future__ import annotations

from rlx_edge.compile.codegen.cuda.channels_last_text import (
    ELEMENTS,
    INPUT,
    PACK,
    RESULT,
    SPLIT_SUMS,
)
from rlx_edge.compile.codegen.cuda.emit_epilogue import full_slots
from rlx_edge.compile.codegen.cuda.emit_mma_packed import split_text
from rlx_edge.compile.codegen.cuda.mma_packed_text import ONE_SPLIT
from rlx_edge.compile.codegen.cuda.template_parts import (
    conv_full_place,
    conv_store,
    fill,
    indented,
    pointers,
)
from rlx_edge.compile.codegen.cuda.template_text import PLANES_LOAD, QUAD_LOAD
from rlx_edge.compile.templates.channels_last import PIXELS, QUADS, lanes
from rlx_edge.compile.templates.gpu import BLOCKED, matmul_slots
from rlx_edge.compile.templates.mma_packed import packed_tile
from rlx_edge.compile.workgroups import FLAT_THREADS
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
    """The result from scratch memory, of the parts of its sums if they are split, after the
    epilogue."""
    options = dict(kernel.config)
    splits = fill(ONE_SPLIT, {"cluster": 1})
    if options["tile"]:
        tile = packed_tile(str(options["tile"]))
        taps = int(options["rows"]) * int(options["columns"])
        sizes = {"rows": tile.rows, "columns": tile.columns, "taps": taps}
        splits = fill(SPLIT_SUMS, {**_numbers(kernel), **sizes}) + split_text()
    values = {
        **_numbers(kernel),
        "splits": splits,
        "head": head,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "ahead": _ahead(kernel),
        "store": conv_store(kernel, "[j]"),
    }
    return fill(RESULT, values)


def _ahead(kernel: TemplateKernel) -> str:
    """Reading of the operands of the output's shape while the result is on its way."""
    place = conv_full_place(kernel)
    lines: list[str] = []
    for slot in full_slots(kernel.extras) if place else ():
        four = f"{slot}_four"
        lines += [
            f"float4 {four} = make_float4(0.0f, 0.0f, 0.0f, 0.0f);",
            f"if (stores) {four} = *(const float4*)({slot} + {place.format(slot=slot)});",
            f"const float {four}s[4] = {{{four}.x, {four}.y, {four}.z, {four}.w}};",
        ]
    return indented(lines, 2)


def emit_pack(kernel: TemplateKernel, head: str) -> str:
    """Weights as rows of outputs, their channels together."""
    return fill(PACK, {**_numbers(kernel), "head": head, "threads": FLAT_THREADS})


def _numbers(kernel: TemplateKernel) -> dict[str, object]:
    precision = str(kernel.option("precision"))
    element, value = ELEMENTS[precision]
    return {
        "pixels": PIXELS,
        "quads": QUADS,
        "lanes": lanes(precision),
        "element": element,
        "value": value,
    }
