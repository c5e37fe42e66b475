"""The devices that every conformance case runs on: a row each.

A new device is one row: how to open a model on it, how much rounding its arithmetic may differ by,
and the cases it is known to fail, with reasons. A case that is listed and passes fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlx_edge import InferenceSession
from rlx_edge.compile import place_module
from rlx_edge.gpu_workers.cuda.provider import absent_reason
from rlx_edge.ir.interpreter import interpret
from rlx_edge.ir.tensor import Tensor
from rlx_edge.model_source import deciding_values, open_source
from rlx_edge.runtime.arrays import numpy_dtype
from rlx_edge.runtime.feeds import FeedChecker

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


class Loaded(Protocol):
    """A model on a device."""

    def run(self, names: None, feeds: Feeds) -> list[Array]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Device:
    """``rounding`` scales the bounds of rounded results; 1 is the contract of the IR.

    ``largest``: cases with an input or output of more elements are left out. ``missing`` says why
    the device cannot be used on this machine; its cases are then skipped.
    """

    name: str
    open: Callable[[bytes], Loaded]
    rounding: float = 1.0
    largest: int | None = None
    gaps: Mapping[str, str] = field(default_factory=dict)
    """Pattern of case names → reason."""
    missing: Callable[[], str | None] = lambda: None


def session_on(device: str) -> Callable[[bytes], Loaded]:
    """A session of the product on one device."""
    return lambda model: InferenceSession(model, providers=[device], cache=False)


class Interpreted:
    """A model under the reference interpreter, after the passes that every device shares."""

    def __init__(self, model: bytes) -> None:
        self.source = open_source(model)

    def run(self, names: None, feeds: Feeds) -> list[Array]:
        ports = self.source.ports()
        loose = FeedChecker(ports).bind(feeds)
        shapes = {port.name: array.shape for port, array in zip(ports, loose.arrays, strict=True)}
        module = place_module(self.source.module(deciding_values(ports, loose.arrays), shapes))
        function = module.function
        tensors = {
            port.name: Tensor(
                port.type.dtype,
                array.shape,
                np.ascontiguousarray(array, numpy_dtype(port.type.dtype)).tobytes(),
            )
            for port, array in zip(ports, loose.arrays, strict=True)
        }
        found = interpret(module, tensors)
        outputs = function.output_names or [value.name for value in function.returns]
        return [_array(found[name]) for name in outputs]

    def close(self) -> None:
        pass


def _array(tensor: Tensor) -> Array:
    found = np.frombuffer(tensor.tobytes(), numpy_dtype(tensor.dtype))
    return found.reshape(tensor.shape)


DEVICES = (
    Device("wasm:0", session_on("wasm:0")),
    Device("vulkan:0", session_on("vulkan:0")),
    Device("cuda:0", session_on("cuda:0"), missing=lambda: absent_reason(0) or None),
    Device("interpreter", Interpreted, largest=400),
)
