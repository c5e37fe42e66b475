"""A program on wasmtime: one instance, its linear memory, and launches.

The module exports its ``memory`` and ``run(block, begin, end, thread)`` and imports nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import wasmtime

from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.plan import MEMORY_LIMIT
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import DType
from rlx_edge.runtime.buffers import Bytes, memory_range
from rlx_edge.runtime.units import Array, copy_in, copy_out, memory_limit, unit_closed
from rlx_edge.wasm_runtime.engine import EPOCH_SECONDS, engine, interruptible_engine
from rlx_edge.wasm_runtime.fast_call import FastCall
from rlx_edge.wasm_runtime.module_cache import ModuleCache, compile_module

PAGE = 1 << 16
THREAD = 0
"""The number of the only thread."""


class _Instance:
    """Everything that lives as long as the instance."""

    __slots__ = ("block", "memory", "run", "store")

    def __init__(self, store: wasmtime.Store, module: wasmtime.Module, block: int) -> None:
        self.store = store
        try:
            exports = wasmtime.Instance(store, module, []).exports(store)
        except wasmtime.Trap as trap:
            raise trapped(trap) from None
        except wasmtime.WasmtimeError as error:
            raise failure("wasm.instance", reason=first_line(error)) from None
        self.memory: wasmtime.Memory = _export(exports, "memory", wasmtime.Memory)
        self.run = FastCall(store, _export(exports, "run", wasmtime.Func), 4)
        self.block = block


class _MemoryBytes:
    """The linear memory as numpy sees it. A view keeps the store, and so the memory, alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, instance: _Instance) -> None:
        size = instance.memory.data_len(instance.store)
        pointer = instance.memory.data_ptr(instance.store)
        address = ctypes.addressof(pointer.contents) if size else 0
        self.owner = instance.store
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
        }


class WasmUnit:
    """``ExecutionUnit`` over wasmtime; ``device`` is the name in messages and traces.

    With ``seconds`` a launch that takes longer traps (``LimitError`` ``run.timeout``); its code is
    compiled afresh, with a check in every loop, and not cached.

    Calls release the interpreter lock. A unit is used by one thread at a time.
    """

    def __init__(
        self,
        device: str = "wasm:0",
        cache: ModuleCache | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        self.device = device
        self._seconds = seconds
        self._cache = ModuleCache() if cache is None else cache
        self._instance: _Instance | None = None
        self._memory: Bytes | None = None
        self._state = "empty"

    @property
    def size(self) -> int:
        return len(self._bytes())

    @property
    def address_space(self) -> int:
        return MEMORY_LIMIT

    def load(self, program: Program) -> None:
        """``DeviceError``: ``wasm.invalid``, ``wasm.instance``, ``wasm.interface``."""
        if self._state != "empty":
            raise (
                unit_closed(self.device)
                if self._state == "closed"
                else DeviceError("unit.loaded", "the unit has a program already", where=self.device)
            )
        if self._seconds is None:
            store, module = wasmtime.Store(engine()), self._cache.module(program.code)
        else:
            store = wasmtime.Store(interruptible_engine())
            store.set_epoch_deadline(_epochs(self._seconds))
            module = compile_module(program.code, interruptible_engine())
        self._instance = _Instance(store, module, program.plan.block_address)
        self._take_view()
        self._state = "ready"

    def grow(self, nbytes: int) -> None:
        instance = self._use()
        missing = -(-nbytes // PAGE) - self.size // PAGE
        if missing <= 0:
            return
        if nbytes > MEMORY_LIMIT:
            raise memory_limit(self.device, nbytes, MEMORY_LIMIT)
        try:
            instance.memory.grow(instance.store, missing)
        except wasmtime.WasmtimeError:
            raise failure("memory.grow", where=self.device, nbytes=nbytes) from None
        self._take_view()

    def upload(self, address: int, data: Array) -> None:
        copy_in(self, address, data)

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        return copy_out(self, address, dtype, shape)

    def launch(self, begin: int, end: int) -> None:
        instance = self._use()
        if self._seconds is not None:
            instance.store.set_epoch_deadline(_epochs(self._seconds))
        try:
            instance.run(instance.block, begin, end, THREAD)
        except wasmtime.Trap as trap:
            self._state = "failed"
            if trap.trap_code is wasmtime.TrapCode.INTERRUPT:
                raise failure("run.timeout", seconds=f"{self._seconds:g}") from None
            raise trapped(trap) from None

    def synchronize(self) -> None:
        """Launches return when they have ended: nothing to wait for."""
        self._use()

    def require(self, address: int, nbytes: int) -> None:
        self.bytes_at(address, nbytes)

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        memory = self._bytes()
        if address < 0 or nbytes < 0 or address + nbytes > len(memory):
            raise memory_range(address, nbytes, len(memory))
        return memory[address : address + nbytes]

    def free(self, address: int, nbytes: int) -> None:
        """Places come from the memory plan: nothing to take back."""

    def close(self) -> None:
        """Drop instance and memory; views that are still held keep the memory alive."""
        self._state = "closed"
        self._instance = self._memory = None

    def _bytes(self) -> Bytes:
        self._use()
        assert self._memory is not None
        return self._memory

    def _use(self) -> _Instance:
        if self._instance is None:
            raise (
                unit_closed(self.device)
                if self._state == "closed"
                else DeviceError("unit.empty", "no program is loaded", where=self.device)
            )
        if self._state == "failed":
            raise failure("unit.failed", where=self.device)
        return self._instance

    def _take_view(self) -> None:
        assert self._instance is not None
        self._memory = np.asarray(_MemoryBytes(self._instance))


def _epochs(seconds: float) -> int:
    return max(1, round(seconds / EPOCH_SECONDS)) + 1


def trapped(trap: wasmtime.Trap) -> RlxError:
    """The error for a trap: its reason and the innermost function that has a name."""
    code = trap.trap_code
    reason = first_line(trap) if code is None else code.name.lower().replace("_", " ")
    name = next((frame.func_name for frame in trap.frames if frame.func_name), None)
    found = reason if name is None else f"{reason} in the function {name}"
    return failure("wasm.trap", reason=found)


def first_line(error: Exception) -> str:
    """The reason without the backtrace."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _export(exports: Any, name: str, kind: type[Any]) -> Any:
    found = exports.get(name)
    if not isinstance(found, kind):
        found_names = ", ".join(exports) or "no exports"
        raise failure("wasm.interface", kind=kind.__name__.lower(), name=name, exports=found_names)
    return found
