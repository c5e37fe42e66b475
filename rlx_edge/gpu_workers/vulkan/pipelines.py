"""A program's code on a device: a shader module and a pipeline an entry, the pipeline layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx_edge.compile import single_entries
from rlx_edge.gpu_workers.vulkan.binding import binding, guarded
from rlx_edge.gpu_workers.vulkan.context import DeviceBuffer, VulkanContext
from rlx_edge.ir.kernel import PUSHED_WORDS
from rlx_edge.ir.program import Entry

# The package has no number for this bit.
FULL_SUBGROUPS = 0x00000002
"""VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT"""


class Pipelines:
    """Made once when a program is loaded."""

    def __init__(self, owner: VulkanContext, code: bytes, entries: Sequence[Entry]) -> None:
        self.owner = owner
        self.by_pointer = owner.device.target.addressing == "pointer"
        self.pipelines: list[Any] = []
        self.header = 8 if self.by_pointer else 0
        """Bytes of the push constants before the words."""
        self.layout: Any = None
        self.set: Any = None
        self.pool: Any = None
        self.set_layout: Any = None
        try:
            self._make(code, entries)
        except BaseException:
            self.close()
            raise

    def _make(self, code: bytes, entries: Sequence[Entry]) -> None:
        vk, owner = binding(), self.owner
        with guarded(owner.name, "making pipelines"):
            self._describe()
            ranges = vk.VkPushConstantRange(
                stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                offset=0,
                size=self.header + 4 * PUSHED_WORDS,
            )
            sets = [] if self.by_pointer else [self.set_layout]
            request = vk.VkPipelineLayoutCreateInfo(
                setLayoutCount=len(sets),
                pSetLayouts=sets or None,
                pushConstantRangeCount=1,
                pPushConstantRanges=[ranges],
            )
            self.layout = vk.vkCreatePipelineLayout(owner.handle, request, None)
            if entries:
                self._create(code, entries)

    def _create(self, code: bytes, entries: Sequence[Entry]) -> None:
        vk, handle = binding(), self.owner.handle
        modules: list[Any] = []
        try:
            for part in single_entries(code):
                request = vk.VkShaderModuleCreateInfo(codeSize=len(part), pCode=part)
                modules.append(vk.vkCreateShaderModule(handle, request, None))
            # Stages are passed by value: they stay in a list until the pipelines exist.
            stages = [
                vk.VkPipelineShaderStageCreateInfo(
                    stage=vk.VK_SHADER_STAGE_COMPUTE_BIT,
                    module=module,
                    pName=entry.name,
                    **self._subgroups(entry),
                )
                for entry, module in zip(entries, modules, strict=True)
            ]
            requests = [
                vk.VkComputePipelineCreateInfo(stage=stage, layout=self.layout) for stage in stages
            ]
            made = vk.vkCreateComputePipelines(handle, None, len(requests), requests, None)
            self.pipelines = [made[number] for number in range(len(requests))]
        finally:
            for module in modules:
                vk.vkDestroyShaderModule(handle, module, None)

    def _subgroups(self, entry: Entry) -> dict[str, Any]:
        """Full subgroups of the target's size, for workgroups that are made of them: kernels on
        cooperative matrices count on them."""
        found = self.owner.device.subgroups
        if found is None or not self.owner.device.target.matrices:
            return {}
        if entry.threads % found.size or entry.threads > found.size * found.most:
            return {}
        size = binding().VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(
            requiredSubgroupSize=found.size
        )
        return {"pNext": size if found.asked else None, "flags": FULL_SUBGROUPS}

    def _describe(self) -> None:
        """The descriptor set of the memory, where kernels reach it through one."""
        if self.by_pointer:
            return
        vk, handle = binding(), self.owner.handle
        kind = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        bound = vk.VkDescriptorSetLayoutBinding(
            binding=0,
            descriptorType=kind,
            descriptorCount=1,
            stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
        )
        self.set_layout = vk.vkCreateDescriptorSetLayout(
            handle, vk.VkDescriptorSetLayoutCreateInfo(bindingCount=1, pBindings=[bound]), None
        )
        size = vk.VkDescriptorPoolSize(type=kind, descriptorCount=1)
        self.pool = vk.vkCreateDescriptorPool(
            handle,
            vk.VkDescriptorPoolCreateInfo(maxSets=1, poolSizeCount=1, pPoolSizes=[size]),
            None,
        )
        request = vk.VkDescriptorSetAllocateInfo(
            descriptorPool=self.pool, descriptorSetCount=1, pSetLayouts=[self.set_layout]
        )
        self.set = vk.vkAllocateDescriptorSets(handle, request)[0]

    def use(self, arena: DeviceBuffer) -> None:
        """Let the descriptor set mean this memory; no work may be under way."""
        if self.by_pointer:
            return
        vk = binding()
        info = vk.VkDescriptorBufferInfo(buffer=arena.handle, offset=0, range=arena.nbytes)
        write = vk.VkWriteDescriptorSet(
            dstSet=self.set,
            dstBinding=0,
            descriptorCount=1,
            descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            pBufferInfo=[info],
        )
        vk.vkUpdateDescriptorSets(self.owner.handle, 1, [write], 0, None)

    def close(self) -> None:
        """Destroy everything; no work may be under way."""
        vk, handle = binding(), self.owner.handle
        for pipeline in self.pipelines:
            vk.vkDestroyPipeline(handle, pipeline, None)
        self.pipelines.clear()
        for destroy, made in (
            (vk.vkDestroyPipelineLayout, self.layout),
            (vk.vkDestroyDescriptorPool, self.pool),
            (vk.vkDestroyDescriptorSetLayout, self.set_layout),
        ):
            if made is not None:
                destroy(handle, made, None)
        self.layout = self.pool = self.set_layout = None
