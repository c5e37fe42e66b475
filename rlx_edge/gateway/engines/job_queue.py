"""One thread that does jobs in the order in which they were given."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("rlx_edge.gateway")


class JobQueue:
    """``submit`` from any thread; ``close`` returns when the jobs that were given are done."""

    def __init__(self, name: str) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    def submit(self, job: Callable[[], None]) -> None:
        """Do ``job`` behind those that wait."""
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def close(self) -> None:
        """End the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._jobs and not self._closing:
                    self._wake.wait()
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            try:
                job()
            except Exception:  # a job that breaks must not take those behind it along
                log.exception("job failed")
