"""Steps in index arithmetic that template emitters share: 32-bit words in one piece of code."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars
from rlx_edge.ir.types import F32, U32

WORKGROUP_SCOPE = 2
SUBGROUP_SCOPE = 3
WORKGROUP_RELEASE = 0x108
"""Acquire and release of workgroup memory."""


@dataclass(frozen=True, slots=True)
class Words:
    """Word arithmetic in ``code``; an operand given as ``c(…)`` is a literal."""

    code: Code

    @property
    def s(self) -> Scalars:
        return Scalars(self.code)

    def c(self, value: int) -> int:
        return self.s.const(value, U32)

    def add(self, *operands: int) -> int:
        total = operands[0]
        for operand in operands[1:]:
            total = self.s.op("IAdd", U32, total, operand)
        return total

    def sub(self, a: int, b: int) -> int:
        return self.s.op("ISub", U32, a, b)

    def mul(self, a: int, b: int) -> int:
        return self.s.op("IMul", U32, a, b)

    def scaled(self, a: int, factor: int) -> int:
        """``a`` times a literal."""
        return a if factor == 1 else self.mul(a, self.c(factor))

    def plus(self, a: int, distance: int) -> int:
        """``a`` plus a literal."""
        return a if distance == 0 else self.add(a, self.c(distance))

    def div(self, a: int, divisor: int) -> int:
        return self.s.op("UDiv", U32, a, divisor)

    def rem(self, a: int, divisor: int) -> int:
        return self.s.op("UMod", U32, a, divisor)

    def divided(self, a: int, divisor: int) -> tuple[int, int]:
        """``(a // divisor, a % divisor)`` with one division."""
        quotient = self.div(a, divisor)
        return quotient, self.sub(a, self.mul(quotient, divisor))

    def split(self, a: int, divisor: int) -> tuple[int, int]:
        """``(a // divisor, a % divisor)`` for a literal divisor."""
        if divisor == 1:
            return a, self.c(0)
        return self.div(a, self.c(divisor)), self.rem(a, self.c(divisor))

    def ceildiv(self, a: int, divisor: int) -> int:
        """``a`` by a literal, rounded up."""
        return self.div(self.plus(a, divisor - 1), self.c(divisor))

    def below(self, a: int, b: int) -> int:
        return self.s.test("ULessThan", a, b)

    def both(self, a: int, b: int) -> int:
        return self.s.test("LogicalAnd", a, b)

    def least(self, a: int, b: int) -> int:
        return self.s.select(U32, self.below(a, b), a, b)

    def kept(self, condition: int, index: int) -> int:
        """``index`` where a condition holds, else 0: what may be read in any case."""
        return self.s.select(U32, condition, index, self.c(0))

    def or_zero(self, condition: int, value: int) -> int:
        """An f32 where a condition holds, else +0."""
        return self.s.select(F32, condition, value, self.s.const(0.0, F32))

    def vector_or_zero(self, condition: int, vector: int) -> int:
        """Four f32 where a condition holds, else four +0."""
        module = self.code.module
        kind, truths = module.vector_type(4), module.type("Vector", module.bool_type(), 4)
        conditions = self.code.op("CompositeConstruct", truths, *[condition] * 4)
        return self.code.op("Select", kind, conditions, vector, module.null(kind))


def barrier(code: Code, among: int = WORKGROUP_SCOPE) -> None:
    """All invocations of the workgroup, or of a subgroup, and their writes to workgroup memory."""
    w = Words(code)
    scope = w.c(among)
    code.do("ControlBarrier", scope, scope, w.c(WORKGROUP_RELEASE))
