"""Placement on one device: every operation says where it runs, in which phase and how it is joined.

Constants and operations on constants alone run in phase ``compile`` (once, in prepare), storage is
reserved in ``dispatch``, all others run in ``execute``. On one queue program order suffices, so
``sync_mode`` is ``none`` but for the operations whose results the function returns: the host waits
for those. Values are stored as NCHW until ``layout`` decides. Contractions carry their precision
where it is not ``fixed``; one that they state already stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.compile.passes.graph import copy_module, is_constant
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.ir.attributes import FIXED, PRECISIONS
from rlx_edge.ir.core import Module, Op
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.ops import lookup

COMPILE = "compile"
DISPATCH = "dispatch"
EXECUTE = "execute"


@dataclass(frozen=True, slots=True)
class Place:
    """Give every operation ``device`` and every contraction ``precision``.

    ``DeviceError`` when that is not a device name, ``RlxError`` ``precision.name`` for a precision
    that there is not.
    """

    name: str = "place"
    device: str = "wasm:0"
    precision: str = FIXED

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        device = str(parse_device(self.device))
        check_precision(self.precision)
        function = module.function
        returned = set(function.returns)  # membership only
        for op in function.ops:
            blocking = any(result in returned for result in op.results)
            op.attrs["phase"] = phase_of(op)
            op.attrs["target_device_set"] = (device,)
            op.attrs.setdefault("memory_layout", "NCHW")
            if self.precision != FIXED and is_contraction(op):
                op.attrs.setdefault("precision", self.precision)
            op.attrs["sync_mode"] = "blocking" if blocking else "none"
            if log is not None:
                log.append(Applied(self.name, str(op), f"{op.attrs['phase']} on {device}"))
        return module


def is_contraction(op: Op) -> bool:
    """Whether ``op``, fused or not, has a precision."""
    return "contraction" in lookup(op.name).traits


def check_precision(precision: str) -> None:
    """``RlxError`` ``precision.name`` unless there is such a precision."""
    if precision not in PRECISIONS:
        raise RlxError(
            "precision.name", "unknown precision", found=precision, allowed=list(PRECISIONS)
        )


def phase_of(op: Op) -> str:
    """The phase that ``op`` has, or the one that its operands give it."""
    stated = op.attrs.get("phase")
    if isinstance(stated, str):
        return stated
    if op.name == "tensor::alloc":
        return DISPATCH
    return COMPILE if all(is_constant(result) for result in op.results) else EXECUTE
