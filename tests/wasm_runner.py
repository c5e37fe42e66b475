"""Runs one kernel of an emitted module under wasmtime, on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import wasmtime

PAGE = 65536
FENCE = 64
"""Bytes between buffers; they must keep their contents."""


@cache
def engine() -> wasmtime.Engine:
    config = wasmtime.Config()
    config.cranelift_opt_level = "speed"
    return wasmtime.Engine(config)


class Module:
    """An instance of emitted bytes with its memory as a numpy array."""

    def __init__(self, wasm: bytes, pages: int = 64) -> None:
        self.store = wasmtime.Store(engine())
        exports = wasmtime.Instance(self.store, wasmtime.Module(engine(), wasm), []).exports(
            self.store
        )
        memory, run = exports["memory"], exports["run"]
        assert isinstance(memory, wasmtime.Memory) and isinstance(run, wasmtime.Func)
        self.memory, self._run = memory, run
        self.memory.grow(self.store, pages - self.memory.size(self.store))

    @property
    def bytes(self) -> np.ndarray:
        pointer = self.memory.get_buffer_ptr(self.store)
        return np.frombuffer(pointer, np.uint8)

    def run(self, block: int, begin: int, end: int) -> None:
        self._run(self.store, block, begin, end, 0)


def run_kernel(
    wasm: bytes, kernel: int, buffers: Sequence[np.ndarray], parameters: Sequence[int]
) -> np.ndarray:
    """What the kernel leaves in ``buffers[0]``; fails if it writes anywhere else.

    The last buffer ends where the memory ends, so reading past it traps.
    """
    sizes = [array.nbytes for array in buffers]
    words = 2 + len(buffers) + len(parameters)
    need = 4 * words + sum(size + FENCE + 16 for size in sizes) + PAGE
    module = Module(wasm, -(-need // PAGE))
    memory = module.bytes
    memory[:] = 0xA5
    addresses: list[int] = [0] * len(buffers)
    end = len(memory)
    for position in range(len(buffers) - 1, -1, -1):
        alignment = max(buffers[position].itemsize, 1)
        addresses[position] = (end - sizes[position]) // alignment * alignment
        end = addresses[position] - FENCE
    for array, address in zip(buffers, addresses, strict=True):
        memory[address : address + array.nbytes] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )
    record = np.array([kernel, *addresses, *parameters], np.int64).astype(np.uint32)
    memory[16 : 16 + record.nbytes] = record.view(np.uint8)
    memory[8:12] = np.array([16], np.uint32).view(np.uint8)
    before = memory.copy()
    module.run(4, 1, 2)
    first, last = addresses[0], addresses[0] + sizes[0]
    result = memory[first:last].copy()
    memory[first:last] = before[first:last]
    changed = np.flatnonzero(memory != before)
    assert changed.size == 0, f"bytes outside the output changed, first at {changed[:4]}"
    return result.view(buffers[0].dtype).reshape(buffers[0].shape)
