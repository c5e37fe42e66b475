"""``rlx ir validate``: is this IR, and does it keep the rules?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.module_file import load_module


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx ir validate``."""
    parser.add_argument("file", metavar="F.rlx", help="IR text")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="also want all weights, with the digests that the text names, and nothing left over",
    )


def execute(options: argparse.Namespace) -> int:
    """Check; findings are errors with the source lines."""
    module = load_module(
        options.file,
        weights="required" if options.strict else "optional",
        check_digests=options.strict,
        strict=options.strict,
    )
    print(f"{options.file}: valid, {len(module.function.ops)} operations, {module_digest(module)}")
    return 0
