"""A CUDA device that fails: the error's kind, and that its memory goes back."""

# covers R22, R23, R30

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rlx_edge.compile import CudaTarget, compile_module
from rlx_edge.gpu_workers.cuda import memory
from rlx_edge.gpu_workers.cuda.device import open_device
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.runner import ProgramRunner
from tests.gpu_workers.fake_cuda import FakeCuda, fake_cuda
from tests.two_devices import small_module

ILLEGAL = "cudaErrorIllegalAddress: an illegal memory access was encountered"
MEMORY = "cudaErrorMemoryAllocation: out of memory"


def run(cuda: FakeCuda) -> None:
    """One run of a small program, everything closed afterwards."""
    compiled = compile_module(small_module(), CudaTarget("sm_90"), device="cuda:0")
    context, unit = DeviceContext("cuda:0"), CudaUnit()
    try:
        runner = ProgramRunner(compiled.program, {}, unit, context)
        try:
            runner.run([np.zeros(8, np.float32)], {"n": 8})
        finally:
            runner.close()
    finally:
        unit.close()
        context.close()


def test_a_run_leaves_nothing() -> None:
    with fake_cuda() as cuda:
        run(cuda)
        assert cuda.launches == 1 and cuda.heap == {}


@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        ("launch", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", "cuda.lost"),
        ("launch", "CUDA_ERROR_INVALID_VALUE: invalid argument", "cuda.launch"),
        ("launch", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "memory.grow"),
        ("synchronize", ILLEGAL, "cuda.lost"),
        ("memcpyAsync", "cudaErrorECCUncorrectable: uncorrectable ECC error", "cuda.lost"),
        ("malloc", MEMORY, "memory.grow"),
        ("malloc", ILLEGAL, "cuda.lost"),
    ],
)
def test_failures_have_a_kind_and_leave_nothing(call: str, error: str, code: str) -> None:
    with fake_cuda() as cuda:
        open_device(0)
        cuda.fault = (call, error)
        with pytest.raises(RlxError) as caught:
            run(cuda)
        assert caught.value.code == code and "\n" not in str(caught.value)
        assert cuda.heap == {}
        cuda.fault = None
        run(cuda)  # the next unit works
        assert cuda.heap == {}


def test_a_lost_device_may_refuse_to_take_memory_back() -> None:
    with fake_cuda() as cuda:
        compiled = compile_module(small_module(), CudaTarget("sm_90"), device="cuda:0")
        unit = CudaUnit()
        unit.load(compiled.program)
        unit.grow(1 << 12)
        for call in ("synchronize", "free"):
            cuda.fault = (call, ILLEGAL)
        unit.close()  # says nothing: there is nothing to be done


def test_memory_that_the_device_has_not() -> None:
    with fake_cuda(free=1 << 16) as cuda:
        compiled = compile_module(small_module(), CudaTarget("sm_90"), device="cuda:0")
        unit = CudaUnit()
        unit.load(compiled.program)
        with pytest.raises(RlxError) as caught:
            unit.grow(1 << 20)
        assert caught.value.code == "memory.limit" and cuda.heap == {}
        unit.grow(1 << 12)  # the unit still works
        unit.close()


def test_a_device_that_cannot_be_opened() -> None:
    with fake_cuda() as cuda:
        cuda.fault = ("free", "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy")
        with pytest.raises(DeviceError) as caught:
            open_device(0)
        assert caught.value.code == "cuda.lost" and "busy" in str(caught.value)


def test_a_leak_is_named_at_shutdown() -> None:
    code = (
        "from tests.gpu_workers.fake_cuda import FakeCuda\n"
        "from rlx_edge.gpu_workers.cuda import memory\n"
        "cuda = FakeCuda()\n"
        "memory.runtime = lambda: cuda.runtime\n"
        "kept = memory.DeviceMemory('cuda:0', 4096, 'the forgetful test')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "rlx: leak: the forgetful test holds memory (4096 bytes on cuda:0)" in done.stderr
    clean = code + "kept.release()\nkept.release()\n"
    done = subprocess.run(
        [sys.executable, "-c", clean], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_lost_error_is_spelled_in_both_ways() -> None:
    runtime = [name for name in memory.LOST if name.startswith("cudaError")]
    assert len(runtime) > 10 and len(memory.LOST) - len(runtime) > 10
