"""The operator table and what follows from it for any op, fused or not.

A fused op is called ``rlxc::fused_<root>_<last>``: it has the root's attributes plus ``epilogue``,
and its operands are the root's followed by those that only the epilogue reads. An optional root
operand counts as present unless the epilogue loads its slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.core import Op
from rlx_edge.ir.dims import Dim, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, replace_acc, walk
from rlx_edge.ir.opdef import Expression, ExpressionContext, InferContext, OpDef
from rlx_edge.ir.ops import (
    activation,
    arithmetic,
    attention,
    communication,
    contraction,
    elementary,
    indexing,
    normalization,
    pooling,
    reduction,
    resize,
    sampling,
    shape,
    tensor,
)
from rlx_edge.ir.types import DType, TensorType

FUSED_PREFIX = "rlxc::fused_"

OPS: dict[str, OpDef] = {
    definition.name: definition
    for family in (
        tensor,
        elementary,
        activation,
        arithmetic,
        contraction,
        normalization,
        attention,
        pooling,
        reduction,
        shape,
        indexing,
        resize,
        sampling,
        communication,
    )
    for definition in family.OPS
}
"""Operator name → definition, families in reading order."""

TYPE_STATED = frozenset({"tensor::const", "tensor::splat", communication.RECV})
"""Operators whose result type is stated in the text and cannot be inferred."""


def is_fused(name: str) -> bool:
    """Whether ``name`` is that of a fused op."""
    return name.startswith(FUSED_PREFIX)


def root_name(name: str) -> str:
    """``rlxc::conv2d`` of ``rlxc::fused_conv2d_relu``; the name itself when it is not fused.

    The root is the longest operator name that the display name starts with.
    """
    if not is_fused(name):
        return name
    parts = name[len(FUSED_PREFIX) :].split("_")
    for count in range(len(parts), 0, -1):
        root = "rlxc::" + "_".join(parts[:count])
        if root in OPS:
            return root
    raise _unknown(name)


def lookup(name: str) -> OpDef:
    """The definition of ``name`` or, for a fused op, of its root; code ``op.unknown`` otherwise."""
    found = OPS.get(root_name(name))
    if found is None:
        raise _unknown(name)
    return found


def _unknown(name: str) -> RlxError:
    dialect = name.partition("::")[0]
    near = [known for known in OPS if known.partition("::")[0] == dialect]
    return RlxError("op.unknown", "unknown operator", found=name, allowed=near or list(OPS))


def epilogue_slots(epilogue: Expr) -> frozenset[int]:
    """Operand slots that an epilogue loads."""
    return frozenset(
        node.attr for node in walk(epilogue) if node.op == "load" and isinstance(node.attr, int)
    )


def root_operand_count(definition: OpDef, operands: int, epilogue: Expr | None) -> int:
    """How many of a (fused) op's ``operands`` are the root's; the rest belong to the epilogue."""
    if epilogue is None:
        return operands
    return count_root_operands(definition, operands, epilogue_slots(epilogue))


def count_root_operands(definition: OpDef, operands: int, loaded: frozenset[int]) -> int:
    """``root_operand_count`` from the slots that an epilogue loads."""
    count = sum(1 for item in definition.operands if not item.optional)
    if definition.operands and definition.operands[-1].variadic:
        most = operands
    else:
        most = min(operands, len(definition.operands))
    while count < most and count not in loaded:
        count += 1
    return count


def infer_type(
    name: str, types: Sequence[TensorType], attrs: Mapping[str, Attribute]
) -> TensorType:
    """The result type of an op; shapes may be symbolic.

    Codes: ``op.unknown``, ``op.operands``, ``op.type``, ``op.attribute``, ``op.shape``.
    """
    definition = lookup(name)
    epilogue = attrs.get("epilogue")
    if epilogue is not None and not isinstance(epilogue, Expr):
        raise RlxError("op.attribute", f"{name}: epilogue must be an expression", found=epilogue)
    if is_fused(name) != (epilogue is not None):
        raise RlxError(
            "op.attribute",
            f"{name}: a fused op has an epilogue, and only a fused op has one",
            found="an epilogue" if epilogue is not None else "no epilogue",
        )
    count = root_operand_count(definition, len(types), epilogue)
    check_operands(name, definition, types[:count])
    check_attributes(name, definition, attrs)
    result = definition.infer(InferContext(name, types[:count], attrs))
    if epilogue is None:
        return result
    check_epilogue(name, result, types, epilogue)
    return TensorType(epilogue.dtype, result.shape)


_ATTRIBUTE_TYPES: dict[str, tuple[type, ...]] = {
    "float": (float,),
    "bool": (bool,),
    "number": (bool, int, float),
    "string": (str,),
    "dtype": (DType,),
}
"""Python types of attribute kinds; those of integers and dims are checked where they are read."""


def check_attributes(name: str, definition: OpDef, attrs: Mapping[str, Attribute]) -> None:
    """Every declared attribute is there, of its kind and among its choices; ``op.attribute``."""
    for item in definition.attrs:
        if item.name not in attrs:
            if item.optional:
                continue
            raise RlxError(
                "op.attribute", f"{name}: attribute {item.name} is missing", allowed=item.kind
            )
        value = attrs[item.name]
        fits = isinstance(value, _ATTRIBUTE_TYPES.get(item.kind, object))
        if not fits or (item.choices and value not in item.choices):
            raise RlxError(
                "op.attribute",
                f"{name}: attribute {item.name} has the wrong value",
                found=value,
                allowed=item.choices or item.kind,
            )


def check_operands(name: str, definition: OpDef, types: Sequence[TensorType]) -> None:
    """Operand count, element types and groups; codes ``op.operands`` and ``op.type``."""
    declared = definition.operands
    variadic = bool(declared) and declared[-1].variadic
    least = sum(1 for item in declared if not item.optional)
    if len(types) < least or (len(types) > len(declared) and not variadic):
        names = ", ".join(f"[{item.name}]" if item.optional else item.name for item in declared)
        raise RlxError(
            "op.operands",
            f"{name}: wrong number of operands",
            found=len(types),
            allowed=f"({names}{', …' if variadic else ''})",
        )
    groups: dict[str, TensorType] = {}
    for position, found in enumerate(types):
        item = declared[min(position, len(declared) - 1)]
        if found.dtype not in item.dtypes:
            raise RlxError(
                "op.type",
                f"{name}: operand {item.name} has an element type that is not supported",
                found=found.dtype,
                allowed=list(item.dtypes),
            )
        first = groups.setdefault(item.group, found)
        if first.dtype is not found.dtype:
            raise RlxError(
                "op.type",
                f"{name}: operand {item.name} must have the element type of the operands before it",
                found=found.dtype,
                allowed=first.dtype,
            )


def check_epilogue(
    name: str, root: TensorType, types: Sequence[TensorType], epilogue: Expr
) -> None:
    """An epilogue uses ``acc`` of the root's element type and loads operands with their types."""
    for node in walk(epilogue):
        if node.op == "acc" and node.dtype is not root.dtype:
            raise RlxError(
                "op.type", f"{name}: acc has the wrong type", found=node.dtype, allowed=root.dtype
            )
        if node.op != "load":
            continue
        slot = node.attr
        if not isinstance(slot, int) or not 0 <= slot < len(types):
            raise RlxError(
                "op.operands",
                f"{name}: the epilogue loads an operand that does not exist",
                found=slot,
            )
        operand = types[slot]
        if node.dtype is not operand.dtype or len(node.args) != operand.rank:
            raise RlxError(
                "op.type",
                f"{name}: the epilogue loads operand {slot} with the wrong type or rank",
                found=f"{node.dtype} at {len(node.args)} indices",
                allowed=operand,
            )


def output_index(rank: int) -> tuple[Dim, ...]:
    """``(_i0, _i1, …)``: the symbols that stand for an op's output indices."""
    return tuple(symbol(f"_i{axis}") for axis in range(rank))


def definition_expression(op: Op) -> tuple[ExpressionContext, Expr]:
    """The element of ``op``'s result at ``(_i0, _i1, …)`` and the context it was built in.

    Loads refer to operand slots; a fused op's epilogue is applied to the root's element. Code
    ``op.form`` for operators that are decompositions or storage.
    """
    definition = lookup(op.name)
    if not isinstance(definition.define, Expression):
        raise RlxError(
            "op.form",
            f"{op.name} has no expression",
            found=type(definition.define).__name__.lower(),
            allowed="an operator defined by an expression",
        )
    epilogue = op.attrs.get("epilogue")
    fused = epilogue if isinstance(epilogue, Expr) else None
    types = [operand.type for operand in op.operands]
    count = root_operand_count(definition, len(types), fused)
    result = op.result.type
    root_types = types[:count]
    names = {item.name: slot for slot, item in enumerate(definition.operands[:count])}
    root_result = result
    if fused is not None:
        root_result = definition.infer(InferContext(op.name, root_types, op.attrs))
    context = ExpressionContext(root_types, op.attrs, root_result, names)
    value = definition.define.fn(context, output_index(result.rank))
    if fused is not None:
        value = replace_acc(fused, value)
    return ExpressionContext(types, op.attrs, result, names, context.reductions), value
