"""``rlx ir import``: ONNX in, IR text and its weights file out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rlx_edge.cli.arguments import add_import, parse_shapes, parse_values
from rlx_edge.cli.loading import graph_of
from rlx_edge.cli.outputs import check_output
from rlx_edge.ir.module_file import save_module


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx ir import``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX model")
    parser.add_argument("-o", "--output", required=True, metavar="F.rlx", help="the text's file")
    add_import(parser)


def execute(options: argparse.Namespace) -> int:
    """Import and write."""
    values, shapes = parse_values(options.value), parse_shapes(options.shape)
    check_output(options.output)
    module = graph_of(options.model, values, shapes)
    for path in save_module(module, options.output):
        print(path)
    return 0
