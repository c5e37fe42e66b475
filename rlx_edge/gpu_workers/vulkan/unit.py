"""A program on a Vulkan device: its pipelines, its memory, and launches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from rlx_edge.gpu_workers.vulkan.commands import Commands, Dispatch, record_launches
from rlx_edge.gpu_workers.vulkan.context import DeviceBuffer, VulkanContext, context
from rlx_edge.gpu_workers.vulkan.pipelines import Pipelines
from rlx_edge.gpu_workers.vulkan.transfers import Transfers
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.kernel import PUSHED_WORDS
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program
from rlx_edge.ir.types import DType
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.buffers import Bytes, memory_range
from rlx_edge.runtime.records import records
from rlx_edge.runtime.units import Array, memory_limit, unit_closed

GRAIN = 1 << 16
"""Memory grows in multiples of so many bytes."""


class VulkanUnit:
    """``ExecutionUnit`` over Vulkan; ``device`` is the name in messages and traces.

    Memory is one buffer. Launches are recorded once for each parameter block and stretch of
    launches; ``launch`` starts them and returns, ``synchronize`` waits. A unit is used by one
    thread at a time.
    """

    def __init__(
        self, device: str = "vulkan:0", owner: VulkanContext | None = None, holder: str = "unit"
    ) -> None:
        """``DeviceError`` where the machine has no such device."""
        self.device = device
        self._owner = context(parse_device(device).index) if owner is None else owner
        self._holder = holder
        self._state = "empty"
        self._program: Program | None = None
        self._arena: DeviceBuffer | None = None
        self._exportable = False
        self.generation = 0
        """Counts the places that the memory has had."""
        self._block = np.zeros(0, np.uint8)
        self._block_key = b""
        self._fences: list[Any] = []
        self._pipelines: Pipelines | None = None
        self._commands: Commands | None = None
        self._transfers: Transfers | None = None

    @property
    def size(self) -> int:
        self._use()
        return 0 if self._arena is None else self._arena.nbytes

    @property
    def address_space(self) -> int:
        return self._owner.device.target.memory.limit

    @property
    def recordings(self) -> int:
        """How many stretches of launches were recorded so far."""
        return 0 if self._commands is None else self._commands.recordings

    def load(self, program: Program) -> None:
        """``DeviceError`` ``program.target`` for code of another kind of device."""
        if self._state != "empty":
            raise (
                unit_closed(self.device)
                if self._state == "closed"
                else DeviceError("unit.loaded", "the unit has a program already", where=self.device)
            )
        if not self._owner.device.target.takes(program.target):
            raise DeviceError(
                "program.target",
                "the program was compiled for another device",
                found=program.target,
                allowed=self._owner.device.target.name,
                where=self.device,
            )
        self._pipelines = Pipelines(self._owner, program.code, program.entries)
        self._commands = Commands(self._owner)
        self._transfers = Transfers(self._owner, self._holder, self._run_once)
        self._program = program
        self._block = np.zeros(4 * len(program.plan.words), np.uint8)
        self._state = "ready"

    def grow(self, nbytes: int) -> None:
        self._use()
        if nbytes <= self.size:
            return
        limit = self.address_space
        if nbytes > limit:
            raise memory_limit(self.device, nbytes, limit)
        self.synchronize()
        self._make_arena(min(limit, -(-nbytes // GRAIN) * GRAIN))

    def _make_arena(self, wanted: int) -> None:
        """Another arena with what the one before had; nothing is running."""
        commands, transfers, pipelines = self._use()
        try:
            arena = DeviceBuffer(
                self._owner, wanted, "arena", self._holder, exportable=self._exportable
            )
        except DeviceError as error:
            if error.code != "vulkan.memory":
                raise
            raise failure("memory.grow", where=self.device, nbytes=wanted) from None
        if self._arena is not None:
            transfers.move(self._arena, arena)
            self._arena.release()
        self._arena = arena
        self.generation += 1
        pipelines.use(arena)
        commands.forget()

    # ---- other drivers -----------------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        """Of the physical device, 16 bytes."""
        return self._owner.device.uuid

    def exported(self) -> tuple[int, int, int] | None:
        """``(file, bytes, generation)`` of the memory now, for another driver on the same device;
        the caller closes the file. ``None`` where this driver exports nothing."""
        self._use()
        if not self._owner.exports or self._arena is None:
            return None
        if not self._exportable:
            self._exportable = True
            self.synchronize()
            self._make_arena(self.size)
        return self._arena.export(), self._arena.reserved, self.generation

    def upload(self, address: int, data: Array) -> None:
        _, transfers, _ = self._use()
        self._check(address, data.nbytes)
        if not data.nbytes:
            return
        plain = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
        raw = plain.reshape(-1).view(np.uint8)
        assert self._arena is not None
        if self._arena.mapped is not None:
            self.synchronize()
        transfers.upload(self._arena, address, raw)
        self._note_block(address, raw)

    def download(self, address: int, dtype: DType, shape: tuple[int, ...]) -> Array:
        _, transfers, _ = self._use()
        array = np.empty(shape, numpy_dtype(dtype))
        self._check(address, array.nbytes)
        self.synchronize()
        if array.nbytes:
            assert self._arena is not None
            transfers.download(self._arena, address, array.reshape(-1).view(np.uint8))
        return array

    def launch(self, begin: int, end: int) -> None:
        commands, transfers, pipelines = self._use()
        if not commands.knows(self._block_key):
            self.synchronize()
        recorded = commands.recorded(
            self._block_key,
            (begin, end),
            lambda buffer: record_launches(buffer, pipelines, self._launches(begin, end)),
        )
        work = [recorded]
        if transfers.waiting:
            self._wait()
            assert self._arena is not None
            work.insert(0, commands.once(transfers.record(self._arena)))
        self._fences.append(self._attempt(lambda: self._owner.submit(work)))

    def synchronize(self) -> None:
        """Until everything that was launched has ended and everything that was uploaded is there:
        another driver may look at the memory then."""
        _, transfers, _ = self._use()
        self._wait()
        if transfers.waiting:
            transfers.flush(self._arena)

    def _wait(self) -> None:
        _, transfers, _ = self._use()
        fences, self._fences = self._fences, []
        self._attempt(lambda: self._owner.wait(fences))
        transfers.settled()

    def bytes_at(self, address: int, nbytes: int) -> Bytes:
        """A view where the host addresses the device's memory, else ``DeviceError``
        ``memory.host``."""
        self.require(address, nbytes)
        if self._arena is None or self._arena.mapped is None:
            raise DeviceError(
                "memory.host", "the host cannot address this memory", where=self.device
            )
        return self._arena.mapped[address : address + nbytes]

    def require(self, address: int, nbytes: int) -> None:
        """``DeviceError`` ``memory.range`` unless these bytes lie inside the memory."""
        self._use()
        self._check(address, nbytes)

    def free(self, address: int, nbytes: int) -> None:
        """Places come from the memory plan: nothing to take back."""

    def close(self) -> None:
        """Destroy pipelines, recordings and memory."""
        if self._state == "closed":
            return
        if self._state != "empty":
            with suppress(DeviceError):  # a lost device runs nothing any more
                self._owner.wait(self._fences)
            for part in (self._commands, self._pipelines, self._transfers):
                if part is not None:
                    part.close()
            if self._arena is not None:
                self._arena.release()
        self._fences = []
        self._commands = self._pipelines = self._transfers = self._arena = None
        self._state = "closed"

    # ---- launch records ----------------------------------------------------------------------

    def _note_block(self, address: int, raw: Bytes) -> None:
        """Keep the host's copy of the parameter block up to date."""
        assert self._program is not None
        first = self._program.plan.block_address
        start, end = max(address, first), min(address + len(raw), first + len(self._block))
        if start < end:
            self._block[start - first : end - first] = raw[start - address : end - address]
            self._block_key = self._block.tobytes()

    def _launches(self, begin: int, end: int) -> list[Dispatch]:
        """Pipeline, workgroups and push constants of launches, by their records."""
        assert self._program is not None and self._arena is not None
        assert self._pipelines is not None
        block, entries = self._program.plan.block_address, self._program.entries
        header = b""
        if self._pipelines.by_pointer:
            header = self._arena.address.to_bytes(8, "little")
        found: list[Dispatch] = []
        asked = self._program.launches[begin:end]
        read = records(self._block.view(np.int32), block, entries, begin, end)
        for number, record in enumerate(read):
            words = record.words
            if len(words) > PUSHED_WORDS:
                words = np.array([block // 4 + record.place], np.int32)
            # Kernels stride over the work: fewer workgroups than the plan's are as right.
            groups = min(max(0, record.groups), self._owner.device.groups)
            waits = number >= len(asked) or asked[number].waits
            found.append(Dispatch(record.kernel, groups, header + words.tobytes(), waits))
        return found

    # ---- state -------------------------------------------------------------------------------

    def _run_once(self, record: Callable[[Any], None]) -> None:
        commands, _, _ = self._use()
        fences, self._fences = self._fences, []
        self._attempt(lambda: self._owner.wait(fences))
        work = commands.once(record)
        self._attempt(lambda: self._owner.wait([self._owner.submit([work])]))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except DeviceError:
            self._state = "failed"
            raise

    def _check(self, address: int, nbytes: int) -> None:
        if address < 0 or nbytes < 0 or address + nbytes > self.size:
            raise memory_range(address, nbytes, self.size)

    def _use(self) -> tuple[Commands, Transfers, Pipelines]:
        if self._state == "failed":
            raise failure("unit.failed", where=self.device)
        if self._commands is None or self._transfers is None or self._pipelines is None:
            raise (
                unit_closed(self.device)
                if self._state == "closed"
                else DeviceError("unit.empty", "no program is loaded", where=self.device)
            )
        return self._commands, self._transfers, self._pipelines
