"""``rlx ir dump``: a graph as text, JSON or Graphviz source, before or after the passes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from rlx_edge.cli.arguments import add_import, parse_shapes, parse_values
from rlx_edge.cli.loading import graph_of
from rlx_edge.cli.outputs import write_output
from rlx_edge.compile import place_module
from rlx_edge.devices import resolve_device
from rlx_edge.ir.core import Module
from rlx_edge.ir.dot import module_dot
from rlx_edge.ir.json_form import module_json
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
    """Load, run passes if asked to, print."""
    values, shapes = parse_values(options.value), parse_shapes(options.shape)
    device = resolve_device(options.device)
    module = graph_of(options.model, values, shapes)
    if options.stage == "placed":
        module = place_module(module, device=str(device))
    text = FORMATS[options.format](module)
    if options.output is None:
        sys.stdout.write(text)
        return 0
    write_output(options.output, text.encode("utf-8"))
    return 0
