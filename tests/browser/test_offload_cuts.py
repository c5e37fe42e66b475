"""Cuts of every stored model in Chromium and a gateway have the bits of one device."""

# covers R4, R24, R34

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlx_edge.gateway.registry import file_digest
from tests import sample_inputs
from tests.browser.chromium import AppPage
from tests.browser.gateway import require_site, running_gateway
from tests.browser.split_cuts import run_cuts

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]

TOKEN = "a-token_for.tests"
CASES: dict[str, tuple[dict[str, Any], dict[str, list[int]], bool]] = {
    "digits": (sample_inputs.digits(1, batch=2), {}, False),
    "ppocr_rec": (sample_inputs.ppocr_rec(2, 1, 160), {}, True),
    "silero_vad": (sample_inputs.silero_vad(3), {"sr": [16000]}, False),
}
"""Feeds, values that the model branches on, and whether the gateway has the file."""


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[AppPage]:
    require_site()
    with running_gateway("--offload", "--token", TOKEN) as url:
        app = AppPage(browser, url)
        app.goto()
        app.wait_state("digits", "ready")
        yield app
        problems = app.problems.unexpected
        app.close()
    assert problems == []


@pytest.mark.parametrize("model", CASES)
def test_cuts(page: AppPage, model: str, model_file: ModelFile) -> None:
    feeds, values, is_known = CASES[model]
    path = model_file(model)
    digest = file_digest(path) if is_known else ""
    found = run_cuts(
        page, model, path, feeds, digest=digest, token=TOKEN, sample=4, seed=7, values=values
    )
    assert len(found.rows) == 4
    assert found.wrong == []
    assert found.both >= 2
    assert all(row["graph"] == row["program"] and row["edges"] >= 2 for row in found.rows)
