"""cuDNN without a device: which graphs are asked for, what runs, what a refusal becomes."""

# covers R15

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlx_edge.gpu_workers.cuda import dnn
from rlx_edge.gpu_workers.cuda.dnn import Convolution, Dnn, Shape, parse_routine
from rlx_edge.gpu_workers.cuda.libraries import Libraries, describe_libraries
from rlx_edge.ir.errors import DeviceError
from tests.gpu_workers.fake_cuda import FakeCuda, fake_cuda

ROUTINE = "cudnn:tf32:3x3:2x1:1x2:4:6"
WORDS = [0, 0, 0, 0, 5, 9, 2, 4, 7, 8, 10, 6, *range(15)]
"""Six addresses, then groups, images, height, width, outputs and channels of a group."""


class Unsupported(Exception):
    """As in cuDNN, no kin of anything."""


class FakeTensor:
    def __init__(self, **told: object) -> None:
        self.told = told

    def __getattr__(self, name: str) -> Any:
        def put(value: object) -> FakeTensor:
            self.told[name.removeprefix("set_")] = value
            return self

        return put


class FakeGraph:
    def __init__(self, fake: FakeCudnn, **told: object) -> None:
        self.fake, self.told = fake, told
        self.tensors: dict[str, FakeTensor] = {}
        self.calls: list[tuple[str, object]] = []

    def tensor(self, **told: object) -> FakeTensor:
        return self.tensors.setdefault(str(told["name"]), FakeTensor(**told))

    def conv_fprop(self, **told: object) -> FakeTensor:
        self.calls.append(("conv_fprop", told))
        return self.tensors.setdefault("result", FakeTensor())

    def execute(self, places: object, workspace: int, handle: object) -> None:
        self.fake.executed.append((places, workspace, handle))

    def check_support(self) -> None:
        if self.fake.refuses:
            raise Unsupported("no engine\nat all")

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append((name, given[0] if given else None))


class FakeCudnn(SimpleNamespace):
    cudnnGraphNotSupportedError = Unsupported
    data_type = SimpleNamespace(FLOAT="float", HALF="half")
    heur_mode = SimpleNamespace(A="a", FALLBACK="fallback")
    numerical_note = SimpleNamespace(**{name: name for name in (*dnn.EXCLUDED, *dnn.EXCLUDED_F32)})
    __version__ = "1"

    def __init__(self) -> None:
        self.graphs: list[FakeGraph] = []
        self.executed: list[tuple[object, int, object]] = []
        self.streams: list[tuple[object, int]] = []
        self.destroyed: list[object] = []
        self.refuses = False
        self.present = True

    def backend_version(self) -> int:
        if not self.present:
            raise RuntimeError("Unable to find symbol cudnnGetVersion")
        return 91900

    def backend_version_string(self) -> str:
        return "9.19.0"

    def create_handle(self) -> str:
        return "handle"

    def destroy_handle(self, handle: object) -> None:
        self.destroyed.append(handle)

    def set_stream(self, handle: object, stream: int) -> None:
        self.streams.append((handle, stream))

    def pygraph(self, **told: object) -> FakeGraph:
        self.graphs.append(FakeGraph(self, **told))
        return self.graphs[-1]


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    fake = FakeCudnn()
    monkeypatch.setitem(sys.modules, "cudnn", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_cuda() as fake:
        yield fake


def test_sizes_of_a_routine() -> None:
    item = Convolution(parse_routine(ROUTINE), Shape(2, 4, 7, 8, 10, 6))
    # Channels of a group in fours; the pixels that taps reach: (7 - 1) * 2 + 2 + 1, 8 - 1 + 4 + 1.
    assert item.input == (4, 16, 15, 12)
    assert item.weights == (24, 8, 3, 3)
    assert item.result == (4, 24, 7, 8) and item.result_bytes == 4 * 4 * 24 * 7 * 8
    half = Convolution(parse_routine(ROUTINE.replace("tf32", "fp16")), item.shape)
    assert half.input[1] == 16 and half.weights[:2] == (32, 8)


def test_a_convolution_is_planned_once(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    libraries = Libraries("cuda:0", 77)
    for shift in (0, 1000):
        places = [64 * word + shift for word in WORDS]
        libraries.start(ROUTINE, places, WORDS)
    assert cudnn.streams == [("handle", 77)]
    (graph,) = cudnn.graphs
    assert graph.tensors["image"].told["stride"] == [15 * 12 * 16, 1, 12 * 16, 16]
    assert graph.tensors["weights"].told["dim"] == [24, 8, 3, 3]
    assert graph.tensors["result"].told["dim"] == [4, 24, 7, 8]
    assert graph.tensors["result"].told["data_type"] == "float"
    asked = dict(graph.calls)
    conv = asked["conv_fprop"]
    assert isinstance(conv, dict)
    assert (conv["stride"], conv["dilation"], conv["pre_padding"]) == ([2, 1], [1, 2], [0, 0])
    assert asked["deselect_numeric_notes"] == list(dnn.EXCLUDED)
    assert asked["deselect_workspace_greater_than"] == dnn.WORKSPACE
    (workspace,) = cuda.heap
    size = 4 * 4 * 24 * 7 * 8
    assert cudnn.executed == [
        ({1: at + size, 2: weights, 3: at}, workspace, "handle")
        for at, weights in ((576, 320), (1576, 1320))
    ]
    libraries.close()
    assert cudnn.destroyed == ["handle"] and not cuda.heap


def test_precisions_of_operands(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    libraries = Libraries("cuda:0", 77)
    for precision, operand, more in (("fp16", "half", ()), ("relaxed", "float", dnn.EXCLUDED_F32)):
        libraries.start(ROUTINE.replace("tf32", precision), WORDS, WORDS)
        graph = cudnn.graphs[-1]
        assert graph.tensors["image"].told["data_type"] == operand
        assert graph.tensors["weights"].told["data_type"] == operand
        assert dict(graph.calls)["deselect_numeric_notes"] == [*dnn.EXCLUDED, *more]
    libraries.close()


def test_what_has_no_plan_is_refused_again(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    cudnn.refuses = True
    libraries = Libraries("cuda:0", 77)
    for _ in range(2):
        with pytest.raises(DeviceError, match="no engine;") as caught:
            libraries.start(ROUTINE, WORDS, WORDS)
        assert caught.value.code == "cuda.library"
    assert len(cudnn.graphs) == 1
    libraries.close()


def test_an_absent_library_is_told(cudnn: FakeCudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    routines = ["", "cublas:tf32", ROUTINE]
    with fake_cuda():
        libraries = Libraries("cuda:0", 77)
        assert libraries.versions(routines[:2]) == "13000"
        assert libraries.versions(routines) == "13000 cuDNN 91900 1"
        cudnn.present = False
        assert libraries.versions(routines) == "13000 cuDNN "
        with pytest.raises(DeviceError, match="cudnnGetVersion") as caught:
            libraries.start(ROUTINE, WORDS, WORDS)
        assert caught.value.code == "cuda.library"
        monkeypatch.setattr("rlx_edge.gpu_workers.cuda.blas.Blas.version", lambda: "13.1.0")
        described = describe_libraries()
        assert described["cublas"] == "13.1.0"
        assert described["cudnn"].startswith("not used: ") and "rlx-edge[cudnn]" in str(described)
        monkeypatch.setitem(sys.modules, "cudnn", None)
        assert "import of cudnn halted" in describe_libraries()["cudnn"]
        cudnn.present = True
        monkeypatch.setitem(sys.modules, "cudnn", cudnn)  # type: ignore[arg-type]
        assert describe_libraries()["cudnn"] == "9.19.0"


def test_a_handle_of_its_own(cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    one, other = Dnn("cuda:0", 1), Dnn("cuda:0", 2)
    one.close()
    other.close()
    assert [stream for _, stream in cudnn.streams] == [1, 2]
