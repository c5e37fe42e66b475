"""``/metrics``: counts of what the log says, and what clients hold now, for Prometheus.

Every event is one line of the log (`server.py`); here the same records are counted. The text is the
exposition format 0.0.4.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping

MEDIA_TYPE = "text/plain; version=0.0.4"
EVENT = re.compile("[a-z_]+")
METHODS = ("GET", "HEAD", "OPTIONS", "PUT")

Labels = tuple[tuple[str, str], ...]

HELP = {
    "rlx_edge_events_total": "Events of the log; refusals by code.",
    "rlx_edge_requests_total": "Requests by method and status.",
    "rlx_edge_request_seconds_total": "Time in requests.",
    "rlx_edge_sent_bytes_total": "Bytes of bodies that were sent.",
    "rlx_edge_clients": "Clients that are connected.",
    "rlx_edge_shards": "Shards that clients have.",
    "rlx_edge_runs": "Runs that have begun or wait.",
    "rlx_edge_tensor_bytes": "Tensors under way.",
    "rlx_edge_upload_bytes": "IR and weights that clients have uploaded.",
}


class Metrics(logging.Handler):
    """Counts records: a handler of the gateway's logger. Labels have few values, whatever clients
    send."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._counts: Counter[tuple[str, Labels]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        event, fields = str(record.msg), vars(record)
        if not EVENT.fullmatch(event):
            return
        labels = [("event", event)]
        if event == "refused":
            labels.append(("code", str(fields.get("code", ""))))
        self._counts["rlx_edge_events_total", tuple(labels)] += 1
        if event == "request":
            method = fields["method"] if fields["method"] in METHODS else "other"
            status = str(fields["status"])
            self._counts["rlx_edge_requests_total", (("method", method), ("status", status))] += 1
            self._counts["rlx_edge_request_seconds_total", ()] += fields["ms"] / 1e3
            self._counts["rlx_edge_sent_bytes_total", ()] += fields["bytes"]

    def text(self, gauges: Mapping[str, int]) -> str:
        """The exposition: counts so far, and ``gauges`` by name."""
        return "".join(self._lines(gauges))

    def _lines(self, gauges: Mapping[str, int]) -> Iterator[str]:
        for name, what in HELP.items():
            is_gauge = name in gauges
            yield f"# HELP {name} {what}\n# TYPE {name} {'gauge' if is_gauge else 'counter'}\n"
            if is_gauge:
                yield f"{name} {gauges[name]}\n"
                continue
            found = [(labels, n) for (key, labels), n in self._counts.items() if key == name]
            for labels, number in sorted(found):
                inside = ",".join(f'{key}="{value}"' for key, value in labels)
                yield f"{name}{f'{{{inside}}}' if inside else ''} {number:.15g}\n"
