"""Depthwise convolution in NCHW4c: an invocation computes the four channels of one pixel."""

from __future__ import annotations

from rlx_edge.compile.codegen.spirv.assembler import Code
from rlx_edge.compile.codegen.spirv.contraction_shape import LANES
from rlx_edge.compile.codegen.spirv.emit_conv import ImageWords
from rlx_edge.compile.codegen.spirv.emit_loops import add_entry, flat_workgroup
from rlx_edge.compile.codegen.spirv.interface import Shared
from rlx_edge.compile.codegen.spirv.region import StructuredLoop
from rlx_edge.compile.codegen.spirv.scalar_table import Scalars
from rlx_edge.compile.codegen.spirv.template_words import A, B, TemplateWords
from rlx_edge.compile.codegen.spirv.words import Words
from rlx_edge.compile.templates.gpu import conv_words
from rlx_edge.ir.kernel import TemplateKernel
from rlx_edge.ir.program import Entry
from rlx_edge.ir.types import F32


def emit_depthwise(shared: Shared, kernel: TemplateKernel, name: str) -> Entry:
    """Add the entry point; words of its record are ``conv_words`` after the slots."""
    words = TemplateWords(shared, kernel, conv_words(kernel.extras))
    images, io = ImageWords(words), words.io
    first, threads = words.root.label, flat_workgroup(shared.target)
    w = Words(words.root)
    pixels = w.mul(w.mul(words["images"], words["height"]), words["width"])
    total = w.mul(pixels, words["blocks"])
    step = w.scaled(io.input("NumWorkgroups"), threads)
    word = shared.module.int_type(32, False)
    loop = StructuredLoop(words.root, [(word, io.input("GlobalInvocationId"))])
    body = Words(loop.body)
    # Neighbouring invocations have neighbouring pixels of one channel block.
    plane = body.mul(words["height"], words["width"])
    rest, inside = body.divided(loop.carried[0], plane)
    image, block = body.divided(rest, words["blocks"])
    pixel = images.pixel(loop.body, body.add(body.mul(image, plane), inside))
    base = body.add(images.window(loop.body, pixel), body.mul(block, words["a_plane"]))
    chains = _taps(loop.body, images, base, block)
    channel, slice_ = Words(loop.body).scaled(block, LANES), Words(loop.body).c(0)
    known = images.column_extras(loop.body, slice_, channel)
    always = shared.module.boolean(True)
    extras = images.row_extras(loop.body, pixel, slice_, channel, always, known)
    images.store_channels(loop.body, pixel, slice_, channel, chains, extras)
    following = Words(loop.body).add(loop.carried[0], step)
    loop.close(Words(loop.check).below(loop.carried[0], total), [following])
    words.root.do("Return")
    function = shared.module.function(words.root, first)
    add_entry(shared, function, name, threads, io.inputs)
    return Entry(name, threads, io.words)


def _taps(code: Code, images: ImageWords, base: int, block: int) -> list[int]:
    """One chain a channel over the kernel's rows and columns."""
    module, io = code.module, images.io
    word, real = module.int_type(32, False), module.float_type()
    zero = Scalars(code).const(0.0, F32)
    count = images.kernel_rows * images.kernel_columns
    first = Words(code).scaled(block, count)
    loop = StructuredLoop(code, [(word, Words(code).c(0)), *[(real, zero)] * LANES])
    w, s = Words(loop.body), Scalars(loop.body)
    row, column = w.split(loop.carried[0], images.kernel_columns)
    at = w.add(base, images.tap(loop.body, row, column))
    pixel = io.load_vector(loop.body, A, w.div(at, w.c(LANES)))
    weight = io.load_vector(loop.body, B, w.add(first, loop.carried[0]))
    following = []
    for lane in range(LANES):
        left, right = (
            loop.body.op("CompositeExtract", real, vector, lane) for vector in (pixel, weight)
        )
        product = s.rounded("FMul", F32, left, right)
        following.append(s.rounded("FAdd", F32, loop.carried[1 + lane], product))
    condition = Words(loop.check).below(loop.carried[0], Words(loop.check).c(count))
    loop.close(condition, [w.plus(loop.carried[0], 1), *following], unroll=True)
    return loop.carried[1:]
