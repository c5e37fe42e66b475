"""The whole table on one device, counted: what the acceptance lists print."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rlx_edge.ir.errors import RlxError
from tests.conformance.case import Array, Case
from tests.conformance.devices import DEVICES, Device
from tests.conformance.oracle import check, expected
from tests.conformance.table import CASES, gap

Reference = list[tuple[dict[str, Array], list[Array]]]


@dataclass(frozen=True)
class Tally:
    """Cases that pass, that are known gaps and fail, and that surprise, with why."""

    passed: int
    gaps: int
    surprises: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.passed} cases pass, {self.gaps} known gaps, {len(self.surprises)} surprises"


def device_named(name: str) -> Device:
    """The row of the table of devices."""
    return next(device for device in DEVICES if device.name == name)


def tally(device: Device) -> Tally:
    """Every case on ``device``; a device that is not there fails every case."""
    passed = gaps = 0
    surprises: list[str] = []
    for case in CASES:
        reason, fault = gap(case, device), failure_of(device, case)
        if reason and fault:
            gaps += 1
        elif reason:
            surprises.append(f"{case.id}: passes, though {reason}")
        elif fault:
            surprises.append(f"{case.id}: {fault}")
        else:
            passed += 1
    return Tally(passed, gaps, tuple(surprises))


@cache
def _reference(case: int) -> tuple[bytes, Reference]:
    model = CASES[case].model()
    return model, expected(CASES[case], model)


def failure_of(device: Device, case: Case) -> str:
    """How the case fails on the device; empty where it passes."""
    model, runs = _reference(CASES.index(case))
    try:
        loaded = device.open(model)
        try:
            for feeds, reference in runs:
                check(loaded.run(None, feeds), reference, case.accuracy, device.rounding)
        finally:
            loaded.close()
    except (RlxError, AssertionError) as error:
        return str(error).strip().splitlines()[0][:200] or type(error).__name__
    return ""
