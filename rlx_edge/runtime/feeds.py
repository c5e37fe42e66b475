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
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.messages import failure
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
                    raise _shape_error("empty", item.port, array, axis)
                if isinstance(expected, str):
                    if symbols.setdefault(expected, size) != size:
                        raise self._disagreement(arrays, item.port, axis, expected)
                elif isinstance(expected, Dim):
                    composite = True
                elif expected != size:
                    raise _shape_error("axis", item.port, array, axis, expected)
        for binding in self.bindings:
            symbols[binding.symbol] = _element(arrays[self._positions[binding.parameter]], binding)
        if composite:
            self._check_composite(arrays, symbols)
        return BoundFeeds(arrays, symbols)

    def check_names(self, feeds: Mapping[str, object]) -> None:
        """``InputError`` unless ``feeds`` has exactly the inputs' names."""
        if not isinstance(feeds, Mapping):
            raise failure("input.feeds", found=type(feeds).__name__)
        if feeds.keys() == self._positions.keys():
            return
        for name in feeds:
            if name not in self._positions:
                raise failure("input.name", name=name, names=self._names or "none")
        missing = [name for name in self._names if name not in feeds]
        raise failure(
            "input.name:missing",
            name=missing[0],
            found=sorted(feeds) or "no feeds",
            names=self._names,
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
                    raise _shape_error("axis", item.port, array, axis, expected)

    def _disagreement(self, arrays: Sequence[Array], port: Port, axis: int, name: str) -> RlxError:
        """The error for a size that an input before it has fixed otherwise."""
        first, place = next(
            (position, item.axes.index(name))
            for position, item in enumerate(self._expected)
            if name in item.axes
        )
        size = arrays[self._positions[port.name]].shape[axis]
        return failure(
            "input.shape:same",
            axis=axis,
            name=port.name,
            other_axis=place,
            other=self._names[first],
            symbol=name,
            size=size,
            other_size=arrays[first].shape[place],
        )


def as_array(port: Port, expected: np.dtype[Any], value: object) -> Array:
    """``value`` as an array of the port's element type; no conversion that could change it.

    numpy scalars count as rank-0 arrays. Lists and Python numbers have no element type of their
    own and are refused with the call that makes them arrays.
    """
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise failure(
            "input.array",
            name=port.name,
            holder="numpy array",
            found=type(value).__name__,
            call=f"np.asarray(value, dtype=np.{expected.name})",
        )
    if value.dtype != expected and dtype_of(value.dtype) is not port.type.dtype:
        raise failure(
            "input.dtype",
            name=port.name,
            found=value.dtype,
            expected=expected,
            type=tensor_type_name(port.type.dtype),
        )
    return value


def _axis(dim: Dim) -> int | str | Dim:
    if dim.is_constant:
        return dim.value
    return str(dim) if dim.symbols() == (str(dim),) else dim


def _element(array: Array, binding: Binding) -> int:
    if binding.position >= array.size:
        raise failure(
            "input.value", position=binding.position, name=binding.parameter, count=array.size
        )
    return int(array.flat[binding.position])


def _rank_error(port: Port, array: Array) -> RlxError:
    return failure(
        "input.rank",
        name=port.name,
        rank=array.ndim,
        shape=array.shape,
        expected=port.type.rank,
        type=port.type,
    )


def _shape_error(
    rule: str, port: Port, array: Array, axis: int, expected: int | None = None
) -> RlxError:
    return failure(
        f"input.shape:{rule}",
        name=port.name,
        axis=axis,
        expected=expected,
        shape=array.shape,
        type=port.type,
    )


def _unbound(port: Port, axis: int, dim: Dim) -> RlxError:
    return failure("input.symbol:axis", axis=axis, name=port.name, dim=dim)
