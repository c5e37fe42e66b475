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


@dataclass(frozen=True, slots=True)
class _Expected:
    """A port, taken apart once: each axis is a size, a symbol's name, or a dim over symbols."""

    port: Port
    dtype: np.dtype[Any]
    axes: tuple[int | str | Dim, ...]


class FeedChecker:
    """Checks feeds for one list of inputs; built once, used for every run."""

    def __init__(self, inputs: Sequence[Port], bindings: Sequence[Binding] = ()) -> None:
        self.inputs = tuple(inputs)
        self.bindings = tuple(bindings)
        self._names = tuple(port.name for port in self.inputs)
        self._positions = {name: position for position, name in enumerate(self._names)}
        self._expected = tuple(
            _Expected(
                port,
                numpy_dtype(port.type.dtype),
                tuple(_axis(dim) for dim in port.type.shape),
            )
            for port in self.inputs
        )

    def bind(self, feeds: Mapping[str, object]) -> BoundFeeds:
        """The arrays and symbols of ``feeds``.

        ``InputError``: ``input.feeds`` if it is no mapping, ``input.name`` for an unknown or a
        missing name, ``input.array``, ``input.dtype``, ``input.rank``, ``input.shape`` and
        ``input.value`` for an array that does not fit.
        """
        self.check_names(feeds)
        arrays = tuple(
            as_array(item.port, item.dtype, feeds[item.port.name]) for item in self._expected
        )
        symbols: dict[str, int] = {}
        composite = False
        for item, array in zip(self._expected, arrays, strict=True):
            if array.ndim != len(item.axes):
                raise _rank_error(item.port, array)
            for axis, (expected, size) in enumerate(zip(item.axes, array.shape, strict=True)):
                if size < 1:
                    raise _shape_error(item.port, array, f"axis {axis} is empty")
                if isinstance(expected, str):
                    if symbols.setdefault(expected, size) != size:
                        raise self._disagreement(arrays, item.port, axis, expected)
                elif isinstance(expected, Dim):
                    composite = True
                elif expected != size:
                    raise _shape_error(item.port, array, f"axis {axis} must be {expected}")
        for binding in self.bindings:
            symbols[binding.symbol] = _element(arrays[self._positions[binding.parameter]], binding)
        if composite:
            self._check_composite(arrays, symbols)
        return BoundFeeds(arrays, symbols)

    def check_names(self, feeds: Mapping[str, object]) -> None:
        """``InputError`` unless ``feeds`` has exactly the inputs' names."""
        if not isinstance(feeds, Mapping):
            raise InputError(
                "input.feeds",
                "feeds must be a mapping from input names to arrays",
                found=type(feeds).__name__,
            )
        if feeds.keys() == self._positions.keys():
            return
        for name in feeds:
            if name not in self._positions:
                raise InputError(
                    "input.name", "no such input", found=repr(name), allowed=self._names or "none"
                )
        missing = [name for name in self._names if name not in feeds]
        raise InputError(
            "input.name",
            f"no array for the input '{missing[0]}'",
            found=sorted(feeds) or "no feeds",
            allowed=self._names,
        )

    def _check_composite(self, arrays: Sequence[Array], symbols: Mapping[str, int]) -> None:
        """Axes that are sums or products of sizes, once those are known."""
        for item, array in zip(self._expected, arrays, strict=True):
            for axis, dim in enumerate(item.axes):
                if not isinstance(dim, Dim):
                    continue
                if any(name not in symbols for name in dim.symbols()):
                    raise _unbound(item.port, axis, dim)
                expected = dim.evaluate(symbols)
                if array.shape[axis] != expected:
                    raise _shape_error(item.port, array, f"axis {axis} must be {expected}")

    def _disagreement(
        self, arrays: Sequence[Array], port: Port, axis: int, name: str
    ) -> InputError:
        """The error for a size that an input before it has fixed otherwise."""
        first, place = next(
            (position, item.axes.index(name))
            for position, item in enumerate(self._expected)
            if name in item.axes
        )
        size = arrays[self._positions[port.name]].shape[axis]
        return InputError(
            "input.shape",
            f"axis {axis} of input '{port.name}' and axis {place} of input "
            f"'{self._names[first]}' must both be '{name}'",
            found=f"{size} and {arrays[first].shape[place]}",
        )


def as_array(port: Port, expected: np.dtype[Any], value: object) -> Array:
    """``value`` as an array of the port's element type; no conversion that could change it.

    numpy scalars count as rank-0 arrays. Lists and Python numbers have no element type of their
    own and are refused with the call that makes them arrays.
    """
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise InputError(
            "input.array",
            f"input '{port.name}' must be a numpy array",
            found=type(value).__name__,
            hint=f"use np.asarray(value, dtype=np.{expected.name})",
        )
    if value.dtype != expected and dtype_of(value.dtype) is not port.type.dtype:
        raise InputError(
            "input.dtype",
            f"input '{port.name}' has the wrong element type",
            found=value.dtype,
            allowed=f"{expected} ({tensor_type_name(port.type.dtype)})",
        )
    return value


def _axis(dim: Dim) -> int | str | Dim:
    if dim.is_constant:
        return dim.value
    return str(dim) if dim.symbols() == (str(dim),) else dim


def _element(array: Array, binding: Binding) -> int:
    if binding.position >= array.size:
        raise InputError(
            "input.value",
            f"the model reads element {binding.position} of input '{binding.parameter}'",
            found=f"{array.size} elements",
        )
    return int(array.flat[binding.position])


def _rank_error(port: Port, array: Array) -> InputError:
    return InputError(
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


def _unbound(port: Port, axis: int, dim: Dim) -> InputError:
    return InputError(
        "input.symbol",
        f"axis {axis} of input '{port.name}' is {dim}, and no input says what that is",
        allowed="a size that stands alone on some axis of an input",
    )
