"""Logical devices: one for each physical device and process, opened on first use.

A context makes buffers of memory, submits command buffers to its queue and waits for them. It
counts what is still held, and says who holds it when it is shut down.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlx_edge.gpu_workers.vulkan.binding import binding, guarded
from rlx_edge.gpu_workers.vulkan.physical import (
    EXPORT_EXTENSION,
    MATRIX_EXTENSION,
    VulkanDevice,
    close_instance,
    device,
)
from rlx_edge.ir.errors import DeviceError
from rlx_edge.runtime.buffers import Bytes

FOREVER = (1 << 64) - 1
# The package has no numbers for these two bits.
DEVICE_ADDRESS_USAGE = 0x00020000
"""VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT"""
OPAQUE_FD = 0x00000001
"""VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT"""
DEVICE_ADDRESS_MEMORY = 0x00000002
"""VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT"""

_contexts: dict[int, VulkanContext] = {}
_lost: list[VulkanContext] = []
"""Contexts that answer nothing any more; units may still hold something of them."""
_process: list[int] = []
_lock = threading.Lock()


def context(index: int) -> VulkanContext:
    """The process's context of a device; a fresh one after the device was lost.

    ``DeviceError`` where there is none, ``vulkan.fork`` in a child of a process that has one: a
    driver does not survive a fork.
    """
    with _lock:
        if _contexts and _process[0] != os.getpid():
            raise DeviceError(
                "vulkan.fork",
                "Vulkan was opened before this process was forked",
                found=f"opened in process {_process[0]}",
                allowed="a worker process started afresh (spawn)",
            )
        _process[:] = [os.getpid()]
        found = _contexts.get(index)
        if found is not None and found.is_lost:
            _lost.append(found)
            found = None
        if found is None:
            found = _contexts[index] = VulkanContext(device(index))
        return found


def shut_down() -> list[str]:
    """Close every context and the instance; one line for each buffer that was still held."""
    with _lock:
        every = [*_lost, *_contexts.values()]
        leaks = [line for found in every for line in found.close()]
        if every:
            _contexts.clear()
            _lost.clear()
            close_instance()
        return leaks


def _at_exit() -> None:
    """Say what was still held; the children of a fork hold nothing of their own."""
    if _process and _process[0] == os.getpid():
        for line in shut_down():
            print(f"rlx: leak: {line}", file=sys.stderr)


atexit.register(_at_exit)


class DeviceBuffer:
    """A buffer with memory of its own; ``mapped`` is its bytes where the host can address them."""

    def __init__(
        self,
        owner: VulkanContext,
        nbytes: int,
        kind: str,
        holder: str,
        *,
        exportable: bool = False,
    ) -> None:
        """``kind``: ``arena``, ``upload`` or ``download``; ``exportable`` memory can be given to
        other drivers. ``DeviceError`` ``vulkan.memory``."""
        vk = binding()
        self.owner, self.nbytes, self.kind, self.holder = owner, nbytes, kind, holder
        self.exportable = exportable
        self.reserved = nbytes
        """Bytes of the memory itself, which may be more."""
        usage = vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        by_address = kind == "arena" and owner.device.target.addressing == "pointer"
        if kind == "arena":
            usage |= vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
        if by_address:
            usage |= DEVICE_ADDRESS_USAGE
        exports = None
        if exportable:
            exports = vk.VkExternalMemoryBufferCreateInfo(handleTypes=OPAQUE_FD)
        with guarded(owner.name, f"reserving {nbytes} bytes"):
            self.handle = vk.vkCreateBuffer(
                owner.handle,
                vk.VkBufferCreateInfo(
                    pNext=exports,
                    size=nbytes,
                    usage=usage,
                    sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE,
                ),
                None,
            )
            try:
                self._bind(by_address)
            except BaseException:
                vk.vkDestroyBuffer(owner.handle, self.handle, None)
                raise
        owner.buffers.append(self)

    def _bind(self, by_address: bool) -> None:
        vk, owner = binding(), self.owner
        needs = vk.vkGetBufferMemoryRequirements(owner.handle, self.handle)
        number, is_mapped = owner.memory_type(needs.memoryTypeBits, self.kind)
        chain = vk.VkExportMemoryAllocateInfo(handleTypes=OPAQUE_FD) if self.exportable else None
        flags = vk.VkMemoryAllocateFlagsInfo(pNext=chain, flags=DEVICE_ADDRESS_MEMORY, deviceMask=0)
        self.reserved = needs.size
        request = vk.VkMemoryAllocateInfo(
            pNext=flags if by_address else chain,
            allocationSize=needs.size,
            memoryTypeIndex=number,
        )
        self.memory = vk.vkAllocateMemory(owner.handle, request, None)
        vk.vkBindBufferMemory(owner.handle, self.handle, self.memory, 0)
        self.mapped: Bytes | None = None
        if is_mapped:
            view = vk.vkMapMemory(owner.handle, self.memory, 0, self.nbytes, 0)
            self.mapped = np.frombuffer(view, np.uint8)
        self.address = 0
        if by_address:
            # The package's own function drops the result.
            asked = vk.ffi.new("VkBufferDeviceAddressInfo*")
            asked.sType = vk.VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO
            asked.buffer = self.handle
            self.address = int(vk.lib.vkGetBufferDeviceAddress(owner.handle, asked))

    def export(self) -> int:
        """A file that another driver can import the memory from; the caller closes it."""
        vk, owner = binding(), self.owner
        get = vk.vkGetDeviceProcAddr(owner.handle, "vkGetMemoryFdKHR")
        with guarded(owner.name, "exporting memory"):
            return int(
                get(owner.handle, vk.VkMemoryGetFdInfoKHR(memory=self.memory, handleType=OPAQUE_FD))
            )

    def release(self) -> None:
        """Give the memory back; nothing may be using it."""
        vk, owner = binding(), self.owner
        self.mapped = None
        vk.vkDestroyBuffer(owner.handle, self.handle, None)
        vk.vkFreeMemory(owner.handle, self.memory, None)
        owner.buffers.remove(self)

    def __str__(self) -> str:
        return f"{self.holder} holds {self.kind} ({self.nbytes} bytes on {self.owner.name})"


class VulkanContext:
    """One logical device with one compute queue. Calls may come from several threads."""

    def __init__(self, found: VulkanDevice) -> None:
        vk = binding()
        self.device, self.name = found, found.name
        self.buffers: list[DeviceBuffer] = []
        self.is_lost = False
        self._fences: list[Any] = []
        self._queue_lock = threading.Lock()
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(found.handle)
        able = [
            number
            for number, family in enumerate(families)
            if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT
        ]
        if not able:
            raise DeviceError("vulkan.queue", "the device has no compute queue", where=found.name)
        self.family = able[0]
        self.exports = found.exports
        with guarded(found.name, "opening the device"):
            self.handle = self._open(found)
            self.queue = vk.vkGetDeviceQueue(self.handle, self.family, 0)
        self._types = vk.vkGetPhysicalDeviceMemoryProperties(found.handle)

    def _open(self, found: VulkanDevice) -> Any:
        vk, target = binding(), found.target
        queue = vk.VkDeviceQueueCreateInfo(
            queueFamilyIndex=self.family, queueCount=1, pQueuePriorities=[1.0]
        )
        matrices = bool(target.matrices)
        multiply = vk.VkPhysicalDeviceCooperativeMatrixFeaturesKHR(cooperativeMatrix=True)
        thirteen = vk.VkPhysicalDeviceVulkan13Features(
            pNext=multiply if found.multiplies else None,
            subgroupSizeControl=found.subgroups is not None and found.subgroups.asked,
            computeFullSubgroups=True,
        )
        twelve = vk.VkPhysicalDeviceVulkan12Features(
            pNext=thirteen if matrices else None,
            storageBuffer8BitAccess=target.storage8,
            bufferDeviceAddress=target.addressing == "pointer",
            shaderFloat16=matrices,
            vulkanMemoryModel=matrices,
        )
        eleven = vk.VkPhysicalDeviceVulkan11Features(
            pNext=twelve, storageBuffer16BitAccess=target.storage16
        )
        extensions = [EXPORT_EXTENSION] if self.exports else []
        if matrices and found.multiplies:
            extensions.append(MATRIX_EXTENSION)
        basic = vk.VkPhysicalDeviceFeatures(shaderInt64=target.int64, shaderFloat64=target.float64)
        request = vk.VkDeviceCreateInfo(
            pNext=eleven if found.version >= (1, 2, 0) else None,
            queueCreateInfoCount=1,
            pQueueCreateInfos=[queue],
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extensions,
            pEnabledFeatures=[basic],
        )
        return vk.vkCreateDevice(found.handle, request, None)

    # ---- memory ------------------------------------------------------------------------------

    def memory_type(self, allowed: int, kind: str) -> tuple[int, bool]:
        """``(type, host can address it)`` for a buffer of a kind, the best one first."""
        vk = binding()
        local = vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        host = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        wanted = {
            "arena": [local | host, local] if self.device.shares_memory else [local, 0],
            "upload": [host],
            "download": [host | cached, host],
        }[kind]
        for flags in wanted:
            for number in range(self._types.memoryTypeCount):
                has = self._types.memoryTypes[number].propertyFlags
                if allowed & 1 << number and has & flags == flags:
                    return number, bool(flags & vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
        raise DeviceError("vulkan.memory", f"the device has no memory for {kind}s", where=self.name)

    # ---- work --------------------------------------------------------------------------------

    def submit(self, commands: Sequence[Any]) -> Any:
        """Start command buffers in order; a fence for ``wait``."""
        vk = binding()
        with self._queue_lock, self._watched("submitting work"):
            if self._fences:
                fence = self._fences.pop()
            else:
                fence = vk.vkCreateFence(self.handle, vk.VkFenceCreateInfo(), None)
            work = vk.VkSubmitInfo(commandBufferCount=len(commands), pCommandBuffers=commands)
            vk.vkQueueSubmit(self.queue, 1, [work], fence)
            return fence

    def wait(self, fences: Sequence[Any]) -> None:
        """Until the work behind the fences has ended; they must not be used again."""
        if not fences:
            return
        vk = binding()
        with self._watched("running kernels"):
            vk.vkWaitForFences(self.handle, len(fences), fences, True, FOREVER)
            vk.vkResetFences(self.handle, len(fences), fences)
        with self._queue_lock:
            self._fences += fences

    @contextmanager
    def _watched(self, doing: str) -> Iterator[None]:
        """As ``guarded``; notes that the device is lost."""
        try:
            with guarded(self.name, doing):
                yield
        except DeviceError as error:
            self.is_lost |= error.code == "vulkan.lost"
            raise

    def close(self) -> list[str]:
        """Destroy the device; one line for each buffer that was still held, which is freed."""
        vk = binding()
        leaks = [str(buffer) for buffer in self.buffers]
        try:
            vk.vkDeviceWaitIdle(self.handle)
        except (vk.VkError, vk.VkException):
            leaks.append(f"{self.name} was lost")
        for buffer in list(self.buffers):
            buffer.release()
        for fence in self._fences:
            vk.vkDestroyFence(self.handle, fence, None)
        self._fences.clear()
        vk.vkDestroyDevice(self.handle, None)
        return leaks
