"""A module as JSON, for tools that read no IR text. The text form alone is the truth."""

from __future__ import annotations

import json
from typing import TypeAlias

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.digest import module_digest
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.expression_text import expression_text, number_text
from rlx_edge.ir.printer import attribute_order
from rlx_edge.ir.types import DType, TensorType

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


def module_json(module: Module) -> str:
    """The module with its digest; keys keep their order, lines end with a newline."""
    return json.dumps(module_object(module), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def module_object(module: Module) -> Json:
    """The same as plain lists and dictionaries. Dims and expressions are their text."""
    function = module.function
    return {
        "rlx.module": module.version,
        "digest": module_digest(module),
        "function": function.name,
        "parameters": [_value(param) for param in function.params],
        "bindings": [
            {"symbol": item.symbol, "parameter": item.parameter, "position": item.position}
            for item in function.bindings
        ],
        "guards": [
            {
                "left": str(item.left),
                "relation": item.relation,
                "right": str(item.right),
                "reason": item.reason,
            }
            for item in function.guards
        ],
        "operations": [_operation(op) for op in function.ops],
        "outputs": _outputs(function),
    }


def _outputs(function: Function) -> Json:
    names = function.output_names or [value.name for value in function.returns]
    return [
        {"name": name, "value": value.name, "type": type_object(value.type)}
        for name, value in zip(names, function.returns, strict=False)
    ]


def _value(value: Value) -> Json:
    return {"name": value.name, "type": type_object(value.type)}


def type_object(type: TensorType) -> Json:
    """``{"dtype": "f32", "shape": ["batch", 10]}``: numbers where sizes are constant."""
    return {"dtype": type.dtype.name, "shape": [_dim(dim) for dim in type.shape]}


def _operation(op: Op) -> Json:
    operands = [value.name for value in op.operands]
    return {
        "operator": op.name,
        "operands": list(operands),
        "attributes": {name: _attribute(op.attrs[name], operands) for name in attribute_order(op)},
        "results": [_value(value) for value in op.results],
    }


def _attribute(value: Attribute, operands: list[str]) -> Json:
    if isinstance(value, tuple):
        return [_attribute(item, operands) for item in value]
    if isinstance(value, Dim):
        return _dim(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Expr):
        return expression_text(value, operands)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return number_text(value)
    return value


def _dim(dim: Dim) -> Json:
    return dim.value if dim.is_constant else str(dim)
