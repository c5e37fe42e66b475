"""Launch records as the host reads them, for units that launch kernels one by one.

The parameter block starts with one i32 word a launch: the byte address of its record. A record is
the index of a kernel, the number of workgroups, then the kernel's words (``Entry.words`` of them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.program import Entry

Words = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Record:
    """One launch: kernel ``kernel`` with ``groups`` workgroups and ``words`` for its arguments,
    which begin at word ``place`` of the block."""

    kernel: int
    groups: int
    place: int
    words: npt.NDArray[Any]


def records(
    words: Words, block_address: int, entries: Sequence[Entry], begin: int, end: int
) -> Iterator[Record]:
    """Launches ``begin`` … ``end - 1`` of a parameter block.

    ``DeviceError`` ``program.record`` for a block whose records do not lie inside it.
    """
    for launch in range(begin, end):
        start = (int(words[launch]) - block_address) // 4 if launch < len(words) else -1
        kernel = int(words[start]) if 0 <= start < len(words) - 1 else -1
        last = start + 2 + (entries[kernel].words if 0 <= kernel < len(entries) else len(words))
        if start < 0 or last > len(words):
            raise DeviceError(
                "program.record",
                f"the record of launch {launch} is outside the parameter block",
                found=f"word {start}",
                allowed=f"0 to {len(words)}",
            )
        yield Record(kernel, int(words[start + 1]), start + 2, words[start + 2 : last])
