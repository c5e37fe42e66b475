"""Arithmetic on constants: small results are computed here, large ones once in ``prepare``.

The interpreter evaluates the operators' own definitions, so a folded value has the bits that a
kernel would give. What is too much work becomes ``phase = "compile"`` and stays in the text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlx_edge.compile.passes.constants import (
    Number,
    add_constant,
    constant_of,
    element_count,
    splat_value,
)
from rlx_edge.compile.passes.graph import CONST, SPLAT, copy_module, is_constant
from rlx_edge.compile.passes.place import COMPILE
from rlx_edge.compile.passes.rewrite import Applied, Rewriter, Rule, rewrite
from rlx_edge.ir.core import Module, Op, Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.interpreter import evaluate_op
from rlx_edge.ir.opdef import Expression
from rlx_edge.ir.ops import OPS, infer_type
from rlx_edge.ir.tensor import Tensor, from_values
from rlx_edge.ir.types import TensorType

FOLD_LIMIT = 4096
"""Elements touched by an operation that is evaluated in Python: about a microsecond each. The
vectors of batch norms and biases stay below it, weights are left to kernels."""

COPIES = (
    "rlxc::reshape",
    "rlxc::transpose",
    "rlxc::expand",
    "rlxc::tile",
    "rlxc::slice",
    "rlxc::gather",
    "rlxc::gather_elements",
)
"""Operators whose result holds elements of their first operand and nothing else."""


def view_of_constant(op: Op, rewriter: Rewriter) -> Value | None:
    """``reshape`` of a constant is the same bytes under another type."""
    if op.name != "rlxc::reshape" or not op.result.type.is_static:
        return None
    source = op.operands[0].producer
    if source is None or source.name != CONST:
        return None
    return rewriter.op(CONST, [], source.attrs, hint=op.operands[0].name, type=op.result.type)


def copy_of_splat(op: Op, rewriter: Rewriter) -> Value | None:
    """Elements of a splat, moved or repeated, are a splat."""
    number = splat_value(op.operands[0]) if op.name in COPIES else None
    return None if number is None else _splat(rewriter, number, op)


def elementwise_of_splats(op: Op, rewriter: Rewriter) -> Value | None:
    """An elementwise operator on splats gives a splat, of any shape."""
    found = OPS.get(op.name)
    if found is None or "elementwise" not in found.traits or not op.operands:
        return None
    numbers = [splat_value(operand) for operand in op.operands]
    if None in numbers or op.name == "rlxc::batch_norm":
        return None
    types = [TensorType(operand.type.dtype, ()) for operand in op.operands]
    scalar = Op(
        op.name,
        [Value(f"x{slot}", type) for slot, type in enumerate(types)],
        op.attrs,
        [Value("y", infer_type(op.name, types, op.attrs))],
    )
    operands = [
        from_values(type.dtype, (), [number])
        for type, number in zip(types, numbers, strict=True)
        if number is not None
    ]
    result = evaluate_op(scalar, operands, {}).values()[0]
    # A literal is a number; NaN becomes bytes in small_constant.
    return None if result != result else _splat(rewriter, result, op)


def small_constant(op: Op, rewriter: Rewriter) -> Value | None:
    """Any operator on constants whose bytes are at hand, within ``FOLD_LIMIT``."""
    if not _depends_on_constants(op, rewriter.module) or _work(op) > FOLD_LIMIT:
        return None
    operands = [_tensor(rewriter.module, operand) for operand in op.operands]
    result = _with_one_nan(evaluate_op(op, operands, {}))
    number = _uniform_value(result)
    if number is not None:
        return _splat(rewriter, number, op)
    digest = add_constant(rewriter.module, op.result.type, result.tobytes())
    return rewriter.op(CONST, [], {"digest": digest}, hint=op.result.name, type=op.result.type)


def _with_one_nan(tensor: Tensor) -> Tensor:
    """The tensor with every NaN as the positive quiet one: its sign depends on the machine."""
    if not tensor.dtype.is_float:
        return tensor
    values = tensor.values()
    if all(value == value for value in values):
        return tensor
    return from_values(
        tensor.dtype, tensor.shape, [value if value == value else math.nan for value in values]
    )


def _uniform_value(tensor: Tensor) -> Number | None:
    """The number that all elements are, ``None`` where they differ or are NaN."""
    if tensor.size == 0:
        return None
    data = tensor.tobytes()
    number = tensor.values()[0]
    same = data == data[: tensor.dtype.bytes] * tensor.size
    return number if same and number == number else None


RULES: tuple[Rule, ...] = (
    view_of_constant,
    copy_of_splat,
    elementwise_of_splats,
    small_constant,
)


@dataclass(frozen=True, slots=True)
class Fold:
    """Afterwards an operation on constants alone is gone or has ``phase = "compile"``."""

    name: str = "fold"

    def run(self, module: Module, log: list[Applied] | None = None) -> Module:
        module = copy_module(module)
        rewrite(module, RULES, log)
        for op in module.function.ops:
            if _runs_once(op):
                op.attrs["phase"] = COMPILE
        return module


def _splat(rewriter: Rewriter, number: Number, op: Op) -> Value:
    return rewriter.op(SPLAT, [], {"value": number}, hint=op.result.name, type=op.result.type)


def _depends_on_constants(op: Op, module: Module) -> bool:
    found = OPS.get(op.name)
    if found is None or not isinstance(found.define, Expression) or op.name == SPLAT:
        return False
    if not op.operands and op.name != "tensor::from_dims":
        return False
    return _is_static(op) and all(_has_bytes(operand, module) for operand in op.operands)


def _is_static(op: Op) -> bool:
    """Whether neither types nor attributes mention a size."""
    types = (op.result.type, *(operand.type for operand in op.operands))
    dims = [
        item
        for value in op.attrs.values()
        for item in (value if isinstance(value, tuple) else (value,))
        if isinstance(item, Dim)
    ]
    return all(type.is_static for type in types) and all(dim.is_constant for dim in dims)


def _has_bytes(value: Value, module: Module) -> bool:
    return splat_value(value) is not None or constant_of(module, value) is not None


def _work(op: Op) -> int:
    """A bound on the elements that evaluating ``op`` touches."""
    result = element_count(op.result.type) or 0
    read = [element_count(operand.type) or 0 for operand in op.operands]
    traits = OPS[op.name].traits
    if "contraction" in traits or op.name.endswith("pool2d"):
        return result * max(read, default=1)
    return max([result, *read])


def _tensor(module: Module, value: Value) -> Tensor:
    shape = value.type.static_shape
    constant = constant_of(module, value)
    if constant is not None:
        return Tensor(value.type.dtype, shape, constant.read())
    number = splat_value(value)
    if number is None:
        raise RlxError("fold.constant", f"{value} is not a constant")
    return from_values(value.type.dtype, shape, [number] * math.prod(shape))


def _runs_once(op: Op) -> bool:
    """An operation on constants, or on results that are computed once, of known sizes."""
    return bool(op.operands) and _is_static(op) and all(map(_is_known, op.operands))


def _is_known(value: Value) -> bool:
    producer = value.producer
    return is_constant(value) or (producer is not None and producer.attrs.get("phase") == COMPILE)
