"""``--device interpreter``: the operators' own definitions, with the bits of every device.

The passes run first: some of them change values by design (batch norm into weights), and what
devices run is the graph after them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.cli.execution import Timing, output_file, report, timed_runs
from rlx_edge.cli.inputs import complete, read_specs
from rlx_edge.cli.loading import graph_of
from rlx_edge.compile import place_module
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.program import Port
from rlx_edge.ir.tensor import Tensor
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.feeds import FeedChecker

Array = npt.NDArray[Any]


def run_interpreted(options: argparse.Namespace) -> int:
    """Load, run and report, as ``rlx run`` does on a device."""
    specs = read_specs(options.input)
    with output_file(options) as output:
        start = time.perf_counter()
        module = place_module(graph_of(options.model, {}, {}))
        load = time.perf_counter() - start
        function = module.function
        ports = tuple(Port(value.name, value.type) for value in function.params)
        feeds = complete(specs, ports, options.seed)
        arrays = FeedChecker(ports, function.bindings).bind(feeds).arrays
        tensors = {
            port.name: _tensor(port, array) for port, array in zip(ports, arrays, strict=True)
        }
        names = function.output_names or [value.name for value in function.returns]

        def run() -> list[Array]:
            found = interpret(module, tensors)
            return [_array(found[name]) for name in names]

        results, seconds = timed_runs(run, options.repeat)
        outputs = dict(zip(names, results, strict=True))
        if output is not None:
            output.write_arrays(outputs)
    report(options, feeds, outputs, Timing(load, tuple(seconds)), {})
    return 0


def _tensor(port: Port, array: Array) -> Tensor:
    stored = np.ascontiguousarray(array, numpy_dtype(port.type.dtype))
    return Tensor(port.type.dtype, array.shape, stored.tobytes())


def _array(tensor: Tensor) -> Array:
    found = np.frombuffer(tensor.tobytes(), numpy_dtype(tensor.dtype))
    return found.reshape(tensor.shape)
