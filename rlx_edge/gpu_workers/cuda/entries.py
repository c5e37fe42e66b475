"""Entries of a cache on disk: JSON files that are whole and this user's own, or not there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


def read_entry(path: Path) -> Mapping[str, Any]:
    """The object of a file; nothing where it is absent, damaged or another user's."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return {}
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_entry(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step; what cannot be written is not kept."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(scratch, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(scratch)
            raise
