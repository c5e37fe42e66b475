"""What every device offers to whoever runs a program on it.

A unit holds one loaded program for its whole life: a WebAssembly instance, CUDA kernels, Vulkan
pipelines. Its memory is one range of byte addresses that only grows.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.plan import MEMORY_LIMIT
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import DType
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.buffers import Bytes, Storage, memory_range

Array = npt.NDArray[Any]


class ExecutionUnit(Storage, Protocol):
    """One program on one device.

    Addresses and lengths are checked before use (``DeviceError`` ``memory.range``). A launch that
    fails is a ``DeviceError`` and leaves the unit unusable; after ``close`` every call is a
    ``DeviceError`` ``unit.closed``.
    """

    @property
    def device(self) -> str:
        """The device's name, such as ``wasm:0``."""
        ...

    @property
    def size(self) -> int:
        """Bytes of memory now."""
        ...

    @property
    def address_space(self) -> int:
        """Bytes that a program can address, whether there is so much memory or not."""
        ...

    def load(self, program: Program) -> None:
        """Make the kernels ready to launch; exactly once."""
        ...

    def grow(self, nbytes: int) -> None:
        """Have at least ``nbytes`` of memory; ``LimitError`` ``memory.limit`` if it cannot be."""
        ...

    def upload(self, address: int, data: Array) -> None:
        """Copy an array (any strides, little-endian or not) to ``address``, row-major."""
        ...

    def launch(self, begin: int, end: int) -> None:
        """Run launches ``begin`` to ``end`` (exclusive) of the loaded program."""
        ...

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        """A fresh array with the tensor at ``address``."""
        ...

    def synchronize(self) -> None:
        """Wait until everything launched has ended."""
        ...

    def close(self) -> None:
        """Release the device's resources; calling it again does nothing."""
        ...


class NullUnit:
    """A unit with memory and no kernels: it remembers launches and computes nothing."""

    def __init__(self, device: str = "null:0", limit: int = MEMORY_LIMIT) -> None:
        self.device = device
        self.limit = limit
        self.address_space = MEMORY_LIMIT
        self.launches: list[tuple[int, int]] = []
        self.program: Program | None = None
        self._memory: Bytes | None = np.zeros(0, np.uint8)

    @property
    def size(self) -> int:
        return len(self._bytes())

    def load(self, program: Program) -> None:
        self.program = program

    def grow(self, nbytes: int) -> None:
        if nbytes > self.limit:
            raise memory_limit(self.device, nbytes, self.limit)
        memory = self._bytes()
        if nbytes > len(memory):
            self._memory = np.concatenate([memory, np.zeros(nbytes - len(memory), np.uint8)])

    def upload(self, address: int, data: Array) -> None:
        copy_in(self, address, data)

    def launch(self, begin: int, end: int) -> None:
        self._bytes()
        self.launches.append((begin, end))

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        return copy_out(self, address, dtype, shape)

    def synchronize(self) -> None:
        self._bytes()

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
        self._memory = None

    def _bytes(self) -> Bytes:
        if self._memory is None:
            raise unit_closed(self.device)
        return self._memory


def copy_in(storage: Storage, address: int, data: Array) -> None:
    """``upload`` for memory that the host can address: one copy, whatever the strides."""
    target = storage.bytes_at(address, data.nbytes).view(data.dtype.newbyteorder("<"))
    np.copyto(target.reshape(data.shape), data)


def copy_out(storage: Storage, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
    """``download`` for memory that the host can address: one copy into a fresh array."""
    array = np.empty(shape, numpy_dtype(dtype))
    source = storage.bytes_at(address, array.nbytes)
    np.copyto(array, source.view(array.dtype).reshape(shape))
    return array


def memory_limit(device: str, nbytes: int, limit: int) -> RlxError:
    """The error for memory that cannot be had, to be raised."""
    return failure("memory.limit", where=device, nbytes=nbytes, limit=limit)


def unit_closed(device: str) -> RlxError:
    """The error for a use after ``close``, to be raised."""
    return failure("unit.closed", where=device)
