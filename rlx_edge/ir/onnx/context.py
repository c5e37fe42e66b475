"""What a converter sees of one node: its inputs, attributes, and the means to build operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias, TypeVar

from rlx_edge.ir.attributes import Attribute as IrAttribute
from rlx_edge.ir.core import Value
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.expression import round_f32
from rlx_edge.ir.onnx.assumptions import Assumptions
from rlx_edge.ir.onnx.attribute_names import attribute_names
from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.onnx.item_arithmetic import Arithmetic
from rlx_edge.ir.onnx.model import Attribute, Graph, Node
from rlx_edge.ir.onnx.shape_values import ShapeValue, Unknown
from rlx_edge.ir.onnx.state import ImportState, shortest_f32
from rlx_edge.ir.onnx.tensors import TensorProto
from rlx_edge.ir.types import BOOL, F64, I64, DType, TensorType

T = TypeVar("T")
Attrs: TypeAlias = dict[str, IrAttribute]


class NodeContext:
    """One node under conversion. Inputs are addressed by position; absent ones are ``None``.

    ``opset`` is the version of the node's domain. Errors carry file, node, operator and opset.
    """

    def __init__(
        self,
        state: ImportState,
        node: Node,
        inputs: Sequence[Entry | None],
        opset: int,
        used: Sequence[bool],
    ) -> None:
        self.state = state
        self.node = node
        self.inputs = inputs
        self.opset = opset
        self.used = used
        """Which outputs somebody reads."""
        self.where = f"{state.file}: node {node.label!r} ({qualified(node)}, opset {opset})"

    @property
    def assume(self) -> Assumptions:
        return self.state.assume

    def arithmetic(self, dtype: DType) -> Arithmetic:
        return Arithmetic(dtype, self.assume, self.where)

    # ---- errors ------------------------------------------------------------------------------

    def fail(
        self, code: str, what: str, *, found: object = None, allowed: object = None
    ) -> NoReturn:
        raise ModelError(code, what, found=found, allowed=allowed, where=self.where)

    def unsupported(self, what: str, *, found: object = None, allowed: object = None) -> NoReturn:
        """The operator is known, but not this use of it."""
        self.fail(
            "import.unsupported_op",
            f"this use of the operator {qualified(self.node)} is not supported: {what}",
            found=found,
            allowed=allowed,
        )

    # ---- inputs ------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def entry(self, index: int) -> Entry:
        if not self.has(index):
            self.fail("import.node", f"input {index} is missing", found=f"{self.count} inputs")
        entry = self.inputs[index]
        assert entry is not None
        return entry

    @property
    def count(self) -> int:
        return len(self.inputs)

    def value(self, index: int) -> Value:
        """Input ``index`` as a tensor of the function."""
        return self.state.materialize(self.entry(index), self.where)

    def optional(self, index: int) -> Value | None:
        return self.value(index) if self.has(index) else None

    def values(self) -> list[Value]:
        """All inputs, which must all be there."""
        return [self.value(index) for index in range(self.count)]

    def type(self, index: int) -> TensorType:
        return self.state.type_of(self.entry(index), self.where)

    def shape(self, index: int) -> tuple[Dim, ...]:
        return self.type(index).shape

    def rank(self, index: int) -> int:
        return self.type(index).rank

    def content(self, index: int) -> ShapeValue:
        """The known content of input ``index``; ``Unknown`` if it is absent or not known."""
        if not self.has(index):
            raise Unknown
        content = self.state.content_of(self.entry(index))
        if content is None:
            raise Unknown
        return content

    def settled(self, index: int) -> ShapeValue:
        """The content of input ``index`` for somebody who needs it now: choices are decided."""
        return self.state.settled(self.content(index), self.where)

    def dims(self, index: int) -> tuple[Dim, ...]:
        """An integer input that the shapes of the graph depend on, as dims."""
        try:
            return self.settled(index).dims()
        except Unknown:
            self._data_dependent(index)

    def integers(self, index: int) -> tuple[int, ...]:
        """An integer input that must be numbers: constants, or values that the caller gave."""
        reason = f"{self.node.op_type} {self.node.label}"
        found = [self.assume.fixed(dim, reason, self.where) for dim in self.dims(index)]
        numbers = tuple(number for number in found if number is not None)
        if len(numbers) < len(found):
            self._data_dependent(index)
        return numbers

    def dim(self, index: int) -> Dim:
        """As ``dims``, of one element."""
        return self._only(index, self.dims(index))

    def integer(self, index: int) -> int:
        """As ``integers``, of one element."""
        return self._only(index, self.integers(index))

    def _only(self, index: int, items: Sequence[T]) -> T:
        if len(items) != 1:
            self.fail(
                "import.node",
                f"input {index} ({self.node.inputs[index]!r}) has one element",
                found=f"{len(items)} elements",
            )
        return items[0]

    def number(self, index: int) -> float | int | bool:
        """A one-element input that must be a constant."""
        try:
            (number,) = self.settled(index).numbers()
        except (Unknown, ValueError):
            self._data_dependent(index)
        return number

    def _data_dependent(self, index: int) -> NoReturn:
        self.entry(index)
        self.fail(
            "import.data_dependent",
            f"input {index} ({self.node.inputs[index]!r}) must be known when the model is imported",
            found="a tensor that is computed at run time",
            allowed="a constant, or a result of shape arithmetic",
        )

    # ---- attributes --------------------------------------------------------------------------

    def _attribute(self, name: str, kinds: tuple[str, ...]) -> Attribute | None:
        found = self.node.attributes.get(name)
        if found is None or found.value is None:
            return None
        if found.kind not in kinds:
            self.fail(
                "import.attribute",
                f"attribute {name!r} has the wrong type",
                found=found.kind,
                allowed=kinds,
            )
        return found

    def _required(self, name: str, default: T | None) -> T:
        if default is None:
            self.fail("import.attribute", f"attribute {name!r} is missing")
        return default

    def check_attributes(self) -> None:
        """An attribute that the operator does not have would be ignored: it is refused.

        Names that begin with ``__`` are a producer's own notes, as for `OpSchema::Verify` of ONNX.
        """
        known = attribute_names(self.node.op_type, self.opset) if not self.node.domain else None
        if known is None:
            return
        for name in self.node.attributes:
            if name not in known and not name.startswith("__"):
                self.fail(
                    "import.attribute",
                    "the operator has no such attribute",
                    found=repr(name),
                    allowed=known or "none",
                )

    def has_attr(self, name: str) -> bool:
        return name in self.node.attributes

    def int_attr(self, name: str, default: int | None = None) -> int:
        found = self._attribute(name, ("int",))
        if found is None:
            return self._required(name, default)
        assert isinstance(found.value, int)
        return found.value

    def float_attr(self, name: str, default: float | None = None) -> float:
        """The value as the shortest decimal of its f32, or as its very f32 where the node computes
        in f64: attributes are f32, defaults too."""
        found = self._attribute(name, ("float",))
        if found is None:
            value = self._required(name, default)
        else:
            assert isinstance(found.value, float)
            value = found.value
        if self.has(0) and self.type(0).dtype is F64:
            return round_f32(value)
        return shortest_f32(value)

    def string_attr(self, name: str, default: str | None = None) -> str:
        found = self._attribute(name, ("string",))
        if found is None:
            return self._required(name, default)
        assert isinstance(found.value, str)
        return found.value

    def ints_attr(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        found = self._attribute(name, ("ints",))
        if found is None:
            return self._required(name, default)
        assert isinstance(found.value, tuple)
        return tuple(item for item in found.value if isinstance(item, int))

    def graph_attr(self, name: str) -> Graph:
        found = self._attribute(name, ("graph",))
        if found is None or not isinstance(found.value, Graph):
            self.fail("import.attribute", f"attribute {name!r} is missing")
        return found.value

    def tensor_attr(self, name: str) -> TensorProto | None:
        found = self._attribute(name, ("tensor",))
        if found is None:
            return None
        assert isinstance(found.value, TensorProto)
        return found.value

    # ---- building ----------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, IrAttribute] | None = None,
        *,
        hint: str | None = None,
    ) -> Value:
        """Append an operation; the result is named after the node's first output."""
        output = next((item for item in self.node.outputs if item), self.node.op_type)
        return self.state.op(name, operands, attrs, hint=hint or output, where=self.where)

    def step(
        self, name: str, operands: Sequence[Value], attrs: Mapping[str, IrAttribute] | None = None
    ) -> Value:
        """An operation on the way to the result, named after what it does."""
        return self.op(name, operands, attrs, hint=name.rsplit("::", 1)[1])

    def splat(self, value: float | int | bool, dtype: DType) -> Value:
        """A scalar constant, which must be one of ``dtype``."""
        if not dtype.is_float and typed(value, dtype) != value:
            self.unsupported("element type", found=dtype, allowed="floats")
        return self.state.splat(value, dtype)

    def size(self, dim: Dim) -> Value:
        """A size as a scalar of i64."""
        if dim.is_constant:
            return self.splat(dim.value, I64)
        content = ShapeValue(I64, (), (dim,))
        return self.state.materialize(Entry("size", content=content), self.where)

    def reshape(self, x: Value, shape: Sequence[Dim], *, hint: str | None = None) -> Value:
        """``x`` with another shape; ``x`` itself if it has that shape already."""
        if x.type.shape == tuple(shape):
            return x
        return self.op("rlxc::reshape", [x], {"shape": tuple(shape)}, hint=hint)

    def axis(self, axis: int, rank: int) -> int:
        """A possibly negative axis, checked."""
        if not -rank <= axis < rank:
            self.fail(
                "import.attribute",
                "axis out of range",
                found=axis,
                allowed=f"{-rank} to {rank - 1}" if rank else "none: the tensor is a scalar",
            )
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Sorted non-negative axes; a repeated axis is an error."""
        found = tuple(sorted(self.axis(axis, rank) for axis in axes))
        if len(set(found)) < len(found):
            self.fail("import.attribute", "an axis occurs twice", found=list(axes))
        return found


def qualified(node: Node) -> str:
    """``Conv`` or ``com.microsoft.FusedConv``."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def typed(value: float | int | bool, dtype: DType) -> float | int | bool:
    """``value`` as the Python type that stands for elements of ``dtype``; infinities become the
    bounds of integer types, NaN becomes 0."""
    if dtype is BOOL:
        return bool(value)
    if dtype.is_float:
        return float(value)
    bits = dtype.bytes * 8
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if dtype.kind == "uint":
        low, high = 0, (1 << bits) - 1
    if value != value:
        return 0
    return low if value < low else high if value > high else int(value)
