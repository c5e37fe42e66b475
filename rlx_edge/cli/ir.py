"""``rlx ir``: the text form and everything that reads or writes it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rlx_edge.cli.main import Command, add_commands

COMMANDS = (
    Command("import", "rlx_edge.cli.ir_import", "write an ONNX model as IR text"),
    Command("validate", "rlx_edge.cli.ir_validate", "check IR text against every rule"),
    Command("dump", "rlx_edge.cli.ir_dump", "print a model as IR text, JSON or a picture"),
    Command("run", "rlx_edge.cli.ir_run", "run IR text"),
)


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Subcommands of ``rlx ir``."""
    add_commands(parser, COMMANDS, words)
