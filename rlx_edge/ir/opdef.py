"""Operator definitions: one frozen record an operator, with its one executable meaning.

``define`` takes one of these forms:

* ``Expression(fn)`` — ``fn(ctx, index) -> Expr``: the element of the result at ``index`` (a tuple
  of dims, one an output axis). Fusion is substitution, lowering turns it into a loop nest, the
  interpreter evaluates it.
* ``Decomposition(fn)`` — ``fn(builder, op) -> Value``: the same result from other operators.
* ``Data()`` — ``tensor::`` operators without arithmetic (constants, allocations).

From a record follow generic text syntax, verification, inference, interpretation, lowering on
every device, documentation and conformance cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rlx_edge.ir.attributes import Attribute, AttributeDef
from rlx_edge.ir.dims import Dim, DimLike, as_dim, dim_max, dim_min, symbol
from rlx_edge.ir.errors import RlxError
from rlx_edge.ir.expression import Expr, binary, index, load, reduce, select
from rlx_edge.ir.types import DType, TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.builder import Builder
    from rlx_edge.ir.core import Op, Value


@dataclass(frozen=True, slots=True)
class OperandDef:
    """``dtypes`` are legal element types.

    ``optional`` ones may be absent at the end, a ``variadic`` one repeats.
    ``group`` names operands that must share one element type (``"T"`` as in ONNX).
    """

    name: str
    dtypes: tuple[DType, ...]
    group: str = "T"
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class InferContext:
    """What type inference sees: operand types in order and attributes (all present)."""

    name: str
    types: Sequence[TensorType]
    attrs: Mapping[str, Attribute]

    def error(self, what: str, *, found: object = None, allowed: object = None) -> RlxError:
        """An ``op.shape`` error of this operator, to be raised."""
        return RlxError("op.shape", f"{self.name}: {what}", found=found, allowed=allowed)


@dataclass(slots=True)
class ExpressionContext:
    """What a definition sees: operand and result types, attributes, loads and reductions."""

    types: Sequence[TensorType]
    attrs: Mapping[str, Any]
    result: TensorType
    names: Mapping[str, int]
    """Operand name → slot; absent optional operands are missing."""
    reductions: int = 0

    def slot(self, operand: str | int) -> int:
        return operand if isinstance(operand, int) else self.names[operand]

    def has(self, operand: str) -> bool:
        return operand in self.names

    def type(self, operand: str | int) -> TensorType:
        return self.types[self.slot(operand)]

    def load(self, operand: str | int, indices: Sequence[DimLike | Expr]) -> Expr:
        """Element at logical ``indices``; the caller keeps them in range."""
        slot = self.slot(operand)
        return load(
            slot,
            self.types[slot].dtype,
            [item if isinstance(item, Expr) else index(item) for item in indices],
        )

    def broadcast(self, operand: str | int, out: Sequence[Dim]) -> Expr:
        """Element under ONNX multidirectional broadcasting: size-1 axes read index 0."""
        shape = self.type(operand).shape
        tail = out[len(out) - len(shape) :]
        zero = as_dim(0)
        return self.load(
            operand,
            [
                zero if dim.is_constant and dim.value == 1 else at
                for dim, at in zip(shape, tail, strict=True)
            ],
        )

    def load_or(self, operand: str | int, indices: Sequence[Dim], fill: Expr) -> Expr:
        """Element where every index lies inside the operand, else ``fill``; never reads outside."""
        shape = self.type(operand).shape
        inside: Expr | None = None
        clamped: list[Dim] = []
        for at, extent in zip(indices, shape, strict=True):
            if _plain_variable(at):
                clamped.append(at)
                continue
            low = index(at) >= index(0)
            high = index(at) < index(extent)
            both = binary("and", low, high)
            inside = both if inside is None else binary("and", inside, both)
            clamped.append(dim_max(dim_min(at, extent - 1), 0))
        value = self.load(operand, clamped)
        return value if inside is None else select(inside, value, fill)

    def reduce(self, kind: str, extents: Sequence[DimLike], body: Callable[..., Expr]) -> Expr:
        """Reduce ``body(*variables)`` row-major over ``extents`` in the contract's order."""
        names = [f"_r{self.reductions + position}" for position in range(len(extents))]
        self.reductions += len(extents)
        return reduce(kind, names, extents, body(*(symbol(name) for name in names)))


def _plain_variable(at: Dim) -> bool:
    """A bare output index: in range because the caller's axes coincide."""
    return (
        len(at.terms) == 1
        and at.terms[0][1] == 1
        and len(at.terms[0][0]) == 1
        and (at.terms[0][0][0].op == "symbol")
    )


@dataclass(frozen=True, slots=True)
class Expression:
    fn: Callable[[ExpressionContext, tuple[Dim, ...]], Expr]


@dataclass(frozen=True, slots=True)
class Decomposition:
    fn: Callable[[Builder, Op], Value]


@dataclass(frozen=True, slots=True)
class Data:
    """A ``tensor::`` operator: storage, no arithmetic."""


Definition: TypeAlias = Expression | Decomposition | Data


@dataclass(frozen=True, slots=True)
class Example:
    """A conformance case: operand shapes with dtype, attributes."""

    name: str
    operands: tuple[TensorType, ...]
    attrs: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpDef:
    """An operator. ``traits``:

    * ``elementwise`` — result[i] depends on operands at i (broadcast); may join any epilogue;
    * ``view`` — the result has the operand's bytes (plain layout): no kernel, an alias;
    * ``blocked`` — works axis by axis on channels, so it may run in a channel-blocked layout;
    * ``contraction`` — a template may claim it; takes epilogues;
    * ``reduction`` — the epilogue of a fused one may reduce as well, over rows of operands.
    """

    name: str
    operands: tuple[OperandDef, ...]
    attrs: tuple[AttributeDef, ...]
    infer: Callable[[InferContext], TensorType]
    define: Definition
    traits: frozenset[str] = frozenset()
    doc: str = ""
    examples: tuple[Example, ...] = ()
    results: int = 1
    """How many values it defines: 1, or 0 for an operator that only has an effect."""
