"""The page and a gateway: split and remote runs with the bits of one device, lost connections."""

# covers R4, R6, R24, R34

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_edge import InferenceSession
from tests.browser.chromium import AppPage
from tests.browser.gateway import require_site, running_gateway
from tests.oracles import same_bits
from tests.web.split import free_port

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]
Json = dict[str, Any]

TOKEN = "a-token_for.tests"
SERVE = ("--offload", "--token", TOKEN, "--models", "digits", "orientation")
HOME, AWAY = "browser:0", "cpu:0@gateway"


@pytest.fixture(scope="module")
def offload() -> Iterator[str]:
    """The URL of a gateway that runs parts of models, with its token."""
    require_site()
    with running_gateway(*SERVE) as url:
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


def choose(app: AppPage, select: str, value: str) -> None:
    """Choose from a list, and wait until the model is ready there."""
    app.page.evaluate("document.getElementById('result').replaceChildren()")
    app.page.select_option(select, value)
    settle(app)


def cut(app: AppPage, after: str) -> None:
    """Cut behind an operation."""
    choose(app, "#cut", after)


def settle(app: AppPage) -> None:
    app.until("body[data-state=ready]:not([data-busy]), body[data-state=failed]:not([data-busy])")
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
    app.until(".split-timeline")
    tasks = app.page.locator(".split-timeline g.task")
    found = tasks.evaluate_all("list => list.map(({ dataset }) => dataset.device)")
    return set(map(str, found))


def test_the_user_chooses_among_the_gateways_devices(browser: Any, model_file: ModelFile) -> None:
    require_site()
    workers = ("--worker", "vulkan:0", "--worker", "cpu:0")
    with running_gateway(*SERVE, *workers) as url:
        app = AppPage(browser, f"{url}#token={TOKEN}")
        app.goto()
        app.wait_state("digits", "ready")
        with InferenceSession(model_file("digits")) as session:
            for role in ("vulkan:0@gateway", AWAY):
                if role == AWAY:
                    choose(app, "#worker", role)
                else:
                    place(app, "remote")
                run_digit(app, 3)
                check(app, session)
                assert sides(app) == {role}
        problems = app.problems.unexpected
        app.close()
    assert problems == []


def assert_timeline(app: AppPage) -> None:
    """Tasks of both sides in a lane each, an arrow and a row an edge, and how well the clocks agree
    at both ends of the gateway's tasks."""
    shown = app.page.evaluate(
        """() => {
          const view = document.querySelector(".split-timeline");
          const box = ({ dataset, children }) => {
            const rect = [...children].find(({ tagName }) => tagName === "rect");
            const [width, y] = ["width", "y"].map((name) => Number(rect.getAttribute(name)));
            const doubts = [...children].filter((item) => item.classList.contains("doubt")).length;
            return { device: dataset.device, width, y, doubts };
          };
          const path = (edge) => edge.querySelector("path").getAttribute("d").match(/[-\\d.]+/g);
          return {
            tasks: [...view.querySelectorAll("g.task")].map(box),
            edges: [...view.querySelectorAll("g.edge")].map((edge) => path(edge).map(Number)),
            rows: view.querySelectorAll("table.edges tbody tr").length,
            counts: [Number(view.dataset.tasks), Number(view.dataset.edges)],
          };
        }"""
    )
    tasks, edges = shown["tasks"], shown["edges"]
    assert shown["counts"] == [len(tasks), len(edges)]
    assert shown["rows"] == len(edges) >= 2
    assert {task["device"] for task in tasks} == {HOME, AWAY}
    assert len({task["y"] for task in tasks}) == 2, "a lane a side"
    assert all(task["width"] > 0 for task in tasks)
    assert all(task["doubts"] == (2 if task["device"] == AWAY else 0) for task in tasks)
    assert all(start_y != end_y for _, start_y, _, end_y in edges)


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
        assert_timeline(page)
        page.page.click("[data-tab='Tasks']")
        picture = page.until(".task-graph svg")
        assert HOME in picture.inner_html() and AWAY in picture.inner_html()
        graph = page.page.locator(".task-graph")
        for shape, count in (("svg > rect", "data-tasks"), ("path[marker-end]", "data-edges")):
            assert graph.locator(shape).count() == int(graph.get_attribute(count)) >= 2, shape
        place(page, "local")
        run_digit(page, 5)
        check(page, session)
        assert page.page.locator("[data-tab='Tasks']").count() == 0


def test_a_cut_is_chosen_on_the_picture(page: AppPage, model_file: ModelFile) -> None:
    page.wait_state("digits", "ready")
    place(page, "split")
    page.page.click("[data-tab='Graph']")
    page.until("g.node.cut")
    before = page.page.input_value("#cut")
    box = page.page.locator("g.node.cuttable:not(.cut)").first
    name = str(box.get_attribute("data-value"))
    box.click()
    page.until(f"g.node.cut[data-value='{name}']")
    assert page.page.input_value("#cut") == name
    settle(page)
    assert name != before
    assert "cross" in page.page.inner_text("#crossing")
    page.until(f"g.node.cut[data-value='{name}']")
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


def log_lines(log: Path) -> list[Json]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def opened(browser: Any, url: str) -> AppPage:
    app = AppPage(browser, f"{url}#token={TOKEN}")
    app.goto()
    app.wait_state("digits", "ready")
    return app


def test_two_pages_and_a_command_line_at_once(
    browser: Any, model_file: ModelFile, tmp_path: Path
) -> None:
    require_site()
    log, feed, output = tmp_path / "log", tmp_path / "image.npy", tmp_path / "out.npz"
    image = np.random.default_rng(3).random((2, 1, 8, 8), dtype=np.float32)
    np.save(feed, image)
    with running_gateway(*SERVE, log=log) as url, InferenceSession(model_file("digits")) as session:
        first, second = opened(browser, url), opened(browser, url)
        place(first, "split")
        place(second, "remote")
        for app in (first, second):
            run_digit(app, 1)
            app.page.fill("#repeat", "300")
        command = [str(Path(sys.executable).with_name("rlx")), "run", str(model_file("digits"))]
        command += ["--gateway", url, "--token", TOKEN, "--device", "remote"]
        command += ["--input", f"image={feed}", "--output", str(output)]
        for app in (first, second):
            app.page.query_selector_all(".sample")[2].click()
            app.until("[data-step=run][data-state=active]")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        with np.load(output) as arrays:
            found = [arrays[name] for name in arrays.files]
        assert same_bits(session.run(None, {"image": image}), found)
        for app in (first, second):
            app.wait_state("digits", "ran")
            check(app, session)
            assert app.problems.unexpected == []
            app.close()
    lines = log_lines(log)
    assert max(line.get("clients", 0) for line in lines) == 3
    runs = {line["session"] for line in lines if line["event"] == "done"}
    assert len(runs) == 3
    assert not [line for line in lines if line["event"] == "refused"]


def test_a_reload_in_a_run_frees_its_state(
    browser: Any, model_file: ModelFile, tmp_path: Path
) -> None:
    require_site()
    log = tmp_path / "log"
    with running_gateway(*SERVE, log=log) as url, InferenceSession(model_file("digits")) as session:
        app = opened(browser, url)
        place(app, "split")
        app.page.fill("#repeat", "1000")
        app.page.query_selector_all(".sample")[0].click()
        app.until("[data-step=run] progress[value]:not([value='0'])")
        app.page.reload()
        app.wait_state("digits", "ready")
        place(app, "split")
        app.page.fill("#repeat", "1")
        run_digit(app, 4)
        check(app, session)
        assert app.problems.unexpected == []
        app.close()
    lines = log_lines(log)
    connected = [line for line in lines if line["event"] == "connected"]
    assert [line["clients"] for line in connected] == [1, 1], "the first client is gone"
    gone, here = (line["session"] for line in connected)
    events = [(line["event"], line.get("session")) for line in lines]
    assert events.index(("closed", gone)) < events.index(("done", here))
    assert max(i for i, item in enumerate(events) if item[1] == gone) == events.index(
        ("closed", gone)
    )


def test_a_gateway_restarts_and_the_page_goes_on(browser: Any, model_file: ModelFile) -> None:
    require_site()
    port = free_port()
    with InferenceSession(model_file("digits")) as session:
        with running_gateway(*SERVE, port=port) as url:
            app = opened(browser, url)
            app.problems.expect("WebSocket connection|ERR_CONNECTION_REFUSED|healthz")
            place(app, "split")
            run_digit(app, 0)
            check(app, session)
        app.until("#gateway-state[data-state=lost]")
        assert "the next run reconnects" in app.page.inner_text("#gateway-state")
        app.page.query_selector_all(".sample")[1].click()
        assert app.error_code() == "peer.lost"
        assert "no gateway answers" in app.error()
        with running_gateway(*SERVE, port=port):
            run_digit(app, 2)
            check(app, session)
            assert app.page.get_attribute("#gateway-state", "data-state") == "open"
            assert sides(app) == {HOME, AWAY}
            assert app.problems.unexpected == []
            app.close()
