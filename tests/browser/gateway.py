"""The built site and a gateway that serves it, as a user starts it."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from scripts.build_web import DAGRE, PYODIDE, build_site

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "build" / "site"
STOP_SECONDS = 20


class MissingTool(Exception):
    """Something that set-up installs is not there."""


def require_site() -> Path:
    """The site, built if it is not current; test processes take turns."""
    if not (PYODIDE.is_dir() and DAGRE.is_dir()) or shutil.which("node") is None:
        raise MissingTool("node or its packages are missing; `make setup` installs them")
    SITE.parent.mkdir(parents=True, exist_ok=True)
    with (SITE.parent / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_site(SITE)
    return SITE


@contextmanager
def running_gateway(*arguments: str, port: int = 0, log: Path | None = None) -> Iterator[str]:
    """The URL of `rlx serve`, on a free port by default; it must stop cleanly, and nothing inside
    may have failed unforeseen. Its log goes to a file where one is named."""
    command = [str(Path(sys.executable).with_name("rlx")), "serve", "--port", str(port), *arguments]
    # A pipe that nobody reads would fill up with the lines of requests.
    with (
        TemporaryFile("w+") if log is None else log.open("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            errors.seek(0)
            raise RuntimeError(f"the gateway did not start: {errors.read()}")
        try:
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            errors.seek(0)
            told = errors.read()
    if process.returncode != 0:
        raise RuntimeError(f"the gateway ended with {process.returncode}: {told}")
    broken = [line for line in told.splitlines() if '"level": "error"' in line]
    if broken or "Traceback" in told:
        raise RuntimeError(f"the gateway failed inside: {broken or told}")
