"""The page as people use it: answers that are right, and the bits of wasmtime."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx_edge import InferenceSession
from rlx_edge.model_store import DATA
from tests.browser.chromium import AppPage
from tests.browser.digests import content_digest
from tests.browser.pictures import png
from tests.oracles import same_bits

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]
Record = Callable[[str, object], None]

LEAST_RIGHT = 18
WIDTHS = (97, 320, 480)


def check_bits(app: AppPage, session: InferenceSession) -> None:
    """The saved outputs, and the digests shown of them, are wasmtime's for the saved inputs."""
    outputs = app.saved("outputs")
    expected = session.run(list(outputs), app.saved("inputs"))
    assert same_bits(expected, list(outputs.values()))
    for (name, digest), array in zip(app.digests("outputs").items(), expected, strict=True):
        assert digest == content_digest(array), name


def test_digits_through_the_canvas(
    app: AppPage, model_file: ModelFile, record_property: Record
) -> None:
    # covers R32 R11
    app.wait_state("digits", "ready")
    samples = app.page.query_selector_all(".sample")
    right = 0
    with InferenceSession(model_file("digits")) as session:
        for sample in samples:
            app.acted(sample.click)
            right += app.answer() == sample.get_attribute("data-label")
            check_bits(app, session)
    record_property("digits right", f"{right} of {len(samples)}")
    record_property("digits, bits of wasmtime", f"{len(samples)} of {len(samples)}")
    assert len(samples) == 20
    assert right >= LEAST_RIGHT


def test_strokes_of_a_pointer_are_read(app: AppPage) -> None:
    app.wait_state("digits", "ready")

    def draw(points: list[tuple[float, float]]) -> None:
        box = app.page.locator("#pad").bounding_box()
        app.page.click("#clear-pad")
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
        app.page.mouse.move(*places[0])
        app.page.mouse.down()
        for place in places[1:]:
            app.page.mouse.move(*place, steps=8)
        app.page.mouse.up()

    turns = np.linspace(0, 2 * np.pi, 24)
    circle = [(0.5 + 0.24 * float(np.sin(t)), 0.5 - 0.36 * float(np.cos(t))) for t in turns]
    app.acted(lambda: draw(circle))
    assert app.answer() == "0"
    app.acted(lambda: draw([(0.3, 0.15), (0.72, 0.15), (0.45, 0.88)]))
    assert app.answer() == "7"


def test_what_is_asked_for_early_comes_when_the_model_is_ready(browser: Any, gateway: str) -> None:
    app = AppPage(browser, gateway)
    try:
        held: list[Any] = []
        url = f"{gateway}models/digits.onnx"
        app.context.route(url, lambda route: held.append(route))
        with app.page.expect_request(url):
            app.goto()
        sample = app.until(".sample")
        sample.click()
        assert app.page.get_attribute("body", "data-state") == "opening"
        held[0].continue_()
        app.until("#result .times")
        assert app.answer() == sample.get_attribute("data-label")
        assert app.problems.unexpected == []
    finally:
        app.close()


def test_a_page_turned_by_quarters(
    app: AppPage, model_file: ModelFile, record_property: Record
) -> None:
    # covers R32
    with np.load(DATA / "page_sample.npz") as file:
        upright = file["page"]
    app.choose("orientation")
    found: list[str] = []
    with InferenceSession(model_file("orientation")) as session:
        for quarters in range(4):
            picture = png(np.rot90(upright, -quarters))
            file = {"name": "page.png", "mimeType": "image/png", "buffer": picture}

            def choose(file: dict[str, Any] = file) -> None:
                app.page.set_input_files("#page-file", file)

            app.acted(choose)
            found.append(app.answer())
            check_bits(app, session)
        # The same by the page's own means: a sample, turned with the button.
        app.acted(lambda: app.page.click("[data-sample=page-invoice]"))
        turned = [app.answer()]
        for _ in range(3):
            app.acted(lambda: app.page.click("#turn"))
            turned.append(app.answer())
        check_bits(app, session)
    record_property("page turned", ", ".join(found))
    assert found == ["0°", "90°", "180°", "270°"]
    assert turned == found


def test_a_dropped_text_recognizer_at_three_widths(
    app: AppPage, model_file: ModelFile, record_property: Record
) -> None:
    # covers R14 R32
    app.wait_state("digits", "ready")
    app.drop("models/ppocr_rec.onnx", "ch_PP-OCRv4_rec_infer.onnx")
    app.wait_state("own", "ready")
    with InferenceSession(model_file("ppocr_rec")) as session:
        app.page.select_option("[data-content=x]", "random")
        for width in WIDTHS:
            app.page.fill("[data-input=x][data-axis='3']", str(width))
            app.acted(lambda: app.page.click("#run"))
            assert app.saved("inputs")["x"].shape == (1, 3, 48, width)
            check_bits(app, session)
        app.page.select_option("[data-content=x]", "picture")
        texts = []
        for sample in ("line-hello", "line-sum"):
            app.page.click(f"[data-sample={sample}]")
            app.until(f"[data-chosen='{sample}.png']")
            app.acted(lambda: app.page.click("#run"))
            texts.append(app.answer())
            check_bits(app, session)
        assert app.compilations() == 1
        assert session.compile_count == 1
    record_property("dropped recognizer", f"widths {WIDTHS}, 1 compilation, bits of wasmtime")
    record_property("text read", " | ".join(texts))
    assert texts[0] == "Hello ONNX compiler"
    assert re.sub(r"\s", "", texts[1]) == "Total1,284.50EUR"


def test_a_value_decides_which_variant_is_compiled(app: AppPage, model_file: ModelFile) -> None:
    # covers R14
    app.page.click("#models [data-model=silero_vad]")
    app.wait_state("silero_vad", "ready")
    with InferenceSession(model_file("silero_vad")) as session:
        for rate, window in ((16000, 576), (8000, 288), (16000, 576)):
            app.page.fill("[data-values=sr]", str(rate))
            app.page.fill("[data-input=input][data-axis='1']", str(window))
            app.acted(lambda: app.page.click("#run"))
            check_bits(app, session)
    assert app.compilations() == 2


def test_looking_inside(app: AppPage) -> None:
    # covers R9 R20 R32
    app.choose("orientation")
    app.acted(lambda: app.page.click("[data-sample=page-notes]"))
    app.page.click("[data-tab='Graph']")
    graph = app.until("svg.graph")
    assert len(graph.query_selector_all("g.node")) == int(graph.get_attribute("data-nodes")) > 50
    app.page.click("[data-tab='IR text']")
    app.page.fill("#ir-search", "conv2d")
    assert app.page.locator("pre.ir mark").count() > 20
    assert "rlx.module" in app.page.inner_text("pre.ir")
    app.page.select_option("#ir-stage", "imported")
    assert "target_device_set" not in app.page.inner_text("pre.ir")
    app.page.click("[data-tab='Memory']")
    memory = app.until("svg.memory")
    assert int(memory.get_attribute("data-buffers")) > 50
    peak = int(app.page.get_attribute("#peak", "data-bytes"))
    assert 7_000_000 < peak < 40_000_000
    app.page.click("[data-tab='Timeline']")
    app.until(".timeline-view")
    assert app.page.locator("table.operators tbody tr").count() > 5
    app.page.click("[data-tab='Compiler']")
    steps = app.page.locator("table.passes th").all_inner_texts()
    assert steps[0] == "import" and steps[-1] == "emit" and "fuse" in steps


def test_a_second_visit_needs_no_python(app: AppPage) -> None:
    app.wait_state("digits", "ready")
    fetched: list[str] = []
    app.page.on("request", lambda request: fetched.append(request.url))
    app.page.reload()
    app.wait_state("digits", "ready")
    app.acted(app.page.query_selector_all(".sample")[0].click)
    assert app.answer() == app.page.get_attribute(".sample", "data-label")
    assert not [url for url in fetched if "pyodide" in url]


def test_capabilities_are_listed(app: AppPage) -> None:
    for name, value in (("SIMD (f32x4)", "yes"), ("isolated page", "yes"), ("threads", "yes")):
        assert app.page.inner_text(f"#capabilities tr[data-name='{name}'] td >> nth=0") == value
