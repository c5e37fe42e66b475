"""Template kernels alone against the reference loop, under wasmtime and node."""
