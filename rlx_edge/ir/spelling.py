"""Right spellings for names that users and other tools write: renamed fields, then near misses."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

ATTRIBUTES: dict[str, str] = {
    "strides": "stride",
    "pads": "padding",
    "pad": "padding",
    "dilations": "dilation",
    "group": "groups",
    "eps": "epsilon",
    "devices": "target_device_set",
    "device": "target_device_set",
    "target_devices": "target_device_set",
    "sharding": "sharding_strategy",
    "data_parallel": "sharding_strategy",
    "dp": "sharding_strategy",
    "layout": "memory_layout",
    "sync": "sync_mode",
    "buffer_sharing": "buffer_sharing_capability",
    "execution_phase": "phase",
    "kernel_shape": "kernel",
    "permutation": "perm",
}
"""Attribute names of other schemas and of habit → this schema's."""

VALUES: dict[str, str] = {
    "dp": "data_parallel",
    "tp_column": "tensor_parallel_column",
    "tp_row": "tensor_parallel_row",
    "tensor_parallel": "tensor_parallel_column",
    "pp": "pipeline",
    "async": "async_barrier",
    "barrier": "async_barrier",
    "block": "blocking",
    "nchw4": "NCHW4c",
    "nchwc4": "NCHW4c",
    "dma": "p2p_dma",
    "shm": "shared_memory",
}
"""Attribute values, keys in lower case."""

MAX_OFFERED = 6
MAX_SEARCHED = 4096
MAX_SEARCHED_NAME = 64

OPERATORS: dict[str, str] = {
    "conv": "conv2d",
    "gemm": "matmul",
    "batch_normalization": "batch_norm",
    "batchnorm": "batch_norm",
}
"""Operator names without dialect."""


def right_attribute(name: str, known: Iterable[str]) -> str | None:
    """The attribute that ``name`` was probably meant to be."""
    return _right(name, known, ATTRIBUTES)


def right_value(value: str, known: Iterable[str]) -> str | None:
    """The choice that ``value`` was probably meant to be."""
    return _right(value, known, VALUES)


def right_operator(name: str, known: Iterable[str]) -> str | None:
    """The operator that ``dialect::name`` was probably meant to be."""
    choices = list(known)
    dialect, _, base = name.partition("::")
    renamed = OPERATORS.get(base.lower())
    for candidate in (renamed, base, base.lower()):
        for prefix in dict.fromkeys((dialect, "rlxc", "tensor", "comm")):
            if candidate is not None and f"{prefix}::{candidate}" in choices:
                return f"{prefix}::{candidate}"
    by_base = {choice.partition("::")[2]: choice for choice in choices}
    near = _near(base, list(by_base), 0.75)
    return by_base[near] if near is not None else None


def near_operators(name: str, known: Iterable[str]) -> list[str]:
    """What to offer for an operator without a near miss: dialects, or a few of its dialect."""
    dialects = dict.fromkeys(choice.partition("::")[0] for choice in known)
    dialect, _, base = name.partition("::")
    if dialect not in dialects:
        return [f"{each}::…" for each in dialects]
    bases = [choice.partition("::")[2] for choice in known if choice.startswith(f"{dialect}::")]
    near = difflib.get_close_matches(base[:MAX_SEARCHED_NAME], bases, MAX_OFFERED, 0.0)
    return [*(f"{dialect}::{each}" for each in near), "…"]


def near_name(name: str, known: Collection[str]) -> str | None:
    """A known name like ``name``; long names and long lists are not searched (they cost time)."""
    if len(name) > MAX_SEARCHED_NAME or len(known) > MAX_SEARCHED:
        return None
    return _near(name, list(known))


def _right(name: str, known: Iterable[str], renamed: dict[str, str]) -> str | None:
    choices = list(known)
    found = renamed.get(name.lower())
    if found in choices:
        return found
    for choice in choices:
        if choice.lower() == name.lower():
            return choice
    return _near(name, choices)


def _near(name: str, choices: list[str], cutoff: float = 0.6) -> str | None:
    if len(name) > MAX_SEARCHED_NAME:
        return None
    return next(iter(difflib.get_close_matches(name, choices, 1, cutoff)), None)
