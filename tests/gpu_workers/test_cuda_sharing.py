"""CUDA's ways into other memory, without a device: what is registered, copied and given up."""

# covers R27

from __future__ import annotations

import numpy as np
import pytest

from rlx_edge.compile import CudaTarget, compile_module
from rlx_edge.gpu_workers.cuda.sharing import ArenaReach
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.errors import DeviceError
from rlx_edge.runtime.carriers import carrier
from rlx_edge.runtime.units import NullUnit
from tests.gpu_workers.fake_cuda import fake_cuda
from tests.two_devices import small_module


def loaded() -> CudaUnit:
    compiled = compile_module(small_module(), CudaTarget("sm_90"), device="cuda:0")
    unit = CudaUnit()
    unit.load(compiled.program)
    unit.grow(1 << 12)
    return unit


def test_a_host_arena_is_registered_once_and_copied_without_staging() -> None:
    with fake_cuda() as cuda:
        unit, host = loaded(), NullUnit("cpu:0")
        host.grow(1 << 10)
        base = int(host.bytes_at(0, 1).ctypes.data)
        there, back = carrier(host, unit), carrier(unit, host)
        assert there.name == back.name == "shared_arena" and there.pulls and not back.pulls
        there.move(64, 256, 32)
        there.move(96, 256, 32)
        back.move(256, 128, 16)
        assert cuda.copies == [
            (unit.pointer + 256, base + 64, 32),
            (unit.pointer + 256, base + 96, 32),
            (base + 128, unit.pointer + 256, 16),
        ]
        host.grow(1 << 12)  # lies elsewhere now
        moved = int(host.bytes_at(0, 1).ctypes.data)
        there.move(64, 256, 32)
        assert cuda.copies[-1][1] == moved + 64 and cuda.registered[moved] == 1 << 12
        with pytest.raises(DeviceError):
            there.move(0, 1 << 12, 1)
        there.close()
        back.close()
        assert cuda.registered == {}
        unit.close()


def test_memory_that_cannot_be_registered_is_copied() -> None:
    with fake_cuda() as cuda:
        unit, host = loaded(), NullUnit("cpu:0")
        assert carrier(host, unit).name == "copy"  # it has no memory yet
        host.grow(1 << 10)
        cuda.fault = ("hostRegister", "cudaErrorNotSupported: operation not supported")
        assert carrier(host, unit).name == "copy"
        host.upload(0, np.arange(8, dtype=np.uint8))
        cuda.fault = None
        assert isinstance(carrier(host, unit).reach, ArenaReach)
        unit.close()
