"""One WebAssembly module from a list of kernels.

Exports: ``memory`` and ``run(block, begin, end, thread)``. The parameter block at byte address
``block`` starts with one i32 word a launch: the byte address of its record. A record is the index
of a kernel, then its argument words. ``run`` executes launches ``begin`` … ``end - 1`` in order;
kernel functions have the type ``(args: i32, thread: i32) -> ()`` with ``args`` the address of the
first argument word. The same kernels and target give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.codegen.kernel_form import kernel_name
from rlx_edge.compile.codegen.wasm import encoder
from rlx_edge.compile.codegen.wasm.emit_loops import emit_loop_kernel
from rlx_edge.compile.codegen.wasm.emit_template import emit_template
from rlx_edge.compile.codegen.wasm.module import FunctionBuilder, ModuleBuilder
from rlx_edge.compile.codegen.wasm.sections import Limits
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.kernel import Kernel, TemplateKernel

MAX_PAGES = 65536


def emit_module(kernels: Sequence[Kernel], target: WasmTarget) -> bytes:
    """The module of ``kernels``; table index = position. ``RlxError`` where there is no code.

    The target's style is baked into the template kernels by their selection.
    """
    del target
    module = ModuleBuilder("rlx_edge")
    module.memory(Limits(1, MAX_PAGES))
    module.table(Limits(len(kernels), len(kernels)))
    module.export_memory("memory")
    functions = [_emit_kernel(module, kernel, position) for position, kernel in enumerate(kernels)]
    if functions:
        module.elements(0, functions)
    module.export_function("run", _emit_run(module).index)
    return module.encode()


def _emit_kernel(module: ModuleBuilder, kernel: Kernel, position: int) -> int:
    """Function index of one kernel; kernels are named by their place in the table."""
    if isinstance(kernel, TemplateKernel):
        return emit_template(module, kernel)
    return emit_loop_kernel(module, kernel, f"k{position}.{kernel_name(kernel)}").index


def _emit_run(module: ModuleBuilder) -> FunctionBuilder:
    kernel_type = module.type((encoder.I32, encoder.I32))
    run = module.function(
        "run", [(name, encoder.I32) for name in ("block", "begin", "end", "thread")]
    )
    block, begin, end, thread = range(4)
    word, record, limit = (run.local(encoder.I32, name) for name in ("word", "record", "limit"))
    run.local_get(begin).local_get(end).i32_ge_s().if_().return_().end()
    for bound, local in ((begin, word), (end, limit)):
        run.local_get(block).local_get(bound).i32_const(2).i32_shl().i32_add().local_set(local)
    run.loop("launch")
    run.local_get(word).i32_load().local_tee(record).i32_const(4).i32_add().local_get(thread)
    run.local_get(record).i32_load().call_indirect(kernel_type, 0)
    run.local_get(word).i32_const(4).i32_add().local_tee(word).local_get(limit).i32_ne()
    run.br_if("launch").end()
    return run
