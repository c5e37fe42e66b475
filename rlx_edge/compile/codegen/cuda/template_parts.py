"""What writers of template kernels share: filling in, pointers, places of outputs and extras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from rlx_edge.compile.codegen.cuda.template_text import POINTERS
from rlx_edge.compile.epilogue_access import BATCH_CHANNEL, CHANNEL, FULL, SCALAR
from rlx_edge.compile.templates.gpu import (
    MATMUL_WORDS,
    conv_words,
    extra_slots,
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


def conv_kernel_words(kernel: TemplateKernel) -> Words:
    return ("out", "a", "b", *extra_slots(kernel.extras)), conv_words(kernel.extras)


def matmul_kernel_words(kernel: TemplateKernel) -> Words:
    return matmul_slots(kernel.extras), MATMUL_WORDS
