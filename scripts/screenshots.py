"""Pictures of the page for the documentation, at the widths of a desk and of a telephone.

usage: python -m scripts.screenshots [--output docs/images]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.browser.chromium import AppPage, chromium
from tests.browser.gateway import require_site, running_gateway

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTHS = {1280: 900, 390: 844}
"""Width → height of the window, in pixels."""


@dataclass(frozen=True)
class Shot:
    """A picture: what is done first, and the element that it starts with."""

    name: str
    prepare: Callable[[AppPage], None]
    top: str = "body"
    scheme: str = "light"


def digits(app: AppPage) -> None:
    app.wait_state("digits", "ready")
    app.acted(app.page.query_selector_all(".sample")[1].click)


def orientation(app: AppPage) -> None:
    app.choose("orientation")
    app.acted(lambda: app.page.click("[data-sample=page-invoice]"))
    app.acted(lambda: app.page.click("#turn"))


def recognizer(app: AppPage) -> None:
    app.choose("ppocr_rec")
    app.page.click("[data-sample=line-hello]")
    app.until("[data-chosen='line-hello.png']")
    app.acted(lambda: app.page.click("#run"))


def tab(name: str) -> Callable[[AppPage], None]:
    def prepare(app: AppPage) -> None:
        orientation(app)
        app.page.click(f"[data-tab='{name}']")
        app.until(f"#tabpanel[data-shown='{name}']")

    return prepare


def mistake(app: AppPage) -> None:
    app.wait_state("digits", "ready")
    app.open_bytes("notes.onnx", b"These are notes about a model, and not the model.\n" * 20)
    app.error()


SHOTS = (
    Shot("digits", digits),
    Shot("orientation", orientation, scheme="dark"),
    Shot("recognizer", recognizer),
    Shot("graph", tab("Graph"), "#inspect"),
    Shot("memory", tab("Memory"), "#inspect"),
    Shot("timeline", tab("Timeline"), "#inspect"),
    Shot("mistake", mistake),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=IMAGES)
    output: Path = parser.parse_args(arguments).output
    output.mkdir(parents=True, exist_ok=True)
    require_site()
    with running_gateway() as url, chromium() as browser:
        for shot in SHOTS:
            for width, height in WIDTHS.items():
                viewport = {"width": width, "height": height}
                app = AppPage(browser, url, viewport=viewport, color_scheme=shot.scheme)
                try:
                    app.goto()
                    shot.prepare(app)
                    app.page.eval_on_selector(shot.top, "element => element.scrollIntoView()")
                    app.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
                    app.page.screenshot(path=output / f"{shot.name}-{width}.png")
                finally:
                    app.close()
            print(f"{shot.name}: {', '.join(map(str, WIDTHS))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
