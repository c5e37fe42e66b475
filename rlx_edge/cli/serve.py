"""``rlx serve``: the gateway with the page and the models, until it is interrupted."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import rlx_edge
from rlx_edge.cli.gateway import TOKEN_VARIABLE
from rlx_edge.cli.progress import Steps
from rlx_edge.gateway.access import Access
from rlx_edge.gateway.settings import DEFAULT_PORT, Model, Settings
from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.lent_devices import DEFAULT, find_workers
from rlx_edge.model_store import MODELS, fetch_models, find_model

if TYPE_CHECKING:
    from rlx_edge.gateway.offload import Offload

NEEDED = ("starlette", "uvicorn", "websockets")
ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx serve``."""
    parser.add_argument("--host", default="127.0.0.1", help="address; 127.0.0.1 by default")
    parser.add_argument(
        "--port", type=int, help=f"{DEFAULT_PORT} by default, or a free one where that is taken"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="MODEL",
        default=list(MODELS),
        help="names of sample models, or ONNX files; all sample models by default",
    )
    parser.add_argument("--site", type=Path, metavar="FOLDER", help="the built page (`make web`)")
    parser.add_argument(
        "--name", action="append", default=[], metavar="HOST", help="a further host name to answer"
    )
    parser.add_argument(
        "--no-isolation", action="store_true", help="leave out COOP and COEP (no threads then)"
    )
    parser.add_argument(
        "--offload", action="store_true", help="also run parts of models for clients with the token"
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        metavar="DEVICE",
        help="a device that runs parts: cpu:0 (by default), cuda:N, vulkan:N; repeatable, clients "
        "take the first unless they ask for another",
    )
    parser.add_argument(
        "--token",
        help=f"what clients show; the variable {TOKEN_VARIABLE}, or a fresh one, by default",
    )
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a further origin whose pages may offload, such as https://example.org",
    )
    parser.add_argument(
        "--open", action="store_true", help="open a browser, where there is one and a display"
    )


def execute(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DeviceError(
            "cli.gateway",
            "the gateway needs packages that are not installed",
            found=f"no {', '.join(missing)}",
            hint="pip install 'rlx-edge[gateway]'",
        )
    from rlx_edge.gateway.server import serve

    settings = Settings(
        site=options.site or default_site(),
        models=served_models(options.models),
        host=options.host,
        port=DEFAULT_PORT if options.port is None else options.port,
        any_port=options.port is None,
        names=tuple(options.name),
        isolated=not options.no_isolation,
    )

    access = offload_access(options)
    offload = None
    if access is not None:
        offload = make_offload(access, settings, options.worker or DEFAULT)

    def announce(url: str) -> None:
        print(f"rlx-edge serves {len(settings.models)} models at {url}", flush=True)
        if access is not None and access.token != options.token:
            print(f"token for offloading: {access.token}", flush=True)
        if options.open and has_display():
            webbrowser.open(url)

    serve(settings, announce, offload)
    return 0


def has_display() -> bool:
    """Whether a browser that is opened here would be seen."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def offload_access(options: argparse.Namespace) -> Access | None:
    """Who may offload; ``None`` where nobody may. ``InputError`` for what is not an origin."""
    if not options.offload:
        if options.token or options.origin or options.worker:
            raise InputError("cli.serve", "--token, --origin and --worker go with --offload")
        return None
    for origin in options.origin:
        if not ORIGIN.fullmatch(origin):
            raise InputError(
                "cli.origin", "not an origin", found=repr(origin), allowed="https://HOST[:PORT]"
            )
    token = options.token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    return Access(token, frozenset(options.origin))


def make_offload(access: Access, settings: Settings, names: Sequence[str] = DEFAULT) -> Offload:
    """Offloading for the models of the settings, on these devices of this machine."""
    from rlx_edge.gateway.limits import Limits
    from rlx_edge.gateway.offload import Offload
    from rlx_edge.gateway.registry import Registry

    limits = Limits()
    return Offload(
        access,
        limits,
        Registry([model.path for model in settings.models]),
        find_workers(names, limits.run_seconds),
    )


def served_models(names: Sequence[str]) -> tuple[Model, ...]:
    """The models by name or path; those that are not on this machine are fetched."""
    stored = [name for name in names if name in MODELS]
    steps = Steps()
    try:
        paths = dict(zip(stored, fetch_models(stored, steps), strict=True))
    finally:
        steps.clear()
    found: list[Model] = []
    for name in names:
        if name in paths:
            model = find_model(name)
            found.append(Model(name, model.title, paths[name], model.licence))
            continue
        path = Path(name)
        if not path.is_file():
            raise InputError(
                "models.unknown",
                "neither a sample model nor a file",
                found=repr(name),
                allowed=[*MODELS, "a path"],
            )
        found.append(Model(path.stem, path.stem, path.resolve()))
    return tuple(found)


def default_site() -> Path:
    """The site inside the installed package, or that of the source tree."""
    package = Path(rlx_edge.__file__).resolve().parent
    inside = package / "site"
    return inside if inside.is_dir() else package.parent / "build" / "site"
