"""Zero borders for padded convolutions.

A convolution reads its padding from the buffer of its input: ``border = [top, left, bottom,
right]`` on the operation that produces the input is the widest padding of its readers, who read at
an offset. Values that cannot have a border get a bordered copy (``rlxc::convert_layout`` to the
same layout) in front of the first padded reader, shared by all of them: parameters, constants,
views, values that a view or the caller needs with nothing but their own bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rlx_edge.compile.passes.graph import copy_module, is_constant
from rlx_edge.compile.passes.layout import convert
from rlx_edge.compile.passes.rewrite import Applied
from rlx_edge.compile.physical import NO_BORDER
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Function, Module, Op, Value
from rlx_edge.ir.ops import lookup, root_name

Border = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Borders:
    """Set ``border`` where a convolution of phase ``execute`` pads; see the module's docstring."""

    name: str = "borders"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        function = module.function
        builder = Builder(function, [])
        copies: dict[Value, Value] = {}
        before: dict[Op, list[Op]] = {}
        bare = _needed_bare(function)
        for value, border in _wanted(function).items():
            producer = value.producer
            if producer is not None and value not in bare:
                producer.attrs["border"] = border
                if log is not None:
                    log.append(Applied(self.name, str(producer), str(list(border))))
                continue
            first, *others = [op for op in function.ops if padding_of(op, value) != NO_BORDER]
            builder.ops = []
            layout = "NCHW" if producer is None else producer.attrs["memory_layout"]
            copies[value] = convert(
                builder, value, first, {"memory_layout": layout, "border": border}
            )
            before.setdefault(first, []).extend(builder.ops)
            for op in (first, *others):
                op.operands[0] = copies[value]
            if log is not None:
                log.append(Applied(self.name, "", str(builder.ops[0])))
        function.ops = [item for op in function.ops for item in (*before.get(op, ()), op)]
        return module


def padding_of(op: Op, value: Value) -> Border:
    """What a padded convolution wants around ``value``; nothing for other operations."""
    if root_name(op.name) != "rlxc::conv2d" or op.operands[0] is not value:
        return NO_BORDER
    if op.attrs["phase"] != "execute":
        return NO_BORDER
    return cast(Border, op.attrs["padding"])


def _wanted(function: Function) -> dict[Value, Border]:
    """Value → widest padding of its readers, for values that any reader pads."""
    table: dict[Value, Border] = {}
    for op in function.ops:
        if not op.operands:
            continue
        value = op.operands[0]
        padding = padding_of(op, value)
        if padding != NO_BORDER:
            known = table.get(value, NO_BORDER)
            table[value] = cast(Border, tuple(map(max, known, padding)))
    return table


def _needed_bare(function: Function) -> set[Value]:
    """Values that are stored as nothing but their own bytes (for membership only)."""
    bare = {*function.params, *function.returns}
    for op in function.ops:
        if "view" in lookup(op.name).traits:
            bare.update((*op.operands, *op.results))
        bare.update(filter(is_constant, op.results))
    return bare
