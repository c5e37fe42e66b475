"""SPIR-V for Vulkan: an assembler of its own, loop kernels and templates as compute shaders."""
