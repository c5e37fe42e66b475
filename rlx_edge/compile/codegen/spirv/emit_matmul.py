"""Matrix product: ``out[s, m, n] = epilogue(sum over k of a[s, m, k] * b[s, k, n])``, row-major."""

from __future__ import annotations

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.contraction_operands import Extras, Operands, Place, chain_of
from rlx_edge.compile.codegen.spirv.contraction_shape import A_PAD, LANES, share_out
from rlx_edge.compile.codegen.spirv.emit_contraction import emit_contraction
from rlx_edge.compile.codegen.spirv.emit_epilogue import emit_epilogue
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.region import Conditional
from rlx_edge.compile.codegen.spirv.template_words import EXTRAS, OUT, A, B, TemplateWords
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.compile.epilogue_access import CHANNEL, FULL
from rlx_edge.compile.templates.gpu import MATMUL_WORDS, parse_gpu_tile
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry
from rlx_edge.ir.types import F32


class MatmulOperands(Operands):
    def __init__(self, words: TemplateWords) -> None:
        self.words, self.io, kernel = words, words.io, words.kernel
        self.slices, self.rows = words["slices"], words["m"]
        self.columns, self.depth = words["n"], words["k"]
        self.chain, self.fused = chain_of(kernel)
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
            return self.io.load_vector(code, A, w.div(at, w.c(LANES)))
        return self.io.load(code, A, at)

    def at_column(self, code: Code, place: Place, column: int) -> int:
        w = Words(code)
        return w.add(w.mul(place.slice, self.words["b_slice"]), column)

    def b(self, code: Code, base: int, k: int, inside: int) -> int:
        w = Words(code)
        at = w.kept(inside, w.add(base, w.mul(k, self.columns)))
        if self.b_quads:
            return self.io.load_vector(code, B, w.div(at, w.c(LANES)))
        return self.io.load(code, B, at)

    def locate(self, code: Code, place: Place, row: int) -> list[int]:
        w = Words(code)
        return [w.mul(w.add(w.mul(place.slice, self.rows), row), self.columns)]

    def column_extras(self, code: Code, place: Place, column: int) -> Extras:
        found: Extras = []
        for number, kind in enumerate(self.words.kernel.extras):
            w, slot = Words(code), EXTRAS + number
            if kind == CHANNEL:
                places = [w.kept(self.has(code, column, lane), w.plus(column, lane))
                          for lane in range(LANES)]  # fmt: skip
                found.append([self.io.load(code, slot, place) for place in places])
            else:
                found.append([] if kind == FULL else [self.io.load(code, slot, w.c(0))] * LANES)
        return found

    def row_extras(
        self, code: Code, place: Place, at: list[int], column: int, inside: int, known: Extras
    ) -> Extras:
        return [
            values or self.extra(code, EXTRAS + number, at[0], column, inside)
            for number, values in enumerate(known)
        ]

    def extra(self, code: Code, slot: int, line: int, column: int, inside: int) -> list[int]:
        """Four elements of an operand that has the result's shape."""
        w = Words(code)
        first = w.add(line, column)
        if self.b_quads and self.io.buffers[slot] is F32:
            return self.io.load_four(code, slot, w.div(w.kept(inside, first), w.c(LANES)))
        found = []
        for lane in range(LANES):
            exists = w.both(inside, self.has(code, column, lane))
            found.append(self.io.load(code, slot, w.kept(exists, w.plus(first, lane))))
        return found

    def has(self, code: Code, column: int, lane: int) -> int:
        """Whether there is the column ``column + lane``."""
        w = Words(code)
        return w.below(w.plus(column, lane), self.columns)

    def store(
        self,
        code: Code,
        place: Place,
        at: list[int],
        column: int,
        totals: list[int],
        extras: Extras,
    ) -> None:
        w, epilogue = Words(code), self.words.kernel.epilogue
        first = w.add(at[0], column)
        if self.b_quads:
            values = [
                emit_epilogue(code, epilogue, total, [item[lane] for item in extras])
                for lane, total in enumerate(totals)
            ]
            vector = code.op("CompositeConstruct", code.module.vector_type(LANES), *values)
            self.io.store_vector(code, OUT, w.div(first, w.c(LANES)), vector)
            return
        for lane, total in enumerate(totals):
            one = Conditional(code, self.has(code, column, lane))
            value = emit_epilogue(one.body, epilogue, total, [item[lane] for item in extras])
            self.io.store(one.body, OUT, Words(one.body).plus(first, lane), value)
            one.close()


def emit_matmul(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point; words of its record are ``MATMUL_WORDS`` after the slots."""
    words = TemplateWords(shared, kernel, MATMUL_WORDS)
    tile = parse_gpu_tile(str(kernel.option("tile")))
    shape = share_out(tile, shared.target.most_invocations, rows_first=False, pad=A_PAD)
    return emit_contraction(shared, words.io, MatmulOperands(words), shape, name)
