"""Command buffers: launches recorded once for a parameter block, and short-lived ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx_edge.gpu_workers.vulkan.binding import binding, guarded
from rlx_edge.gpu_workers.vulkan.context import VulkanContext
from rlx_edge.gpu_workers.vulkan.pipelines import Pipelines

PLANS = 16
"""Parameter blocks whose recordings are kept, least recently used first out."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch: the pipeline's number, its workgroups, its push constants, and whether it needs
    what launches before it left behind."""

    pipeline: int
    groups: int
    push: bytes
    waits: bool = True


class Commands:
    """The command pool of one unit."""

    def __init__(self, owner: VulkanContext) -> None:
        vk = binding()
        self.owner = owner
        self.recordings = 0
        """How many stretches of launches were recorded."""
        self._recorded: OrderedDict[bytes, dict[tuple[int, int], Any]] = OrderedDict()
        flags = vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        request = vk.VkCommandPoolCreateInfo(flags=flags, queueFamilyIndex=owner.family)
        with guarded(owner.name, "making a command pool"):
            self._pool = vk.vkCreateCommandPool(owner.handle, request, None)
        self._scratch: Any = None

    def recorded(
        self, block: bytes, stretch: tuple[int, int], record: Callable[[Any], None]
    ) -> Any:
        """The command buffer of launches ``stretch`` under a parameter block; ``record`` fills
        it the first time. No work may be under way when a block is seen for the first time."""
        found = self._recorded.get(block)
        if found is None:
            while len(self._recorded) >= PLANS:
                self._free(self._recorded.popitem(last=False)[1])
            found = self._recorded[block] = {}
        self._recorded.move_to_end(block)
        commands = found.get(stretch)
        if commands is None:
            commands = self._allocate()
            self._record(commands, record, binding().VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT)
            found[stretch] = commands
            self.recordings += 1
        return commands

    def knows(self, block: bytes) -> bool:
        """Whether something was recorded for this parameter block."""
        return block in self._recorded

    def once(self, record: Callable[[Any], None]) -> Any:
        """A command buffer for one submission; it is the same one each time."""
        if self._scratch is None:
            self._scratch = self._allocate()
        self._record(self._scratch, record, binding().VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
        return self._scratch

    def forget(self) -> None:
        """Drop every recording; no work may be under way."""
        for found in self._recorded.values():
            self._free(found)
        self._recorded.clear()

    def close(self) -> None:
        """Destroy the pool; no work may be under way."""
        self._recorded.clear()
        binding().vkDestroyCommandPool(self.owner.handle, self._pool, None)

    def _allocate(self) -> Any:
        vk = binding()
        request = vk.VkCommandBufferAllocateInfo(
            commandPool=self._pool,
            level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=1,
        )
        with guarded(self.owner.name, "making a command buffer"):
            return vk.vkAllocateCommandBuffers(self.owner.handle, request)[0]

    def _record(self, commands: Any, record: Callable[[Any], None], flags: int) -> None:
        vk = binding()
        with guarded(self.owner.name, "recording commands"):
            vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo(flags=flags))
            _barrier(commands)
            record(commands)
            _barrier(commands)
            vk.vkEndCommandBuffer(commands)

    def _free(self, found: dict[tuple[int, int], Any]) -> None:
        vk = binding()
        if found:
            commands = list(found.values())
            vk.vkFreeCommandBuffers(self.owner.handle, self._pool, len(commands), commands)


def _barrier(commands: Any) -> None:
    """What was written before, by kernels, copies or the host, is seen by all that follows."""
    vk = binding()
    stages = (
        vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        | vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        | vk.VK_PIPELINE_STAGE_HOST_BIT
    )
    memory = vk.VkMemoryBarrier(
        srcAccessMask=vk.VK_ACCESS_MEMORY_WRITE_BIT,
        dstAccessMask=vk.VK_ACCESS_MEMORY_READ_BIT | vk.VK_ACCESS_MEMORY_WRITE_BIT,
    )
    vk.vkCmdPipelineBarrier(commands, stages, stages, 0, 1, [memory], 0, None, 0, None)


def record_launches(commands: Any, pipelines: Pipelines, launches: Sequence[Dispatch]) -> None:
    """Dispatches in order, each that waits seeing what the ones before it wrote."""
    vk = binding()
    stage = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
    memory = vk.VkMemoryBarrier(
        srcAccessMask=vk.VK_ACCESS_SHADER_WRITE_BIT,
        dstAccessMask=vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT,
    )
    bind, push = vk.VK_PIPELINE_BIND_POINT_COMPUTE, vk.VK_SHADER_STAGE_COMPUTE_BIT
    if pipelines.set is not None:
        vk.vkCmdBindDescriptorSets(commands, bind, pipelines.layout, 0, 1, [pipelines.set], 0, None)
    bound, running, waits = -1, False, False
    for launch in launches:
        waits |= launch.waits
        if launch.groups == 0:
            continue
        if waits and running:
            vk.vkCmdPipelineBarrier(commands, stage, stage, 0, 1, [memory], 0, None, 0, None)
        running, waits = True, False
        if launch.pipeline != bound:
            bound = launch.pipeline
            vk.vkCmdBindPipeline(commands, bind, pipelines.pipelines[bound])
        if launch.push:
            values = vk.ffi.from_buffer(launch.push)
            vk.vkCmdPushConstants(commands, pipelines.layout, push, 0, len(launch.push), values)
        vk.vkCmdDispatch(commands, launch.groups, 1, 1)
