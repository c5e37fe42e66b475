"""NVIDIA's libraries as routines of a program, loaded when a program has one of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rlx_edge.gpu_workers.cuda import dnn
from rlx_edge.gpu_workers.cuda.blas import Blas
from rlx_edge.gpu_workers.cuda.dnn import Convolution, Dnn, Shape, parse_routine
from rlx_edge.gpu_workers.cuda.library import runtime
from rlx_edge.ir.errors import DeviceError

BLAS, DNN = "cublas", "cudnn"


class Libraries:
    """Routines in one stream of ``device``, which is current at every call."""

    def __init__(self, device: str, stream: int) -> None:
        self._device = device
        self._stream = stream
        self._blas: Blas | None = None
        self._dnn: Dnn | None = None

    def versions(self, routines: Iterable[str]) -> str:
        """What figures of ways with these routines depend on."""
        names = {routine.partition(":")[0] for routine in routines}
        text = str(runtime().runtimeGetVersion())
        return f"{text} cuDNN {dnn.version()}" if DNN in names else text

    def start(self, routine: str, places: Sequence[int], words: Sequence[int]) -> None:
        """Put a routine into the stream. ``words`` are those of the record, ``places`` the same as
        addresses of the device; ``DeviceError`` ``cuda.library`` where the library is absent or
        refuses."""
        _ROUTINES[routine.partition(":")[0]](self, routine, places, words)

    def matmul(self, routine: str, places: Sequence[int], words: Sequence[int]) -> None:
        """A product by cuBLAS; the words are those of the matmul template."""
        if self._blas is None:
            self._blas = Blas(self._stream)
        slices, m, n, k, a_slice, b_slice = words[-6:]
        out, a, b = places[:3]
        precision = routine.partition(":")[2]
        self._blas.matmul(precision, (out, a, b), (slices, m, n, k), (a_slice, b_slice))

    def convolution(self, routine: str, places: Sequence[int], words: Sequence[int]) -> None:
        """A convolution by cuDNN; the words are those of the conv2d template. Scratch memory
        has the result, behind it the input."""
        if self._dnn is None:
            self._dnn = Dnn(self._device, self._stream)
        parsed = parse_routine(routine)
        slots = parsed.slots
        slices, images, height, width, n, channels = words[slots : slots + 6]
        wanted = Convolution(parsed, Shape(slices, images, height, width, n, channels))
        weights, scratch = places[parsed.weights], places[slots - 1]
        self._dnn.convolve(wanted, (scratch, scratch + wanted.result_bytes, weights))

    def close(self) -> None:
        """After everything in the stream; ``DeviceError`` where a library does not let go."""
        failed: DeviceError | None = None
        for library in (self._blas, self._dnn):
            try:
                if library is not None:
                    library.close()
            except DeviceError as error:
                failed = error
        self._blas = self._dnn = None
        if failed is not None:
            raise failed


_ROUTINES: dict[str, Callable[[Libraries, str, Sequence[int], Sequence[int]], None]] = {
    BLAS: Libraries.matmul,
    DNN: Libraries.convolution,
}


def describe_libraries() -> dict[str, str]:
    """The version of each library, or why it cannot be used; loads them."""
    found: dict[str, str] = {}
    for name, ask in ((BLAS, Blas.version), (DNN, lambda: dnn.load().backend_version_string())):
        try:
            found[name] = str(ask())
        except DeviceError as error:
            found[name] = f"not used: {error}"
    return found
