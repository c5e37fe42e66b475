"""Calling an exported function without per-call type reflection.

``wasmtime.Func.__call__`` asks for the function's type on every call (tens of microseconds). The
unchecked entry of the C API takes raw values in place; its caller must guarantee the signature,
which is why the type is checked once here, before the first call.
"""

from __future__ import annotations

import ctypes

import wasmtime
from wasmtime import _ffi as ffi

from rlx_edge.ir.errors import DeviceError


class FastCall:
    """``(i32, …) -> ()`` of one instance; arguments are set in place.

    The store must outlive it.
    """

    __slots__ = ("_context", "_func", "_raw", "_store", "_trap", "_trap_place")

    def __init__(self, store: wasmtime.Store, func: wasmtime.Func, parameters: int) -> None:
        """``DeviceError`` ``wasm.interface`` unless ``func`` takes that many i32 and gives none."""
        found = func.type(store)
        if [str(kind) for kind in found.params] != ["i32"] * parameters or found.results:
            raise DeviceError(
                "wasm.interface",
                "an exported function has another signature",
                found=f"({', '.join(str(kind) for kind in found.params)})"
                f" -> ({', '.join(str(kind) for kind in found.results)})",
                allowed=f"({', '.join(['i32'] * parameters)}) -> ()",
            )
        self._store = store
        self._context = store._context()
        self._func = ctypes.byref(func._func)
        self._raw = (ffi.wasmtime_val_raw_t * parameters)()
        self._trap = ctypes.POINTER(ffi.wasm_trap_t)()
        self._trap_place = ctypes.byref(self._trap)

    def __call__(self, *arguments: int) -> None:
        """Call with i32 arguments; ``wasmtime.Trap`` or ``WasmtimeError`` if it does not return."""
        raw = self._raw
        for position, value in enumerate(arguments):
            raw[position].i32 = value
        error = ffi.wasmtime_func_call_unchecked(
            self._context, self._func, raw, len(raw), self._trap_place
        )
        if error:
            raise wasmtime.WasmtimeError._from_ptr(error)
        if self._trap:
            trap = self._trap
            self._trap = ctypes.POINTER(ffi.wasm_trap_t)()
            self._trap_place = ctypes.byref(self._trap)
            raise wasmtime.Trap._from_ptr(trap)
