"""The compiler: graph passes, lowering, planning and code generation. Standard library only.

The names below are imported on first use: a page that only needs one part does not load the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx_edge.compile.backends import Assembler as Assembler
    from rlx_edge.compile.backends import precisions as precisions
    from rlx_edge.compile.codegen.spirv.entries import single_entries as single_entries
    from rlx_edge.compile.compiler import CompiledModule as CompiledModule
    from rlx_edge.compile.compiler import compile_module as compile_module
    from rlx_edge.compile.compiler import compile_part as compile_part
    from rlx_edge.compile.compiler import compile_placed as compile_placed
    from rlx_edge.compile.compiler import is_placed as is_placed
    from rlx_edge.compile.compiler import place_module as place_module
    from rlx_edge.compile.targets.cuda import CudaTarget as CudaTarget
    from rlx_edge.compile.targets.vulkan import Matrices as Matrices
    from rlx_edge.compile.targets.vulkan import VulkanTarget as VulkanTarget
    from rlx_edge.compile.targets.wasm import WasmTarget as WasmTarget

__all__ = [
    "Assembler",
    "CompiledModule",
    "CudaTarget",
    "Matrices",
    "VulkanTarget",
    "WasmTarget",
    "compile_module",
    "compile_part",
    "compile_placed",
    "is_placed",
    "place_module",
    "precisions",
    "single_entries",
]

_LAZY = {
    "Assembler": "rlx_edge.compile.backends",
    "CompiledModule": "rlx_edge.compile.compiler",
    "CudaTarget": "rlx_edge.compile.targets.cuda",
    "Matrices": "rlx_edge.compile.targets.vulkan",
    "VulkanTarget": "rlx_edge.compile.targets.vulkan",
    "WasmTarget": "rlx_edge.compile.targets.wasm",
    "compile_module": "rlx_edge.compile.compiler",
    "compile_part": "rlx_edge.compile.compiler",
    "compile_placed": "rlx_edge.compile.compiler",
    "is_placed": "rlx_edge.compile.compiler",
    "place_module": "rlx_edge.compile.compiler",
    "precisions": "rlx_edge.compile.backends",
    "single_entries": "rlx_edge.compile.codegen.spirv.entries",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'rlx_edge.compile' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
