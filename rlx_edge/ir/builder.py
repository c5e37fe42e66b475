"""Append operations to a function with inferred result types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Function, Op, Value, unique_name
from rlx_edge.ir.dims import as_dim
from rlx_edge.ir.ops import infer_type
from rlx_edge.ir.types import DType, TensorType


class Builder:
    """Builds ops at the end of ``ops`` (a list that the caller splices where it belongs)."""

    def __init__(self, function: Function, ops: list[Op] | None = None) -> None:
        self.function = function
        self.ops = function.ops if ops is None else ops
        self.names = {value.name for value in function.values()}

    def value(self, hint: str, type: TensorType) -> Value:
        """A fresh value with a unique name near ``hint``."""
        name = unique_name(hint, self.names)
        self.names.add(name)
        return Value(name, type)

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Attribute] | None = None,
        *,
        hint: str | None = None,
        type: TensorType | None = None,
    ) -> Value:
        """Append ``name(operands) {attrs}`` and return its result; the type is inferred unless
        given (``tensor::`` ops). Raises what the operator's inference raises."""
        attributes = dict(attrs or {})
        if type is None:
            type = infer_type(name, [operand.type for operand in operands], attributes)
        result = self.value(hint or name.rsplit("::", 1)[1], type)
        op = Op(name, list(operands), attributes, [result])
        result.producer = op
        self.ops.append(op)
        return result

    def splat(
        self, value: float | int | bool, dtype: DType, shape: Sequence[int] = (), hint: str = "c"
    ) -> Value:
        """A ``tensor::splat`` constant."""
        type = TensorType(dtype, tuple(as_dim(dim) for dim in shape))
        return self.op("tensor::splat", [], {"value": value}, hint=hint, type=type)
