"""The process's wasmtime engines and what identifies the code that they make.

Defaults otherwise: no fuel (it costs a check per loop iteration), guard pages and a 4 GiB
reservation a memory, so that bounds checks are free and a memory never moves. Code of the
interruptible engine looks at an epoch in every loop: it is for kernels that a stranger asked for.
"""

from __future__ import annotations

import platform
import sys
import threading
import time
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


EPOCH_SECONDS = 0.05
"""How often the epoch of the interruptible engine advances."""


@cache
def interruptible_engine() -> wasmtime.Engine:
    """An engine whose stores can have a deadline in epochs; a thread advances them."""
    config = wasmtime.Config()
    for name, value in SETTINGS:
        setattr(config, name, value)
    config.epoch_interruption = True
    made = wasmtime.Engine(config)

    def advance() -> None:
        while True:
            time.sleep(EPOCH_SECONDS)
            made.increment_epoch()

    threading.Thread(target=advance, name="rlx-epochs", daemon=True).start()
    return made


@cache
def engine_identity() -> str:
    """What compiled code depends on beside the WebAssembly bytes: version, settings, platform."""
    settings = ",".join(f"{name}={value}" for name, value in SETTINGS)
    return f"wasmtime {version('wasmtime')};{settings};{sys.platform};{platform.machine()}"
