"""Maxima and minima of many f32 vectors, four instructions an operand.

``f32x4.max`` orders zeros and finds NaN in every step, about eight machine instructions. Over many
operands it is cheaper to keep three results apart: the greatest number (``pmax``, blind to NaN and
to the sign of zero), whether there was a NaN, and whether every operand had its sign bit set. The
last one decides the zero's sign: if the maximum is zero then no operand is positive, so an operand
without sign bit is +0. For minima: if the minimum is zero then an operand with sign bit is -0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_region import Emission
from rlx_edge.compile.codegen.wasm.encoder import Body
from rlx_edge.compile.codegen.wasm.vector_table import emit_splat_const
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.types import F32, U32

FEWEST_OPERANDS = 4
"""From this many operands on the separate results are cheaper."""


@dataclass(frozen=True, slots=True)
class Extremum:
    """Running maximum or minimum in three locals."""

    kind: str
    value: int
    signs: int
    nans: int
    operand: int

    @staticmethod
    def of(em: Emission, kind: str) -> Extremum:
        return Extremum(kind, *(em.temp(encoder.V128) for _ in range(4)))

    def start(self, body: Body, identity: float) -> None:
        """No operand yet."""
        emit_splat_const(body, identity, F32)
        body.local_set(self.value)
        emit_splat_const(body, 0xFFFFFFFF if self.kind == "max" else 0, U32)
        body.local_set(self.signs)
        emit_splat_const(body, 0, U32)
        body.local_set(self.nans)

    def start_with(self, body: Body, push: Callable[[], None]) -> None:
        """The first operand."""
        push()
        body.local_tee(self.value).local_tee(self.signs)
        body.local_get(self.value).f32x4_ne().local_set(self.nans)

    def add(self, body: Body, push: Callable[[], None]) -> None:
        """One more operand, which ``push`` leaves on the stack."""
        push()
        body.local_set(self.operand)
        body.local_get(self.value).local_get(self.operand)
        (body.f32x4_pmax if self.kind == "max" else body.f32x4_pmin)().local_set(self.value)
        body.local_get(self.signs).local_get(self.operand)
        (body.v128_and if self.kind == "max" else body.v128_or)().local_set(self.signs)
        body.local_get(self.nans).local_get(self.operand).local_get(self.operand)
        body.f32x4_ne().v128_or().local_set(self.nans)

    def push_result(self, body: Body) -> None:
        """Push the maximum or minimum as ``f32x4.max`` and ``f32x4.min`` define it."""
        body.local_get(self.signs)
        emit_splat_const(body, 0x80000000, U32)
        body.v128_and().local_get(self.value).local_get(self.value)
        emit_splat_const(body, 0.0, F32)
        body.f32x4_eq().v128_bitselect().local_get(self.nans).v128_or()


def extremum_operands(em: Emission, node: Expr) -> list[Expr]:
    """The operands of a tree of one extremum whose inner results nothing else uses."""
    operands: list[Expr] = []

    def visit(part: Expr) -> None:
        inner = part is not node and em.uses.get(part, 2) > 1
        if part.op != node.op or part.dtype is not F32 or inner:
            operands.append(part)
            return
        for arg in part.args:
            visit(arg)

    visit(node)
    return operands
