"""Fixtures of the browser tests: the gateway, Chromium, and a page in a fresh profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import AppPage, chromium, chromium_path
from tests.browser.gateway import MissingTool, require_site, running_gateway


@pytest.fixture(scope="session")
def gateway() -> Iterator[str]:
    """The URL of a gateway with the built site and the sample models."""
    try:
        require_site()
    except MissingTool as error:
        pytest.fail(str(error), pytrace=False)
    with running_gateway() as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        chromium_path()
    except MissingTool as error:
        pytest.fail(str(error), pytrace=False)
    with chromium() as running:
        yield running


@pytest.fixture
def app(browser: Any, gateway: str) -> Iterator[AppPage]:
    """The page, loaded; nothing unexpected may have happened when the test ends."""
    page = AppPage(browser, gateway)
    page.goto()
    yield page
    problems = page.problems.unexpected
    page.close()
    assert problems == []
