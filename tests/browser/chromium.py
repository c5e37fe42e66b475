"""Chromium as the tests use it: nothing leaves this machine, and what goes wrong is kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.browser.gateway import MissingTool

Array = npt.NDArray[Any]

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
INSIDE = ("http://127.0.0.1:", "data:", "blob:")
WAIT = 60_000
"""Milliseconds that a condition may take on a busy machine."""


def chromium_path() -> str:
    """Where Chromium is; `MissingTool` otherwise."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise MissingTool("chromium is missing; `make setup` says how to get it")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=chromium_path(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Problems:
    """What must not happen on a page: errors in the console, requests to elsewhere."""

    seen: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def expect(self, pattern: str) -> None:
        """A test that breaks something on purpose says which lines follow from that."""
        self.expected.append(pattern)

    @property
    def unexpected(self) -> list[str]:
        return [
            line
            for line in self.seen
            if not any(re.search(pattern, line) for pattern in self.expected)
        ]


class AppPage:
    """The page in a fresh profile, by what a user sees and does."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.problems = Problems()
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(WAIT)
        self.context.route(lambda address: not address.startswith(INSIDE), self._refuse)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.problems.seen.append(f"page: {error}"))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.seen.append(f"console: {message.text} {message.location.get('url')}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith(INSIDE):
            self.problems.seen.append(f"request to {request.url}")

    def _refuse(self, route: Any) -> None:
        self.problems.seen.append(f"request to {route.request.url}")
        route.abort()

    def close(self) -> None:
        self.context.close()

    # ---- what a user does --------------------------------------------------------------------

    def goto(self) -> None:
        self.page.goto(self.url)
        self.page.wait_for_selector("body[data-loaded]")

    def choose(self, model: str) -> None:
        """Choose a model of the list and wait until it is ready."""
        self.page.click(f"#models [data-model='{model}']")
        self.wait_state(model, "ready")

    def drop(self, path: str, name: str) -> None:
        """Drop a file that the gateway serves at `path`, as if it came from the desktop."""
        self.page.evaluate(
            """async ([path, name]) => {
              const bytes = await (await fetch(path)).arrayBuffer();
              const transfer = new DataTransfer();
              transfer.items.add(new File([bytes], name));
              const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
              document.body.dispatchEvent(new DragEvent("dragover", options));
              document.body.dispatchEvent(new DragEvent("drop", options));
            }""",
            [path, name],
        )

    def open_bytes(self, name: str, content: bytes) -> None:
        """Choose a file of one's own."""
        file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        self.page.set_input_files("#model-file", file)

    def cancel(self) -> None:
        self.page.click("#cancel:enabled")
        self.page.wait_for_selector("body[data-state=cancelled]:not([data-busy])")

    # ---- what a user sees --------------------------------------------------------------------

    def wait_state(self, model: str, state: str) -> None:
        """Until the model has come to this state; a failure that the page shows ends it."""
        self.page.wait_for_selector(
            f"body[data-model='{model}'][data-state='{state}']:not([data-busy]), "
            f"body[data-model='{model}'][data-state='failed']:not([data-busy])"
        )
        found = self.page.evaluate("document.body.dataset.state")
        if found != state:
            raise AssertionError(f"{model} is {found}: {self.error()}")

    def acted(self, act: Any) -> None:
        """Do something that runs the model, and wait for its result."""
        self.page.evaluate(
            """() => {
              document.getElementById("result").replaceChildren();
              document.getElementById("error").hidden = true;
            }"""
        )
        act()
        self.page.wait_for_selector("#result .times, #error:not([hidden])")
        self.page.wait_for_selector("body:not([data-busy])")
        if self.page.is_visible("#error"):
            raise AssertionError(self.error())

    def error(self) -> str:
        """The message that is shown; waits for one."""
        self.page.wait_for_selector("#error:not([hidden]) .message")
        return str(self.page.inner_text("#error .message"))

    def error_code(self) -> str:
        self.page.wait_for_selector("#error:not([hidden]) code")
        return str(self.page.get_attribute("#error code", "data-code"))

    def answer(self) -> str:
        return str(self.page.inner_text("#answer"))

    def step(self, name: str) -> str:
        """The state of a step."""
        return str(self.page.get_attribute(f"[data-step={name}]", "data-state"))

    def compilations(self) -> int:
        return int(self.page.inner_text("#compilations"))

    def saved(self, kind: str) -> dict[str, Array]:
        """The tensors of the last run, `inputs` or `outputs`, through their save buttons."""
        self.page.eval_on_selector("#tensors", "details => details.open = true")
        rows = self.page.query_selector_all(f"table[data-kind={kind}] tbody tr")
        found: dict[str, Array] = {}
        for row in rows:
            with self.page.expect_download() as download:
                row.query_selector("button").click()
            content = Path(download.value.path()).read_bytes()
            found[row.get_attribute("data-name")] = np.load(BytesIO(content))
        return found

    def digests(self, kind: str) -> dict[str, str]:
        """The digests that are shown of them."""
        self.page.wait_for_function(
            "kind => [...document.querySelectorAll(`table[data-kind=${kind}] .digest`)]"
            ".every(cell => 'ready' in cell.dataset)",
            arg=kind,
        )
        rows = self.page.query_selector_all(f"table[data-kind={kind}] tbody tr")
        return {
            row.get_attribute("data-name"): row.query_selector(".digest").text_content()
            for row in rows
        }
