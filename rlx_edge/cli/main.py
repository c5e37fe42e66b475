"""The ``rlx`` command: which subcommand runs, and how every failure is answered.

Exit codes: 0 done, 1 the user can mend it (one line on stderr, with source lines where there are
any), 2 wrong usage, 3 a mistake of ours, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from rlx_edge import __version__
from rlx_edge.ir.errors import RlxError

DONE, USER_ERROR, USAGE, INTERNAL_ERROR, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its module has ``add_arguments(parser)`` and ``execute(options)``."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("run", "rlx_edge.cli.run", "run an ONNX model or IR text"),
    Command("compile", "rlx_edge.cli.compile", "compile a model into static files for a page"),
    Command("ir", "rlx_edge.cli.ir", "import, validate, dump and run IR text"),
    Command("plan", "rlx_edge.cli.plan", "compile and show memory, kernels and guards"),
    Command("serve", "rlx_edge.cli.serve", "serve the page and models to browsers"),
    Command("devices", "rlx_edge.cli.devices", "list the devices of this machine"),
    Command("models", "rlx_edge.cli.models", "fetch and list the sample models"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = build_parser(words).parse_args(words)
        code = int(options.execute(options))
        sys.stdout.flush()
        return code
    except RlxError as error:
        return answer(error)
    except KeyboardInterrupt:
        print("rlx: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _abandon_output()
        return BROKEN_PIPE
    except OSError as error:
        return answer_system(error)
    except MemoryError:
        print("rlx: error: this machine has not enough memory", file=sys.stderr)
        return USER_ERROR
    except Exception as error:
        return answer_internal(error)


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the module of the subcommand at hand is imported."""
    parser = argparse.ArgumentParser(
        prog="rlx", description="ONNX models through one text IR to WebAssembly kernels."
    )
    parser.add_argument("--version", action="version", version=f"rlx-edge {__version__}")
    add_commands(parser, COMMANDS, words)
    return parser


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command], words: Sequence[str]
) -> None:
    """Subparsers for ``commands``; the arguments of the one named in ``words`` are complete."""
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = next((word for word in words if not word.startswith("-")), None)
    for command in commands:
        child = subparsers.add_parser(command.name, help=command.help, description=command.help)
        if command.name == chosen:
            module = import_module(command.module)
            rest = words[list(words).index(chosen) + 1 :]
            module.add_arguments(child, rest)
            if hasattr(module, "execute"):
                child.set_defaults(execute=module.execute)


def answer(error: RlxError) -> int:
    """Print a user's mistake: one line, then the source lines it points at."""
    if is_debugging():
        traceback.print_exception(error)
    print(f"rlx: error: {one_line(str(error))}", file=sys.stderr)
    if error.excerpt:
        print(error.excerpt.rstrip("\n"), file=sys.stderr)
    return USER_ERROR


def answer_system(error: OSError) -> int:
    """Print what the system refused: a full disk under the output, for example."""
    if is_debugging():
        traceback.print_exception(error)
    where = "" if error.filename is None else f"{error.filename}: "
    print(f"rlx: error: {one_line(where + (error.strerror or str(error)))}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _abandon_output()
    return USER_ERROR


def _abandon_output() -> None:
    """The interpreter flushes stdout once more at exit, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def answer_internal(error: Exception) -> int:
    """Print a mistake of ours."""
    if is_debugging():
        traceback.print_exception(error)
    hint = "" if is_debugging() else "; set RLX_DEBUG=1 for the traceback"
    text = one_line(f"{type(error).__name__}: {error}")
    print(f"rlx: internal error: {text}{hint}", file=sys.stderr)
    return INTERNAL_ERROR


def is_debugging() -> bool:
    """``RLX_DEBUG`` is set to something other than 0."""
    return os.environ.get("RLX_DEBUG", "0") not in ("", "0")


def one_line(text: str) -> str:
    """``text`` without line breaks and control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


if __name__ == "__main__":
    sys.exit(main())
