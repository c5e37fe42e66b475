"""The Vulkan unit on the device at hand: its life, its memory, what it records, what it refuses."""

# covers R21, R22, R23

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.compile import VulkanTarget, compile_module
from rlx_edge.compile.codegen.spirv.emit import emit_module
from rlx_edge.compile.compiler import CompiledModule
from rlx_edge.gpu_workers.vulkan import context as context_module
from rlx_edge.gpu_workers.vulkan import provider
from rlx_edge.gpu_workers.vulkan.context import DeviceBuffer, VulkanContext, context
from rlx_edge.gpu_workers.vulkan.physical import devices
from rlx_edge.gpu_workers.vulkan.unit import VulkanUnit
from rlx_edge.ir.errors import DeviceError, RlxError
from rlx_edge.ir.ops import OPS
from rlx_edge.ir.types import F32, U8
from rlx_edge.model_source import open_source
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.feeds import FeedChecker
from rlx_edge.runtime.runner import ProgramRunner
from tests import sample_inputs
from tests.compile.codegen.test_emit import KERNELS
from tests.ir.op_cases import SIZES, run_example, sample
from tests.oracles import Oracle, assert_close, same_bits
from tests.vulkan_host import (
    BLOCK,
    VARIANTS,
    compiled_example,
    hand_made,
    opened,
    run_compiled,
    validate,
)

ModelFile = Callable[[str], Path]


@pytest.fixture
def owner() -> Iterator[VulkanContext]:
    with opened() as found:
        yield found


def code_of(error: pytest.ExceptionInfo[RlxError]) -> str:
    return error.value.code


# ---- operators -----------------------------------------------------------------------------------

EXAMPLES = [
    pytest.param(name, example, id=f"{name.removeprefix('rlxc::')}-{example.name}")
    for name, definition in OPS.items()
    if name.startswith("rlxc::")
    for example in definition.examples
]


@pytest.fixture(scope="module", params=["as it is", "descriptor", "adreno"])
def any_owner(request: pytest.FixtureRequest) -> Iterator[VulkanContext]:
    with opened(**VARIANTS[request.param]) as found:
        yield found


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_examples_have_the_interpreters_bits(
    any_owner: VulkanContext, name: str, example: Any
) -> None:
    compiled = compiled_example(name, example, any_owner.device.target)
    if compiled.program.code:
        validate(compiled.program.code)
    arrays = sample(name, example, 1)
    found = run_compiled(any_owner, compiled, arrays, SIZES)
    assert same_bits([found], [run_example(name, example, arrays)])


# ---- models --------------------------------------------------------------------------------------


def compiled_digits(model_file: ModelFile, target: VulkanTarget) -> CompiledModule:
    module = open_source(model_file("digits")).module({}, {})
    return compile_module(module, target, device="vulkan:0")


def runner_of(owner: VulkanContext, compiled: CompiledModule) -> tuple[ProgramRunner, VulkanUnit]:
    unit = VulkanUnit(owner=owner, holder="test")
    constants = compiled.placed.constants
    return ProgramRunner(compiled.program, constants, unit, DeviceContext("vulkan:0")), unit


@pytest.mark.parametrize("staged", [False, True], ids=["shared", "staged"])
def test_a_plan_is_recorded_once(model_file: ModelFile, staged: bool) -> None:
    with opened(staged=staged) as owner:
        compiled = compiled_digits(model_file, owner.device.target)
        runner, unit = runner_of(owner, compiled)
        checker = FeedChecker(compiled.program.inputs, compiled.program.bindings)
        oracle = Oracle(model_file("digits"))
        recorded = []
        for batch in (1, 4, 1, 4, 1):
            feeds = sample_inputs.digits(batch, batch)
            bound = checker.bind(feeds)
            (found,) = runner.run(bound.arrays, bound.symbols)
            assert_close(found, next(iter(oracle.run(feeds).values())))
            recorded.append(unit.recordings)
        # What prepares runs once, then one recording a shape.
        assert recorded == [2, 3, 3, 3, 3]
        runner.close()


# ---- memory --------------------------------------------------------------------------------------


def ready_unit(owner: VulkanContext, words: list[int] | None = None) -> VulkanUnit:
    """A unit with the kernel ``out = max(a + b, 0)`` and one launch of it."""
    code = emit_module([KERNELS["elementwise"]()], owner.device.target)
    unit = VulkanUnit(owner=owner, holder="test")
    block = words if words is not None else [BLOCK + 4, 0, 2, 128, 144, 160, 8]
    unit.load(hand_made(code.data, code.entries, block, owner.device.target))
    unit.grow(1 << 16)
    unit.upload(BLOCK, np.array(block, np.uint32))
    return unit


@pytest.mark.parametrize("staged", [False, True], ids=["shared", "staged"])
def test_memory_keeps_its_bytes_when_it_grows(staged: bool) -> None:
    with opened(staged=staged) as owner:
        unit = ready_unit(owner)
        data = np.random.default_rng(0).integers(0, 256, 50_000).astype(np.uint8)
        unit.upload(4096, data)
        before = unit.size
        unit.grow(before + 1)
        assert unit.size > before
        np.testing.assert_array_equal(unit.download(4096, U8, data.shape), data)
        strided = np.arange(64, dtype=">f4").reshape(8, 8).T
        unit.upload(128, strided)
        np.testing.assert_array_equal(unit.download(128, F32, (8, 8)), strided)
        unit.grow(10)
        unit.close()


def test_uploads_between_launches_keep_their_order() -> None:
    """More than the staging buffer holds, before and after launches that nobody waited for."""
    with opened(staged=True) as owner:
        unit = ready_unit(owner)
        unit.grow(40 << 20)
        big = np.random.default_rng(1).integers(0, 256, 33 << 20).astype(np.uint8)
        a = np.arange(8, dtype=np.float32)
        for step in range(4):
            unit.upload(144 * 16, a + step)
            unit.upload(160 * 16, a)
            unit.launch(0, 1)
            unit.upload(1 << 16, big[step:])
        np.testing.assert_array_equal(unit.download(128 * 16, F32, (8,)), 2 * a + 3)
        np.testing.assert_array_equal(unit.download(1 << 16, U8, big[3:].shape), big[3:])
        unit.close()


def test_a_launch_after_growth_uses_the_new_memory(owner: VulkanContext) -> None:
    unit = ready_unit(owner)
    a, b = np.arange(-4, 4, dtype=np.float32), np.ones(8, np.float32)
    for address, data in ((144 * 16, a), (160 * 16, b)):
        unit.upload(address, data)
    for size in (0, 1 << 17, 1 << 18):
        unit.grow(size)
        unit.upload(128 * 16, np.full(8, np.nan, np.float32))
        unit.launch(0, 1)
        np.testing.assert_array_equal(unit.download(128 * 16, F32, (8,)), np.maximum(a + b, 0))
    unit.close()


def test_addresses_are_checked(owner: VulkanContext) -> None:
    unit = ready_unit(owner)
    for address, nbytes in ((-4, 4), (unit.size - 2, 4), (unit.size, 1)):
        with pytest.raises(DeviceError) as caught:
            unit.upload(address, np.zeros(nbytes, np.uint8))
        assert code_of(caught) == "memory.range"
        with pytest.raises(DeviceError):
            unit.download(address, U8, (nbytes,))
    with pytest.raises(RlxError) as caught:
        unit.grow(unit.address_space + 1)
    assert code_of(caught) == "memory.limit"
    unit.close()


@pytest.mark.parametrize(
    "words",
    [
        [0, 0, 2, 128, 144, 160, 8],
        [BLOCK + 4000, 0, 2, 128, 144, 160, 8],
        [BLOCK + 4, 7, 2, 128, 144, 160, 8],
        [BLOCK + 24, 0, 2, 128, 144, 160, 0],
    ],
    ids=["before", "after", "kernel", "short"],
)
def test_damaged_records_are_refused(owner: VulkanContext, words: list[int]) -> None:
    unit = ready_unit(owner, words)
    with pytest.raises(DeviceError) as caught:
        unit.launch(0, 1)
    assert code_of(caught) == "program.record"
    unit.close()


# ---- life ----------------------------------------------------------------------------------------


def test_a_unit_is_loaded_once_and_closed_for_good(owner: VulkanContext) -> None:
    unit = VulkanUnit(owner=owner)
    with pytest.raises(DeviceError) as caught:
        unit.launch(0, 1)
    assert code_of(caught) == "unit.empty"
    unit.close()
    unit = ready_unit(owner)
    code = emit_module([KERNELS["elementwise"]()], owner.device.target)
    program = hand_made(code.data, code.entries, [], owner.device.target)
    with pytest.raises(DeviceError) as caught:
        unit.load(program)
    assert code_of(caught) == "unit.loaded"
    unit.close()
    unit.close()
    with pytest.raises(DeviceError) as caught:
        unit.synchronize()
    assert code_of(caught) == "unit.closed"
    with pytest.raises(DeviceError) as caught:
        VulkanUnit(owner=owner).load(
            hand_made(code.data, code.entries, [], VulkanTarget(storage8=False, range=1))
        )
    assert code_of(caught) == "program.target"


def test_one_context_however_often_it_is_asked_for() -> None:
    first = context(0)
    held = len(first.buffers)
    assert all(context(0) is first for _ in range(1000))
    for _ in range(20):
        unit = ready_unit(first)
        unit.close()
    assert len(first.buffers) == held


@pytest.mark.parametrize("call", ["vkQueueSubmit", "vkWaitForFences"])
def test_a_lost_device_is_opened_again(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vk = context_module.binding()

    class Losing:
        """The package, of which one call finds the device lost."""

        def __getattr__(self, name: str) -> Any:
            return self.lose if name == call else getattr(vk, name)

        def lose(self, *words: Any) -> None:
            raise vk.VkErrorDeviceLost

    before = context(0)
    unit = ready_unit(before)
    unit.upload(144 * 16, np.zeros(8, np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(context_module, "binding", Losing)
        with pytest.raises(DeviceError) as caught:
            unit.launch(0, 1)
            unit.synchronize()
        assert code_of(caught) == "vulkan.lost" and before.is_lost
        vk.vkDeviceWaitIdle(before.handle)  # the device of the tests still works
        with pytest.raises(DeviceError) as caught:
            unit.launch(0, 1)
        assert code_of(caught) == "unit.failed"
        unit.close()
    after = context(0)
    assert after is not before and context(0) is after
    assert before.buffers == []
    unit = ready_unit(after)
    for address in (144, 160):
        unit.upload(address * 16, np.ones(8, np.float32))
    unit.launch(0, 1)
    np.testing.assert_array_equal(unit.download(128 * 16, F32, (8,)), np.full(8, 2, np.float32))
    unit.close()


def test_a_leak_is_named_at_shutdown() -> None:
    code = (
        "from rlx_edge.gpu_workers.vulkan.context import DeviceBuffer, context\n"
        "kept = DeviceBuffer(context(0), 4096, 'arena', 'the forgetful test')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the forgetful test holds arena (4096 bytes on vulkan:0)" in done.stderr
    clean = code + "kept.release()\n"
    done = subprocess.run(
        [sys.executable, "-c", clean], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_session_that_is_open_at_exit_is_no_leak() -> None:
    code = (
        "from rlx_edge import InferenceSession\n"
        "from rlx_edge.model_store import model_path\n"
        "kept = InferenceSession(model_path('digits'), providers=['vulkan:0'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_is_told() -> None:
    code = (
        "import os\n"
        "from rlx_edge.gpu_workers.vulkan.context import context\n"
        "from rlx_edge.ir.errors import DeviceError\n"
        "context(0)\n"
        "if os.fork() == 0:\n"
        "    try: context(0)\n"
        "    except DeviceError as error: print(error.code, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "vulkan.fork\n", "")


def test_memory_that_cannot_be_had(owner: VulkanContext) -> None:
    with pytest.raises(DeviceError) as caught:
        DeviceBuffer(owner, 1 << 46, "arena", "test")
    assert code_of(caught) in ("vulkan.memory", "vulkan.failed")
    assert owner.buffers == []


# ---- devices -------------------------------------------------------------------------------------


def test_a_machine_without_a_driver_says_so_in_one_line() -> None:
    code = (
        "from rlx_edge import InferenceSession\n"
        "from rlx_edge.ir.errors import DeviceError\n"
        "from tests.runtime import hand_made\n"
        "try: InferenceSession(hand_made.module(), providers=['vulkan:0'])\n"
        "except DeviceError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"},
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 and "Vulkan" in done.stdout


def test_devices_are_described() -> None:
    (first, *_) = devices()
    assert first.name == "vulkan:0" and first.title and first.target.most_invocations >= 128
    (row, *_) = provider.describe()["devices"]  # type: ignore[misc]
    assert row["index"] == 0 and row["limits"]["shared"] == first.target.shared  # type: ignore[index]


def test_a_session_has_the_bits_of_webassembly(model_file: ModelFile) -> None:
    feeds = sample_inputs.digits(3, 2)
    with (
        InferenceSession(model_file("digits"), providers=["vulkan:0"]) as ours,
        InferenceSession(model_file("digits")) as theirs,
    ):
        assert ours.get_providers() == ["vulkan:0"]
        assert same_bits(ours.run(None, feeds), theirs.run(None, feeds))
        assert ours.compile_count == 1


# ---- other drivers -------------------------------------------------------------------------------


def test_exported_memory_is_the_memory(owner: VulkanContext) -> None:
    """What another driver would import has the bytes; a software driver's is a file in memory."""
    if not owner.exports:
        pytest.skip("this driver exports no memory")
    unit = ready_unit(owner)
    data = np.random.default_rng(5).integers(0, 256, 4096).astype(np.uint8)
    unit.upload(8192, data)
    before = unit.generation
    exported = unit.exported()
    assert exported is not None
    file, nbytes, generation = exported
    try:
        assert generation == unit.generation == before + 1 and nbytes >= unit.size
        np.testing.assert_array_equal(unit.download(8192, U8, data.shape), data)
        if owner.device.kind == "software on the CPU":
            assert os.fstat(file).st_size >= nbytes
    finally:
        os.close(file)
    again = unit.exported()
    assert again is not None and again[2] == generation  # the memory stays where it is
    os.close(again[0])
    unit.grow(unit.size + 1)
    assert unit.generation == generation + 1
    unit.close()
    assert len(owner.device.uuid) == 16
