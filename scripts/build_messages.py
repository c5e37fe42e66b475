"""Writes the table of error texts for JavaScript from Python's, or says that it is stale.

usage: python scripts/build_messages.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rlx_edge.ir.messages import MESSAGES, Message

TARGET = Path(__file__).resolve().parent.parent / "web" / "runtime" / "messages.js"
HEAD = """\
/**
 * Texts of errors: kind, what happened, what was found, what is allowed, a hint.
 *
 * Written by `make docs` from `rlx_edge/ir/messages.py`; do not edit.
 *
 * @type {Record<string, readonly (string | undefined)[] & {0: string, 1: string}>}
 */
export const MESSAGES = {
"""


def table() -> str:
    rows = [f"  {json.dumps(key)}: {row(message)},\n" for key, message in MESSAGES.items()]
    return HEAD + "".join(rows) + "};\n"


def row(message: Message) -> str:
    parts = [message.kind.__name__, message.what, message.found, message.allowed, message.hint]
    while not parts[-1]:
        parts.pop()
    shown = [json.dumps(part, ensure_ascii=False) if part else "undefined" for part in parts]
    return f"[{', '.join(shown)}]"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a stale table")
    check = parser.parse_args(arguments).check
    text = table()
    if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print("web/runtime/messages.js is stale; run `make docs`", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    print("wrote web/runtime/messages.js")
    return 0


if __name__ == "__main__":
    sys.exit(main())
