"""What users, servers and networks do wrong: a message that can be seen, and a page that works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from rlx_edge.cli.main import main
from tests.browser.chromium import AppPage
from tests.browser.gateway import SITE
from tests.browser.pictures import png

pytestmark = pytest.mark.browser

ModelFile = Callable[[str], Path]
HTML = "<!doctype html><title>Not found</title><p>Nothing here</p>"


def check_works(app: AppPage) -> None:
    """The page still does what it should."""
    app.choose("digits")
    sample = app.page.query_selector_all(".sample")[0]
    app.acted(sample.click)
    assert app.answer() == sample.get_attribute("data-label")
    assert not app.page.is_visible("#error")


def planted_operator() -> bytes:
    """A model with an operator that nobody has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="first"),
        helper.make_node("Frobnicate", ["y"], ["z"], name="the_odd_one"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xz"]
    graph = helper.make_graph(nodes, "planted", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    content: bytes = model.SerializeToString()
    return content


def test_files_that_are_no_models(app: AppPage, model_file: ModelFile) -> None:
    app.wait_state("digits", "ready")
    app.open_bytes("notes.onnx", b"These are notes about a model, and not the model.\n" * 20)
    assert "notes.onnx" in app.error() and "it is text" in app.error()
    content = model_file("digits").read_bytes()
    app.open_bytes("half.onnx", content[: len(content) * 6 // 10])
    app.until("#error:not([hidden])", "half.onnx")
    assert app.error_code().startswith(("import.", "wire.", "onnx.", "model."))
    app.open_bytes("empty.onnx", b"")
    app.until("#error:not([hidden])", "empty.onnx")
    check_works(app)


def test_an_operator_that_is_not_supported(app: AppPage) -> None:
    app.wait_state("digits", "ready")
    app.open_bytes("planted.onnx", planted_operator())
    message = app.error()
    assert "Frobnicate" in message and "the_odd_one" in message
    check_works(app)


def test_pictures_of_the_wrong_size(app: AppPage) -> None:
    app.choose("orientation")

    def choose(selector: str, name: str, content: bytes) -> None:
        file = {"name": name, "mimeType": "image/png", "buffer": content}
        app.page.set_input_files(selector, file)

    choose("#page-file", "speck.png", png(np.zeros((5, 3), np.uint8)))
    assert "3×5" in app.error() and app.error_code() == "image.size"
    choose("#page-file", "broken.png", b"\x89PNG\r\n\x1a\nnothing else")
    app.until("#error code[data-code='image.decode']")
    app.acted(lambda: app.page.click("[data-sample=page-notes]"))
    assert app.answer() == "0°"
    # A model that takes pictures as they are refuses other sizes, and content of other lengths.
    app.drop("models/orientation.onnx", "mine.onnx")
    app.wait_state("own", "ready")
    app.page.select_option("[data-content=x]", "picture")
    app.page.select_option("select[aria-label='size of the picture']", "exact")
    choose("[data-file=x]", "small.png", png(np.zeros((48, 64), np.uint8)))
    app.page.click("#run")
    assert "64×48" in app.error() and "224×224" in app.error()
    app.page.select_option("[data-content=x]", "file")
    choose("[data-file=x]", "short.bin", bytes(1000))
    app.page.click("#run")
    app.until("#error code[data-code='input.bytes']")
    app.page.select_option("[data-content=x]", "zeros")
    app.acted(lambda: app.page.click("#run"))
    check_works(app)


def test_sizes_that_do_not_fit(app: AppPage) -> None:
    app.drop("models/silero_vad.onnx", "vad.onnx")
    app.wait_state("own", "ready")
    app.page.fill("[data-input=input][data-axis='0']", "0")
    app.page.click("#run")
    assert app.error_code() == "input.size"
    app.page.fill("[data-values=sr]", "loud")
    app.page.fill("[data-input=input][data-axis='0']", "1")
    app.page.click("#run")
    app.until("#error code[data-code='input.values']")
    check_works(app)


@pytest.mark.parametrize(
    "path",
    ["pyodide/pyodide.asm.wasm", "pyodide/python_rest.zip", "models/digits.onnx"],
)
def test_a_page_in_place_of_a_file(browser: Any, gateway: str, path: str) -> None:
    app = AppPage(browser, gateway)
    try:
        app.problems.expect("wasm|WebAssembly|ArrayBuffer|a page came in place")
        url = f"{gateway}{path}"
        app.context.route(url, lambda route: route.fulfill(content_type="text/html", body=HTML))
        app.goto()
        assert "a page came in place of the file" in app.error()
        assert path.rpartition("/")[2] in app.error()
        app.context.unroute(url)
        check_works(app)
        assert app.problems.unexpected == []
    finally:
        app.close()


def test_a_download_cut_short(app: AppPage, model_file: ModelFile) -> None:
    app.wait_state("digits", "ready")
    content = model_file("orientation").read_bytes()
    url = f"{app.url}models/orientation.onnx"
    app.context.route(url, lambda route: route.fulfill(body=content[:-1000]))
    app.page.click("#models [data-model=orientation]")
    assert "cut short" in app.error() and str(len(content)) in app.error()
    app.context.unroute(url)
    app.context.route(url, lambda route: route.fulfill(body=content[:-1] + b"?"))
    app.page.click("#models [data-model=orientation]")
    app.until("#error code[data-code='download.digest']")
    app.context.unroute(url)
    check_works(app)
    app.choose("orientation")


def test_a_weight_file_cut_short(app: AppPage, model_file: ModelFile, tmp_path: Path) -> None:
    # covers R33
    bundle = tmp_path / "bundle"
    assert main(["compile", str(model_file("orientation")), "-o", str(bundle)]) == 0
    cut: list[str] = []

    def serve(route: Any) -> None:
        path = bundle / route.request.url.removeprefix(f"{app.url}bundle/").partition("?")[0]
        content = path.read_bytes()
        if path.name.startswith("weights-") and not cut:
            cut.append(path.name)
            content = content[: len(content) // 2]
        types = {".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html"}
        route.fulfill(body=content, content_type=types.get(path.suffix, "application/octet-stream"))

    app.wait_state("digits", "ready")
    app.context.route(f"{app.url}bundle/**", serve)
    app.page.goto(f"{app.url}bundle/index.html")
    app.until("#status[data-failed]")
    assert cut and "the weights are cut short" in app.page.inner_text("#status")
    app.page.reload()
    app.until("#status", "loaded in")
    app.goto()
    check_works(app)


@pytest.mark.parametrize("start", ["snapshot", "plain"])
def test_a_compiler_of_another_build(browser: Any, gateway: str, start: str) -> None:
    app = AppPage(browser, gateway)
    try:
        if start == "plain":
            app.start_without_snapshot(SITE)
            file, code = next((SITE / "pyodide").glob("*.whl")), "site.wheel"
        else:
            file, code = SITE / "pyodide" / "snapshot.bin", "site.snapshot"
        url = f"{gateway}pyodide/{file.name}"
        app.problems.expect("[Ii]ntegrity|digest|Failed|rlx.edge|snapshot")
        app.context.route(url, lambda route: route.fulfill(body=b"of another build"))
        app.goto()
        assert file.name in app.error() and app.error_code() == code
        app.context.unroute(url)
        check_works(app)
        assert app.problems.unexpected == []
    finally:
        app.close()


def test_a_gateway_that_is_gone(app: AppPage) -> None:
    app.problems.expect("Failed to load resource")
    app.wait_state("digits", "ready")
    url = f"{app.url}models/orientation.onnx"
    app.context.route(url, lambda route: route.abort())
    app.page.click("#models [data-model=orientation]")
    assert "cannot be fetched" in app.error()
    app.context.unroute(url)
    check_works(app)


def test_cancel_while_a_model_is_fetched(app: AppPage) -> None:
    # covers R32
    app.wait_state("digits", "ready")
    held: list[Any] = []
    url = f"{app.url}models/orientation.onnx"
    app.context.route(url, lambda route: held.append(route))
    with app.page.expect_request(url):
        app.page.click("#models [data-model=orientation]")
    # The request is over before the route is, or the console would tell of a failure.
    with app.page.expect_event("requestfailed", lambda request: request.url == url):
        app.cancel()
    assert app.step("download") == "cancelled"
    assert not app.page.is_visible("#error")
    app.context.unroute(url)
    assert len(held) == 1
    check_works(app)


def test_cancel_while_python_starts_and_while_a_model_is_compiled(
    browser: Any, gateway: str
) -> None:
    # covers R32
    app = AppPage(browser, gateway)
    try:
        held: list[Any] = []
        url = f"{gateway}pyodide/pyodide.asm.wasm"
        app.context.route(url, lambda route: held.append(route))
        with app.page.expect_request(url):
            app.goto()
        app.until("[data-step=python][data-state=active]")
        app.cancel()
        assert app.step("python") == "cancelled"
        app.context.unroute(url)
        check_works(app)
        app.cancelled_at(
            "body[data-model=own] [data-step=compile][data-state=active] .note:not(:empty)",
            lambda: app.drop("models/ppocr_rec.onnx", "rec.onnx"),
        )
        assert app.step("compile") == "cancelled"
        assert not app.page.is_visible("#error")
        check_works(app)
        assert app.problems.unexpected == []
    finally:
        app.close()


def test_cancel_while_a_model_runs(app: AppPage) -> None:
    # covers R32
    app.choose("orientation")
    app.page.fill("#repeat", "1000")
    app.cancelled_at(
        "[data-step=run] progress[value]:not([value='0'])",
        lambda: app.page.click("[data-sample=page-notes]"),
    )
    assert app.step("run") == "cancelled"
    assert not app.page.is_visible("#error")
    app.page.fill("#repeat", "1")
    app.acted(lambda: app.page.click("#turn"))
    assert app.answer() == "90°"
    check_works(app)
