"""Where the page's requests go, what its policy allows, and that it runs without isolation."""

from __future__ import annotations

from typing import Any
from urllib.request import urlopen

import pytest

from tests.browser.chromium import INSIDE, AppPage
from tests.browser.gateway import require_site, running_gateway

pytestmark = pytest.mark.browser


def use_everything(app: AppPage) -> None:
    """Every kind of panel, every tab."""
    app.wait_state("digits", "ready")
    app.acted(app.page.query_selector_all(".sample")[3].click)
    app.choose("orientation")
    app.acted(lambda: app.page.click("[data-sample=page-invoice]"))
    assert app.answer() == "0°"
    for tab in ("Graph", "IR text", "Memory", "Timeline", "Compiler"):
        app.page.click(f"[data-tab='{tab}']")
        app.until(f"#tabpanel[data-shown='{tab}']")


def test_nothing_leaves_and_the_policy_holds(app: AppPage, gateway: str) -> None:
    # covers R32 R35
    urls: list[str] = []
    app.page.on("request", lambda request: urls.append(request.url))
    app.page.evaluate(
        "addEventListener('securitypolicyviolation',"
        " ({ violatedDirective }) => console.error(`policy: ${violatedDirective}`))"
    )
    use_everything(app)
    assert len(urls) > 5 and all(url.startswith(INSIDE) for url in urls)
    assert app.page.evaluate("crossOriginIsolated") is True
    with urlopen(gateway) as response:
        policy = response.headers["content-security-policy"]
    assert "script-src 'self' 'wasm-unsafe-eval';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy and "'unsafe-eval'" not in policy


def test_the_policy_is_enforced(app: AppPage) -> None:
    """What the policy forbids fails here, so that the tests above mean something."""
    app.problems.expect("Content Security Policy|Refused|violates")
    app.wait_state("digits", "ready")
    with app.page.expect_event("console", lambda message: message.type == "error"):
        ran = app.page.evaluate(
            """() => {
              const script = document.createElement("script");
              script.textContent = "globalThis.planted = true";
              document.head.append(script);
              return Boolean(globalThis.planted);
            }"""
        )
    assert ran is False
    assert app.problems.seen


def test_a_request_to_elsewhere_is_noticed(app: AppPage) -> None:
    app.problems.expect(r"192\.0\.2\.1|Content Security Policy|Refused|violates")
    with app.page.expect_event("console", lambda message: message.type == "error"):
        app.page.evaluate("fetch('http://192.0.2.1/').catch(() => {})")
    assert app.problems.seen and not app.problems.unexpected


def test_without_isolation_it_still_runs(browser: Any) -> None:
    # covers R19
    require_site()
    with running_gateway("--no-isolation", "--models", "digits", "orientation") as url:
        app = AppPage(browser, url)
        try:
            app.goto()
            assert app.page.evaluate("crossOriginIsolated") is False
            use_everything(app)
            assert app.problems.unexpected == []
        finally:
            app.close()
