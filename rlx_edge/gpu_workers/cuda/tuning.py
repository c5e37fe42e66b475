"""Which way to a result is the fastest: measured once, kept in memory and on disk.

What is measured holds for a choice's key, a class of sizes and a device. Sizes are of one class if
the same power of two is the least that is not below them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlx_edge.gpu_workers.cuda.entries import read_entry, write_entry

SUFFIX = ".tuning.json"
EXACT = 8
"""Sizes up to this one are classes of their own: batches, taps, strides."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of each way, ``None`` for one that cannot run; ``way`` is the least of them."""

    microseconds: tuple[float | None, ...]

    @property
    def way(self) -> int:
        times = [(time, way) for way, time in enumerate(self.microseconds) if time is not None]
        return min(times)[1] if times else 0


class Tuning:
    """The measurements of one device, in ``folder`` where there is one.

    ``device`` is whatever text they depend on besides: the device, the library's version.
    """

    def __init__(self, device: str, folder: Path | None) -> None:
        self._device = device
        self._folder = folder
        self._known: dict[str, Measured] = {}

    def measured(
        self,
        key: str,
        sizes: Sequence[int],
        ways: int,
        measure: Callable[[int], float | None],
    ) -> Measured:
        """The measurement of ``ways`` ways; ``measure(way)`` gives microseconds where it is new."""
        name = self._name(key, sizes)
        found = self._known.get(name) or self._kept(name, ways)
        if found is None:
            found = Measured(tuple(measure(way) for way in range(ways)))
            if self._folder is not None:
                write_entry(
                    self._folder / f"{name}{SUFFIX}", {"microseconds": list(found.microseconds)}
                )
        self._known[name] = found
        return found

    def known(self, key: str, sizes: Sequence[int]) -> Measured | None:
        """A measurement that this process has made or read."""
        return self._known.get(self._name(key, sizes))

    def _name(self, key: str, sizes: Sequence[int]) -> str:
        text = json.dumps([self._device, key, [size_class(size) for size in sizes]])
        return hashlib.sha256(text.encode()).hexdigest()

    def _kept(self, name: str, ways: int) -> Measured | None:
        if self._folder is None:
            return None
        times = read_entry(self._folder / f"{name}{SUFFIX}").get("microseconds")
        if not isinstance(times, list) or len(times) != ways:
            return None
        if not all(time is None or isinstance(time, (int, float)) for time in times):
            return None
        return Measured(tuple(times))


def size_class(size: int) -> int:
    """A number for all sizes of one class."""
    return size if size <= EXACT else EXACT + (size - 1).bit_length()
