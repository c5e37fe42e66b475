"""The whole table on one device, counted: what the acceptance lists print."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass

from rlx_edge.ir.errors import RlxError
from tests.conformance.case import Case
from tests.conformance.devices import DEVICES, Device
from tests.conformance.oracle import check, expected
from tests.conformance.table import CASES, gap

MOST = 12
"""Processes; each has a context of its own."""


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


def tally(device: Device, processes: int | None = None) -> Tally:
    """Every case on ``device``, by several processes; a device that is not there fails every
    case."""
    count = processes or os.cpu_count() or 1
    asked = [(device.name, number) for number in range(len(CASES))]
    # Drivers do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(min(count, MOST)) as pool:
        faults = pool.starmap(_failure, asked, chunksize=8)
    passed = gaps = 0
    surprises: list[str] = []
    for case, fault in zip(CASES, faults, strict=True):
        reason = gap(case, device)
        if reason and fault:
            gaps += 1
        elif reason:
            surprises.append(f"{case.id}: passes, though {reason}")
        elif fault:
            surprises.append(f"{case.id}: {fault}")
        else:
            passed += 1
    return Tally(passed, gaps, tuple(surprises))


def _failure(device: str, number: int) -> str:
    return failure_of(device_named(device), CASES[number])


def failure_of(device: Device, case: Case) -> str:
    """How the case fails on the device; empty where it passes."""
    model = case.model()
    runs = expected(case, model)
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
