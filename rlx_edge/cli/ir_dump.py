"""``rlx ir dump``: a graph as text, JSON or Graphviz source, before or after the passes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from rlx_edge.cli.arguments import add_import, parse_shapes, parse_values
from rlx_edge.cli.loading import graph_of
from rlx_edge.cli.outputs import check_output, write_output
from rlx_edge.compile import place_module
from rlx_edge.compile.passes.split import Split
from rlx_edge.compile.schedule import schedule
from rlx_edge.devices import resolve_device
from rlx_edge.ir.core import Module
from rlx_edge.ir.dot import module_dot
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.json_form import module_json
from rlx_edge.ir.module_file import save_module
from rlx_edge.ir.printer import print_module
from rlx_edge.ir.task_graph import dump_task_graph
from rlx_edge.ir.task_graph_picture import task_graph_dot, task_graph_svg

FORMATS: dict[str, Callable[[Module], str]] = {
    "text": print_module,
    "json": module_json,
    "dot": module_dot,
    "tasks": lambda module: dump_task_graph(schedule(module)),
    "tasks-dot": lambda module: task_graph_dot(schedule(module)),
    "tasks-svg": lambda module: task_graph_svg(schedule(module)),
}
"""Those of tasks are of the task graph, which placed IR has."""


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
    parser.add_argument(
        "--split-after",
        metavar="%NAME",
        help="cut the placed IR between browser:0 and cpu:0@gateway behind this value; %% alone "
        "leaves everything to the gateway",
    )
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
    placed = options.stage == "placed" or options.split_after is not None
    if options.format.startswith("tasks") and not placed:
        raise InputError(
            "cli.stage", "only placed IR has tasks", hint="add --stage placed or --split-after"
        )
    module = graph_of(options.model, values, shapes, needs_weights=placed)
    if placed:
        module = place_module(module, device=str(device))
    if options.split_after is not None:
        module = Split(after=options.split_after.removeprefix("%")).run(module)
    if options.output is None:
        sys.stdout.write(FORMATS[options.format](module))
    elif options.format == "text" and module.constants:
        save_module(module, options.output)
    else:
        write_output(options.output, FORMATS[options.format](module).encode("utf-8"))
    return 0
