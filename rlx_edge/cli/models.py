"""``rlx models``: the sample models, fetched by hash."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from rlx_edge.cli.progress import Steps
from rlx_edge.ir.errors import ModelError
from rlx_edge.model_store import MODELS, fetch_models, find_model, model_path


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx models fetch`` and ``rlx models list``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    fetch = actions.add_parser("fetch", help="download what is missing")
    fetch.add_argument("names", nargs="*", metavar="NAME", help="all models by default")
    fetch.set_defaults(execute=_fetch)
    listing = actions.add_parser("list", help="show the models and where they lie")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(execute=_list)


def _fetch(options: argparse.Namespace) -> int:
    names = options.names or list(MODELS)
    for name in names:
        find_model(name)
    steps = Steps()
    try:
        paths = fetch_models(names, steps)
    finally:
        steps.clear()
    for name, path in zip(names, paths, strict=True):
        print(f"{name:<14} {path}")
    return 0


def _list(options: argparse.Namespace) -> int:
    rows = [
        {
            "name": model.name,
            "title": model.title,
            "bytes": model.size,
            "licence": model.licence,
            "path": _path(model.name),
        }
        for model in MODELS.values()
    ]
    if options.json:
        print(json.dumps({"models": rows}, indent=2))
        return 0
    for row in rows:
        place = row["path"] or "not fetched"
        print(f"{row['name']:<14} {int(row['bytes'] or 0):>10} bytes  {row['title']}\n    {place}")
    return 0


def _path(name: str) -> str | None:
    try:
        return str(model_path(name))
    except ModelError:
        return None
