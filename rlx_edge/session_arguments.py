"""What users hand to a session, checked: devices, caches, hints, programs and names of outputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from rlx_edge.devices import resolve_device
from rlx_edge.ir.attributes import PRECISIONS
from rlx_edge.ir.devices import Device
from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.ir.messages import failure
from rlx_edge.ir.program import Program

Cache = bool | str | os.PathLike[str]
"""A folder, ``True`` for the usual one, ``False`` for none."""


def only_device(providers: object) -> Device:
    """The one device; unknown, absent and several ones are errors that list what there is."""
    if isinstance(providers, str):
        providers = [providers]
    if providers is not None and not isinstance(providers, Iterable):
        raise _not_names(type(providers).__name__)
    names = ["wasm:0"] if providers is None else list(providers)
    for name in names:
        if not isinstance(name, str):
            raise _not_names(repr(name))
    devices = [resolve_device(name) for name in names]
    if len(devices) != 1:
        raise DeviceError(
            "device.count",
            "a session runs on one device",
            found=names or "no provider",
            allowed="one name",
        )
    return devices[0]


def chosen_cache(cache: object) -> bool | Path:
    """``InputError`` ``session.argument`` unless this is a ``Cache``."""
    if isinstance(cache, bool):
        return cache
    if isinstance(cache, (str, os.PathLike)):
        return Path(cache)
    raise _argument("cache", cache, "a folder, True or False")


def chosen_precision(precision: object) -> str:
    """``InputError`` ``session.argument`` unless there is such a precision."""
    if isinstance(precision, str) and precision in PRECISIONS:
        return precision
    raise _argument("precision", precision, f"one of {', '.join(PRECISIONS)}")


def plan_limit(plans: object) -> int:
    """``InputError`` ``session.argument`` unless this counts something."""
    if isinstance(plans, int) and not isinstance(plans, bool) and plans > 0:
        return plans
    raise _argument("plans", plans, "a whole number from 1")


def given_program(program: object) -> Program | None:
    """``InputError`` ``session.argument`` unless this is a program or nothing."""
    if program is None or isinstance(program, Program):
        return program
    raise _argument("program", program, "a Program, as load_program gives it")


def hint_values(given: object, known: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The content of inputs by name, row-major; ``known`` are the model's inputs."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _argument("value_hint", given, "a mapping from input names to integers")
    for name in given:
        if name not in known:
            raise failure("input.name", name=name, names=known or "none")
    return {name: _integers(name, value) for name, value in given.items()}


def output_positions(names: object, known: Sequence[str]) -> list[int]:
    """Positions of the named outputs among ``known``; all for ``None`` and for an empty list."""
    if names is None:
        return list(range(len(known)))
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise failure("output.names", found=repr(names))
    wanted = list(names)
    for name in wanted:
        if not isinstance(name, str):
            raise failure("output.names", found=repr(names))
        if name not in known:
            raise failure("output.name", name=name, names=known)
    return [known.index(name) for name in wanted] or list(range(len(known)))


def _integers(name: str, value: object) -> tuple[int, ...]:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iub":
        raise InputError(
            "session.hint",
            f"the hint for input '{name}' is not a number or list of them",
            found=repr(value),
            allowed="integers",
        )
    return tuple(int(item) for item in array.flat)


def _not_names(found: str) -> DeviceError:
    return DeviceError(
        "device.name",
        "providers are device names",
        found=found,
        allowed='strings such as "wasm:0"',
    )


def _argument(name: str, found: object, allowed: str) -> InputError:
    return InputError(
        "session.argument",
        f"the argument '{name}' is not right",
        found=repr(found),
        allowed=allowed,
    )
