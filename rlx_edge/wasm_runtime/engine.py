"""The process's wasmtime engine and what identifies the code that it makes.

Defaults otherwise: neither fuel nor epochs (each costs a check per loop iteration), guard pages
and a 4 GiB reservation a memory, so that bounds checks are free and a memory never moves.
"""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import version

import wasmtime

# Everything that is set on the configuration; part of the key of compiled code.
SETTINGS: tuple[tuple[str, str | bool], ...] = (
    ("cranelift_opt_level", "speed"),
    ("memory_may_move", False),
)


@cache
def engine() -> wasmtime.Engine:
    """The one engine; compiled modules of it can be shared by any number of units."""
    config = wasmtime.Config()
    for name, value in SETTINGS:
        setattr(config, name, value)
    return wasmtime.Engine(config)


@cache
def engine_identity() -> str:
    """What compiled code depends on beside the WebAssembly bytes: version, settings, platform."""
    settings = ",".join(f"{name}={value}" for name, value in SETTINGS)
    return f"wasmtime {version('wasmtime')};{settings};{sys.platform};{platform.machine()}"
