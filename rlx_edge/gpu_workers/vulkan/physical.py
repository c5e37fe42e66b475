"""The Vulkan devices of this machine: limits, features, and the compiler's target for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from rlx_edge.compile import Matrices, VulkanTarget
from rlx_edge.gpu_workers.vulkan.binding import binding, guarded
from rlx_edge.ir.errors import DeviceError

API_1_1 = (1 << 22) | (1 << 12)
API_1_2 = (1 << 22) | (2 << 12)
API_1_3 = (1 << 22) | (3 << 12)
KINDS = ("other", "integrated GPU", "discrete GPU", "virtual GPU", "software on the CPU")
NO_INDEPENDENCE = 2
"""VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE"""
EXPORT_EXTENSION = "VK_KHR_external_memory_fd"
MATRIX_EXTENSION = "VK_KHR_cooperative_matrix"
LEAST_PUSH = 120
"""Bytes of push constants that kernels use."""


@dataclass(frozen=True, slots=True)
class Subgroups:
    """Subgroups of one ``size``, at ``most`` so many of a workgroup; ``asked`` whether the size
    must be asked for, else there is no other."""

    size: int
    most: int
    asked: bool


@dataclass(frozen=True, slots=True)
class VulkanDevice:
    """A physical device. ``handle`` is the driver's; ``target`` what kernels are made for."""

    index: int
    title: str
    kind: str
    vendor: int
    driver: int
    version: tuple[int, int, int]
    memory: int
    """Bytes of the largest heap on the device."""
    groups: int
    """Most workgroups of a launch."""
    shares_memory: bool
    """Whether the host addresses the device's memory as fast as its own."""
    target: VulkanTarget
    handle: Any
    uuid: bytes = b""
    """Of the physical device, the same for every driver."""
    exports: bool = False
    """Whether memory can be given to other drivers."""
    subgroups: Subgroups | None = None
    """``None`` where nothing keeps pipelines to one size."""
    multiplies: bool = False
    """Whether subgroups multiply cooperative matrices."""

    @property
    def name(self) -> str:
        return f"vulkan:{self.index}"


@cache
def instance() -> Any:
    """The process's one instance. ``DeviceError`` ``vulkan.instance`` where no driver answers."""
    vk = binding()
    application = vk.VkApplicationInfo(
        pApplicationName="rlx-edge", pEngineName="rlx-edge", apiVersion=API_1_3
    )
    try:
        return vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
    except (vk.VkError, vk.VkException) as error:
        raise DeviceError(
            "vulkan.instance",
            "no Vulkan driver is installed",
            found=type(error).__name__,
            hint="mesa-vulkan-drivers has one in software",
        ) from None


@cache
def devices() -> tuple[VulkanDevice, ...]:
    """Every device that can run kernels, GPUs before software, in the driver's order."""
    vk = binding()
    with guarded("vulkan", "listing devices"):
        handles = list(vk.vkEnumeratePhysicalDevices(instance()))
    found = [item for item in map(_describe, handles) if item is not None]
    found.sort(key=lambda item: item[0] == KINDS[4])
    return tuple(
        VulkanDevice(index, title, kind, *rest) for index, (kind, title, *rest) in enumerate(found)
    )


def device(index: int) -> VulkanDevice:
    """The device of that index; ``DeviceError`` ``vulkan.device`` lists what there is."""
    found = devices()
    if not 0 <= index < len(found):
        raise DeviceError(
            "vulkan.device",
            f"there is no Vulkan device {index} on this machine",
            found="none" if not found else [item.title for item in found],
            allowed=[item.name for item in found] or None,
        )
    return found[index]


def _describe(handle: Any) -> Any:
    vk = binding()
    ffi = vk.ffi
    version = vk.vkGetPhysicalDeviceProperties(handle).apiVersion
    if version < API_1_1:
        return None
    later = version >= API_1_2
    identity = vk.VkPhysicalDeviceIDProperties()
    drivers = vk.VkPhysicalDeviceDriverProperties(pNext=identity)
    floats = vk.VkPhysicalDeviceFloatControlsProperties(pNext=drivers)
    properties = vk.VkPhysicalDeviceProperties2(pNext=floats if later else identity)
    vk.vkGetPhysicalDeviceProperties2(handle, ffi.addressof(properties))
    basic, limits = properties.properties, properties.properties.limits
    twelve = vk.VkPhysicalDeviceVulkan12Features()
    eleven = vk.VkPhysicalDeviceVulkan11Features(pNext=twelve)
    features = vk.VkPhysicalDeviceFeatures2(pNext=eleven if later else None)
    vk.vkGetPhysicalDeviceFeatures2(handle, ffi.addressof(features))
    flags = features.features
    kind = KINDS[basic.deviceType]
    extensions = {
        item.extensionName for item in vk.vkEnumerateDeviceExtensionProperties(handle, None)
    }
    if limits.maxPushConstantsSize < LEAST_PUSH:
        return None
    multiplies = MATRIX_EXTENSION in extensions
    subgroups = subgroups_of(handle) if version >= API_1_3 else None
    rounds_half = (
        floats.shaderRoundingModeRTEFloat16 and floats.roundingModeIndependence != NO_INDEPENDENCE
    )
    matrices = ""
    if multiplies and rounds_half and twelve.shaderFloat16 and twelve.vulkanMemoryModel:
        matrices = matrices_of(handle, subgroups)
    target = VulkanTarget(
        addressing="pointer" if twelve.bufferDeviceAddress and flags.shaderInt64 else "descriptor",
        storage8=bool(twelve.storageBuffer8BitAccess),
        storage16=bool(eleven.storageBuffer16BitAccess),
        int64=bool(flags.shaderInt64),
        float64=bool(flags.shaderFloat64),
        denormals=_kept_denormals(floats),
        special_values=bool(floats.shaderSignedZeroInfNanPreserveFloat32),
        round_even=bool(
            floats.shaderRoundingModeRTEFloat32
            and floats.roundingModeIndependence != NO_INDEPENDENCE
        ),
        invocations=min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]),
        shared=limits.maxComputeSharedMemorySize,
        range=limits.maxStorageBufferRange,
        matrices=matrices,
        driver=VulkanTarget.driver_of(basic.vendorID, drivers.driverID),
    )
    heaps = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    memory = max(
        (
            heaps.memoryHeaps[number].size
            for number in range(heaps.memoryHeapCount)
            if heaps.memoryHeaps[number].flags & vk.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
        ),
        default=0,
    )
    title = (
        ffi.string(basic.deviceName).decode()
        if not isinstance(basic.deviceName, str)
        else (basic.deviceName)
    )
    return (
        kind,
        title,
        basic.vendorID,
        drivers.driverID,
        (version >> 22, version >> 12 & 0x3FF, version & 0xFFF),
        memory,
        limits.maxComputeWorkGroupCount[0],
        kind in (KINDS[1], KINDS[4]),
        target,
        handle,
        bytes(identity.deviceUUID),
        EXPORT_EXTENSION in extensions,
        subgroups,
        multiplies,
    )


def _kept_denormals(floats: Any) -> str:
    """Widths for which denormals are kept, as ``VulkanTarget.denormals`` says it."""
    if not floats.shaderDenormPreserveFloat32:
        return ""
    if floats.denormBehaviorIndependence != NO_INDEPENDENCE:
        return "32"
    every = floats.shaderDenormPreserveFloat16 and floats.shaderDenormPreserveFloat64
    return "all" if every else ""


def subgroups_of(handle: Any) -> Subgroups | None:
    """The subgroups that pipelines can be kept to, full ones."""
    vk = binding()
    control = vk.VkPhysicalDeviceSubgroupSizeControlProperties()
    subgroups = vk.VkPhysicalDeviceSubgroupProperties(pNext=control)
    properties = vk.VkPhysicalDeviceProperties2(pNext=subgroups)
    vk.vkGetPhysicalDeviceProperties2(handle, vk.ffi.addressof(properties))
    thirteen = vk.VkPhysicalDeviceVulkan13Features()
    features = vk.VkPhysicalDeviceFeatures2(pNext=thirteen)
    vk.vkGetPhysicalDeviceFeatures2(handle, vk.ffi.addressof(features))
    asked = control.minSubgroupSize != control.maxSubgroupSize
    stages = control.requiredSubgroupSizeStages
    can_ask = thirteen.subgroupSizeControl and stages & vk.VK_SHADER_STAGE_COMPUTE_BIT
    if not thirteen.computeFullSubgroups or (asked and not can_ask):
        return None
    return Subgroups(subgroups.subgroupSize, control.maxComputeWorkgroupSubgroups, asked)


def matrices_of(handle: Any, subgroups: Subgroups | None) -> str:
    """``VulkanTarget.matrices`` of a device, of several shapes the one of most products."""
    if subgroups is None:
        return ""
    vk = binding()
    wanted = (
        *(vk.VK_COMPONENT_TYPE_FLOAT16_KHR,) * 2,
        *(vk.VK_COMPONENT_TYPE_FLOAT32_KHR,) * 2,
        vk.VK_SCOPE_SUBGROUP_KHR,
    )
    shapes = [
        Matrices(row.MSize, row.NSize, row.KSize, subgroups.size)
        for row in _matrix_rows(handle)
        if (row.AType, row.BType, row.CType, row.ResultType, row.scope) == wanted
    ]
    best = max(shapes, key=lambda item: item.rows * item.columns * item.depth, default=None)
    return "" if best is None else best.text


def _matrix_rows(handle: Any) -> Any:
    """What the driver lists. The package's own function leaves the types of structs open."""
    vk = binding()
    ffi, name = vk.ffi, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    found = vk.lib.vkGetInstanceProcAddr(instance(), name.encode())
    if found == ffi.NULL:
        return []
    ask, count = ffi.cast(f"PFN_{name}", found), ffi.new("uint32_t*")
    ask(handle, count, ffi.NULL)
    rows = ffi.new("VkCooperativeMatrixPropertiesKHR[]", count[0])
    for row in rows:
        row.sType = vk.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    ask(handle, count, rows)
    return rows


def close_instance() -> None:
    """Destroy the instance; devices are found again when asked for."""
    if instance.cache_info().currsize:
        binding().vkDestroyInstance(instance(), None)
    instance.cache_clear()
    devices.cache_clear()
