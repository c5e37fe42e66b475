"""WebAssembly code generator."""
