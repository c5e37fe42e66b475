"""One tab of Chromium that nobody watches.

Test drivers have the browser tell them every request with its body, which for tensors costs more
than sending them. This speaks the DevTools protocol itself and asks for nothing but a function's
result (`Runtime.evaluate`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

from tests.browser.chromium import FLAGS, chromium_path

START_SECONDS = 60
STOP_SECONDS = 20


class Tab:
    """Evaluates functions in the page."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._count = 0

    def evaluate(self, function: str, argument: object) -> Any:
        """What the JavaScript ``function`` resolves to; ``RuntimeError`` with what it throws."""
        self._count += 1
        words = {
            "expression": f"({function})({json.dumps(argument)})",
            "awaitPromise": True,
            "returnByValue": True,
        }
        message = {"id": self._count, "method": "Runtime.evaluate", "params": words}
        self._socket.send(json.dumps(message))
        answer: dict[str, Any] = {}
        while answer.get("id") != self._count:
            answer = json.loads(self._socket.recv())
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        found = answer["result"]
        if "exceptionDetails" in found:
            thrown = found["exceptionDetails"].get("exception", {})
            raise RuntimeError(thrown.get("description", found["exceptionDetails"]["text"]))
        return found["result"].get("value")


@contextmanager
def chromium_tab(url: str) -> Iterator[Tab]:
    """A tab of a fresh profile at the address."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [chromium_path(), *FLAGS, "--headless", "--remote-debugging-port=0"]
        process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Debian's command is a script that waits for the browser
        )
        try:
            address = _address(Path(profile) / "DevToolsActivePort", url)
            with connect(address, max_size=None, ping_interval=None, proxy=None) as socket:
                yield Tab(socket)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the browser and its processes, which outlive the script that started them."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)  # fails once all are gone
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _address(file: Path, url: str) -> str:
    """Where the tab is controlled, once it shows the address."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        time.sleep(0.1)
        port = file.read_text(encoding="ascii").partition("\n")[0] if file.is_file() else ""
        if not port:
            continue
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=START_SECONDS) as answer:
            for target in json.load(answer):
                if target["type"] == "page" and target["url"] == url:
                    return str(target["webSocketDebuggerUrl"])
    raise RuntimeError("Chromium did not open the page")
