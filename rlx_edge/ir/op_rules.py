"""The rules for one operation: operator, attributes, operand and result types, placement."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlx_edge.ir.attributes import EPILOGUE, PLACEMENT, Attribute, AttributeDef
from rlx_edge.ir.core import Constant, Op, Value
from rlx_edge.ir.devices import device_set
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, round_f32
from rlx_edge.ir.expression_check import epilogue_problems
from rlx_edge.ir.expression_text import literal_dtype_ok, number_text
from rlx_edge.ir.opdef import InferContext, OpDef
from rlx_edge.ir.ops import (
    OPS,
    TYPE_STATED,
    check_operands,
    infer_type,
    is_fused,
    lookup,
    root_operand_count,
)
from rlx_edge.ir.printer import attribute_text
from rlx_edge.ir.size_scope import SizeScope
from rlx_edge.ir.spelling import near_operators, right_attribute, right_operator, right_value
from rlx_edge.ir.token_reader import INTEGER_RANGE
from rlx_edge.ir.types import F64, I32, I64, DType, TensorType

MAX_NOTES = 4
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Report:
    """A finding before it has a place: ``part`` is what to underline of the operation."""

    code: str
    what: str
    found: object = None
    allowed: object = None
    part: str = ""
    hint: str | None = None
    notes: tuple[str, ...] = ()


def op_problems(op: Op, sizes: SizeScope, placed: bool) -> Iterator[Report]:
    """What breaks a rule in ``op`` alone. ``sizes`` says which dims may stand in it."""
    try:
        definition = lookup(op.name)
    except RlxError:
        right = right_operator(op.name, OPS)
        yield Report(
            "op.unknown",
            "unknown operator",
            op.name,
            None if right else near_operators(op.name, OPS),
            "operator",
            hint=f"the right spelling is {right}" if right else None,
        )
        return
    broken = False
    for report in attribute_problems(op, definition, sizes):
        broken = True
        yield report
    if not broken:
        yield from _type_problems(op, definition, sizes)
    if placed:
        yield from _placement_problems(op)


# ---- attributes ------------------------------------------------------------------------------


def attribute_problems(op: Op, definition: OpDef, sizes: SizeScope) -> Iterator[Report]:
    """Undeclared, missing and ill-typed attributes."""
    declared: dict[str, AttributeDef] = {item.name: item for item in definition.attrs}
    if is_fused(op.name):
        declared[EPILOGUE.name] = EPILOGUE
        if EPILOGUE.name not in op.attrs:
            yield Report("op.attribute", "a fused operation has an epilogue", part="operator")
    declared.update((item.name, item) for item in PLACEMENT)
    for name in op.attrs:
        if name not in declared:
            right = right_attribute(name, declared)
            yield Report(
                "op.attribute",
                f"{op.name} has no such attribute",
                name,
                part=f"attribute {name}",
                hint=f"the right spelling is {right}" if right else None,
            )
    for name, item in declared.items():
        if name in op.attrs:
            yield from _value_problems(item, op.attrs[name], sizes)
        elif not item.optional:
            yield Report(
                "op.attribute", f"attribute {name} is missing", None, item.kind, part="operator"
            )


def _value_problems(item: AttributeDef, value: Attribute, sizes: SizeScope) -> Iterator[Report]:
    part = f"attribute {item.name}"
    if not _has_kind(value, item.kind):
        yield Report(
            "op.attribute",
            f"attribute {item.name} has the wrong kind of value",
            attribute_text(value),
            item.kind,
            part,
        )
    elif item.choices and value not in item.choices:
        right = right_value(str(value), item.choices)
        yield Report(
            "op.attribute",
            f"attribute {item.name} has an unknown value",
            attribute_text(value),
            item.choices,
            part,
            f"the right spelling is {right}" if right else None,
        )
    elif item.kind in ("dim", "dims"):
        for dim in value if isinstance(value, tuple) else (value,):
            problem = sizes.dim_problem(dim) if isinstance(dim, Dim) else None
            if problem:
                yield Report("op.attribute", f"attribute {item.name}: {problem}", dim, None, part)


def _has_kind(value: object, kind: str) -> bool:
    if kind in ("ints", "strings", "dims"):
        return isinstance(value, tuple) and all(_has_kind(item, kind[:-1]) for item in value)
    if kind == "number":
        return _has_kind(value, "int") or isinstance(value, (bool, float))
    if kind == "dim":
        return isinstance(value, Dim) or _has_kind(value, "int")
    if kind == "int":
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and INTEGER_RANGE[0] <= value <= INTEGER_RANGE[1]  # type: ignore[operator]
    plain = {"float": float, "bool": bool, "string": str, "dtype": DType, "expression": Expr}
    return isinstance(value, plain[kind])


# ---- types -----------------------------------------------------------------------------------


def _type_problems(op: Op, definition: OpDef, sizes: SizeScope) -> Iterator[Report]:
    if len(op.results) != definition.results:
        wanted = "one result" if definition.results else "no result"
        yield Report("op.results", f"{op.name} has {wanted}", len(op.results), part="operator")
        return
    types = [operand.type for operand in op.operands]
    if not op.results:
        yield from _operand_problems(op, definition, types)
        return
    stated = op.results[0].type
    if op.name in TYPE_STATED:
        yield from _stated_problems(op, stated)
        return
    epilogue = op.attrs.get(EPILOGUE.name)
    try:
        if isinstance(epilogue, Expr):
            count = root_operand_count(definition, len(types), epilogue)
            check_operands(op.name, definition, types[:count])
            root = definition.infer(InferContext(op.name, types[:count], op.attrs))
            reduces = "reduction" in definition.traits
            problems = list(epilogue_problems(epilogue, types, root, sizes.names, reduces))
            for problem in problems:
                yield Report("op.epilogue", f"epilogue: {problem}", part="attribute epilogue")
            if problems:
                return
        inferred = infer_type(op.name, types, op.attrs)
    except RlxError as error:
        part = _blamed(error.what, definition)
        yield Report(error.code, error.what, error.found, error.allowed, part, notes=_notes(op))
        return
    if inferred != stated and not _may_state(op, inferred, stated):
        yield Report(
            "op.type",
            f"{op.results[0]} has another type than this operation gives",
            stated,
            inferred,
            notes=_notes(op),
        )


def _operand_problems(op: Op, definition: OpDef, types: Sequence[TensorType]) -> Iterator[Report]:
    try:
        check_operands(op.name, definition, types)
    except RlxError as error:
        yield Report(
            error.code, error.what, error.found, error.allowed, "operator", notes=_notes(op)
        )


def _stated_problems(op: Op, stated: TensorType) -> Iterator[Report]:
    if op.operands:
        yield Report("op.operands", f"{op.name} has no operands", len(op.operands), part="operator")
    value = op.attrs.get("value")
    if op.name == "tensor::splat" and isinstance(value, (bool, int, float)):
        boolean = stated.dtype.kind == "bool"
        large = (
            stated.dtype.is_float
            and stated.dtype is not F64
            and math.isinf(round_f32(value))
            and not math.isinf(value)
        )
        if isinstance(value, bool) != boolean or (
            not boolean and (large or not literal_dtype_ok(value, stated.dtype))
        ):
            yield Report(
                "op.type",
                f"the value is not of type {stated.dtype}",
                number_text(value),
                part="attribute value",
            )


def _may_state(op: Op, inferred: TensorType, stated: TensorType) -> bool:
    """Sizes as data may be i32, and a single one may be a scalar: the text decides."""
    if op.name != "tensor::from_dims" or stated.dtype not in (I64, I32):
        return False
    values = op.attrs["values"]
    scalar = stated.rank == 0 and isinstance(values, tuple) and len(values) == 1
    return scalar or stated.shape == inferred.shape


def _blamed(what: str, definition: OpDef) -> str:
    """The attribute that a message of inference speaks of, or the operator."""
    words = re.findall(r"\w+", what)
    named = next((item.name for item in definition.attrs if item.name in words), None)
    return "operator" if named is None else f"attribute {named}"


def _notes(op: Op) -> tuple[str, ...]:
    return tuple(_defined(value) for value in _distinct(op.operands)[:MAX_NOTES])


def _distinct(values: Sequence[Value]) -> list[Value]:
    return list(dict.fromkeys(values))


def _defined(value: Value) -> str:
    span = value.producer.span if value.producer is not None else None
    return f"{value} has type {value.type}" + (f", defined at {span}" if span else "")


# ---- placement -------------------------------------------------------------------------------


def _placement_problems(op: Op) -> Iterator[Report]:
    required = ["target_device_set", "sync_mode"]
    if any(result.type.rank == 4 for result in op.results):
        required.append("memory_layout")
    for name in required:
        if name not in op.attrs:
            choices = next(item.choices for item in PLACEMENT if item.name == name)
            yield Report(
                "op.placement",
                f"every operation of a placed module has {name}",
                f"none at {op.name}",
                choices or "a list of device names",
                "operator",
            )
    names = op.attrs.get("target_device_set")
    if isinstance(names, tuple) and all(isinstance(name, str) for name in names):
        yield from _device_problems([str(name) for name in names])
    if "precision" in op.attrs and "contraction" not in lookup(op.name).traits:
        yield Report(
            "op.placement",
            "only contractions have a precision",
            op.name,
            [name for name, item in OPS.items() if "contraction" in item.traits],
            "attribute precision",
        )
    border = op.attrs.get("border")
    if isinstance(border, tuple) and not (
        len(border) == 4 and all(isinstance(side, int) and side >= 0 for side in border)
    ):
        yield Report(
            "op.placement",
            "border is not a border",
            border,
            "four sizes: top, left, bottom, right",
            "attribute border",
        )


def _device_problems(names: list[str]) -> Iterator[Report]:
    part = "attribute target_device_set"
    try:
        right = list(device_set(names).names())
    except RlxError as error:
        yield Report(error.code, error.what, error.found, error.allowed, part)
        return
    if right != names:
        yield Report(
            "device.name",
            "a device has its canonical name here",
            ", ".join(names),
            ", ".join(right),
            part,
        )


# ---- constants -------------------------------------------------------------------------------


def constant_problems(op: Op, table: Mapping[str, Constant]) -> Iterator[Report]:
    """What is wrong with a ``tensor::const``, and with its bytes where the table has any."""
    if op.name != "tensor::const" or len(op.results) != 1:
        return
    digest, type = op.attrs.get("digest"), op.results[0].type
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        allowed = "sha256: and 64 hexadecimal digits"
        yield Report("const.digest", "not a digest", digest, allowed, "attribute digest")
    elif not type.is_static:
        yield Report("const.type", "a constant's sizes are numbers", type)
    elif table and digest not in table:
        yield Report("const.missing", "this constant's bytes are not there", digest)
    elif table and table[digest].nbytes != type.nbytes.value:
        found, allowed = f"{table[digest].nbytes} bytes", f"{type.nbytes} bytes for {type}"
        yield Report("const.type", "the stored constant has another size", found, allowed)
