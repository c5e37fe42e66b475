"""What ``rlx run`` needs to use a gateway: its words, its session, what both sides did."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.runtime.trace import TraceEvent

if TYPE_CHECKING:
    from rlx_edge.offload import OffloadSession

TOKEN_VARIABLE = "RLX_TOKEN"
MODES = ("local", "remote", "split")


@dataclass(frozen=True, slots=True)
class GatewayWords:
    """Where the gateway is, how it is used, and what opens it."""

    url: str
    token: str
    mode: str
    after: str
    worker: str = ""


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """Arguments that name a gateway."""
    parser.add_argument("--gateway", metavar="URL", help="run parts of the model on this gateway")
    parser.add_argument(
        "--token", help=f"the gateway's token; the variable {TOKEN_VARIABLE} by default"
    )
    parser.add_argument(
        "--worker",
        metavar="DEVICE",
        help="the gateway's device, such as cuda:0; by default the first that it lends",
    )
    parser.add_argument(
        "--split-after",
        metavar="%NAME",
        help="the operation of the placed IR that ends the local part",
    )


def read_gateway(options: argparse.Namespace) -> GatewayWords | None:
    """What the words say; ``None`` where everything runs here.

    ``InputError`` ``cli.gateway`` for words that do not fit each other.
    """
    mode = options.device
    if options.gateway is None:
        if mode in MODES or options.split_after or options.token or options.worker:
            raise InputError(
                "cli.gateway", "these arguments need a gateway", hint="add --gateway URL"
            )
        return None
    if mode == "wasm:0":  # nothing was said
        mode = "split" if options.split_after else "remote"
    if mode not in MODES:
        raise InputError(
            "cli.gateway", "not a way to use a gateway", found=repr(mode), allowed=list(MODES)
        )
    if (mode == "split") != bool(options.split_after):
        raise InputError(
            "cli.gateway",
            "a split, and nothing else, says where it is",
            found=f"--device {mode}"
            + (f" --split-after {options.split_after}" if options.split_after else ""),
            allowed="--device split --split-after %NAME",
        )
    options.device = mode
    if mode == "local":
        options.device = "wasm:0"
        return None
    token = options.token or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise InputError(
            "cli.gateway",
            "a gateway wants a token",
            found="none",
            allowed=f"--token TOKEN or the variable {TOKEN_VARIABLE}",
            hint="`rlx serve` prints it",
        )
    after = (options.split_after or "").lstrip("%")
    return GatewayWords(options.gateway, token, mode, after, options.worker or "")


def open_offload(
    model: str, words: GatewayWords, progress: Callable[[str], None]
) -> OffloadSession:
    """The session; ``DeviceError`` ``cli.gateway`` where the packages for it are absent."""
    if find_spec("websockets") is None:
        raise DeviceError(
            "cli.gateway",
            "a gateway needs packages that are not installed",
            found="no websockets",
            hint="pip install 'rlx-edge[gateway]'",
        )
    from rlx_edge.offload import OffloadSession

    return OffloadSession(
        model,
        words.url,
        words.token,
        mode=words.mode,
        split_after=words.after,
        worker=words.worker,
        progress=progress,
    )


def side_counts(events: Sequence[TraceEvent]) -> dict[str, int]:
    """How much each device did, where there are several: segments run, bytes sent."""
    counts: dict[str, int] = {}
    if len({event.device for event in events}) < 2:
        return counts
    for event in events:
        if event.kind == "run":
            counts[f"segments_on_{event.device}"] = counts.get(f"segments_on_{event.device}", 0) + 1
        elif event.kind == "send":
            key = f"bytes_from_{event.device}"
            counts[key] = counts.get(key, 0) + event.nbytes
    return counts
