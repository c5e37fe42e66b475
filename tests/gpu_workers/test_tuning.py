"""Measured choices without a device: kept by class of sizes, on disk, the least one taken."""

# covers R15

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlx_edge.gpu_workers.cuda.tuning import EXACT, Measured, Tuning, size_class

TIMES = {0: 5.0, 1: None, 2: 3.0}


def counting(calls: list[int]) -> Callable[[int], float | None]:
    def measure(way: int) -> float | None:
        calls.append(way)
        return TIMES[way]

    return measure


def test_the_fastest_way_is_taken_and_measured_once(tmp_path: Path) -> None:
    calls: list[int] = []
    tuning = Tuning("device", tmp_path)
    found = tuning.measured("key", [1, 100, 64], 3, counting(calls))
    assert found == Measured((5.0, None, 3.0)) and found.way == 2
    assert tuning.measured("key", [1, 120, 64], 3, counting(calls)) == found  # the same class
    assert Tuning("device", tmp_path).measured("key", [1, 100, 64], 3, counting(calls)) == found
    assert calls == [0, 1, 2]


@pytest.mark.parametrize(
    ("device", "key", "sizes"),
    [("other", "key", [1, 100]), ("device", "other", [1, 100]), ("device", "key", [2, 100])],
)
def test_another_device_key_or_size_is_measured_anew(
    device: str, key: str, sizes: list[int], tmp_path: Path
) -> None:
    calls: list[int] = []
    Tuning("device", tmp_path).measured("key", [1, 100], 3, counting(calls))
    Tuning(device, tmp_path).measured(key, sizes, 3, counting(calls))
    assert len(calls) == 6


@pytest.mark.parametrize(
    "text", ["", "[]", '{"microseconds": [1]}', '{"microseconds": ["a", 1, 2]}']
)
def test_damaged_measurements_are_made_again(text: str, tmp_path: Path) -> None:
    calls: list[int] = []
    Tuning("device", tmp_path).measured("key", [4], 3, counting(calls))
    (entry,) = tmp_path.iterdir()
    entry.write_text(text)
    assert Tuning("device", tmp_path).measured("key", [4], 3, counting(calls)).way == 2
    assert len(calls) == 6


def test_without_any_way_that_runs_the_first_is_taken() -> None:
    assert Measured((None, None)).way == 0


def test_classes_of_sizes() -> None:
    assert [size_class(size) for size in (0, 1, 7, EXACT)] == [0, 1, 7, EXACT]
    assert size_class(65) == size_class(128) != size_class(129)
    assert len({size_class(size) for size in range(EXACT + 2)}) == EXACT + 2
