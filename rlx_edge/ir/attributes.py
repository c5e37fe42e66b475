"""Attribute values and their declarations.

A value is an int, float, bool, str, ``Dim``, ``DType``, ``Expr`` or a tuple of ints, strings or
dims. The declaration says the kind; the text form follows from the value alone:
``2``, ``1e-05``, ``true``, ``"NCHW"``, ``[1, 1]``, ``["cuda:0"]``, ``(w - 1) // 2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.types import DType

Attribute: TypeAlias = (
    int
    | float
    | bool
    | str
    | Dim
    | DType
    | Expr
    | tuple[int, ...]
    | tuple[str, ...]
    | tuple[Dim, ...]
)

KINDS = (
    "int",
    "float",
    "bool",
    "number",
    "string",
    "dtype",
    "dim",
    "expression",
    "ints",
    "strings",
    "dims",
)
"""``number`` is an int, a float or a bool, as the result's element type asks."""


@dataclass(frozen=True, slots=True)
class AttributeDef:
    """``kind`` is one of ``KINDS``; ``choices`` restricts strings; ``default`` None = required."""

    name: str
    kind: str
    choices: tuple[str, ...] = ()
    optional: bool = False


FIXED = "fixed"
RELAXED = "relaxed"
TF32 = "tf32"
FP16 = "fp16"
PRECISIONS = (FIXED, RELAXED, TF32, FP16)
"""What a contraction may do to its numbers: nothing that the numerics contract does not say (also
where no ``precision`` is stated); sums in any order and fused multiply-add; operands rounded to 10
bits of fraction besides; operands rounded to f16 besides. Sums are f32 in all of them."""

PLACEMENT: tuple[AttributeDef, ...] = (
    AttributeDef("phase", "string", ("compile", "dispatch", "execute", "sync"), optional=True),
    AttributeDef("target_device_set", "strings", optional=True),
    AttributeDef(
        "sharding_strategy",
        "string",
        ("data_parallel", "tensor_parallel_column", "tensor_parallel_row", "pipeline"),
        optional=True,
    ),
    AttributeDef("memory_layout", "string", ("NCHW", "NHWC", "NCHW4c"), optional=True),
    AttributeDef("border", "ints", optional=True),
    AttributeDef("precision", "string", PRECISIONS, optional=True),
    AttributeDef(
        "sync_mode", "string", ("blocking", "event", "async_barrier", "none"), optional=True
    ),
    AttributeDef(
        "buffer_sharing_capability",
        "string",
        ("p2p_dma", "shared_memory", "external_memory", "none"),
        optional=True,
    ),
)
"""Attributes any op may carry once placed, in printing order, after the operator's own."""

EPILOGUE = AttributeDef("epilogue", "expression", optional=True)
"""The expression of a fused op, printed between operator and placement attributes."""
