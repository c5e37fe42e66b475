"""The page and a gateway: split and remote runs with the bits of one device, lost connections."""

# covers R4, R6, R24, R34

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlx_edge import InferenceSession
from tests.browser.chromium import AppPage
from tests.browser.gateway import require_site, running_gateway
from tests.oracles import same_bits

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]

TOKEN = "a-token_for.tests"
HOME, AWAY = "browser:0", "cpu:0@gateway"


@pytest.fixture(scope="module")
def offload() -> Iterator[str]:
    """The URL of a gateway that runs parts of models, with its token."""
    require_site()
    arguments = ("--offload", "--token", TOKEN, "--models", "digits", "orientation")
    with running_gateway(*arguments) as url:
        yield f"{url}#token={TOKEN}"


@pytest.fixture
def page(browser: Any, offload: str) -> Iterator[AppPage]:
    app = AppPage(browser, offload)
    app.goto()
    yield app
    problems = app.problems.unexpected
    app.close()
    assert problems == []


def place(app: AppPage, device: str) -> None:
    """Choose where the model runs, and wait until it is ready there or has run."""
    app.page.evaluate("document.getElementById('result').replaceChildren()")
    app.page.check(f"[name=device][value={device}]")
    settle(app)


def cut(app: AppPage, after: str) -> None:
    """Cut behind an operation."""
    app.page.evaluate("document.getElementById('result').replaceChildren()")
    app.page.select_option("#cut", after)
    settle(app)


def settle(app: AppPage) -> None:
    app.page.wait_for_selector(
        "body[data-state=ready]:not([data-busy]), body[data-state=failed]:not([data-busy])"
    )
    if app.page.evaluate("document.body.dataset.state") == "failed":
        raise AssertionError(app.error())


def cuts(app: AppPage, count: int) -> list[str]:
    """Some cuts that at most three values cross, spread over the model."""
    options = app.page.locator("#cut option")
    names = options.evaluate_all("list => list.map(({ value }) => value)")
    return [str(name) for name in names[:: max(1, len(names) // count)]][:count]


def run_digit(app: AppPage, number: int) -> None:
    app.acted(app.page.query_selector_all(".sample")[number].click)


def check(app: AppPage, session: InferenceSession) -> None:
    outputs = app.saved("outputs")
    expected = session.run(list(outputs), app.saved("inputs"))
    assert same_bits(expected, list(outputs.values()))


def sides(app: AppPage) -> set[str]:
    """The devices whose tasks the timeline shows."""
    app.page.click("[data-tab='Timeline']")
    app.page.wait_for_selector(".split-timeline")
    tasks = app.page.locator(".split-timeline g.task")
    found = tasks.evaluate_all("list => list.map(({ dataset }) => dataset.device)")
    return set(map(str, found))


def test_digits_remote_and_split(page: AppPage, model_file: ModelFile) -> None:
    page.wait_state("digits", "ready")
    with InferenceSession(model_file("digits")) as session:
        place(page, "remote")
        run_digit(page, 3)
        check(page, session)
        assert page.page.get_attribute("#gateway-state", "data-state") == "open"
        assert sides(page) == {AWAY}
        place(page, "split")
        for after in cuts(page, 4):
            cut(page, after)
            run_digit(page, 5)
            check(page, session)
            assert sides(page) == {HOME, AWAY}, after
            assert int(page.page.get_attribute(".split-timeline", "data-edges")) >= 2
            doubt = int(page.page.get_attribute("#clock", "data-uncertainty"))
            assert 0 < doubt < 100_000_000
        page.page.click("[data-tab='Tasks']")
        picture = page.page.wait_for_selector(".task-graph svg")
        assert AWAY in picture.inner_html()
        place(page, "local")
        run_digit(page, 5)
        check(page, session)
        assert page.page.locator("[data-tab='Tasks']").count() == 0


def test_a_cut_is_chosen_on_the_picture(page: AppPage, model_file: ModelFile) -> None:
    page.wait_state("digits", "ready")
    place(page, "split")
    page.page.click("[data-tab='Graph']")
    page.page.wait_for_selector("g.node.cut")
    before = page.page.input_value("#cut")
    box = page.page.locator("g.node.cuttable:not(.cut)").first
    name = str(box.get_attribute("data-value"))
    box.click()
    page.page.wait_for_function("name => document.querySelector('#cut').value === name", arg=name)
    settle(page)
    assert name != before
    assert "cross" in page.page.inner_text("#crossing")
    page.page.wait_for_selector(f"g.node.cut[data-value='{name}']")
    with InferenceSession(model_file("digits")) as session:
        run_digit(page, 7)
        check(page, session)


def test_orientation_split(page: AppPage, model_file: ModelFile) -> None:
    page.choose("orientation")
    page.page.fill("#repeat", "1")
    place(page, "split")
    with InferenceSession(model_file("orientation")) as session:
        for after in cuts(page, 3):
            cut(page, after)
            page.acted(lambda: page.page.click("[data-sample=page-invoice]"))
            assert page.answer() == "0°"
            check(page, session)
            assert sides(page) == {HOME, AWAY}, after


def test_a_wrong_token_is_told_and_can_be_mended(page: AppPage) -> None:
    page.problems.expect("WebSocket connection")
    page.wait_state("digits", "ready")
    page.page.check("[name=device][value=remote]")
    settle(page)
    page.page.fill("#token", "wrong")
    page.page.press("#token", "Tab")
    page.page.query_selector_all(".sample")[0].click()
    assert page.error_code() == "peer.lost"
    assert "token" in page.error()
    assert "reconnects" in page.page.inner_text("#gateway-state")
    page.page.fill("#token", TOKEN)
    page.page.press("#token", "Tab")
    run_digit(page, 0)
    assert page.page.get_attribute("#gateway-state", "data-state") == "open"
