"""Bytes between host and device: through staging buffers, or straight where memory is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_edge.gpu_workers.vulkan.binding import binding
from rlx_edge.gpu_workers.vulkan.context import DeviceBuffer, VulkanContext
from rlx_edge.runtime.buffers import Bytes

STAGING = 16 << 20
"""Bytes of a staging buffer; larger transfers go through it in parts."""


class Transfers:
    """Staging buffers of one unit, made when they are needed.

    ``run`` records commands by its argument, executes them and waits.
    """

    def __init__(
        self, owner: VulkanContext, holder: str, run: Callable[[Callable[[Any], None]], None]
    ) -> None:
        self._owner, self._holder, self._run = owner, holder, run
        self._staging: dict[str, DeviceBuffer] = {}

    def upload(self, arena: DeviceBuffer, address: int, data: Bytes) -> None:
        """Copy ``data`` to ``address`` of the memory."""
        if arena.mapped is not None:
            np.copyto(arena.mapped[address : address + len(data)], data)
            return
        staging = self._buffer("upload", len(data))
        for at in range(0, len(data), staging.nbytes):
            part = data[at : at + staging.nbytes]
            assert staging.mapped is not None
            np.copyto(staging.mapped[: len(part)], part)
            self._copy(staging, 0, arena, address + at, len(part))

    def download(self, arena: DeviceBuffer, address: int, out: Bytes) -> None:
        """Fill ``out`` from ``address`` of the memory."""
        if arena.mapped is not None:
            np.copyto(out, arena.mapped[address : address + len(out)])
            return
        staging = self._buffer("download", len(out))
        for at in range(0, len(out), staging.nbytes):
            part = out[at : at + staging.nbytes]
            self._copy(arena, address + at, staging, 0, len(part))
            assert staging.mapped is not None
            np.copyto(part, staging.mapped[: len(part)])

    def move(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """All bytes of ``source`` to the front of ``target``."""
        self._copy(source, 0, target, 0, source.nbytes)

    def close(self) -> None:
        for staging in self._staging.values():
            staging.release()
        self._staging.clear()

    def _buffer(self, kind: str, nbytes: int) -> DeviceBuffer:
        """A staging buffer: of the power of two that fits, at most ``STAGING``."""
        wanted = min(STAGING, max(1 << 16, 1 << (nbytes - 1).bit_length()))
        found = self._staging.get(kind)
        if found is not None and found.nbytes < wanted:
            found.release()
            found = None
        if found is None:
            found = self._staging[kind] = DeviceBuffer(self._owner, wanted, kind, self._holder)
        return found

    def _copy(
        self, source: DeviceBuffer, start: int, target: DeviceBuffer, end: int, nbytes: int
    ) -> None:
        vk = binding()
        region = vk.VkBufferCopy(srcOffset=start, dstOffset=end, size=nbytes)
        self._run(
            lambda commands: vk.vkCmdCopyBuffer(commands, source.handle, target.handle, 1, [region])
        )
