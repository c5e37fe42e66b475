"""A program on a CUDA device: its kernels, one arena of device memory, launches as graphs.

The parameter block stays on the host: kernels get their words as an argument. A segment that runs
again with the same words is captured into a CUDA graph and replayed; another shape has other words
and graphs of its own.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlx_edge.gpu_workers.cuda.choices import Choices
from rlx_edge.gpu_workers.cuda.compiler import compile_source
from rlx_edge.gpu_workers.cuda.device import CudaDevice, open_device
from rlx_edge.gpu_workers.cuda.libraries import Libraries
from rlx_edge.gpu_workers.cuda.library import cupy, driver, runtime
from rlx_edge.gpu_workers.cuda.memory import DeviceMemory, device_error, errors
from rlx_edge.gpu_workers.cuda.sharing import reach
from rlx_edge.gpu_workers.cuda.staging import Staging
from rlx_edge.gpu_workers.cuda.tuning import Tuning
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import DType
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.buffers import Bytes, memory_range
from rlx_edge.runtime.carriers import Reach
from rlx_edge.runtime.records import Record, records
from rlx_edge.runtime.units import Array, ExecutionUnit, memory_limit, unit_closed

ADDRESS_SPACE = 64 << 32
SLACK = 4096
"""Bytes behind the arena that vector loads may touch without using them."""
SHAPES = 16
"""Parameter blocks whose graphs are kept, least recently used first out."""
MAX_GRID = (1 << 31) - 1

Segment = tuple[int, int]
T = TypeVar("T")


class CudaUnit:
    """``ExecutionUnit`` over one CUDA device. Used by one thread at a time.

    ``graphs`` off launches every kernel by itself, as profiling does.
    """

    def __init__(
        self, device: str = "cuda:0", cache: Path | None = None, *, graphs: bool = True
    ) -> None:
        self.device = device
        self.address_space = ADDRESS_SPACE
        self.binary_log = ""
        """What the assembler said of the kernels."""
        self._cache = cache
        self._graphs_on = graphs
        self._state = "empty"
        self._context: CudaDevice | None = None
        self._program: Program | None = None
        self._modules: list[Any] = []
        self._functions: list[int] = []
        self._stream: Any = None
        self._staging: Staging | None = None
        self._pointer = 0
        self._memory: DeviceMemory | None = None
        self._size = 0
        self._words: np.ndarray[Any, np.dtype[np.int32]] | None = None
        self._blocks: OrderedDict[bytes, dict[Segment, Any]] = OrderedDict()
        self._graphs: dict[Segment, Any] = {}
        self._choices: Choices | None = None
        self._libraries: Libraries | None = None

    @property
    def measurements(self) -> list[Mapping[str, object]]:
        """What was chosen among several ways to a result, for the shape that ran last."""
        return [] if self._choices is None else self._choices.rows()

    @property
    def size(self) -> int:
        self._use()
        return self._size

    # ---- life --------------------------------------------------------------------------------

    def load(self, program: Program) -> None:
        """Compile the kernels; ``DeviceError`` ``cuda.*`` of device and compiler,
        ``program.target`` for another device's program."""
        if self._state != "empty":
            raise (
                unit_closed(self.device)
                if self._state == "closed"
                else DeviceError("unit.loaded", "the unit has a program already", where=self.device)
            )
        if not program.target.startswith("cuda-"):
            raise DeviceError(
                "program.target",
                "the program was compiled for another kind of device",
                found=program.target,
                allowed="cuda-sm_…",
                where=self.device,
            )
        self._context = open_device(parse_device(self.device).index)
        major, minor = self._context.properties.capability
        binary = compile_source(program.code, f"sm_{major}{minor}", self._cache)
        self.binary_log = binary.log
        with self._context.use():
            pointers = dict[str, int]()
            for cubin in binary.cubins:
                module = cupy().cuda.function.Module()
                module.load(cubin.code)
                self._modules.append(module)
                pointers |= {name: module.get_function(name).ptr for name in cubin.entries}
            self._functions = [
                0 if entry.library else pointers[entry.name] for entry in program.entries
            ]
            self._stream = cupy().cuda.Stream(non_blocking=True)
            self._staging = Staging(self._stream)
            self._libraries = Libraries(self.device, self._stream.ptr)
        if program.choices:
            place = self._context.properties
            versions = self._libraries.versions(entry.library for entry in program.entries)
            tuning = Tuning(f"{place.name} {place.processors} {versions}", self._cache)
            self._choices = Choices(program, tuning, self._start, self._stream)
        self._program = program
        self._state = "ready"

    def close(self) -> None:
        """Free memory, graphs and module; the device's context stays for other units."""
        if self._state in ("closed", "empty"):
            self._state = "closed"
            return
        assert self._context is not None and self._staging is not None
        with self._context.use():
            if self._state == "ready":
                with suppress(*errors()):  # a lost device runs nothing any more
                    self._stream.synchronize()
            self._blocks.clear()
            self._graphs = {}
            if self._memory is not None:
                self._memory.release()
            self._staging.close()
            if self._libraries is not None:
                with suppress(DeviceError):  # of a lost device the process gets nothing back
                    self._libraries.close()
        self._libraries = self._choices = self._memory = None
        self._pointer = self._size = 0
        self._stream = self._staging = None
        self._modules, self._functions = [], []
        self._state = "closed"

    def grow(self, nbytes: int) -> None:
        device = self._use()
        if nbytes <= self._size:
            return
        with device.use():
            memory = self._guarded(lambda: self._reserve(device, nbytes))
            old, self._memory = self._memory, memory
            if old is not None:
                self._guarded(lambda: self._move(old, memory))
                old.release()
        self._pointer, self._size = memory.pointer, nbytes
        self._blocks.clear()  # graphs have the old base in them
        self._graphs = {}

    def _reserve(self, device: CudaDevice, nbytes: int) -> DeviceMemory:
        free = device.free_memory()[0]
        if nbytes + SLACK > free:  # what is there now is copied before it goes
            raise memory_limit(self.device, nbytes, max(free - SLACK, 0))
        return DeviceMemory(self.device, nbytes + SLACK, "unit")

    def _move(self, source: DeviceMemory, target: DeviceMemory) -> None:
        copy = runtime().memcpyDeviceToDevice
        runtime().memcpyAsync(target.pointer, source.pointer, self._size, copy, self._stream.ptr)
        self._stream.synchronize()

    # ---- data --------------------------------------------------------------------------------

    def upload(self, address: int, data: Array) -> None:
        device = self._use()
        self.require(address, data.nbytes)
        assert self._program is not None and self._staging is not None
        plan = self._program.plan
        if address == plan.block_address and data.nbytes == 4 * len(plan.words):
            self._take_words(np.array(data, np.int32))
            return
        with device.use():
            plain = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
            self._guarded(lambda: self._staged().upload(self._pointer + address, plain))

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        device = self._use()
        array = np.empty(shape, numpy_dtype(dtype))
        self.require(address, array.nbytes)
        with device.use():
            self._guarded(lambda: self._staged().download(array, self._pointer + address))
        return array

    def require(self, address: int, nbytes: int) -> None:
        self._use()
        if address < 0 or nbytes < 0 or address + nbytes > self._size:
            raise memory_range(address, nbytes, self._size)

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        self.require(address, nbytes)
        raise DeviceError(
            "memory.host",
            "the host cannot address this memory",
            allowed="upload and download",
            where=self.device,
        )

    def free(self, address: int, nbytes: int) -> None:
        """Places come from the memory plan: nothing to take back."""

    def _staged(self) -> Staging:
        assert self._staging is not None
        return self._staging

    def _take_words(self, words: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        key = hashlib.sha256(words.tobytes()).digest()
        graphs = self._blocks.pop(key, None)
        self._graphs = {} if graphs is None else graphs
        self._blocks[key] = self._graphs
        if len(self._blocks) > SHAPES:
            self._blocks.popitem(last=False)
        self._words = words
        if self._choices is not None:
            self._choices.take_words(words)

    # ---- other memory ------------------------------------------------------------------------

    def reach(self, other: ExecutionUnit) -> Reach | None:
        """The device's way into ``other``'s memory: one that is registered, or imported."""
        self._use()
        return reach(self, other)

    @property
    def index(self) -> int:
        """The device's number."""
        return parse_device(self.device).index

    @property
    def pointer(self) -> int:
        """The device's address of byte 0."""
        return self._pointer

    def current(self) -> Any:
        """Make the device the calling thread's for a ``with`` block."""
        return self._use().use()

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy between addresses that the device can use; returns when it is done."""
        kind = runtime().memcpyDefault

        def move() -> None:
            runtime().memcpyAsync(target, source, nbytes, kind, self._stream.ptr)
            self._stream.synchronize()

        with self.current():
            self._guarded(move)

    # ---- launches ----------------------------------------------------------------------------

    def launch(self, begin: int, end: int) -> None:
        device = self._use()
        with device.use():
            self._guarded(lambda: self._launch(begin, end))

    def _launch(self, begin: int, end: int) -> None:
        segment = (begin, end)
        if not self._graphs_on or end - begin < 2:
            self._enqueue(begin, end)
        elif segment not in self._graphs:
            # The first time the kernels run by themselves: most prepare segments run only once.
            self._graphs[segment] = None
            self._enqueue(begin, end)
        else:
            if self._graphs[segment] is None:
                with self._stream:
                    self._stream.begin_capture()
                    self._enqueue(begin, end)
                    self._graphs[segment] = self._stream.end_capture()
            self._graphs[segment].launch(stream=self._stream)

    def _enqueue(self, begin: int, end: int) -> None:
        program = self._program
        assert program is not None and self._words is not None
        block = program.plan.block_address
        found = records(self._words, block, program.entries, begin, end)
        for launch, record in enumerate(found, begin):
            if self._choices is None or self._choices.takes(launch):
                self._start(record)

    def _start(self, record: Record) -> None:
        """Put one launch into the stream."""
        if record.groups <= 0:
            return
        assert self._program is not None
        entry = self._program.entries[record.kernel]
        if entry.library:
            assert self._libraries is not None
            unit = self._use().properties.target.memory.unit
            places = [self._pointer + unit * int(word) for word in record.words.view("u4")]
            self._libraries.start(entry.library, places, [int(word) for word in record.words])
            return
        base = ctypes.c_uint64(self._pointer)
        words = np.ascontiguousarray(record.words)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(base), words.ctypes.data)
        driver().launchKernel(
            self._functions[record.kernel],
            *(min(record.groups, MAX_GRID), 1, 1),
            *(entry.threads, 1, 1),
            0,
            self._stream.ptr,
            ctypes.addressof(arguments),
            0,
        )

    def synchronize(self) -> None:
        device = self._use()
        with device.use():
            self._guarded(self._stream.synchronize)

    def _guarded(self, action: Callable[[], T]) -> T:
        """Run ``action``; what CUDA reports makes the unit unusable."""
        try:
            return action()
        except errors() as error:
            self._state = "failed"
            raise device_error(error, self.device) from None

    def _use(self) -> CudaDevice:
        if self._state == "failed":
            raise failure("unit.failed", where=self.device)
        if self._context is None or self._state != "ready":
            raise (
                unit_closed(self.device)
                if self._state == "closed"
                else DeviceError("unit.empty", "no program is loaded", where=self.device)
            )
        return self._context
