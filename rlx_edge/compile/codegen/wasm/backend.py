"""The WebAssembly backend's row."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.compile.backends import Backend, Code
from rlx_edge.compile.claims.wasm import OFFERS
from rlx_edge.compile.codegen.wasm.emit import emit_module
from rlx_edge.compile.targets.wasm import WasmTarget
from rlx_edge.ir.kernel import Kernel
from rlx_edge.ir.program import LaunchInfo


def _emit(kernels: Sequence[Kernel], target: WasmTarget, uses: Sequence[LaunchInfo]) -> Code:
    """The module walks its launch records itself and names kernels by what they compute."""
    del uses
    return Code(emit_module(kernels, target))


BACKEND = Backend(OFFERS, _emit)
