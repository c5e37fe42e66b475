"""Tensor buffers, the device contexts that own them, and the proof that nothing is left.

A ``DeviceContext`` knows every buffer of one device. A ``TensorBuffer`` is one counted handle on
an allocation, with a holder's name; sharing adds a handle, and the storage goes back when the last
one is released. Moving a buffer invalidates the source, so two devices never both seem to own the
bytes. ``close`` of a context names whoever still holds something.

Not thread-safe: a context is used under the lock of whoever owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.types import DType
from rlx_edge.runtime.arrays import numpy_dtype

Bytes = npt.NDArray[np.uint8]


class Storage(Protocol):
    """Memory that allocations lie in."""

    def require(self, address: int, nbytes: int) -> None:
        """``DeviceError`` ``memory.range`` unless these bytes are inside."""
        ...

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        """A writable view of these bytes; ``DeviceError`` ``memory.range`` outside,
        ``memory.host`` where the host cannot address the memory."""
        ...

    def free(self, address: int, nbytes: int) -> None:
        """Take an allocation back. Nothing to do where a memory plan decides places."""
        ...


class HostStorage:
    """One allocation in the process's own memory, 64-byte aligned."""

    def __init__(self, nbytes: int) -> None:
        block = np.zeros(nbytes + 64, np.uint8)
        start = -block.ctypes.data % 64
        self._bytes: Bytes | None = block[start : start + nbytes]

    def require(self, address: int, nbytes: int) -> None:
        self.bytes_at(address, nbytes)

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        if self._bytes is None or address < 0 or address + nbytes > len(self._bytes):
            raise memory_range(address, nbytes, 0 if self._bytes is None else len(self._bytes))
        return self._bytes[address : address + nbytes]

    def free(self, address: int, nbytes: int) -> None:
        self._bytes = None


def memory_range(address: int, nbytes: int, size: int) -> RlxError:
    """The error for an access outside a device's memory, to be raised."""
    return failure("memory.range", nbytes=nbytes, address=address, size=size)


@dataclass(slots=True)
class _Allocation:
    storage: Storage
    address: int
    nbytes: int
    handles: int = 0


@dataclass(frozen=True, slots=True)
class Leak:
    """A buffer that was never released: who holds it, and what it is."""

    holder: str
    device: str
    address: int
    nbytes: int
    name: str

    def __str__(self) -> str:
        return f"{self.holder} holds {self.name} ({self.nbytes} bytes at {self.address})"


class TensorBuffer:
    """A counted handle on a tensor in one device's memory; made by a ``DeviceContext``.

    After ``release`` or ``move`` every use is a ``DeviceError`` (``buffer.released``,
    ``buffer.moved``).
    """

    __slots__ = ("_allocation", "_gone", "context", "dtype", "holder", "name", "shape")

    def __init__(
        self,
        context: DeviceContext,
        allocation: _Allocation,
        dtype: DType,
        shape: tuple[int, ...],
        name: str,
        holder: str,
    ) -> None:
        self.context = context
        self.dtype = dtype
        self.shape = shape
        self.name = name
        self.holder = holder
        self._allocation = allocation
        self._gone = ""
        allocation.handles += 1

    @property
    def device(self) -> str:
        """The device whose memory this is."""
        return self.context.device

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * self.dtype.bytes

    @property
    def address(self) -> int:
        """Byte address in the device's memory."""
        return self._use().address

    @property
    def handles(self) -> int:
        """How many handles share the allocation, this one included."""
        return self._use().handles

    def view(self) -> npt.NDArray[Any]:
        """The tensor itself, writable, without a copy."""
        allocation = self._use()
        data = allocation.storage.bytes_at(allocation.address, self.nbytes)
        return data.view(numpy_dtype(self.dtype)).reshape(self.shape)

    def share(self, holder: str) -> TensorBuffer:
        """Another handle on the same bytes, held by ``holder``."""
        return self.context.track(
            TensorBuffer(self.context, self._use(), self.dtype, self.shape, self.name, holder)
        )

    def release(self) -> None:
        """Give this handle up; the last one frees the storage."""
        allocation = self._use()
        self._gone = "released"
        self.context.forget(self)
        allocation.handles -= 1
        if allocation.handles == 0:
            allocation.storage.free(allocation.address, allocation.nbytes)

    def move(self, target: TensorBuffer) -> TensorBuffer:
        """Copy into ``target`` (same type, other allocation) and invalidate this buffer.

        ``DeviceError`` ``buffer.shared`` while others share the source, ``buffer.type`` if the
        types differ; the source stays valid then.
        """
        allocation = self._use()
        if allocation.handles > 1:
            raise DeviceError(
                "buffer.shared",
                f"cannot move {self.name}: it is shared",
                found=[buffer.holder for buffer in self.context.sharing(allocation)],
                allowed="one holder",
                where=self.device,
            )
        if (target.dtype, target.shape) != (self.dtype, self.shape):
            raise DeviceError(
                "buffer.type",
                f"cannot move {self.name} into a buffer of another type",
                found=f"{target.dtype}{list(target.shape)}",
                allowed=f"{self.dtype}{list(self.shape)}",
            )
        if target._use() is allocation:
            raise DeviceError("buffer.self", f"cannot move {self.name} onto itself")
        np.copyto(target.view(), self.view())
        self.release()
        self._gone = "moved"
        return target

    def shares(self, allocation: _Allocation) -> bool:
        """Whether this is a handle on ``allocation``."""
        return not self._gone and self._allocation is allocation

    def _use(self) -> _Allocation:
        if self._gone:
            raise DeviceError(
                f"buffer.{self._gone}",
                f"{self.name} was {self._gone} and cannot be used any more",
                where=self.device,
            )
        return self._allocation


class DeviceContext:
    """Owner of every buffer of one device.

    ``allocate`` makes storage of a size; a device whose places come from a memory plan has none
    and only ``adopt``s.
    """

    def __init__(self, device: str, allocate: Callable[[int], Storage] | None = None) -> None:
        self.device = device
        self._allocate = allocate
        self._buffers: dict[int, TensorBuffer] = {}
        self._closed = False

    def __iter__(self) -> Iterator[TensorBuffer]:
        """The live handles, oldest first."""
        return iter(list(self._buffers.values()))

    def allocate(
        self, dtype: DType, shape: tuple[int, ...], *, name: str, holder: str
    ) -> TensorBuffer:
        """A new buffer of its own, zeroed."""
        if self._allocate is None:
            raise DeviceError(
                "buffer.allocate",
                "this device places tensors by its memory plan only",
                where=self.device,
            )
        storage = self._allocate(prod(shape) * dtype.bytes)
        return self.adopt(storage, 0, dtype, shape, name=name, holder=holder)

    def adopt(
        self,
        storage: Storage,
        address: int,
        dtype: DType,
        shape: tuple[int, ...],
        *,
        name: str,
        holder: str,
    ) -> TensorBuffer:
        """A buffer at a place that is already reserved for it."""
        self._open()
        allocation = _Allocation(storage, address, prod(shape) * dtype.bytes)
        storage.require(address, allocation.nbytes)
        return self.track(TensorBuffer(self, allocation, dtype, shape, name, holder))

    def track(self, buffer: TensorBuffer) -> TensorBuffer:
        """Count ``buffer`` among the live handles."""
        self._open()
        self._buffers[id(buffer)] = buffer
        return buffer

    def forget(self, buffer: TensorBuffer) -> None:
        """``buffer`` is no longer a live handle."""
        self._buffers.pop(id(buffer), None)

    def sharing(self, allocation: _Allocation) -> list[TensorBuffer]:
        """The live handles on ``allocation``, oldest first."""
        return [buffer for buffer in self if buffer.shares(allocation)]

    def leaks(self) -> list[Leak]:
        """What is still held, oldest first."""
        return [
            Leak(buffer.holder, self.device, buffer.address, buffer.nbytes, buffer.name)
            for buffer in self
        ]

    def end(self) -> list[Leak]:
        """End the context and release what is still held, which is returned."""
        leaks = self.leaks()
        for buffer in self:
            buffer.release()
        self._closed = True
        return leaks

    def close(self) -> None:
        """End the context. ``DeviceError`` ``device.leak`` names every holder that is left; the
        buffers are released all the same."""
        leaks = self.end()
        if leaks:
            raise DeviceError(
                "device.leak",
                f"{len(leaks)} buffers were still held when the device was closed",
                found=leaks,
                allowed="none",
                where=self.device,
            )

    def _open(self) -> None:
        if self._closed:
            raise DeviceError("device.closed", "the device was closed", where=self.device)


def host_context() -> DeviceContext:
    """A context over the process's own memory."""
    return DeviceContext("host", HostStorage)
