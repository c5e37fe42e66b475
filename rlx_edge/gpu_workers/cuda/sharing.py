"""CUDA's ways into other memory: host arenas that are registered, memory that Vulkan exports."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rlx_edge.gpu_workers.cuda.device import open_device
from rlx_edge.gpu_workers.cuda.library import runtime
from rlx_edge.gpu_workers.cuda.memory import errors
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.runtime.carriers import EXTERNAL_MEMORY, SHARED_ARENA, Reach
from rlx_edge.runtime.units import ExecutionUnit

if TYPE_CHECKING:
    from rlx_edge.gpu_workers.cuda.unit import CudaUnit

OPAQUE_FD = 1
"""CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD"""


@runtime_checkable
class Exporting(Protocol):
    """A unit whose driver lets others import its memory."""

    @property
    def uuid(self) -> bytes:
        """Of the physical device, 16 bytes."""
        ...

    def exported(self) -> tuple[int, int, int] | None:
        """``(file, bytes, generation)`` of the memory now; the caller closes the file. ``None``
        where the driver exports nothing. Memory that grows has another generation."""
        ...

    @property
    def generation(self) -> int: ...


def reach(unit: CudaUnit, other: ExecutionUnit) -> Reach | None:
    """The way from a CUDA unit into ``other``, which is loaded; tried out before it is offered."""
    ways: list[ExternalReach | ArenaReach] = []
    if isinstance(other, Exporting) and other.uuid == device_uuid(unit):
        ways.append(ExternalReach(unit, other))
    ways.append(ArenaReach(unit, other))
    refusals: tuple[type[BaseException], ...] = (RlxError, OSError, *errors())
    for way in ways:
        try:
            way.address(0)
            return way
        except refusals:
            way.close()
    return None


def device_uuid(unit: CudaUnit) -> bytes:
    """Of the unit's physical device, 16 bytes."""
    return bytes.fromhex(open_device(unit.index).properties.uuid)


class _Reach:
    """Copies between device memory and an address that the device can use."""

    name = ""

    def __init__(self, unit: CudaUnit) -> None:
        self.unit = unit

    def address(self, other: int) -> int:
        """What the device calls an address of the other memory."""
        raise NotImplementedError

    def pull(self, other: int, own: int, nbytes: int) -> None:
        self.unit.require(own, nbytes)
        self.unit.copy(self.unit.pointer + own, self.address(other), nbytes)

    def push(self, own: int, other: int, nbytes: int) -> None:
        self.unit.require(own, nbytes)
        self.unit.copy(self.address(other), self.unit.pointer + own, nbytes)


class ArenaReach(_Reach):
    """A host arena, registered with the driver: copies run at the bus's speed, without staging."""

    name = SHARED_ARENA

    def __init__(self, unit: CudaUnit, other: ExecutionUnit) -> None:
        super().__init__(unit)
        self.other = other
        self._held = 0

    def address(self, other: int) -> int:
        """``DeviceError`` ``memory.host`` where the host cannot address the memory."""
        size = self.other.size
        if not size:
            raise DeviceError("memory.host", "there is no memory yet", where=self.other.device)
        base = int(self.other.bytes_at(0, size).ctypes.data)
        with self.unit.current():
            if self._held != base:  # memory that grew may lie elsewhere
                self.close()
                _ARENAS.hold(base)
                self._held = base
            _ARENAS.cover(base, size)
        return base + other

    def close(self) -> None:
        if self._held:
            with self.unit.current():
                _ARENAS.let_go(self._held)
        self._held = 0


class _Arenas:
    """Host memory that is registered, once for all who hold it: a range cannot be twice."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._holders: dict[int, int] = {}
        self._lock = threading.Lock()

    def hold(self, base: int) -> None:
        with self._lock:
            self._holders[base] = self._holders.get(base, 0) + 1

    def cover(self, base: int, size: int) -> None:
        """Have ``size`` bytes registered."""
        with self._lock:
            if self._sizes.get(base, 0) < size:
                self._unregister(base)
                runtime().hostRegister(base, size, 0)
                self._sizes[base] = size

    def let_go(self, base: int) -> None:
        with self._lock:
            self._holders[base] -= 1
            if not self._holders[base]:
                del self._holders[base]
                self._unregister(base)

    def _unregister(self, base: int) -> None:
        if self._sizes.pop(base, 0):
            with suppress(*errors()):
                runtime().hostUnregister(base)


_ARENAS = _Arenas()


class _Handle(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC"""

    _fields_ = (
        ("type", ctypes.c_uint),
        ("pad", ctypes.c_uint),
        ("fd", ctypes.c_int),
        ("rest", ctypes.c_uint * 3),
        ("size", ctypes.c_ulonglong),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 17),
    )


class _Range(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC"""

    _fields_ = (
        ("offset", ctypes.c_ulonglong),
        ("size", ctypes.c_ulonglong),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 17),
    )


class ExternalReach(_Reach):
    """Memory of another driver on the same device, imported: copies stay on the device."""

    name = EXTERNAL_MEMORY

    def __init__(self, unit: CudaUnit, other: Exporting) -> None:
        super().__init__(unit)
        self.other = other
        self._memory = ctypes.c_void_p()
        self._pointer = 0
        self._generation = -1

    def address(self, other: int) -> int:
        if self._generation != self.other.generation:
            self.close()
            self._import()
        return self._pointer + other

    def _import(self) -> None:
        exported = self.other.exported()
        if exported is None:
            raise DeviceError("memory.export", "the driver exports no memory")
        file, nbytes, generation = exported
        library = ctypes.CDLL("libcuda.so.1")  # CuPy has it open
        with self.unit.current():
            handle = _Handle(type=OPAQUE_FD, fd=file, size=nbytes)
            code = library.cuImportExternalMemory(ctypes.byref(self._memory), ctypes.byref(handle))
            if code:
                os.close(file)  # only an import that succeeds takes it over
                raise DeviceError("memory.export", "CUDA does not import it", found=f"error {code}")
            pointer = ctypes.c_ulonglong()
            whole = _Range(offset=0, size=nbytes)
            code = library.cuExternalMemoryGetMappedBuffer(
                ctypes.byref(pointer), self._memory, ctypes.byref(whole)
            )
            if code:
                self.close()
                raise DeviceError("memory.export", "CUDA does not map it", found=f"error {code}")
        self._pointer, self._generation = int(pointer.value), generation

    def close(self) -> None:
        if self._pointer:
            with suppress(*errors()), self.unit.current():
                runtime().free(self._pointer)
        if self._memory.value:
            with self.unit.current():
                ctypes.CDLL("libcuda.so.1").cuDestroyExternalMemory(self._memory)
        self._memory = ctypes.c_void_p()
        self._pointer, self._generation = 0, -1
