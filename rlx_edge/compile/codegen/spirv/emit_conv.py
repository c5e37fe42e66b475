"""Convolution as a contraction of pixels and taps, without an im2col matrix.

Rows are the pixels of all images, columns a group's output channels, k walks channel blocks of
four, kernel rows, kernel columns and the channels of a block. The input's border is at least as
wide as the padding, so no tap is outside its buffer. Pad lanes of a blocked output get +0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.contraction_operands import Extras, Operands, Place, chain_of
from rlx_edge.compile.codegen.spirv.contraction_shape import LANES, share_out
from rlx_edge.compile.codegen.spirv.emit_contraction import emit_contraction
from rlx_edge.compile.codegen.spirv.emit_epilogue import emit_epilogue
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.region import Conditional
from rlx_edge.compile.codegen.spirv.template_words import EXTRAS, OUT, A, B, TemplateWords
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.compile.epilogue_access import BATCH_CHANNEL, CHANNEL, FULL
from rlx_edge.compile.templates.gpu import BLOCKED, conv_words, parse_gpu_tile
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry
from rlx_edge.ir.types import F32


@dataclass(frozen=True, slots=True)
class Pixel:
    """A position in an image, in words."""

    image: int
    y: int
    x: int


class ImageWords:
    """Addresses in the images of a conv2d or depthwise kernel."""

    def __init__(self, words: TemplateWords) -> None:
        self.words, self.io = words, words.io
        kernel = words.kernel
        self.blocked_in = kernel.option("input") == BLOCKED
        self.blocked_out = kernel.option("output") == BLOCKED
        self.kernel_rows = int(kernel.option("rows"))
        self.kernel_columns = int(kernel.option("columns"))

    def pixel(self, code: Code, number: int) -> Pixel:
        """Where pixel ``number`` of all images is."""
        w = Words(code)
        line, x = w.divided(number, self.words["width"])
        image, y = w.divided(line, self.words["height"])
        return Pixel(image, y, x)

    def window(self, code: Code, pixel: Pixel) -> int:
        """The first tap of a pixel in channel block or plane 0."""
        w, words = Words(code), self.words
        return w.add(
            words["a_origin"],
            w.mul(pixel.image, words["a_image"]),
            w.mul(pixel.y, words["a_row"]),
            w.mul(pixel.x, words["a_pixel"]),
        )

    def tap(self, code: Code, row: int, column: int) -> int:
        """How far a tap lies from the first."""
        w, words = Words(code), self.words
        return w.add(w.mul(row, words["a_tap_row"]), w.mul(column, words["a_tap_column"]))

    def stored(self, code: Code, slot: str, pixel: Pixel, slice_: int, column: int) -> int:
        """Element offset of an output position in ``out`` or a full extra, which has its layout;
        blocked: of the block of ``column``."""
        w, words = Words(code), self.words
        step, channel = pixel.x, column
        if self.blocked_out:
            step, channel = w.scaled(pixel.x, LANES), w.div(column, w.c(LANES))
        return w.add(
            words[f"{slot}_origin"],
            w.mul(slice_, words[f"{slot}_slice"]),
            w.mul(pixel.image, words[f"{slot}_image"]),
            w.mul(channel, words[f"{slot}_plane"]),
            w.mul(pixel.y, words[f"{slot}_row"]),
            step,
        )

    # ---- the epilogue ------------------------------------------------------------------------

    def column_extras(self, code: Code, slice_: int, column: int) -> Extras:
        """Extra operands at four channels of a slice, ``[]`` for those that depend on the pixel."""
        kinds = self.words.kernel.extras
        found: Extras = []
        for number, kind in enumerate(kinds):
            w, load = Words(code), partial(self.io.load, code, EXTRAS + number)
            if kind == CHANNEL:
                first = w.add(w.mul(slice_, self.words["n"]), column)
                places = [w.kept(self.has(code, column, lane), w.plus(first, lane))
                          for lane in range(LANES)]  # fmt: skip
                found.append([load(place) for place in places])
            else:
                found.append([] if kind in (FULL, BATCH_CHANNEL) else [load(w.c(0))] * LANES)
        return found

    def row_extras(
        self, code: Code, pixel: Pixel, slice_: int, column: int, inside: int, known: Extras
    ) -> Extras:
        """All extra operands of a pixel; anything that can be read unless ``inside``."""
        return [
            values or self._extra(code, number, pixel, slice_, column, inside)
            for number, values in enumerate(known)
        ]

    def _extra(
        self, code: Code, number: int, pixel: Pixel, slice_: int, column: int, inside: int
    ) -> list[int]:
        w, words, slot = Words(code), self.words, EXTRAS + number
        step = w.c(1)
        if words.kernel.extras[number] == BATCH_CHANNEL:
            every = w.mul(words["slices"], words["n"])
            base = w.add(w.mul(pixel.image, every), w.mul(slice_, words["n"]), column)
        else:
            base = self.stored(code, f"e{number}", pixel, slice_, column)
            if self.blocked_out and self.io.buffers[slot] is F32:
                return self.io.load_four(code, slot, w.div(w.kept(inside, base), w.c(LANES)))
            if not self.blocked_out:
                step = words[f"e{number}_plane"]
        found = []
        for lane in range(LANES):
            exists = w.both(inside, self.has(code, column, lane))
            at = w.add(base, w.scaled(step, lane)) if lane else base
            found.append(self.io.load(code, slot, w.kept(exists, at)))
        return found

    def has(self, code: Code, column: int, lane: int) -> int:
        """Whether a slice has the channel ``column + lane``."""
        w = Words(code)
        return w.below(w.plus(column, lane), self.words["n"])

    def store_channels(
        self,
        code: Code,
        pixel: Pixel,
        slice_: int,
        column: int,
        totals: list[int],
        extras: Extras,
    ) -> None:
        """Epilogue and store of four channels of a slice from ``column`` on, a multiple of four."""
        epilogue = self.words.kernel.epilogue
        out = self.stored(code, "out", pixel, slice_, column)
        if self.blocked_out:
            values = []
            for lane, total in enumerate(totals):
                value = emit_epilogue(code, epilogue, total, [item[lane] for item in extras])
                values.append(Words(code).or_zero(self.has(code, column, lane), value))
            vector = code.op("CompositeConstruct", code.module.vector_type(LANES), *values)
            w = Words(code)
            self.io.store_vector(code, OUT, w.div(out, w.c(LANES)), vector)
            return
        for lane, total in enumerate(totals):
            one = Conditional(code, self.has(code, column, lane))
            value = emit_epilogue(one.body, epilogue, total, [item[lane] for item in extras])
            w = Words(one.body)
            at = w.add(out, w.scaled(self.words["out_plane"], lane)) if lane else out
            self.io.store(one.body, OUT, at, value)
            one.close()


class ConvOperands(Operands):
    def __init__(self, words: TemplateWords) -> None:
        self.words, self.io, self.images = words, words.io, ImageWords(words)
        w = Words(words.root)
        self.slices, self.columns = words["slices"], words["n"]
        self.rows = w.mul(w.mul(words["images"], words["height"]), words["width"])
        taps = self.images.kernel_rows * self.images.kernel_columns
        self.depth = w.scaled(words["blocks"], taps * LANES)
        self.chain, self.fused = chain_of(words.kernel)
        self.a_quads, self.b_quads = self.images.blocked_in, True
        self.a_fours = not self.a_quads
        self.a_rows_first = True

    def at_row(self, code: Code, place: Place, row: int) -> int:
        w = Words(code)
        window = self.images.window(code, self.images.pixel(code, row))
        return w.add(window, w.mul(place.slice, self.words["a_slice"]))

    def a(self, code: Code, base: int, k: int, inside: int) -> int:
        w, words, images = Words(code), self.words, self.images
        quad, lane = w.split(k, LANES)
        line, column = w.split(quad, images.kernel_columns)
        block, row = w.split(line, images.kernel_rows)
        at = w.add(base, images.tap(code, row, column))
        if self.a_quads:
            at = w.kept(inside, w.add(at, w.mul(block, words["a_plane"])))
            return self.io.load_vector(code, A, w.div(at, w.c(LANES)))
        channel = w.add(w.scaled(block, LANES), lane)
        return self.io.load(code, A, w.kept(inside, w.add(at, w.mul(channel, words["a_plane"]))))

    def a_four(self, code: Code, base: int, k: int, inside: int) -> list[int]:
        """One tap in four planes."""
        w, plane = Words(code), self.words["a_plane"]
        line, column = w.split(w.div(k, w.c(LANES)), self.images.kernel_columns)
        block, row = w.split(line, self.images.kernel_rows)
        first = w.mul(w.scaled(block, LANES), plane)
        at = w.add(base, self.images.tap(code, row, column), first)
        return [
            self.io.load(code, A, w.kept(self.a_exists(code, w.plus(k, lane), inside),
                                         w.add(at, w.scaled(plane, lane)) if lane else at))
            for lane in range(LANES)
        ]  # fmt: skip

    def a_exists(self, code: Code, k: int, inside: int) -> int:
        """Planes have no channels beyond the last; blocks do."""
        if self.a_quads:
            return inside
        w, taps = Words(code), self.images.kernel_rows * self.images.kernel_columns
        quad, lane = w.split(k, LANES)
        block, _ = w.split(quad, taps)
        channel = w.add(w.scaled(block, LANES), lane)
        return w.both(inside, w.below(channel, self.words["channels"]))

    def at_column(self, code: Code, place: Place, column: int) -> int:
        w = Words(code)
        group = w.mul(w.mul(place.slice, self.depth), self.words["b_row"])
        return w.add(group, column)

    def b(self, code: Code, base: int, k: int, inside: int) -> int:
        w = Words(code)
        at = w.kept(inside, w.add(base, w.mul(k, self.words["b_row"])))
        return self.io.load_vector(code, B, w.div(at, w.c(LANES)))

    def locate(self, code: Code, place: Place, row: int) -> list[int]:
        pixel = self.images.pixel(code, row)
        return [pixel.image, pixel.y, pixel.x]

    def column_extras(self, code: Code, place: Place, column: int) -> Extras:
        return self.images.column_extras(code, place.slice, column)

    def row_extras(
        self, code: Code, place: Place, at: list[int], column: int, inside: int, known: Extras
    ) -> Extras:
        return self.images.row_extras(code, Pixel(*at), place.slice, column, inside, known)

    def store(
        self,
        code: Code,
        place: Place,
        at: list[int],
        column: int,
        totals: list[int],
        extras: Extras,
    ) -> None:
        self.images.store_channels(code, Pixel(*at), place.slice, column, totals, extras)


def emit_conv2d(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point; words of its record are ``conv_words`` after the slots."""
    words = TemplateWords(shared, kernel, conv_words(kernel.extras))
    tile = parse_gpu_tile(str(kernel.option("tile")))
    operands = ConvOperands(words)
    rows_first = not operands.images.blocked_out
    shape = share_out(tile, shared.target.most_invocations, rows_first, pad=0)
    return emit_contraction(shared, words.io, operands, shape, name)
