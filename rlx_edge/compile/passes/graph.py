"""Editing a function: copies, replaced values, dead operations.

Passes own a copy of the module they are given; these functions change it in place.
"""

from __future__ import annotations

from rlx_edge.ir.core import Function, Module, Op, Value

CONST = "tensor::const"
SPLAT = "tensor::splat"


def copy_module(module: Module) -> Module:
    """A module with its own values and operations; types, attributes and constants are shared."""
    source = module.function
    values = {param: Value(param.name, param.type) for param in source.params}
    ops: list[Op] = []
    for op in source.ops:
        results = [Value(result.name, result.type) for result in op.results]
        operands = [values[operand] for operand in op.operands]
        copy = Op(op.name, operands, dict(op.attrs), results, op.span)
        for old, new in zip(op.results, results, strict=True):
            new.producer = copy
            values[old] = new
        ops.append(copy)
    function = Function(
        source.name,
        [values[param] for param in source.params],
        ops,
        [values[value] for value in source.returns],
        list(source.bindings),
        list(source.guards),
        list(source.output_names),
    )
    return Module(module.name, function, dict(module.constants), module.version)


def is_constant(value: Value) -> bool:
    """Whether the value is a ``tensor::const`` or ``tensor::splat``."""
    return value.producer is not None and value.producer.name in (CONST, SPLAT)


def replace_returns(function: Function, old: Value, new: Value) -> None:
    """Return ``new`` where ``old`` was returned; public output names stay as they were."""
    if old not in function.returns:
        return
    names = function.output_names or [value.name for value in function.returns]
    function.returns = [new if value is old else value for value in function.returns]
    set_output_names(function, names)


def set_output_names(function: Function, names: list[str]) -> None:
    """Give the returns their public ``names``, stored only where they differ from the values'."""
    same = names == [value.name for value in function.returns]
    function.output_names = [] if same else list(names)


def rename(function: Function, value: Value, name: str) -> None:
    """Change a value's name and keep the public output names."""
    names = function.output_names or [item.name for item in function.returns]
    value.name = name
    set_output_names(function, names)


def erase_dead(module: Module) -> list[Op]:
    """Remove operations without a use and constants without a reader; the removed operations."""
    function = module.function
    needed = dict.fromkeys(function.returns)
    kept: list[Op] = []
    dead: list[Op] = []
    for op in reversed(function.ops):
        if any(result in needed for result in op.results):
            kept.append(op)
            needed.update(dict.fromkeys(op.operands))
        else:
            dead.append(op)
    kept.reverse()
    dead.reverse()
    function.ops = kept
    drop_unread_constants(module)
    return dead


def drop_unread_constants(module: Module) -> None:
    """Keep only the constants that a ``tensor::const`` names, in order of first use.

    A module read from text without its sidecar has names without bytes; those stay absent.
    """
    digests = dict.fromkeys(
        str(op.attrs["digest"]) for op in module.function.ops if op.name == CONST
    )
    module.constants = {
        digest: module.constants[digest] for digest in digests if digest in module.constants
    }
