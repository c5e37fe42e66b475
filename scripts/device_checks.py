"""What the acceptance lists of devices share: operators, models, two devices, scalars, life."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx_edge.compile import CompiledModule, compile_module
from rlx_edge.engines import provider_of
from rlx_edge.ir.devices import parse_device
from rlx_edge.ir.types import U8
from rlx_edge.runtime.buffers import DeviceContext
from rlx_edge.runtime.carriers import Carrier, carrier
from rlx_edge.runtime.runner import ProgramRunner
from rlx_edge.runtime.units import ExecutionUnit
from scripts.acceptance import Verdict
from scripts.device_models import Outcome, all_ways
from tests import scalar_behaviour
from tests.conformance.tally import device_named, tally
from tests.two_devices import run_both, small_module

ROOT = Path(__file__).resolve().parent.parent
INITIALISATIONS = 1000
WARM = 50
"""Initialisations before memory is looked at: caches fill, allocators settle."""
SLACK = 8 << 20
"""Bytes by which a process may grow: what an allocator keeps, not a context."""
SHOWN = 5


def conformance(devices: Iterable[str]) -> Verdict:
    """Every case of the table on every device."""
    found = {name: tally(device_named(name)) for name in devices}
    details = [f"{name}: {item}" for name, item in found.items()]
    for name, item in found.items():
        details += [f"{name}: {text}" for text in item.surprises[:SHOWN]]
    passed = all(not item.surprises and item.passed for item in found.values())
    total = sum(item.passed for item in found.values())
    return Verdict(passed, f"{total} cases on {', '.join(found)}", tuple(details))


def models(devices: Iterable[str]) -> Verdict:
    """The stored models on every device, in every way."""
    found: list[Outcome] = [outcome for device in devices for outcome in all_ways(device)]
    worst = max(item.comparison.worst for item in found)
    good = sum(item.good for item in found)
    details = tuple(str(item) + ("" if item.good else "  <-- FAILS") for item in found)
    return Verdict(
        good == len(found),
        f"{good} of {len(found)} ways, at most {worst:.2e} of the largest value",
        details,
    )


def two_devices(input_device: str, weight_device: str) -> Verdict:
    """One fused layer on both devices, the other operand moved each time."""
    found = run_both(input_device, weight_device)
    details = [f"fused module {found.digest[:19]}…, input on {input_device}, weight on "
               f"{weight_device}"]  # fmt: skip
    for run in found.runs:
        code = run.programs[run.runs_on]
        details.append(f"on {run.runs_on} ({code.target}, {code.kernels_digest[:19]}…), the "
                       f"{run.moved} moved:")  # fmt: skip
        details += [f"  {line}" for line in run.trace()]
    codes = {run.programs[run.runs_on].kernels_digest for run in found.runs}
    return Verdict(
        found.equal and len(codes) == 2,
        f"{len(codes)} code versions of one fused layer, outputs equal bit for bit: {found.equal}",
        tuple(details),
    )


def scalars(devices: Iterable[str]) -> Verdict:
    """The table of scalar operators holds, or states the difference."""
    records, details, passed = scalar_behaviour.load_records(), list[str](), True
    count = len(list(scalar_behaviour.rows()))
    for device in devices:
        name = scalar_behaviour.record_name(device)
        stated = records.get(name, {"differences": None})["differences"]
        found = scalar_behaviour.differences(device)
        passed &= found == stated
        verdict = "as stated" if found == stated else f"not what {name}.json states"
        details.append(f"{device} ({name}): {count - len(found)} of {count} rows equal, {verdict}")
        if found != stated:
            details += [f"  {row}: {cells}" for row, cells in found.items()][:SHOWN]
    return Verdict(passed, f"{count} rows a device", tuple(details))


def joined(*verdicts: Verdict) -> Verdict:
    """Several checks as one line."""
    return Verdict(
        all(item.passed for item in verdicts),
        "; ".join(item.figure for item in verdicts),
        tuple(text for item in verdicts for text in item.details),
    )


def pytest_verdict(words: Sequence[str], *, marks: str = "not slow") -> Verdict:
    """Tests of these files; none that is skipped counts as passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-m", marks, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or ["pytest printed nothing"]
    last = lines[-1].strip("= ")
    ran = re.search(r"(\d+) passed", last)
    skipped = re.search(r"(\d+) skipped", last)
    details = tuple(line for line in lines if line.startswith(("FAILED", "ERROR", "SKIPPED")))
    passed = done.returncode == 0 and ran is not None and skipped is None
    return Verdict(passed, re.sub(r" in [\d.]+s.*", "", last), details[:SHOWN])


# ---- life ----------------------------------------------------------------------------------------


def small_program(device: str) -> CompiledModule:
    """``max(x + x, 0)`` for a device of this machine."""
    place = parse_device(device)
    target = provider_of(place).make_target(place, "cranelift")
    return compile_module(small_module(), target, device=device)


def initialisations(
    device: str,
    context_of: Callable[[], object],
    held: Callable[[], int],
    used: Callable[[], int],
    count: int = INITIALISATIONS,
) -> Verdict:
    """Open, load, run, close, again and again: the context stays one, nothing is kept.

    ``held`` counts buffers of the device, ``used`` is memory in bytes.
    """
    compiled, place = small_program(device), parse_device(device)
    provider = provider_of(place)
    x = np.arange(-4, 4, dtype=np.float32)

    def once() -> None:
        context = DeviceContext(device)
        runner = ProgramRunner(compiled.program, {}, provider.make_unit(place, True), context)
        (output,) = runner.run([x], {"n": 8})
        np.testing.assert_array_equal(output, np.maximum(x + x, 0))
        runner.close()
        context.close()

    for _ in range(WARM):
        once()
    contexts = {id(context_of())}
    gc.collect()
    before, buffers, start = used(), held(), time.perf_counter()
    for _ in range(count):
        once()
        contexts.add(id(context_of()))
    seconds = time.perf_counter() - start
    gc.collect()
    grown, left = used() - before, held() - buffers
    return Verdict(
        len(contexts) == 1 and left == 0 and grown <= SLACK,
        f"{device}: {count} initialisations, {len(contexts)} context, {left} buffers left, "
        f"{grown} bytes more ({seconds:.1f} s)",
    )


def resident_bytes() -> int:
    """Memory of this process (``VmRSS``)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in text.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


# ---- bytes between units -------------------------------------------------------------------------

CARRIED = 64 << 20
ROUNDS = 5


def carried(source: str, target: str, wanted: str) -> Verdict:
    """Bytes between two devices of this process, by the way that there is and by copies."""
    units = [loaded_unit(device) for device in (source, target)]
    try:
        way = carrier(*units)
        try:
            data = np.random.default_rng(27).integers(0, 256, CARRIED).astype(np.uint8)
            units[0].upload(PLACE, data)
            seconds = timed_move(way, data)
        finally:
            way.close()
        plain = timed_move(Carrier(*units), data)
    finally:
        for unit in units:
            unit.close()
    rates = [CARRIED / spent / 1e9 for spent in (seconds, plain)]
    return Verdict(
        way.name == wanted,
        f"{source} to {target}: {way.name}, {rates[0]:.1f} GB/s (copies {rates[1]:.1f})",
    )


PLACE = 1 << 20


def loaded_unit(device: str) -> ExecutionUnit:
    """A unit with memory for what is carried."""
    unit = provider_of(parse_device(device)).make_unit(parse_device(device), True)
    unit.load(small_program(device).program)
    unit.grow(PLACE + CARRIED)
    return unit


def timed_move(way: Carrier, data: Any) -> float:
    """Seconds of the fastest move; the bytes are compared."""
    spent = []
    for _ in range(ROUNDS):
        way.target.upload(PLACE, np.zeros(CARRIED, np.uint8))
        for unit in (way.source, way.target):
            unit.synchronize()
        start = time.perf_counter()
        way.move(PLACE, PLACE, CARRIED)
        spent.append(time.perf_counter() - start)
        found = way.target.download(PLACE, U8, (CARRIED,))
        if not np.array_equal(found, data):
            raise RuntimeError(f"{way.name} from {way.source.device}: other bytes arrived")
    return min(spent)
