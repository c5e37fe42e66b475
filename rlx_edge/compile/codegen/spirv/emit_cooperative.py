"""Contractions on cooperative matrices: operands rounded to f16, sums in f32.

A workgroup brings ``DEPTH`` steps of k of its rows and columns into workgroup memory, rounded,
while what comes next is on its way; its subgroups multiply matrices of them. Two stages take turns,
so one barrier a round suffices. Which invocation holds which sum is not known: each matrix of sums
goes through a place in workgroup memory, from which the shared epilogues take four columns at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.compile.codegen.spirv.assembler import Code, Instruction, instruction
from rlx_edge.compile.codegen.spirv.contraction_operands import Operands, Place
from rlx_edge.compile.codegen.spirv.cooperative_memory import Subgroups, WorkgroupArray
from rlx_edge.compile.codegen.spirv.cooperative_sums import ROW_MAJOR, Finish
from rlx_edge.compile.codegen.spirv.emit_contraction import each_tile
from rlx_edge.compile.codegen.spirv.emit_conv import ConvOperands
from rlx_edge.compile.codegen.spirv.emit_loops import add_entry
from rlx_edge.compile.codegen.spirv.emit_matmul import MatmulOperands
from rlx_edge.compile.codegen.spirv.interface import Interface, Shared
from rlx_edge.compile.codegen.spirv.opcodes import ENUMS
from rlx_edge.compile.codegen.spirv.region import StructuredLoop
from rlx_edge.compile.codegen.spirv.template_words import TemplateWords
from rlx_edge.compile.codegen.spirv.words import SUBGROUP_SCOPE, Words, barrier
from rlx_edge.compile.targets.vulkan import Matrices
from rlx_edge.compile.templates.cooperative import (
    DEPTH,
    HALVES,
    LANES,
    CooperativeTile,
    cooperative_tile,
)
from rlx_edge.compile.templates.gpu import MATMUL_WORDS, conv_words
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry

MATRIX = "CooperativeMatrixKHR"
"""The type and the capability."""
LEFT, RIGHT, SUMS = 0, 1, 2
"""What a cooperative matrix is used for."""


@dataclass(frozen=True, slots=True)
class Quad:
    """Four neighbouring elements that an invocation reads, steps of a row of the left operand or
    columns of the right one: their first step of k, what of their addresses stays, and whether
    there is such a row or column; one base and one test for all four where they share them."""

    is_left: bool
    k: int
    bases: Sequence[int]
    insides: Sequence[int]


@dataclass(frozen=True, slots=True)
class Item:
    """What an invocation brings in at a time, two neighbours, and where in a stage."""

    place: int
    quads: tuple[Quad, Quad]


class Cooperative:
    """Emits one kernel."""

    def __init__(
        self, io: Interface, operands: Operands, tile: CooperativeTile, matrices: Matrices
    ) -> None:
        self.io, self.operands, self.tile, self.matrices = io, operands, tile, matrices
        shared, module = io.shared, io.module
        module.capability(MATRIX, "GroupNonUniform")
        stages, sums = 2 * tile.stage_length, tile.subgroups * tile.sum_length(matrices)
        self.stages = WorkgroupArray(shared, module.int_type(32, False), stages, "stages")
        self.sums = WorkgroupArray(shared, module.float_type(), sums, "sums")
        scope = module.integer(SUBGROUP_SCOPE, signed=False)
        m, n, k = (
            module.integer(size, signed=False)
            for size in (matrices.rows, matrices.columns, matrices.depth)
        )
        self.left, self.right, self.total = (
            module.type(MATRIX, kind, scope, *size, module.integer(use, signed=False))
            for kind, size, use in (
                (module.float_type(16), (m, k), LEFT),
                (module.float_type(16), (k, n), RIGHT),
                (module.float_type(), (m, n), SUMS),
            )
        )
        self.subgroups = Subgroups(io, tile)
        self.rows, self.columns = (
            tile.sub_rows // matrices.rows,
            tile.sub_columns // matrices.columns,
        )
        """Matrices of a subgroup, one below another and side by side."""
        pointer = module.pointer("Function", self.total)
        self.totals = [module.id() for _ in range(self.rows * self.columns)]
        storage = ENUMS["Storage"]["Function"]
        self.variables: list[Instruction] = [
            instruction("Variable", pointer, total, storage) for total in self.totals
        ]

    def emit(self) -> None:
        """Tiles, each by all invocations of a workgroup."""
        each_tile(self.io, self.operands, self.tile.rows, self.tile.columns, self.one_tile)

    # ---- one tile ----------------------------------------------------------------------------

    def one_tile(self, code: Code, place: Place) -> None:
        """Rounds of ``DEPTH`` steps of k for every part, then the epilogue."""
        module, w, tile = code.module, Words(code), self.tile
        word, vector = module.int_type(32, False), module.vector_type(LANES)
        zero = module.composite(self.total, module.real(0.0))
        for total in self.totals:
            code.do("Store", total, zero)
        items = [*self.left_items(code, place), *self.right_items(code, place)]
        ahead = self.fetch(code, items, w.c(0))
        loop = StructuredLoop(
            code, [(word, w.c(0)), (word, w.c(0)), *((vector, value) for value in ahead)]
        )
        k, stage, *ahead = loop.carried
        body = Words(loop.body)
        self.bring(loop.body, items, k, stage, ahead)
        barrier(loop.body)
        following = body.plus(k, DEPTH * tile.parts)
        ahead = self.fetch(loop.body, items, following)
        self.multiply(loop.body, stage)
        other = body.sub(body.c(tile.stage_length), stage)
        condition = Words(loop.check).below(k, self.operands.depth)
        # Drivers that unroll it make more than twice the code of it.
        loop.close(condition, [following, other, *ahead], unroll=False)
        # The next tile's first stage may be the one that is read last.
        barrier(code)
        Finish(
            self.operands,
            tile,
            self.matrices,
            self.subgroups,
            self.sums,
            self.total,
            self.totals,
            self.columns,
        ).finish(code, place)

    def left_items(self, code: Code, place: Place) -> list[Item]:
        """Eight steps of a row each."""
        ops, tile, w = self.operands, self.tile, Words(code)
        found = []
        for number in range(tile.rows * DEPTH // HALVES // self.threads):
            item = w.plus(self.subgroups.local, number * self.threads)
            if ops.a_rows_first:
                vector, row = w.split(item, tile.rows)
            else:
                row, vector = w.split(item, DEPTH // HALVES)
            at = w.add(place.row, row)
            base, inside = ops.at_row(code, place, at), w.below(at, ops.rows)
            k = w.add(self.first(w), w.scaled(vector, HALVES))
            one, two = (Quad(True, w.plus(k, step), [base], [inside]) for step in (0, LANES))
            spot = w.add(self.begin(w), w.scaled(row, tile.a_pitch), vector)
            found.append(Item(spot, (one, two)))
        return found

    def right_items(self, code: Code, place: Place) -> list[Item]:
        """Eight columns of a step each."""
        ops, tile, w = self.operands, self.tile, Words(code)
        found = []
        for number in range(tile.columns * DEPTH // HALVES // self.threads):
            item = w.plus(self.subgroups.local, number * self.threads)
            k, vector = w.split(item, tile.columns // HALVES)
            first = w.add(place.column, w.scaled(vector, HALVES))
            quads = []
            for step in (0, LANES):
                lanes = range(step, step + (1 if ops.b_quads else LANES))
                columns = [w.plus(first, lane) for lane in lanes]
                bases = [ops.at_column(code, place, column) for column in columns]
                insides = [w.below(column, ops.columns) for column in columns]
                quads.append(Quad(False, w.add(self.first(w), k), bases, insides))
            spot = w.plus(w.add(self.begin(w), w.scaled(k, tile.b_pitch), vector), tile.a_length)
            found.append(Item(spot, (quads[0], quads[1])))
        return found

    @property
    def threads(self) -> int:
        """Invocations of a part."""
        return self.tile.part_subgroups * self.matrices.subgroup

    def begin(self, w: Words) -> int:
        """Where what an invocation brings in for its part begins in a stage."""
        return w.scaled(self.subgroups.bringing, self.tile.part_length)

    def first(self, w: Words) -> int:
        """The first step of k, in a round, of the part that an invocation brings in."""
        return w.scaled(self.subgroups.bringing, DEPTH)

    # ---- operands ----------------------------------------------------------------------------

    def fetch(self, code: Code, items: Sequence[Item], k: int) -> list[int]:
        """What this invocation brings in for a round, vectors of four; beyond the edges
        anything."""
        ops, found = self.operands, []
        for quad in (quad for item in items for quad in item.quads):
            read = ops.a if quad.is_left else ops.b
            tests, steps = self.exist(code, quad, k)
            bases = [*quad.bases] * (LANES // len(quad.bases))
            if ops.a_quads if quad.is_left else ops.b_quads:
                found.append(read(code, bases[0], steps[0], tests[0]))
                continue
            values = [
                read(code, base, step, test)
                for base, step, test in zip(bases, steps, tests, strict=True)
            ]
            vector = code.module.vector_type(LANES)
            found.append(code.op("CompositeConstruct", vector, *values))
        return found

    def bring(
        self, code: Code, items: Sequence[Item], k: int, stage: int, values: Sequence[int]
    ) -> None:
        """Round what was fetched and put it into a stage, +0 beyond the edges."""
        w, ahead = Words(code), iter(values)
        for item in items:
            words = [
                word for quad in item.quads for word in self.rounded(code, quad, k, next(ahead))
            ]
            vector = code.op("CompositeConstruct", self.stages.vector, *words)
            code.do("Store", self.stages.at(code, w.add(stage, item.place)), vector)

    def rounded(self, code: Code, quad: Quad, k: int, value: int) -> list[int]:
        """Two words of four elements rounded to f16, +0 where there are none."""
        module = code.module
        vector, word = module.vector_type(LANES), module.int_type(32, False)
        truths = module.type("Vector", module.bool_type(), LANES)
        tests, _ = self.exist(code, quad, k)
        condition = code.op("CompositeConstruct", truths, *tests)
        inside = code.op("Select", vector, condition, value, module.null(vector))
        halves = code.op("FConvert", module.type("Vector", module.float_type(16), LANES), inside)
        pairs = code.op("Bitcast", module.type("Vector", word, 2), halves)
        return [code.op("CompositeExtract", word, pairs, pair) for pair in range(2)]

    def exist(self, code: Code, quad: Quad, k: int) -> tuple[list[int], list[int]]:
        """Of each of a quad's elements, whether it is one, and its step of k; ``k`` is the
        first of the round."""
        ops, w = self.operands, Words(code)
        first = w.add(k, quad.k)
        if quad.is_left and ops.a_quads:
            test = w.both(quad.insides[0], w.below(first, ops.depth))
            return [ops.a_exists(code, first, test)] * LANES, [first] * LANES
        if quad.is_left:
            steps = [w.plus(first, lane) for lane in range(LANES)]
            tests = [
                ops.a_exists(code, step, w.both(quad.insides[0], w.below(step, ops.depth)))
                for step in steps
            ]
            return tests, steps
        before = w.below(first, ops.depth)
        tests = [w.both(inside, before) for inside in quad.insides]
        return tests * (LANES // len(tests)), [first] * LANES

    # ---- products ----------------------------------------------------------------------------

    def multiply(self, code: Code, stage: int) -> None:
        """Add a round's products to the sums of this subgroup."""
        tile, matrices, w = self.tile, self.matrices, Words(code)
        start = w.add(stage, w.scaled(self.subgroups.part, tile.part_length))
        left = w.add(start, w.scaled(self.subgroups.row, tile.a_pitch))
        right = w.plus(w.add(start, w.div(self.subgroups.column, w.c(HALVES))), tile.a_length)
        for step in range(0, DEPTH, matrices.depth):
            places = [
                w.plus(left, row * matrices.rows * tile.a_pitch + step // HALVES)
                for row in range(self.rows)
            ]
            rows = [self.load(code, self.left, place, tile.a_pitch) for place in places]
            places = [
                w.plus(right, step * tile.b_pitch + column * matrices.columns // HALVES)
                for column in range(self.columns)
            ]
            columns = [self.load(code, self.right, place, tile.b_pitch) for place in places]
            for number, total in enumerate(self.totals):
                row, column = divmod(number, self.columns)
                before = code.op("Load", self.total, total)
                after = code.op(
                    "CooperativeMatrixMulAddKHR", self.total, rows[row], columns[column], before
                )
                code.do("Store", total, after)

    def load(self, code: Code, kind: int, place: int, pitch: int) -> int:
        layout, stride = (code.module.integer(item, signed=False) for item in (ROW_MAJOR, pitch))
        return code.op(
            "CooperativeMatrixLoadKHR", kind, self.stages.at(code, place), layout, stride
        )


def _emit(shared: Shared, words: TemplateWords, operands: Operands, name: str) -> Entry:
    first, tile = words.root.label, cooperative_tile(str(words.kernel.option("tile")))
    matrices = shared.target.matrix_shape
    assert matrices is not None, "claims take such kernels for devices that have matrices"
    kernel = Cooperative(words.io, operands, tile, matrices)
    kernel.emit()
    words.root.do("Return")
    function = shared.module.function(words.root, first, kernel.variables)
    threads = tile.subgroups * matrices.subgroup
    add_entry(shared, function, name, threads, words.io.inputs)
    shared.module.capability("RoundingModeRTE")
    shared.module.mode(function, "RoundingModeRTE", 16)
    return Entry(name, threads, words.io.words)


def emit_cooperative_matmul(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point of a product; words as those of the plain template."""
    words = TemplateWords(shared, kernel, MATMUL_WORDS)
    return _emit(shared, words, MatmulOperands(words), name)


def emit_cooperative_conv(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point of a convolution; words and packed weights as the plain template's."""
    words = TemplateWords(shared, kernel, conv_words(kernel.extras))
    return _emit(shared, words, ConvOperands(words), name)
