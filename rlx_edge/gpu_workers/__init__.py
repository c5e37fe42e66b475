"""Units on graphics processors: CUDA and Vulkan. Importing this loads no driver."""
