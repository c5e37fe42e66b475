"""Operator × device: every case of the table on every device, against the oracle."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import numpy as np
import pytest

from rlx_edge.ir.errors import RlxError
from tests.conformance.case import Case
from tests.conformance.devices import DEVICES, Device
from tests.conformance.oracle import check, expected
from tests.conformance.table import CASES, OPERATORS, SHARED_GAPS, gap


def _small(case: Case, device: Device) -> bool:
    if device.largest is None:
        return True
    shapes = (
        item.sizes(sizes) for sizes in case.runs for item in case.operands if item is not None
    )
    return all(int(np.prod(shape)) <= device.largest for shape in shapes)


def _parameters() -> list[object]:
    found: list[object] = []
    for device in DEVICES:
        for case in CASES:
            if not _small(case, device):
                continue
            reason = gap(case, device)
            marks = (
                [pytest.mark.xfail(strict=True, reason=reason, raises=(RlxError, AssertionError))]
                if reason
                else []
            )
            found.append(pytest.param(device, case, marks=marks, id=f"{device.name}-{case.id}"))
    return found


@pytest.mark.parametrize(("device", "case"), _parameters())
def test_operator(device: Device, case: Case) -> None:
    missing = device.missing()
    if missing is not None:
        pytest.skip(missing)
    model = case.model()
    runs = expected(case, model)
    loaded = device.open(model)
    try:
        for feeds, reference in runs:
            check(loaded.run(None, feeds), reference, case.accuracy, device.rounding)
    finally:
        loaded.close()


def test_every_listed_operator_has_cases() -> None:
    counts = Counter(case.operator for case in CASES)
    assert {name: counts[name] for name in OPERATORS if counts[name] < 4} == {}
    assert sorted(counts) == sorted(OPERATORS)


def test_case_names_are_unique() -> None:
    assert [name for name, count in Counter(case.id for case in CASES).items() if count > 1] == []


def test_every_gap_names_a_case() -> None:
    patterns = [*SHARED_GAPS, *(pattern for device in DEVICES for pattern in device.gaps)]
    idle = [p for p in patterns if not any(fnmatchcase(case.id, p) for case in CASES)]
    assert idle == []
