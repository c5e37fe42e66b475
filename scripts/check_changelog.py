"""Fails unless the newest entry of the changelog is the version that the package has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def first(pattern: str, path: Path) -> str | None:
    match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    return match.group(1) if match else None


def main() -> int:
    package = first(r'^__version__ = "([^"]+)"$', ROOT / "rlx_edge" / "__init__.py")
    entry = first(r"^## (\S+)", ROOT / "CHANGELOG.md")
    if package is None or package != entry:
        print(f"the package is {package}, CHANGELOG.md starts with {entry}", file=sys.stderr)
        return 1
    print(f"changelog: {entry}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
