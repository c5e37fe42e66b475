"""How operand A is addressed along k: element k of a row lies at `row pointer + offset(k)`.

The source says what the offset is: `stride` (k times a byte step), `quads` (a table of byte
offsets, one for four consecutive elements) or `singles` (a table with one offset for each k).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.wasm.encoder import I32
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder
from rlx_edge.compile.templates.tiles import LANES

STRIDE = "stride"
QUADS = "quads"
SINGLES = "singles"


def add_constant(body: FunctionBuilder, local: int, value: int) -> None:
    """Add a constant to an i32 local."""
    body.local_get(local).i32_const(value).i32_add().local_set(local)


def load_pointers(body: FunctionBuilder, table: int, pointers: Sequence[int]) -> None:
    """Load consecutive entries of a pointer table into locals and step past them."""
    for number, pointer in enumerate(pointers):
        body.local_get(table).i32_load(4 * number).local_set(pointer)
    add_constant(body, table, 4 * len(pointers))


@dataclass(frozen=True, slots=True)
class Walk:
    """The loops over k of one function.

    Locals: `k` (number of elements), `taps` (offset table; for `stride` the first byte offset),
    `step` (bytes, for `stride`), and `offset`, which holds the offset of the current element.
    """

    body: FunctionBuilder
    source: str
    k: int
    taps: int
    step: int
    offset: int

    def emit(self, steps: Callable[[int], None], unroll: int) -> None:
        """Run over k in order: `steps(n)` emits n elements, contiguous from `offset`; n is up to
        `unroll` (1, 2 or 4)."""
        left = self.body.local(I32, "left")
        self.body.local_get(self.k).local_set(left)
        if self.source == STRIDE:
            self._by_stride(steps, unroll, left)
        else:
            self._by_table(steps, unroll, left)

    def _while_left(self, left: int, count: int, label: str) -> None:
        self.body.local_get(left).i32_const(count).i32_sub().local_tee(left)
        self.body.i32_const(count).i32_ge_s().br_if(label).end()

    def _by_stride(self, steps: Callable[[int], None], unroll: int, left: int) -> None:
        body = self.body
        body.local_get(self.taps).local_set(self.offset)
        if unroll > 1:
            body.local_get(self.step).i32_const(4).i32_eq()
            body.local_get(left).i32_const(unroll).i32_ge_s().i32_and().if_().loop("steps")
            steps(unroll)
            add_constant(body, self.offset, 4 * unroll)
            self._while_left(left, unroll, "steps")
            body.end()
        body.local_get(left).if_().loop("step")
        steps(1)
        body.local_get(self.offset).local_get(self.step).i32_add().local_set(self.offset)
        self._while_left(left, 1, "step")
        body.end()

    def _by_table(self, steps: Callable[[int], None], unroll: int, left: int) -> None:
        body = self.body
        elements = LANES if self.source == QUADS else 1
        tap = body.local(I32, "tap")
        body.local_get(self.taps).local_set(tap).local_get(left).if_().loop("tap")
        body.local_get(tap).i32_load().local_set(self.offset)
        if elements > unroll:
            rest = body.local(I32, "rest")
            body.i32_const(elements // unroll).local_set(rest).loop("element")
            steps(unroll)
            add_constant(body, self.offset, 4 * unroll)
            body.local_get(rest).i32_const(1).i32_sub().local_tee(rest).br_if("element").end()
        else:
            steps(elements)
        add_constant(body, tap, 4)
        self._while_left(left, elements, "tap")
        body.end()
