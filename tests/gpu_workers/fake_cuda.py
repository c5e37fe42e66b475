"""CuPy as far as the CUDA unit uses it, without a device: memory is counted, kernels do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlx_edge.gpu_workers.cuda import (
    compiler,
    device,
    libraries,
    library,
    memory,
    sharing,
    staging,
    unit,
)

MODULES = (compiler, device, libraries, library, memory, sharing, staging, unit)


class CudaError(Exception):
    """What CuPy raises: ``cudaErrorIllegalAddress: an illegal memory access was encountered``."""


class Stream:
    """Waits for nothing."""

    ptr = 1

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def synchronize(self) -> None:
        self.cuda.check("synchronize")


class FakeCuda:
    """``fault`` is ``(call, error)``: that call raises it. ``heap`` has the allocations."""

    def __init__(self, free: int = 1 << 30) -> None:
        self.heap: dict[int, int] = {}
        self.fault: tuple[str, str] | None = None
        self.free_bytes = free
        self.launches = 0
        self.registered: dict[int, int] = {}
        self.copies: list[tuple[int, int, int]] = []
        self.next = 1 << 20
        nvrtc = SimpleNamespace(
            NVRTCError=CudaError,
            getVersion=lambda: (13, 0),
            createProgram=lambda *words: "program",
            compileProgram=lambda *words: None,
            getProgramLog=lambda program: "",
            getCUBIN=lambda program: b"code",
            destroyProgram=lambda program: None,
        )
        module = SimpleNamespace(
            load=lambda code: None, get_function=lambda name: SimpleNamespace(ptr=7)
        )
        self.runtime = SimpleNamespace(
            CUDARuntimeError=CudaError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            memcpyDefault=4,
            hostRegister=self.register,
            hostUnregister=lambda pointer: self.registered.pop(pointer),
            malloc=self.malloc,
            free=self.free,
            memGetInfo=lambda: (self.free_bytes - sum(self.heap.values()), self.free_bytes),
            memcpyAsync=self.copy,
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda index: self.properties(),
            runtimeGetVersion=lambda: 13000,
        )
        self.driver = SimpleNamespace(CUDADriverError=CudaError, launchKernel=self.launch)
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(
                nvrtc=nvrtc,
                runtime=self.runtime,
                driver=self.driver,
                Device=lambda index: self.current(),
                Stream=lambda non_blocking: Stream(self),
                function=SimpleNamespace(Module=lambda: module),
                alloc_pinned_memory=lambda nbytes: np.zeros(nbytes, np.uint8),
            )
        )

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def check(self, call: str) -> None:
        if self.fault is not None and self.fault[0] == call:
            raise CudaError(self.fault[1])

    def register(self, pointer: int, nbytes: int, flags: int) -> None:
        self.check("hostRegister")
        self.registered[pointer] = nbytes

    def copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        self.check("memcpyAsync")
        self.copies.append((target, source, nbytes))

    def malloc(self, nbytes: int) -> int:
        self.check("malloc")
        self.next += nbytes
        self.heap[self.next] = nbytes
        return self.next

    def free(self, pointer: int) -> None:
        self.check("free")
        if pointer:
            del self.heap[pointer]

    def launch(self, *words: Any) -> None:
        self.check("launch")
        self.launches += 1

    def properties(self) -> dict[str, Any]:
        names = (
            *("multiProcessorCount", "totalGlobalMem", "sharedMemPerBlock", "warpSize"),
            *("sharedMemPerMultiprocessor", "regsPerBlock", "regsPerMultiprocessor"),
            *("maxThreadsPerBlock", "maxThreadsPerMultiProcessor", "l2CacheSize"),
            *("pciDomainID", "pciBusID", "pciDeviceID"),
        )
        return {
            "name": b"fake",
            "uuid": bytes(16),
            "major": 9,
            "minor": 0,
            **dict.fromkeys(names, 1),
        }


@contextmanager
def fake_cuda(**options: int) -> Iterator[FakeCuda]:
    """The CUDA workers on a device that is not there; none of its memory may be left."""
    fake = FakeCuda(**options)
    before = memory.held()
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            for name in ("cupy", "runtime", "driver"):
                if hasattr(module, name):
                    patch.setattr(module, name, partial(getattr, fake, name))
        patch.setattr(device, "_OPEN", {})
        patch.setattr(device, "_PROCESS", [])
        yield fake
        left = [item for item in memory.held() if item not in before]
    assert left == []
