"""Runs one generated kernel under wasmtime with checked memory, for tests of code generators."""

from __future__ import annotations

import atexit
import shutil
import subprocess
from collections.abc import Callable, Sequence

import numpy as np
import wasmtime

from rlx_edge.compile.codegen.wasm.module import ModuleBuilder
from rlx_edge.compile.codegen.wasm.sections import Limits

OVERREAD = 64
"""Bytes past a buffer that a kernel may read, as the memory plan promises."""
GUARD = 64
BELOW = 4096
"""Bytes before the first buffer that are watched too."""
PAGE = 65536
PATTERN = 0xA5
ENGINE = wasmtime.Engine()

atexit.register(ENGINE.close)


def validate(wasm: bytes) -> None:
    """Fails unless wabt's `wasm-validate` accepts the module."""
    program = shutil.which("wasm-validate")
    assert program is not None, "wasm-validate (package wabt) is needed"
    result = subprocess.run(
        [program, "--enable-threads", "--enable-relaxed-simd", "-"],
        input=wasm,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()


class KernelHost:
    """A module with one kernel `(args, thread) -> ()` and its memory.

    Buffers lie between guard bytes with a pattern; the last one ends as close to the end of the
    memory as the plan's over-read allowance permits.
    """

    def __init__(self, emit: Callable[[ModuleBuilder], int], pages: int = 64) -> None:
        module = ModuleBuilder("kernel")
        module.memory(Limits(pages, pages))
        module.export_memory("memory")
        module.export_function("kernel", emit(module))
        self.wasm = module.encode()
        validate(self.wasm)
        self._store = wasmtime.Store(ENGINE)
        atexit.register(self._store.close)
        instance = wasmtime.Instance(self._store, wasmtime.Module(ENGINE, self.wasm), [])
        exports = instance.exports(self._store)
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        kernel = exports["kernel"]
        assert isinstance(kernel, wasmtime.Func)
        self._kernel = kernel
        self.memory = np.frombuffer(memory.get_buffer_ptr(self._store, pages * PAGE), np.uint8)

    def run(
        self,
        buffers: Sequence[np.ndarray],
        parameters: Sequence[int],
        written: Sequence[int] = (0,),
    ) -> list[np.ndarray]:
        """Call the kernel and return copies of the buffers numbered in `written`.

        Every other byte around them must stay as it was.
        """
        sizes = [(array.nbytes + 15) // 16 * 16 for array in buffers]
        needed = sum(sizes) + GUARD * (len(buffers) + 1) + 4 * (len(buffers) + len(parameters))
        start = (self.memory.size - OVERREAD - needed - 64) // 16 * 16
        assert start > BELOW, f"{needed} bytes do not fit"
        window = self.memory[start - BELOW :]
        window[:] = PATTERN
        args = start
        address = (args + 4 * (len(buffers) + len(parameters)) + GUARD + 15) // 16 * 16
        addresses = []
        for array, size in zip(buffers, sizes, strict=True):
            addresses.append(address)
            self.memory[address : address + array.nbytes] = array.reshape(-1).view(np.uint8)
            address += size + GUARD
        words = np.array([*addresses, *parameters], np.int64).astype(np.uint32)
        self.memory[args : args + words.nbytes] = words.view(np.uint8)
        before = window.copy()
        self._kernel(self._store, args, 0)
        results = []
        for number in written:
            array, at = buffers[number], addresses[number]
            span = slice(at - start + BELOW, at - start + BELOW + array.nbytes)
            results.append(window[span].view(array.dtype).reshape(array.shape).copy())
            before[span] = window[span]
        changed = np.flatnonzero(before != window)
        assert changed.size == 0, f"bytes outside the results changed, first at {changed[:4]}"
        return results


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal arrays bit for bit, except that any NaN equals any NaN."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    both_nan = np.isnan(actual) & np.isnan(expected)
    same = (actual.view(np.uint32) == expected.view(np.uint32)) | both_nan
    wrong = np.argwhere(~same)
    assert wrong.size == 0, (
        f"{len(wrong)} of {same.size} differ, first at {wrong[0]}: "
        f"{actual[tuple(wrong[0])]!r} instead of {expected[tuple(wrong[0])]!r}"
    )
