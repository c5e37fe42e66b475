"""Vulkan compute devices through the package ``vulkan``, which is loaded when it is used."""
