"""What the acceptance list of offloading asks of a page: cuts in Chromium, several pages at once,
reloads, restarts, and what offloading costs there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rlx_edge.gateway.registry import file_digest
from rlx_edge.model_store import model_path
from tests.browser.chromium import AppPage, chromium
from tests.browser.gateway import require_site, running_gateway
from tests.browser.split_cuts import run_cuts

Feeds = dict[str, npt.NDArray[Any]]

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "token-of-the-acceptance"
CLIENTS = (
    "test_two_pages_and_a_command_line_at_once",
    "test_a_reload_in_a_run_frees_its_state",
    "test_a_gateway_restarts_and_the_page_goes_on",
)
VALUES: Mapping[str, Mapping[str, list[int]]] = {"silero_vad": {"sr": [16000]}}
"""What models are imported with that branch on values."""


def page_cuts(
    inputs: Mapping[str, Callable[[], Feeds]], sample: int, seed: int
) -> tuple[bool, str, list[str]]:
    """Whether a seeded sample of each model's cuts has the bits of one device in Chromium, the
    figure, and a line a model."""
    require_site()
    passed, count, details = True, 0, []
    arguments = ("--offload", "--token", TOKEN)
    with running_gateway(*arguments) as url, chromium() as browser:
        app = AppPage(browser, url)
        app.context.set_default_timeout(0)
        app.goto()
        app.wait_state("digits", "ready")
        for name, make in inputs.items():
            path = model_path(name)
            found = run_cuts(
                app,
                name,
                path,
                make(),
                digest=file_digest(path),
                token=TOKEN,
                sample=sample,
                seed=seed,
                values=VALUES.get(name),
            )
            wrong, rows = found.wrong, found.rows
            passed &= not wrong and len(rows) >= min(sample, found.cuts)
            passed &= all(row["graph"] == row["program"] and row["edges"] for row in rows)
            count += len(rows)
            details.append(
                f"{name:12} Chromium: {len(rows) - len(wrong)} of {len(rows)} sampled cuts of "
                f"{found.cuts} equal; {found.both} ran kernels on both sides, the others only "
                "moved tensors on one" + "".join(f"; differs after %{after}" for after in wrong)
            )
        passed &= not app.problems.unexpected
        details += app.problems.unexpected
        app.close()
    return passed, f"{count} in Chromium", details


def page_clients() -> tuple[bool, str]:
    """Whether the tests of several pages, reloads and restarts pass, and what pytest says."""
    names = [f"tests/browser/test_offload.py::{name}" for name in CLIENTS]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "browser", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or ["pytest printed nothing"])[-1]
    counted = re.search(r"(\d+) passed", last)
    passed = done.returncode == 0 and counted is not None and int(counted[1]) == len(CLIENTS)
    return passed, f"two pages and `rlx run`, a reload, a restart in Chromium: {last}"
