"""WebAssembly under wasmtime: engine, units and the compiled-module cache."""
