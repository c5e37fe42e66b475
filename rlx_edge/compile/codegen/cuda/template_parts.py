"""What writers of template kernels share: filling in, pointers, places of outputs and extras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from rlx_edge.compile.codegen.cuda.emit_epilogue import epilogue_lines, fours_of
from rlx_edge.compile.codegen.cuda.template_text import (
    A_SINGLE,
    A_VECTOR,
    B_SINGLE,
    B_VECTOR,
    MATMUL_A,
    MATMUL_B,
    POINTERS,
    STORE_BLOCKED,
    STORE_PLANES,
)
from rlx_edge.compile.epilogue_access import BATCH_CHANNEL, CHANNEL, FULL, SCALAR
from rlx_edge.compile.templates.channels_last import SCRATCH, WEIGHTS
from rlx_edge.compile.templates.gpu import (
    BLOCKED,
    MATMUL_WORDS,
    conv_words,
    matmul_slots,
)
from rlx_edge.ir.kernel import TemplateKernel

Words = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of the slots and of the parameters, in the order of the record's words."""
MATMUL_PLACES = {FULL: "place", CHANNEL: "column", SCALAR: "0"}
"""Which element of an extra operand a matrix product's epilogue reads."""


def pointers(slots: Sequence[str]) -> str:
    """Declarations of every slot's pointer; the first is the output."""
    lines = [
        f"  const float* __restrict__ {slot} = at<const float>(arena, words.{slot});\n"
        for slot in slots[1:]
    ]
    return POINTERS + "".join(lines)


def matmul_values(kernel: TemplateKernel, head: str, depth: int) -> dict[str, object]:
    """What every matrix product fills in; ``depth`` is how far its epilogue is indented."""
    lines, result = epilogue_lines(kernel.epilogue, kernel.extras, MATMUL_PLACES)
    return {
        "head": head,
        "pointers": pointers(matmul_slots(kernel.extras)),
        "load_a": MATMUL_A + (A_VECTOR if kernel.option("a_vectors") else A_SINGLE),
        "load_b": MATMUL_B + (B_VECTOR if kernel.option("b_vectors") else B_SINGLE),
        "a_row": "item / ($depth / 4)",
        "a_quad": "item % ($depth / 4)",
        "epilogue": indented(lines, depth),
        "result": result,
    }


def indented(lines: Sequence[str], depth: int) -> str:
    return "".join(f"{'  ' * depth}{line}\n" for line in lines)


def fill(text: str, values: Mapping[str, object]) -> str:
    """``text`` with every ``$name`` replaced."""
    return Template(text).substitute({name: str(value) for name, value in values.items()})


def stored_place(slot: str, plane: str, pixel: str) -> str:
    """The element of an image: ``plane`` and ``pixel`` are offsets in its own units."""
    words = f"words.{slot}_"
    return (
        f"{words}origin + slice * {words}slice + image * {words}image + {plane} * {words}plane"
        f" + y * {words}row + {pixel}"
    )


def image_places(full: str) -> dict[str, str]:
    """Which element of an extra operand a convolution's epilogue reads."""
    return {
        FULL: full,
        CHANNEL: "channel",
        BATCH_CHANNEL: "image * words.slices * words.n + channel",
        SCALAR: "0",
    }


def conv_full_place(kernel: TemplateKernel) -> str:
    """Where the first of four channels of an operand of the output's shape lies, if the output is
    in blocks, else ``""``."""
    blocked = kernel.option("output") == BLOCKED
    return stored_place("{slot}", "(column / 4)", "x * 4") if blocked else ""


def conv_store(kernel: TemplateKernel, fours: str = "") -> str:
    """A thread's four channels of a pixel, ``total[i][0]`` to ``total[i][3]``, after the epilogue;
    ``image``, ``y``, ``x``, ``slice`` and the first ``column`` say which.

    Operands of the output's shape are read four at a time, or were already, see ``epilogue_lines``.
    """
    blocked = kernel.option("output") == BLOCKED
    plane, pixel = ("(column / 4)", "x * 4") if blocked else ("(column + j)", "x")
    lane = " + j" if blocked else ""
    full = stored_place("{slot}", plane, pixel)
    lines, result = epilogue_lines(
        kernel.epilogue,
        kernel.extras,
        image_places(full + lane),
        fours=(fours or "[j]") if blocked else "",
    )
    return fill(
        STORE_BLOCKED if blocked else STORE_PLANES,
        {
            "fours": indented(fours_of(kernel.extras, full), 3) if blocked and not fours else "",
            "epilogue": indented(lines, 5 if blocked else 4),
            "result": result,
            "place": stored_place("out", plane, pixel),
        },
    )


def conv_kernel_words(kernel: TemplateKernel) -> Words:
    return _all_slots(kernel), conv_words(kernel.extras)


def matmul_kernel_words(kernel: TemplateKernel) -> Words:
    return _all_slots(kernel), MATMUL_WORDS


def _all_slots(kernel: TemplateKernel) -> tuple[str, ...]:
    slots = matmul_slots(kernel.extras)
    return slots + {0: (), 1: (SCRATCH,), 2: (WEIGHTS, SCRATCH)}[len(kernel.buffers) - len(slots)]
