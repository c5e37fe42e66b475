"""``rlx ir run``: IR text on a device or on the interpreter, maybe with a compiled program."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rlx_edge.cli.arguments import add_model_run, add_precision, add_vulkan_driver, check_fixed
from rlx_edge.cli.interpreted import run_interpreted
from rlx_edge.cli.loading import read_program
from rlx_edge.cli.run import run_session
from rlx_edge.ir.errors import InputError

INTERPRETER = "interpreter"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx ir run``."""
    parser.add_argument("model", metavar="F.rlx", help="IR text")
    parser.add_argument(
        "--device",
        default="wasm:0",
        metavar="NAME",
        help=f"wasm:0 by default; '{INTERPRETER}' evaluates the definitions, slowly",
    )
    parser.add_argument(
        "--program",
        metavar="P",
        help="a compiled program (`rlx plan -o P`); refused if it was made from another IR",
    )
    add_vulkan_driver(parser)
    add_precision(parser)
    add_model_run(parser)


def execute(options: argparse.Namespace) -> int:
    """Run it."""
    if options.device == INTERPRETER:
        if options.program is not None:
            raise InputError(
                "cli.program",
                "the interpreter runs no compiled program",
                found="--program with --device interpreter",
            )
        check_fixed(options, "the interpreter")
        return run_interpreted(options)
    program = None if options.program is None else read_program(options.program)
    return run_session(options, options.model, program)
