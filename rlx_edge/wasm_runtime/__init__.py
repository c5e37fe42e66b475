"""The wasmtime executor: one shared engine, a cache of compiled modules, one unit a program."""
