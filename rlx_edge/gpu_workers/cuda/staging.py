"""Pinned memory between host arrays and a device: copies at the bus's speed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.gpu_workers.cuda.library import cupy, runtime

CHUNK = 16 << 20
"""Bytes that are copied at a time."""


class Staging:
    """One pinned buffer of a stream, made when first used. The stream's device is current."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._memory: Any = None
        self._view: npt.NDArray[np.uint8] | None = None
        self._busy = False

    def upload(self, pointer: int, array: npt.NDArray[Any]) -> None:
        """Copy a contiguous array to ``pointer``; returns when the array may be changed."""
        source = array.reshape(-1).view(np.uint8)
        kind = runtime().memcpyHostToDevice
        for start in range(0, source.size, CHUNK):
            part = source[start : start + CHUNK]
            view = self._ready(part.size)
            view[: part.size] = part
            runtime().memcpyAsync(
                pointer + start, view.ctypes.data, part.size, kind, self._stream.ptr
            )
            self._busy = True

    def download(self, array: npt.NDArray[Any], pointer: int) -> None:
        """Fill a contiguous array from ``pointer``, after everything in the stream."""
        target = array.reshape(-1).view(np.uint8)
        kind = runtime().memcpyDeviceToHost
        for start in range(0, target.size, CHUNK):
            part = target[start : start + CHUNK]
            view = self._ready(part.size)
            runtime().memcpyAsync(
                view.ctypes.data, pointer + start, part.size, kind, self._stream.ptr
            )
            self._stream.synchronize()
            part[:] = view[: part.size]

    def close(self) -> None:
        self._view = self._memory = None

    def _ready(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """The buffer, no copy of it under way, of at least ``nbytes``."""
        if self._busy:
            self._stream.synchronize()
            self._busy = False
        if self._view is None or self._view.size < nbytes:
            size = min(CHUNK, 1 << max(16, (nbytes - 1).bit_length()))
            self._memory = cupy().cuda.alloc_pinned_memory(size)
            self._view = np.frombuffer(self._memory, np.uint8, size)
        return self._view
