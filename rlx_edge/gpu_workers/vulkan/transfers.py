"""Bytes between host and device: through staging buffers, or straight where memory is shared.

Uploads wait in their staging buffer until the next launch takes them along, so that a run with
several inputs is one submission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx_edge.gpu_workers.vulkan.binding import binding
from rlx_edge.gpu_workers.vulkan.context import DeviceBuffer, VulkanContext
from rlx_edge.runtime.buffers import Bytes

STAGING = 16 << 20
"""Bytes of a staging buffer at most; larger transfers go through it in parts."""
LEAST = 1 << 16
STEP = 16
"""Uploads begin at multiples of so many bytes of the staging buffer."""


class Transfers:
    """Staging buffers of one unit, made when they are needed.

    ``run`` records commands by its argument, executes them after all that was launched, and waits.
    """

    def __init__(
        self, owner: VulkanContext, holder: str, run: Callable[[Callable[[Any], None]], None]
    ) -> None:
        self._owner, self._holder, self._run = owner, holder, run
        self._staging: dict[str, DeviceBuffer] = {}
        self._pending: list[tuple[int, int, int]] = []
        self._cursor = 0

    @property
    def waiting(self) -> bool:
        """Whether uploads wait for a launch."""
        return bool(self._pending)

    def upload(self, arena: DeviceBuffer, address: int, data: Bytes) -> None:
        """Copy ``data`` to ``address`` of the memory, before whatever is launched next.

        No launch may be under way where memory is shared.
        """
        if arena.mapped is not None:
            np.copyto(arena.mapped[address : address + len(data)], data)
            return
        for at in range(0, len(data), STAGING):
            self._stage(arena, address + at, data[at : at + STAGING])

    def _stage(self, arena: DeviceBuffer, address: int, part: Bytes) -> None:
        staging = self._staging.get("upload")
        if staging is None or self._cursor + len(part) > staging.nbytes:
            self.flush(arena)
            staging = self._buffer("upload", len(part))
        assert staging.mapped is not None
        np.copyto(staging.mapped[self._cursor : self._cursor + len(part)], part)
        self._pending.append((self._cursor, address, len(part)))
        self._cursor += -(-len(part) // STEP) * STEP

    def record(self, arena: DeviceBuffer) -> Callable[[Any], None]:
        """What records the waiting uploads; they wait no longer."""
        vk, staging = binding(), self._staging["upload"]
        regions = [
            vk.VkBufferCopy(srcOffset=start, dstOffset=end, size=nbytes)
            for start, end, nbytes in self._pending
        ]
        self._pending.clear()
        return lambda commands: vk.vkCmdCopyBuffer(
            commands, staging.handle, arena.handle, len(regions), regions
        )

    def flush(self, arena: DeviceBuffer | None) -> None:
        """Carry out the waiting uploads now; all of the staging buffer is free then."""
        if self._pending and arena is not None:
            self._run(self.record(arena))
        elif self._cursor:
            self._run(lambda commands: None)
        self._cursor = 0

    def settled(self) -> None:
        """Everything launched has ended: what was uploaded needs its staging no longer."""
        if not self._pending:
            self._cursor = 0

    def download(self, arena: DeviceBuffer, address: int, out: Bytes) -> None:
        """Fill ``out`` from ``address`` of the memory."""
        if arena.mapped is not None:
            np.copyto(out, arena.mapped[address : address + len(out)])
            return
        self.flush(arena)
        staging = self._buffer("download", len(out))
        for at in range(0, len(out), staging.nbytes):
            part = out[at : at + staging.nbytes]
            self._copy(arena, address + at, staging, 0, len(part))
            assert staging.mapped is not None
            np.copyto(part, staging.mapped[: len(part)])

    def move(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """All bytes of ``source`` to the front of ``target``."""
        self.flush(source)
        self._copy(source, 0, target, 0, source.nbytes)

    def close(self) -> None:
        """Give the staging buffers back; no work may be under way."""
        self._pending.clear()
        for staging in self._staging.values():
            staging.release()
        self._staging.clear()

    def _buffer(self, kind: str, nbytes: int) -> DeviceBuffer:
        """A staging buffer: of the power of two that fits, at most ``STAGING``."""
        wanted = min(STAGING, max(LEAST, 1 << (nbytes - 1).bit_length()))
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
