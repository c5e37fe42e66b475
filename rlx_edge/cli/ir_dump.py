"""``rlx ir dump``: a graph as text, JSON or Graphviz source, before or after the passes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from rlx_edge.cli.arguments import add_import, parse_shapes, parse_values
from rlx_edge.cli.loading import graph_of
from rlx_edge.cli.outputs import check_output, write_output
from rlx_edge.compile import place_module
from rlx_edge.devices import resolve_device
from rlx_edge.ir.core import Module
from rlx_edge.ir.dot import module_dot
from rlx_edge.ir.json_form import module_json
from rlx_edge.ir.module_file import save_module
from rlx_edge.ir.printer import print_module

FORMATS: dict[str, Callable[[Module], str]] = {
    "text": print_module,
    "json": module_json,
    "dot": module_dot,
}


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx ir dump``."""
    parser.add_argument("model", metavar="F", help="IR text or an ONNX model")
    parser.add_argument("--format", choices=FORMATS, default="text", help="text by default")
    parser.add_argument(
        "--stage",
        choices=("import", "placed"),
        default="import",
        help="as imported (by default), or after every graph pass",
    )
    parser.add_argument("--device", default="wasm:0", metavar="NAME", help="for --stage placed")
    parser.add_argument("-o", "--output", metavar="FILE", help="standard output by default")
    add_import(parser)


def execute(options: argparse.Namespace) -> int:
    """Load, run passes if asked to, print.

    Text that goes to a file gets its weights file, so that it can be run.
    """
    values, shapes = parse_values(options.value), parse_shapes(options.shape)
    device = resolve_device(options.device)
    if options.output is not None:
        check_output(options.output)
    placed = options.stage == "placed"
    module = graph_of(options.model, values, shapes, needs_weights=placed)
    if placed:
        module = place_module(module, device=str(device))
    if options.output is None:
        sys.stdout.write(FORMATS[options.format](module))
    elif options.format == "text" and module.constants:
        save_module(module, options.output)
    else:
        write_output(options.output, FORMATS[options.format](module).encode("utf-8"))
    return 0
