"""Chromium as the tests use it: nothing leaves this machine, and what goes wrong is kept."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
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
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""Debian's names; the shell is the same engine without the windows of a desktop."""
QUIET = 90_000
"""Milliseconds without any change on the page after which it is held to hang. A slow machine makes
changes seldom, but it makes them: every step of the page tells how far it is."""
LONGEST = 600_000
"""Milliseconds after which a wait ends even on a page that goes on changing."""
ACTION = 120_000
"""Milliseconds for one action of the browser: a click, a navigation."""
POLL = 50
"""Milliseconds between two looks at the page."""

# Answers "there" or "quiet", or nothing as long as there is hope.
LOOK = """
([selector, text, quiet]) => {
  const life = (globalThis.rlxLife ??= (() => {
    const found = { changed: performance.now() };
    new MutationObserver(() => (found.changed = performance.now())).observe(document, {
      attributes: true, characterData: true, childList: true, subtree: true,
    });
    return found;
  })());
  const found = document.querySelector(selector);
  if (found && (text === null || found.textContent.includes(text))) return "there";
  return performance.now() - life.changed > quiet && "quiet";
}
"""


def chromium_path() -> str:
    """Where Chromium is; `MissingTool` otherwise."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
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
        self.context.set_default_timeout(ACTION)
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

    # ---- waiting -----------------------------------------------------------------------------

    def until(self, selector: str, text: str | None = None) -> Any:
        """The element, once it is there and its text has `text` in it. There is no deadline as
        long as something on the page changes: slow machines are not taken for failures."""
        found = self.page.wait_for_function(
            LOOK, arg=[selector, text, QUIET], polling=POLL, timeout=LONGEST
        ).json_value()
        if found != "there":
            wanted = selector if text is None else f"{selector} with {text!r}"
            raise AssertionError(f"nothing changes while waiting for {wanted}: {self.told()}")
        return self.page.query_selector(selector)

    def told(self) -> str:
        """What the page says of itself, for messages."""
        body = self.page.evaluate("({ ...document.body.dataset })")
        steps = self.page.locator("[data-step]").evaluate_all(
            "list => list.map((row) => `${row.dataset.step} ${row.dataset.state}`)"
        )
        error = self.page.locator("#error:not([hidden])").all_inner_texts()
        return f"{body}, {', '.join(steps)}, errors {error}, console {self.problems.seen}"

    # ---- what a user does --------------------------------------------------------------------

    def goto(self) -> None:
        self.page.goto(self.url)
        self.until("body[data-loaded]")

    def start_without_snapshot(self, site: Path) -> None:
        """The compiler starts from library and wheel, as on a site that has no snapshot."""
        content = json.loads((site / "site.json").read_text())
        del content["starts"]["snapshot"]
        self.context.route(f"{self.url}site.json", lambda route: route.fulfill(json=content))

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
        self.until("body[data-state=cancelled]:not([data-busy])")

    def cancelled_at(self, selector: str, act: Callable[[], object]) -> None:
        """Do something, and press cancel the moment that an element is there: in the page, so that
        a test process that comes late misses nothing."""
        self.page.evaluate(
            """(selector) => {
              const observer = new MutationObserver(() => {
                if (!document.querySelector(selector)) return;
                observer.disconnect();
                document.getElementById("cancel").click();
              });
              const what = { attributes: true, childList: true, subtree: true };
              observer.observe(document.body, what);
            }""",
            selector,
        )
        act()
        self.until("body[data-state=cancelled]:not([data-busy])")

    # ---- what a user sees --------------------------------------------------------------------

    def wait_state(self, model: str, state: str) -> None:
        """Until the model has come to this state; a failure that the page shows ends it."""
        self.until(
            f"body[data-model='{model}'][data-state='{state}']:not([data-busy]), "
            f"body[data-model='{model}'][data-state='failed']:not([data-busy])"
        )
        found = self.page.evaluate("document.body.dataset.state")
        if found != state:
            raise AssertionError(f"{model} is {found}: {self.error()}")

    def acted(self, act: Callable[[], object]) -> None:
        """Do something that runs the model, and wait for its result."""
        self.page.evaluate(
            """() => {
              document.getElementById("result").replaceChildren();
              document.getElementById("error").hidden = true;
            }"""
        )
        act()
        self.until("#result .times, #error:not([hidden])")
        self.until("body:not([data-busy])")
        if self.page.is_visible("#error"):
            raise AssertionError(self.error())

    def error(self) -> str:
        """The message that is shown; waits for one."""
        self.until("#error:not([hidden]) .message")
        return str(self.page.inner_text("#error .message"))

    def error_code(self) -> str:
        self.until("#error:not([hidden]) code")
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
        self.until(f"table[data-kind={kind}]:has(.digest):not(:has(.digest:not([data-ready])))")
        rows = self.page.query_selector_all(f"table[data-kind={kind}] tbody tr")
        return {
            row.get_attribute("data-name"): row.query_selector(".digest").text_content()
            for row in rows
        }
