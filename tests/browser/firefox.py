"""The orientation model in Firefox, driven through Marionette.

`python -m tests.browser.firefox URL FOLDER` opens the page in a fresh profile, classifies a sample
page turned by each quarter, saves its tensors into FOLDER and prints JSON: `version` and a row
`{answer, digest, inputs, outputs}` for each quarter. Marionette's packages leave sockets open and
call functions that they have declared old, so that they get a process of their own.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

WAIT_SECONDS = 90
PREFERENCES = {
    "browser.download.folderList": 2,
    "browser.helperApps.neverAsk.saveToDisk": "application/octet-stream",
    # Whatever would go elsewhere goes to a port where nobody listens.
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "network.proxy.no_proxies_on": "127.0.0.1",
}


def firefox_path() -> str | None:
    return shutil.which("firefox-esr") or shutil.which("firefox")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Firefox:
    """The page in Firefox; tensors are saved into `folder`."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.client = client
        self.folder = folder

    def script(self, text: str) -> Any:
        return self.client.execute_script(text)

    def wait(self, condition: str) -> None:
        """Until a JavaScript expression holds; the page's error ends the wait."""
        error = self.client.execute_async_script(
            f"""
            const [done] = arguments;
            const look = () => {{
              const error = document.querySelector("#error:not([hidden]) .message");
              if (error) done(error.textContent);
              else if ({condition}) done(null);
              else setTimeout(look, 50);
            }};
            look();
            """
        )
        if error is not None:
            raise RuntimeError(f"the page says: {error}")

    def click(self, selector: str) -> None:
        self.script(f"document.querySelector({selector!r}).click()")

    def text(self, selector: str) -> str:
        return str(self.script(f"return document.querySelector({selector!r}).textContent"))

    def save(self, kind: str) -> str:
        """The file of the first tensor of the table."""
        known = set(self.folder.glob("*.npy"))
        self.click(f"table[data-kind={kind}] tbody button")
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            fresh = set(self.folder.glob("*.npy")) - known
            if fresh and not list(self.folder.glob("*.part")):
                [path] = fresh
                if path.stat().st_size:
                    return str(path)
            time.sleep(0.05)
        raise RuntimeError(f"the {kind} were not saved")

    def classify(self, selector: str) -> dict[str, str]:
        """Click what starts a run; the answer, the digest shown, and the saved tensors."""
        self.script("document.getElementById('result').replaceChildren()")
        self.click(selector)
        self.wait("document.querySelector('#answer') && !('busy' in document.body.dataset)")
        digest = "table[data-kind=outputs] .digest"
        self.wait(f"'ready' in document.querySelector({digest!r}).dataset")
        return {
            "answer": self.text("#answer"),
            "digest": self.text(digest),
            "inputs": self.save("inputs"),
            "outputs": self.save("outputs"),
        }


def main(url: str, folder: Path) -> int:
    from marionette_driver.marionette import Marionette

    client = Marionette(
        bin=firefox_path(),
        port=free_port(),
        headless=True,
        prefs={**PREFERENCES, "browser.download.dir": str(folder)},
        gecko_log=str(folder / "log"),
    )
    client.start_session()
    try:
        client.timeout.script = WAIT_SECONDS
        client.navigate(url)
        firefox = Firefox(client, folder)
        firefox.wait("'loaded' in document.body.dataset")
        firefox.click("#models [data-model=orientation]")
        firefox.wait(
            "document.body.dataset.model === 'orientation'"
            " && document.body.dataset.state === 'ready'"
        )
        rows = [firefox.classify("[data-sample=page-notes]")]
        rows += [firefox.classify("#turn") for _ in range(3)]
        version = client.session_capabilities["browserVersion"]
    finally:
        client.quit(in_app=False)
    print(json.dumps({"version": version, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
