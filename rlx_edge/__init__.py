"""rlx-edge: ONNX models through one text IR to WebAssembly, CUDA and Vulkan kernels.

Importing this package loads nothing else: the names below are imported on first use, so that
`rlx_edge.ir` and `rlx_edge.compile` stay importable where only the standard library exists.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlx_edge.ir.errors import RlxError as RlxError
    from rlx_edge.session import InferenceSession as InferenceSession

__version__ = "0.1.0"

__all__ = ["InferenceSession", "RlxError", "__version__"]

# Public name -> the module that defines it.
_LAZY = {
    "InferenceSession": "rlx_edge.session",
    "RlxError": "rlx_edge.ir.errors",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'rlx_edge' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
