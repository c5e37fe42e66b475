"""Matrix product: ``out[s, m, n] = epilogue(sum over k of a[s, m, k] * b[s, k, n])``, row-major."""

from __future__ import annotations

from functools import partial

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.emit_contraction import (
    LANES,
    Operands,
    Place,
    emit_contraction,
    share_out,
)
from rlx_edge.compile.codegen.spirv.emit_epilogue import emit_epilogue
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.region import Conditional
from rlx_edge.compile.codegen.spirv.template_words import EXTRAS, OUT, A, B, TemplateWords
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.compile.epilogue_access import CHANNEL, FULL
from rlx_edge.compile.templates.gpu import MATMUL_WORDS, parse_gpu_tile
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry


class _Matmul(Operands):
    def __init__(self, words: TemplateWords) -> None:
        self.words, self.io, kernel = words, words.io, words.kernel
        self.slices, self.rows = words["slices"], words["m"]
        self.columns, self.depth = words["n"], words["k"]
        self.chain = int(kernel.option("chain"))
        self.a_quads, self.b_quads = (
            bool(kernel.option("a_vectors")),
            bool(kernel.option("b_vectors")),
        )
        self.a_rows_first = False

    def at_row(self, code: Code, place: Place, row: int) -> int:
        w = Words(code)
        return w.add(w.mul(place.slice, self.words["a_slice"]), w.mul(row, self.depth))

    def a(self, code: Code, base: int, k: int, inside: int) -> int:
        w = Words(code)
        at = w.kept(inside, w.add(base, k))
        if self.a_quads:
            vector = self.io.load_vector(code, A, w.div(at, w.c(LANES)))
            return w.vector_or_zero(inside, vector)
        return w.or_zero(inside, self.io.load(code, A, at))

    def at_column(self, code: Code, place: Place, column: int) -> int:
        w = Words(code)
        return w.add(w.mul(place.slice, self.words["b_slice"]), column)

    def b(self, code: Code, base: int, k: int, inside: int) -> int:
        w = Words(code)
        at = w.kept(inside, w.add(base, w.mul(k, self.columns)))
        if self.b_quads:
            vector = self.io.load_vector(code, B, w.div(at, w.c(LANES)))
            return w.vector_or_zero(inside, vector)
        return w.or_zero(inside, self.io.load(code, B, at))

    def store(self, code: Code, place: Place, row: int, column: int, totals: list[int]) -> None:
        w = Words(code)
        line = w.mul(w.add(w.mul(place.slice, self.rows), row), self.columns)
        at = w.add(line, column)
        if self.b_quads:
            values = [self.value(code, at, column, lane, x) for lane, x in enumerate(totals)]
            vector = code.op("CompositeConstruct", code.module.vector_type(LANES), *values)
            self.io.store_vector(code, OUT, Words(code).div(at, w.c(LANES)), vector)
            return
        for lane, total in enumerate(totals):
            w = Words(code)
            one = Conditional(code, w.below(w.plus(column, lane), self.columns))
            value = self.value(one.body, at, column, lane, total)
            self.io.store(one.body, OUT, Words(one.body).plus(at, lane), value)
            one.close()

    def value(self, code: Code, at: int, column: int, lane: int, total: int) -> int:
        """The epilogue's value of one column."""
        kernel = self.words.kernel

        def extra(number: int, kind: str) -> int:
            w = Words(code)
            places = {FULL: at, CHANNEL: column}
            index = w.plus(places[kind], lane) if kind in places else w.c(0)
            return self.io.load(code, EXTRAS + number, index)

        loads = [partial(extra, number, kind) for number, kind in enumerate(kernel.extras)]
        return emit_epilogue(code, kernel.epilogue, total, loads)


def emit_matmul(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point; words of its record are ``MATMUL_WORDS`` after the slots."""
    words = TemplateWords(shared, kernel, MATMUL_WORDS)
    tile = parse_gpu_tile(str(kernel.option("tile")))
    shape = share_out(tile, shared.target.most_invocations, rows_first=False)
    return emit_contraction(shared, words.io, _Matmul(words), shape, name)
