"""What the acceptance list of offloading asks of a page: cuts in Chromium, several pages at once,
reloads, restarts, and what offloading costs there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
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
    inputs: Mapping[str, Callable[[], Feeds]], chosen: Mapping[str, Sequence[str]]
) -> tuple[bool, str, list[str]]:
    """Whether the chosen cuts of each model have the bits of one device in Chromium with kernels on
    both sides, and everything on the gateway too; the figure, and a line a model."""
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
                chosen=["", *chosen[name]],
                values=VALUES.get(name),
            )
            rows = [row for row in found.rows if row["after"] != ""]
            idle = [row["after"] for row in rows if not (row["here"] and row["there"])]
            holds = not found.wrong and not idle and len(rows) == len(chosen[name])
            holds &= all(row["graph"] == row["program"] and row["edges"] for row in found.rows)
            passed &= holds
            count += len(rows)
            details.append(
                f"{name:12} Chromium: {len(rows) - len(idle)} of {len(chosen[name])} cuts ran "
                f"kernels on both sides, {len(found.rows) - len(found.wrong)} of "
                f"{len(found.rows)} equal (with everything on the gateway)"
                + "".join(f"; differs after %{after}" for after in found.wrong)
                + "".join(f"; a side is idle after %{after}" for after in idle)
            )
        passed &= not app.problems.unexpected
        details += app.problems.unexpected
        app.close()
    return passed, f"{count} in Chromium, all with kernels on both sides", details


def page_clients() -> tuple[bool, str]:
    """Whether the tests of several pages, reloads and restarts pass, and what pytest says."""
    names = [f"tests/browser/test_offload.py::{name}" for name in CLIENTS]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "browser", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or ["pytest printed nothing"])[-1]
    counted = re.search(r"(\d+) passed", last)
    passed = done.returncode == 0 and counted is not None and int(counted[1]) == len(CLIENTS)
    return passed, f"two pages and `rlx run`, a reload, a restart in Chromium: {last}"
