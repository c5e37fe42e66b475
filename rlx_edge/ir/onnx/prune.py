"""Remove what the outputs of a freshly imported function do not need."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_edge.ir.core import Function, Op, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.onnx.assumptions import Assumptions


def prune(function: Function, assume: Assumptions) -> None:
    """Drop operations without use; keep the guards, and the bindings whose symbols occur."""
    wanted: set[Value] = set(function.returns)
    kept: list[Op] = []
    for op in reversed(function.ops):
        if any(result in wanted for result in op.results):
            wanted.update(op.operands)
            kept.append(op)
    function.ops[:] = kept[::-1]
    function.guards = list(assume.guards)
    names = {name for dim in _dims(function) for name in dim.symbols()}
    function.bindings = [binding for name, binding in assume.bindings.items() if name in names]


def _dims(function: Function) -> Iterator[Dim]:
    for guard in function.guards:
        yield from (guard.left, guard.right)
    for value in function.values():
        yield from value.type.shape
    for op in function.ops:
        for attribute in op.attrs.values():
            items = attribute if isinstance(attribute, tuple) else (attribute,)
            yield from (item for item in items if isinstance(item, Dim))
