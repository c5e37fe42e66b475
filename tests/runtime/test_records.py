"""Launch records as the host reads them."""

from __future__ import annotations

import numpy as np
import pytest

from rlx_edge.ir.errors import DeviceError
from rlx_edge.ir.program import Entry
from rlx_edge.runtime.records import records

BLOCK = 1024
ENTRIES = (Entry("first", 256, 2), Entry("second", 128, 1))
# Two launches: kernel 1 with 7 groups and a word, kernel 0 with 3 groups and two.
WORDS = np.array([BLOCK + 8, BLOCK + 20, 1, 7, 50, 0, 3, 60, -1], np.int32)


def read(words: np.ndarray, begin: int, end: int) -> list[tuple[int, int, list[int]]]:
    found = records(words, BLOCK, ENTRIES, begin, end)
    return [(item.kernel, item.groups, item.words.tolist()) for item in found]


def test_records_are_read_in_order() -> None:
    assert read(WORDS, 0, 2) == [(1, 7, [50]), (0, 3, [60, -1])]
    assert read(WORDS, 1, 2) == [(0, 3, [60, -1])]
    assert read(WORDS, 1, 1) == []


@pytest.mark.parametrize(
    "change",
    [{0: 0}, {0: BLOCK + 400}, {2: 2}, {2: -1}, {1: BLOCK + 24}],
    ids=["before", "behind", "kernel", "negative", "cut"],
)
def test_records_outside_the_block_are_refused(change: dict[int, int]) -> None:
    words = WORDS.copy()
    for position, value in change.items():
        words[position] = value
    with pytest.raises(DeviceError) as caught:
        read(words, 0, 2)
    assert caught.value.code == "program.record"


def test_a_launch_beyond_the_block_is_refused() -> None:
    with pytest.raises(DeviceError):
        read(WORDS, len(WORDS), len(WORDS) + 1)
