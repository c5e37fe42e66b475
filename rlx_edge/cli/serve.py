"""``rlx serve``: the gateway with the page and the models, until it is interrupted."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import rlx_edge
from rlx_edge.cli.progress import Steps
from rlx_edge.gateway.settings import DEFAULT_PORT, Model, Settings
from rlx_edge.ir.errors import DeviceError, InputError
from rlx_edge.model_store import MODELS, fetch_models, find_model

NEEDED = ("starlette", "uvicorn")


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx serve``."""
    parser.add_argument("--host", default="127.0.0.1", help="address; 127.0.0.1 by default")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"{DEFAULT_PORT} by default; 0 for any"
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
    parser.add_argument("--open", action="store_true", help="open a browser")


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
        port=options.port,
        names=tuple(options.name),
        isolated=not options.no_isolation,
    )

    def announce(url: str) -> None:
        print(f"rlx-edge serves {len(settings.models)} models at {url}", flush=True)
        if options.open:
            webbrowser.open(url)

    serve(settings, announce)
    return 0


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
