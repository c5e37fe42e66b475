"""Template kernels: from a ``TemplateKernel`` record to the template's own emitter."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.compile.codegen.wasm.emit_epilogue import epilogue
from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.templates.conv2d import Conv2d
from rlx_edge.compile.templates.depthwise import Depthwise
from rlx_edge.compile.templates.finish import EmitEpilogue
from rlx_edge.compile.templates.matmul import Matmul
from rlx_edge.compile.templates.packing import ChannelPack, PanelPack, WeightPack
from rlx_edge.compile.templates.tiles import parse_tile
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.kernel import TemplateKernel


def emit_template(module: ModuleBuilder, kernel: TemplateKernel) -> int:
    """Function index of the kernel; ``RlxError`` ``codegen.template`` for an unknown template."""
    emit = _TEMPLATES.get(kernel.template)
    if emit is None:
        raise RlxError(
            "codegen.template",
            "no such template",
            found=kernel.template,
            allowed=list(_TEMPLATES),
        )
    return emit(module, kernel, None if kernel.epilogue is None else epilogue(kernel.epilogue))


def _matmul(module: ModuleBuilder, kernel: TemplateKernel, after: EmitEpilogue | None) -> int:
    return Matmul(parse_tile(str(kernel.option("tile"))), kernel.extras).emit(module, after)


def _conv2d(module: ModuleBuilder, kernel: TemplateKernel, after: EmitEpilogue | None) -> int:
    tile = parse_tile(str(kernel.option("tile")))
    layouts = str(kernel.option("input")), str(kernel.option("output"))
    return Conv2d(tile, *layouts, kernel.extras).emit(module, after)


def _depthwise(module: ModuleBuilder, kernel: TemplateKernel, after: EmitEpilogue | None) -> int:
    form = int(kernel.option("columns")), int(kernel.option("stride"))
    return Depthwise(kernel.extras, *form).emit(module, after)


def _pack_panels(module: ModuleBuilder, kernel: TemplateKernel, after: EmitEpilogue | None) -> int:
    del after
    return PanelPack(int(kernel.option("columns"))).emit(module)


def _pack_weights(module: ModuleBuilder, kernel: TemplateKernel, after: EmitEpilogue | None) -> int:
    del after
    return WeightPack(int(kernel.option("columns")), bool(kernel.option("blocked"))).emit(module)


def _pack_channels(
    module: ModuleBuilder, kernel: TemplateKernel, after: EmitEpilogue | None
) -> int:
    del kernel, after
    return ChannelPack().emit(module)


_TEMPLATES: dict[str, Callable[[ModuleBuilder, TemplateKernel, EmitEpilogue | None], int]] = {
    "matmul": _matmul,
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "pack_panels": _pack_panels,
    "pack_weights": _pack_weights,
    "pack_channels": _pack_channels,
}
