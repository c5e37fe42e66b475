"""CUDA without a device: clear errors, nothing loaded, the cache of machine code."""

# covers R21

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlx_edge.gpu_workers.cuda import compiler, device, library, provider
from rlx_edge.gpu_workers.cuda.unit import CudaUnit
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.types import F32
from rlx_edge.model_store import model_path
from tests import cuda_programs


class FakeError(Exception):
    pass


class FakeNvrtc:
    """NVRTC that counts; its machine code is the source in capitals."""

    NVRTCError = FakeError

    def __init__(self, version: tuple[int, int] = (13, 0)) -> None:
        self.version = version
        self.options: list[tuple[str, ...]] = []
        self.made = self.destroyed = 0

    def getVersion(self) -> tuple[int, int]:
        return self.version

    def createProgram(self, source: str, name: str, headers: Any, includes: Any) -> str:
        self.made += 1
        return source

    def compileProgram(self, program: str, options: tuple[str, ...]) -> None:
        self.options.append(options)
        if "bad" in program:
            raise FakeError("NVRTC_ERROR_COMPILATION (6)")

    def getProgramLog(self, program: str) -> str:
        return (
            "note\nkernels.cu(1): error: what is bad\n" if "bad" in program else "Used 9 registers"
        )

    def getCUBIN(self, program: str) -> bytes:
        return program.upper().encode()

    def destroyProgram(self, program: str) -> None:
        self.destroyed += 1


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> FakeNvrtc:
    fake = FakeNvrtc()
    module = SimpleNamespace(cuda=SimpleNamespace(nvrtc=fake))
    monkeypatch.setattr(compiler, "cupy", lambda: module)
    return fake


def test_a_source_is_compiled_once(nvrtc: FakeNvrtc, tmp_path: Path) -> None:
    first = compiler.compile_source(b"code", "sm_90", tmp_path)
    assert first == compiler.Binary((compiler.Cubin(b"CODE", ()),), "Used 9 registers")
    assert compiler.compile_source(b"code", "sm_90", tmp_path) == first
    assert nvrtc.made == nvrtc.destroyed == 1
    assert "--fmad=false" in nvrtc.options[0] and "--gpu-architecture=sm_90" in nvrtc.options[0]
    assert "--no-cache" in nvrtc.options[0]


def test_what_decides_the_code_decides_the_entry(nvrtc: FakeNvrtc, tmp_path: Path) -> None:
    for source, arch in ((b"code", "sm_90"), (b"code", "sm_80"), (b"core", "sm_90")):
        compiler.compile_source(source, arch, tmp_path)
    nvrtc.version = (12, 6)
    compiler.compile_source(b"code", "sm_90", tmp_path)
    assert nvrtc.made == 4 and "--no-cache" not in nvrtc.options[-1]
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"digest": "x", "log": "", "cubins": []}'])
def test_a_damaged_entry_is_made_again(nvrtc: FakeNvrtc, tmp_path: Path, damage: bytes) -> None:
    first = compiler.compile_source(b"code", "sm_90", tmp_path)
    (entry,) = tmp_path.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    assert compiler.compile_source(b"code", "sm_90", tmp_path) == first
    assert nvrtc.made == 2 and entry.read_bytes() == whole


def test_without_a_folder_a_result_serves_once_more(nvrtc: FakeNvrtc) -> None:
    """First the assembler's words are asked for, then the unit loads the code."""
    first = compiler.compile_source(b"once more", "sm_90")
    assert compiler.compile_source(b"once more", "sm_90") == first and nvrtc.made == 1
    assert compiler.compile_source(b"once more", "sm_90") == first and nvrtc.made == 2
    for number in range(2 * compiler.RECENT):
        compiler.compile_source(b"many %d" % number, "sm_90")
    assert len(compiler._recent) == compiler.RECENT


def test_a_cache_that_cannot_be_written_does_not_matter(nvrtc: FakeNvrtc, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    (cubin,) = compiler.compile_source(b"code", "sm_90", blocked / "cubin").cubins
    assert cubin.code == b"CODE"


def test_many_kernels_are_compiled_in_portions(nvrtc: FakeNvrtc, tmp_path: Path) -> None:
    compiled = cuda_programs.compile_model("digits", model_path("digits"))
    names = [entry.name for entry in compiled.program.entries]
    binary = compiler.compile_source(compiled.program.code, "sm_90", tmp_path)
    assert len(binary.cubins) == nvrtc.made == -(-len(names) // compiler.PORTION) > 1
    assert [name for cubin in binary.cubins for name in cubin.entries] == names
    assert compiler.compile_source(compiled.program.code, "sm_90", tmp_path) == binary


def test_what_nvrtc_says_is_in_the_error(nvrtc: FakeNvrtc) -> None:
    with pytest.raises(DeviceError) as caught:
        compiler.compile_source(b"bad", "sm_90")
    assert caught.value.code == "cuda.compile" and "what is bad" in str(caught.value)
    assert nvrtc.destroyed == 1


def test_without_cupy_the_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(f"No module named '{name}'\nand more")

    library.cupy.cache_clear()
    monkeypatch.setattr(library, "import_module", absent)
    with pytest.raises(DeviceError) as caught:
        device.open_device(0)
    assert caught.value.code == "cuda.package"
    assert "\n" not in str(caught.value) and "rlx-edge[cuda13]" in str(caught.value)


def test_without_a_driver_the_error_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def count() -> int:
        raise FakeError("cudaErrorInsufficientDriver: too old\nmore")

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=FakeError)
    monkeypatch.setattr(library, "runtime", lambda: runtime)
    with pytest.raises(DeviceError) as caught:
        device.open_device(0)
    assert caught.value.code == "cuda.driver" and "\n" not in str(caught.value)
    assert "too old" in str(caught.value)


def test_an_index_beyond_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "device_count", lambda: 2)
    with pytest.raises(DeviceError) as caught:
        device.open_device(5)
    assert caught.value.code == "cuda.index" and "cuda:0, cuda:1" in str(caught.value)


def test_a_fork_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_PROCESS", [1])
    with pytest.raises(DeviceError) as caught:
        device.open_device(0)
    assert caught.value.code == "cuda.fork"


def test_presence_is_seen_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(provider, "NODES", str(tmp_path))
    assert "no such NVIDIA GPU" in provider.absent_reason(0)
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(provider, "find_spec", lambda name: None)
    assert "CuPy is not installed" in provider.absent_reason(0)
    monkeypatch.setattr(provider, "find_spec", lambda name: object())
    assert provider.absent_reason(0) == "" and provider.absent_reason(1)


def test_a_unit_says_what_state_it_is_in() -> None:
    unit = CudaUnit()
    with pytest.raises(DeviceError) as caught:
        unit.launch(0, 1)
    assert caught.value.code == "unit.empty"
    unit.close()
    with pytest.raises(DeviceError) as caught:
        unit.download(0, F32, (1,))
    assert caught.value.code == "unit.closed"


def test_importing_loads_nothing() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "import rlx_edge.gpu_workers.cuda.provider, rlx_edge.gpu_workers.cuda.unit\n"
        "maps = Path('/proc/self/maps').read_text()\n"
        "print('cupy' in sys.modules, 'libcuda' in maps, 'libnvrtc' in maps)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False False False\n", done.stderr
