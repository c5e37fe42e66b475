"""``Module`` → its canonical text; ``parser.py`` gives the grammar.

Printing never fails: a module that breaks rules prints as well as it can, so that the verifier
can show it. Of a valid module, ``parse_module(print_module(m))`` is structurally equal to ``m``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rlx_edge.ir.attributes import EPILOGUE, PLACEMENT
from rlx_edge.ir.core import Binding, Function, Guard, Module, Op, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr
from rlx_edge.ir.expression_text import expression_text, number_text
from rlx_edge.ir.lexer import HEADER, quote, sigil_name
from rlx_edge.ir.ops import lookup
from rlx_edge.ir.types import DTYPES, DType

LINE_WIDTH = 480
"""An operation whose line would be longer prints one attribute a line."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def print_module(module: Module, *, locations: bool = False) -> str:
    """The canonical text; ``locations`` adds where each operation was read from as a comment."""
    lines = [f"{HEADER} version = {quote(module.version)}", ""]
    lines.extend(function_lines(module.function, locations=locations))
    return "\n".join(lines) + "\n"


def function_lines(function: Function, *, locations: bool = False) -> Iterable[str]:
    """``func @name(…) -> (…) {`` to ``}``, one operation a line unless it is too long."""
    yield f"{signature_text(function)} {{"
    for binding in function.bindings:
        yield f"  {binding_text(binding)}"
    for guard in function.guards:
        yield f"  {guard_text(guard)}"
    for op in function.ops:
        place = f"  // {op.span}" if locations and op.span is not None else ""
        yield f"  {op_text(op)}{place}"
    values = ", ".join(value_text(value) for value in function.returns)
    yield f"  return {values}" if values else "  return"
    yield "}"


def signature_text(function: Function) -> str:
    """``func @name(…) -> (…)``."""
    params = ", ".join(f"{value_text(param)}: {param.type}" for param in function.params)
    types = [str(value.type) for value in function.returns]
    if function.output_names:
        types = [
            f"{name if _NAME.fullmatch(name) else quote(name)}: {type}"
            for name, type in zip(function.output_names, types, strict=False)
        ]
    return f"func {sigil_name('@', function.name)}({params}) -> ({', '.join(types)})"


def binding_text(binding: Binding) -> str:
    """``bind sr = %sr[0]``."""
    parameter = sigil_name("%", binding.parameter)
    return f"bind {binding.symbol} = {parameter}[{binding.position}]"


def guard_text(guard: Guard) -> str:
    """``guard sr == 16000``, its reason behind it."""
    text = f"guard {_outside(guard.left)} {guard.relation} {_outside(guard.right)}"
    return f"{text} {{ reason = {quote(guard.reason)} }}" if guard.reason else text


def value_text(value: Value) -> str:
    """``%name``, quoted where necessary."""
    return sigil_name("%", value.name)


def op_text(op: Op) -> str:
    """One operation without indentation; several lines when one would be too long."""
    results = ", ".join(value_text(value) for value in op.results)
    head = f"{results} = " if results else ""
    head += f"{op.name}({', '.join(value_text(value) for value in op.operands)})"
    types = ", ".join(str(value.type) for value in op.results)
    tail = f" : {types}" if types else ""
    items = attribute_items(op)
    if not items:
        return f"{head}{tail}"
    line = f"{head} {{ {', '.join(items)} }}{tail}"
    if len(line) <= LINE_WIDTH:
        return line
    inner = "".join(f"    {item},\n" for item in items)
    return f"{head} {{\n{inner}  }}{tail}"


def attribute_items(op: Op) -> Sequence[str]:
    """``name = value`` in declared order: the operator's, the epilogue, placement, unknown ones."""
    return [f"{name} = {attribute_value(op, name)}" for name in attribute_order(op)]


def attribute_value(op: Op, name: str) -> str:
    """One attribute's value as it is printed. A ``number`` is an element of the result's type."""
    value = op.attrs[name]
    if isinstance(value, (int, float)) and op.results and _kind(op, name) == "number":
        return number_text(value, op.results[0].type.dtype)
    return attribute_text(value, [operand.name for operand in op.operands])


def _kind(op: Op, name: str) -> str:
    try:
        declared = lookup(op.name).attrs
    except RlxError:
        return ""
    return next((item.kind for item in declared if item.name == name), "")


def attribute_order(op: Op) -> Sequence[str]:
    """Names of the attributes that ``op`` has, as they are printed."""
    try:
        own = [item.name for item in lookup(op.name).attrs]
    except RlxError:
        own = []
    order = [*own, EPILOGUE.name, *(item.name for item in PLACEMENT)]
    known = [name for name in order if name in op.attrs]
    return [*known, *sorted(name for name in op.attrs if name not in order)]


def attribute_text(value: object, operands: Sequence[str] = ()) -> str:
    """A value as it stands after ``name =``; ``operands`` name the slots of an expression."""
    if isinstance(value, (bool, int, float)):
        return number_text(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Dim):
        return _outside(value)
    if isinstance(value, DType):
        return value.name if value.name in DTYPES else quote(value.name)
    if isinstance(value, Expr):
        return quote(expression_text(value, operands))
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_item_text(item) for item in value)}]"
    return quote(repr(value))


def _item_text(item: object) -> str:
    if isinstance(item, Dim):
        return str(item)
    return attribute_text(item) if isinstance(item, (bool, int, float, str)) else quote(repr(item))


def _outside(dim: Dim) -> str:
    """A dim outside of brackets, where ``//`` starts a comment and ``%`` a value."""
    text = str(dim)
    return f"({text})" if "//" in text or "%" in text else text
