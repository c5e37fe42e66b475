"""Feeds: the arrays a user hands in, checked against the declared inputs.

Shapes bind size symbols (the first input that has a symbol decides, the others must agree) and
elements of integer inputs bind value symbols. Arrays are never copied here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.ir.core import Binding
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import InputError
from rlx_edge.ir.program import Port
from rlx_edge.runtime.arrays import dtype_of, numpy_dtype, tensor_type_name

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BoundFeeds:
    """``arrays`` in the order of the inputs; ``symbols`` are sizes and values by name."""

    arrays: tuple[Array, ...]
    symbols: dict[str, int]


class FeedChecker:
    """Checks feeds for one list of inputs; built once, used for every run."""

    def __init__(self, inputs: Sequence[Port], bindings: Sequence[Binding] = ()) -> None:
        self.inputs = tuple(inputs)
        self.bindings = tuple(bindings)
        self._names = tuple(port.name for port in self.inputs)
        self._positions = {name: position for position, name in enumerate(self._names)}

    def bind(self, feeds: Mapping[str, object]) -> BoundFeeds:
        """The arrays and symbols of ``feeds``.

        ``InputError``: ``input.feeds`` if it is no mapping, ``input.name`` for an unknown or a
        missing name, ``input.array``, ``input.dtype``, ``input.rank``, ``input.shape`` and
        ``input.value`` for an array that does not fit.
        """
        self.check_names(feeds)
        arrays = tuple(as_array(port, feeds[port.name]) for port in self.inputs)
        symbols: dict[str, int] = {}
        origins: dict[str, str] = {}
        later: list[tuple[Port, int, Dim, int]] = []
        for port, array in zip(self.inputs, arrays, strict=True):
            _check_rank(port, array)
            for axis, (dim, size) in enumerate(zip(port.type.shape, array.shape, strict=True)):
                name = _symbol_name(dim)
                if size < 1:
                    raise _shape_error(port, array, f"axis {axis} is empty")
                if name is None:
                    later.append((port, axis, dim, size))
                elif symbols.setdefault(name, size) != size:
                    raise _disagree(port, axis, name, size, origins[name], symbols[name])
                else:
                    origins.setdefault(name, f"axis {axis} of input '{port.name}'")
        symbols.update(self._values(arrays))
        for port, axis, dim, size in later:
            if any(name not in symbols for name in dim.symbols()):
                raise _unbound(port, axis, dim)
            expected = dim.evaluate(symbols)
            if size != expected:
                array = arrays[self._positions[port.name]]
                raise _shape_error(port, array, f"axis {axis} must be {expected}")
        return BoundFeeds(arrays, symbols)

    def check_names(self, feeds: Mapping[str, object]) -> None:
        """``InputError`` unless ``feeds`` has exactly the inputs' names."""
        if not isinstance(feeds, Mapping):
            raise InputError(
                "input.feeds",
                "feeds must be a mapping from input names to arrays",
                found=type(feeds).__name__,
            )
        for name in feeds:
            if name not in self._positions:
                raise InputError(
                    "input.name", "no such input", found=repr(name), allowed=self._names or "none"
                )
        missing = [name for name in self._names if name not in feeds]
        if missing:
            raise InputError(
                "input.name",
                f"no array for the input '{missing[0]}'",
                found=sorted(feeds) or "no feeds",
                allowed=self._names,
            )

    def _values(self, arrays: Sequence[Array]) -> dict[str, int]:
        values: dict[str, int] = {}
        for binding in self.bindings:
            array = arrays[self._positions[binding.parameter]]
            if binding.position >= array.size:
                raise InputError(
                    "input.value",
                    f"the model reads element {binding.position} of input '{binding.parameter}'",
                    found=f"{array.size} elements",
                )
            values[binding.symbol] = int(array.flat[binding.position])
        return values


def as_array(port: Port, value: object) -> Array:
    """``value`` as an array of the port's element type; no conversion that could change it.

    numpy scalars count as rank-0 arrays. Lists and Python numbers have no element type of their
    own and are refused with the call that makes them arrays.
    """
    expected = numpy_dtype(port.type.dtype)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise InputError(
            "input.array",
            f"input '{port.name}' must be a numpy array",
            found=type(value).__name__,
            hint=f"use np.asarray(value, dtype=np.{expected.name})",
        )
    if dtype_of(value.dtype) is not port.type.dtype:
        raise InputError(
            "input.dtype",
            f"input '{port.name}' has the wrong element type",
            found=value.dtype,
            allowed=f"{expected} ({tensor_type_name(port.type.dtype)})",
        )
    return value


def _symbol_name(dim: Dim) -> str | None:
    names = dim.symbols()
    return names[0] if len(names) == 1 and str(dim) == names[0] else None


def _check_rank(port: Port, array: Array) -> None:
    if array.ndim != port.type.rank:
        raise InputError(
            "input.rank",
            f"input '{port.name}' has the wrong number of axes",
            found=f"{array.ndim} (shape {list(array.shape)})",
            allowed=f"{port.type.rank} ({port.type})",
        )


def _shape_error(port: Port, array: Array, why: str) -> InputError:
    return InputError(
        "input.shape",
        f"input '{port.name}' has the wrong shape: {why}",
        found=list(array.shape),
        allowed=f"{port.type}",
    )


def _disagree(port: Port, axis: int, name: str, size: int, origin: str, bound: int) -> InputError:
    return InputError(
        "input.shape",
        f"axis {axis} of input '{port.name}' and {origin} must both be '{name}'",
        found=f"{size} and {bound}",
    )


def _unbound(port: Port, axis: int, dim: Dim) -> InputError:
    return InputError(
        "input.symbol",
        f"axis {axis} of input '{port.name}' is {dim}, and no input says what that is",
        allowed="a size that stands alone on some axis of an input",
    )
