"""``rlx run``: a model, inputs in, outputs out."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlx_edge.cli.arguments import (
    add_model_run,
    add_precision,
    add_vulkan_driver,
    check_fixed,
    style_of,
)
from rlx_edge.cli.execution import Timing, output_file, report, timed_runs
from rlx_edge.cli.gateway import add_gateway, open_offload, read_gateway, side_counts
from rlx_edge.cli.inputs import complete, read_specs
from rlx_edge.cli.progress import Steps
from rlx_edge.devices import resolve_device
from rlx_edge.ir.program import Program
from rlx_edge.model_source import ModelLike
from rlx_edge.session import InferenceSession

if TYPE_CHECKING:
    from rlx_edge.offload import OffloadSession


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Arguments of ``rlx run``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX model or IR text")
    parser.add_argument(
        "--device",
        default="wasm:0",
        metavar="NAME",
        help="wasm:0 by default; with --gateway one of local, remote, split",
    )
    add_gateway(parser)
    add_vulkan_driver(parser)
    add_precision(parser)
    add_model_run(parser)


def execute(options: argparse.Namespace) -> int:
    """Run it."""
    words = read_gateway(options)
    if words is None:
        return run_session(options, options.model, None)
    check_fixed(options, "a run on a gateway")
    return _run(options, lambda steps: open_offload(options.model, words, steps))


def run_session(options: argparse.Namespace, model: ModelLike, program: Program | None) -> int:
    """Load, run and report; what can be wrong with the words is found before the long work."""
    resolve_device(options.device)
    style = style_of(options)
    return _run(
        options,
        lambda steps: InferenceSession(
            model,
            providers=[options.device],
            program=program,
            precision=options.precision,
            style=style,
            progress=steps,
        ),
    )


def _run(
    options: argparse.Namespace, make: Callable[[Steps], InferenceSession | OffloadSession]
) -> int:
    specs = read_specs(options.input)
    steps = Steps()
    with output_file(options) as output:
        start = time.perf_counter()
        try:
            session = make(steps)
        finally:
            steps.clear()
        load = time.perf_counter() - start
        with session:
            feeds = complete(specs, session.ports, options.seed)
            names = [arg.name for arg in session.get_outputs()]
            try:
                arrays, seconds = timed_runs(lambda: session.run(None, feeds), options.repeat)
            finally:
                steps.clear()
            outputs = dict(zip(names, arrays, strict=True))
            counts = {
                "compile_count": session.compile_count,
                "plan_count": session.plan_count,
                "memory_bytes": session.memory_size,
                **side_counts(session.last_profile),
            }
        if output is not None:
            output.write_arrays(outputs)
    report(options, feeds, outputs, Timing(load, tuple(seconds)), counts)
    return 0
