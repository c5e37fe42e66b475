"""Device memory that says who holds it, and what CUDA's errors mean for who asked."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress

from rlx_edge.gpu_workers.cuda.library import driver, reason, runtime
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.messages import failure

OUT_OF_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")
LOST = tuple(
    f"{prefix}{name}"
    for prefix, names in (
        (
            "cudaError",
            (
                *("IllegalAddress", "IllegalInstruction", "MisalignedAddress", "InvalidPc"),
                *("InvalidAddressSpace", "HardwareStackError", "LaunchFailure", "LaunchTimeout"),
                *("Assert", "ECCUncorrectable", "NvlinkUncorrectable", "DevicesUnavailable"),
                *("ContextIsDestroyed", "DeviceUninitialized", "Contained"),
            ),
        ),
        (
            "CUDA_ERROR_",
            (
                *("ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS", "INVALID_PC"),
                *("INVALID_ADDRESS_SPACE", "HARDWARE_STACK_ERROR", "LAUNCH_FAILED"),
                *("LAUNCH_TIMEOUT", "ASSERT", "ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE"),
                *("CONTEXT_IS_DESTROYED", "DEINITIALIZED", "CONTAINED"),
            ),
        ),
    )
    for name in names
)
"""Errors after which the process's context answers nothing but the same error."""

_LOCK = threading.Lock()
_HELD: list[DeviceMemory] = []
_PROCESS: list[int] = []


class DeviceMemory:
    """Bytes of one device, held by somebody with a name. The device is current."""

    def __init__(self, device: str, nbytes: int, holder: str) -> None:
        """``LimitError`` ``memory.grow`` where the device has not so much, else what
        ``device_error`` says."""
        self.device, self.nbytes, self.holder = device, nbytes, holder
        try:
            self.pointer = int(runtime().malloc(nbytes))
        except runtime().CUDARuntimeError as error:
            raise device_error(error, device, nbytes) from None
        with _LOCK:
            _HELD.append(self)
            _PROCESS[:] = [os.getpid()]

    def release(self) -> None:
        """Give it back; a lost device has nothing to give back any more."""
        with _LOCK:
            if self not in _HELD:
                return
            _HELD.remove(self)
        with suppress(runtime().CUDARuntimeError):
            runtime().free(self.pointer)

    def __str__(self) -> str:
        return f"{self.holder} holds memory ({self.nbytes} bytes on {self.device})"


def held() -> tuple[DeviceMemory, ...]:
    """What nobody gave back so far, oldest first."""
    with _LOCK:
        return tuple(_HELD)


def device_error(error: BaseException, device: str, nbytes: int = 0) -> RlxError:
    """What an error of CUDA means: ``memory.grow``, ``cuda.lost`` for a device that this process
    cannot use any more, else ``cuda.launch``. To be raised."""
    text = reason(error)
    name = text.partition(":")[0].strip()
    if name in OUT_OF_MEMORY:
        return failure("memory.grow", where=device, nbytes=nbytes)
    if name in LOST:
        return DeviceError(
            "cuda.lost",
            "the device was lost for this process",
            found=text,
            hint="start the process again",
            where=device,
        )
    return DeviceError("cuda.launch", "the device reports an error", found=text, where=device)


def errors() -> tuple[type[BaseException], ...]:
    """The exceptions that CuPy raises for the runtime and the driver."""
    return (runtime().CUDARuntimeError, driver().CUDADriverError)


def _at_exit() -> None:
    """Say what was still held; the children of a fork hold nothing of their own."""
    if _PROCESS and _PROCESS[0] == os.getpid():
        for memory in held():
            print(f"rlx: leak: {memory}", file=sys.stderr)


atexit.register(_at_exit)
