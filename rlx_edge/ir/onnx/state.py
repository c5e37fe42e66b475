"""The function under construction, with its weights and symbols."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from rlx_edge.ir.attributes import Attribute
from rlx_edge.ir.builder import Builder
from rlx_edge.ir.core import Constant, Function, Guard, Value
from rlx_edge.ir.dims import ONE, Dim, as_dim
from rlx_edge.ir.errors import ModelError, RlxError
from rlx_edge.ir.onnx.assumptions import Assumptions
from rlx_edge.ir.onnx.bytes import ByteRange, MemorySource
from rlx_edge.ir.onnx.conditions import Compare, Every, Some
from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.onnx.model import OnnxModel
from rlx_edge.ir.onnx.names import SymbolNames, identifier
from rlx_edge.ir.onnx.shape_values import (
    MAX_ELEMENTS,
    Choice,
    Item,
    ShapeValue,
    Unknown,
    from_numbers,
    over_one_denominator,
)
from rlx_edge.ir.onnx.tensors import TensorProto, data_type_name
from rlx_edge.ir.onnx.unify import Mismatch, Place, mismatches
from rlx_edge.ir.ops import lookup
from rlx_edge.ir.ops.premises import premises
from rlx_edge.ir.types import BF16, BOOL, BY_ONNX, F16, F32, F64, I32, I64, DType, TensorType

_MAX_SIZES_MADE_EQUAL = 32
_NEVER_EMPTY = frozenset(
    {
        "rlxc::average_pool2d",
        "rlxc::conv2d",
        "rlxc::conv_transpose2d",
        "rlxc::max_pool2d",
        "rlxc::resize",
        "rlxc::resize_cubic",
    }
)

MAX_FLOATS = 64
"""Larger float constants are weights: their content is not looked at."""


class ImportState:
    """Everything that the conversion of one model shares."""

    def __init__(self, model: OnnxModel, function: Function, assume: Assumptions) -> None:
        self.model = model
        self.file = model.source
        self.function = function
        self.builder = Builder(function)
        self.assume = assume
        self.symbols = SymbolNames()
        self.constants: dict[str, Constant] = {}
        self._weights: dict[tuple[str, TensorType], Value] = {}
        self._splats: dict[tuple[bytes, TensorType], Value] = {}

    # ---- building ----------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Attribute] | None = None,
        *,
        hint: str,
        where: str,
        type: TensorType | None = None,
    ) -> Value:
        """Append an operation; what its inference refuses is an error at ``where``."""
        operands = list(operands)
        word = identifier(hint, "v")
        for _ in range(_MAX_SIZES_MADE_EQUAL):
            try:
                result = self.builder.op(name, operands, attrs, hint=word, type=type)
            except RlxError as error:
                if error.code == "op.shape" and self._made_equal(
                    name, operands, attrs or {}, where
                ):
                    continue
                if error.where:
                    raise
                raise ModelError(
                    error.code,
                    error.what,
                    found=error.found,
                    allowed=error.allowed,
                    where=where,
                    hint=error.hint,
                ) from None
            self._require_sizes(name, operands, result, where)
            self._require_premises(name, operands, attrs or {}, result)
            return result
        raise ModelError("import.sizes", f"{name}: too many sizes do not agree", where=where)

    def _require_sizes(
        self, name: str, operands: Sequence[Value], result: Value, where: str
    ) -> None:
        """Guards for sizes that the operation makes and that small inputs could make negative."""
        minimum = 1 if name in _NEVER_EMPTY else 0
        old = {dim for operand in operands for dim in operand.type.shape}
        for dim in result.type.shape:
            if dim.is_constant and dim.value < 0:
                raise ModelError("import.node", "a negative size", found=result.type, where=where)
            if dim not in old:
                self.assume.require_at_least(dim, minimum, f"a size of %{result.name}")

    def _require_premises(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: Mapping[str, Attribute],
        result: Value,
    ) -> None:
        """Guards for what the operator rests on (``ops/premises.py``)."""
        types = [operand.type for operand in operands]
        dims = [dim for type in (*types, result.type) for dim in type.shape]
        dims += [dim for item in attrs.values() if isinstance(item, tuple) for dim in _dims(item)]
        sizes = {symbol for dim in dims for symbol in dim.symbols()} - set(self.assume.bindings)
        for guard in premises(name, types, attrs, result.type, frozenset(sizes)):
            proven = guard.relation == "<=" and self.assume.not_negative(guard.right - guard.left)
            if not proven:
                self.assume.require(
                    Guard(
                        guard.left, guard.relation, guard.right, f"%{result.name}: {guard.reason}"
                    )
                )

    def _made_equal(
        self, name: str, operands: list[Value], attrs: Mapping[str, Attribute], where: str
    ) -> bool:
        """Change one operand so that two sizes that must be equal are the same (``unify.py``)."""
        elementwise = "elementwise" in lookup(name).traits
        found = mismatches(name, [operand.type for operand in operands], attrs, elementwise)
        if not found:
            return False
        first = found[0]
        same = first.unified(self.assume.value_of)
        if same is not None and same.symbol not in self.assume.bindings:
            raise same
        place, dim = self._agreed(first, f"{name} at {where.rpartition('node ')[2]}")
        if place is None:
            return False
        position, axis = place
        shape = list(operands[position].type.shape)
        shape[axis] = dim
        operands[position] = self.builder.op(
            "rlxc::reshape",
            [operands[position]],
            {"shape": tuple(shape)},
            hint=operands[position].name,
        )
        return True

    def _agreed(self, found: Mismatch, reason: str) -> tuple[Place | None, Dim]:
        """Which operand's axis takes which size, after the guard that makes it right."""
        if found.stretches:
            for place, dim, other in (
                (found.left, found.a, found.b),
                (found.right, found.b, found.a),
            ):
                if self.assume.value_of(dim) == 1 and self.assume.value_of(other) != 1:
                    self.assume.require(Guard(dim, "==", ONE, reason))
                    return place, ONE
        self.assume.require(Guard(found.a, "==", found.b, reason))
        if found.right is None or _simplicity(found.b) < _simplicity(found.a):
            return found.left, found.b
        return found.right, found.a

    def splat(
        self, value: float | int | bool, dtype: DType, shape: Sequence[Dim | int] = ()
    ) -> Value:
        """A constant with one value everywhere; equal ones are shared."""
        type = TensorType(dtype, tuple(as_dim(dim) for dim in shape))
        packed = struct.pack("<d", value) if dtype.is_float else repr(int(value)).encode()
        found = self._splats.get((packed, type))
        if found is None:
            number: float | int | bool = float(value) if dtype.is_float else int(value)
            number = bool(value) if dtype is BOOL else number
            found = self.builder.op("tensor::splat", [], {"value": number}, hint="c", type=type)
            self._splats[packed, type] = found
        return found

    # ---- weights -----------------------------------------------------------------------------

    def dtype(self, number: int, where: str) -> DType:
        """The IR's type of an ONNX element type."""
        if number not in BY_ONNX:
            raise ModelError(
                "import.data_type",
                "this element type is not supported",
                found=data_type_name(number),
                allowed=[dtype.name for dtype in BY_ONNX.values()],
                where=where,
            )
        return BY_ONNX[number]

    def weight(self, tensor: TensorProto, where: str, shape: Sequence[int] | None = None) -> Value:
        """A ``tensor::const`` of ``tensor``, maybe reshaped; a splat for less than two elements."""
        dtype = self.dtype(tensor.data_type, where)
        extents = tuple(as_dim(dim) for dim in (tensor.dims if shape is None else shape))
        if tensor.size < 2:
            return self.splat(tensor.elements()[0] if tensor.size else 0, dtype, extents)
        return self._constant(tensor.data, TensorType(dtype, extents), tensor.name or "w", where)

    def _constant(self, data: ByteRange, type: TensorType, hint: str, where: str) -> Value:
        """A ``tensor::const``. One digest has one type in a module: the same bytes in another
        shape are a view, and of another element type they are put together from two parts."""
        digest = f"sha256:{data.sha256()}"
        found = self._weights.get((digest, type))
        if found is None:
            first = self.constants.get(digest)
            if first is None or first.type == type:
                self._store(digest, data, type)
                attrs = {"digest": digest}
                found = self.op("tensor::const", [], attrs, hint=hint, where=where, type=type)
            elif first.type.dtype is type.dtype:
                found = self._constant(data, first.type, hint, where)
                attrs_shape = {"shape": type.shape}
                found = self.op("rlxc::reshape", [found], attrs_shape, hint=hint, where=where)
            else:
                found = self._in_two_parts(data, type, hint, where)
            self._weights[digest, type] = found
        return found

    def _store(self, digest: str, data: ByteRange, type: TensorType) -> None:
        location = "" if isinstance(data.source, MemorySource) else data.source.name
        self.constants.setdefault(
            digest, Constant(digest, type, data.source, data.offset, data.length, location)
        )

    @staticmethod
    def _part(data: ByteRange, start: int, length: int) -> ByteRange:
        return ByteRange(data.source, data.offset + start, length)

    def _in_two_parts(self, data: ByteRange, type: TensorType, hint: str, where: str) -> Value:
        """The first element and the rest, joined."""
        size, width = type.size.value, type.dtype.bytes
        head = TensorProto(hint, type.dtype.onnx, (1,), self._part(data, 0, width))
        rest = self._part(data, width, data.length - width)
        rest_type = TensorType(type.dtype, (as_dim(size - 1),))
        parts = [
            self.weight(head, where),
            self._constant(rest, rest_type, hint, where),
        ]
        joined = self.op("rlxc::concat", parts, {"axis": 0}, hint=hint, where=where)
        if joined.type == type:
            return joined
        return self.op("rlxc::reshape", [joined], {"shape": type.shape}, hint=hint, where=where)

    # ---- entries -----------------------------------------------------------------------------

    def type_of(self, entry: Entry, where: str) -> TensorType:
        """The type of an entry, without computing it."""
        if entry.value is not None:
            return entry.value.type
        if entry.tensor is not None:
            dtype = self.dtype(entry.tensor.data_type, where)
            return TensorType(dtype, tuple(as_dim(dim) for dim in entry.tensor.dims))
        assert entry.content is not None
        return TensorType(entry.content.dtype, tuple(as_dim(dim) for dim in entry.content.shape))

    def content_of(self, entry: Entry) -> ShapeValue | None:
        """The content of an entry if it is small and known."""
        tensor = entry.tensor
        if entry.content is None and tensor is not None and tensor.data_type in BY_ONNX:
            dtype = BY_ONNX[tensor.data_type]
            limit = MAX_FLOATS if dtype.is_float else MAX_ELEMENTS
            if tensor.size <= limit and (not dtype.is_float or dtype in (F32, F64)):
                entry.content = from_numbers(dtype, tensor.dims, tensor.elements())
        return entry.content

    def settled(self, content: ShapeValue, where: str) -> ShapeValue:
        """The content with every choice decided."""
        if not any(isinstance(item, Choice) for item in content.items):
            return content
        items = tuple(self._settled_item(item, where) for item in content.items)
        return ShapeValue(content.dtype, content.shape, items)

    def _settled_item(self, item: Item, where: str) -> Item:
        while isinstance(item, Choice):
            holds = self.assume.decide(item.condition, "Where in shape arithmetic", where)
            item = item.yes if holds else item.no
        return item

    def depends_on_values(self, content: ShapeValue) -> bool:
        """Whether value symbols (not only sizes) appear in it."""
        return any(name in self.assume.bindings for name in content.symbols())

    def materialize(self, entry: Entry, where: str) -> Value:
        """The entry as a tensor of the function."""
        if entry.value is None:
            if entry.tensor is not None:
                entry.value = self.weight(entry.tensor, where)
            else:
                assert entry.content is not None
                content = self.settled(entry.content, where)
                entry.value = self._from_content(content, entry.name, where)
        return entry.value

    def _from_content(self, content: ShapeValue, name: str, where: str) -> Value:
        """Known content as a tensor: constants as bytes, symbols through ``tensor::from_dims``."""
        try:
            numbers = content.numbers()
        except Unknown:
            return self._from_symbols(content, name, where)
        if len(numbers) < 2:
            return self.splat(numbers[0] if numbers else 0, content.dtype, content.shape)
        data = struct.pack(f"<{len(numbers)}{content.dtype.struct}", *numbers)
        type = TensorType(content.dtype, tuple(as_dim(dim) for dim in content.shape))
        return self._constant(ByteRange.of(data), type, name, where)

    def _from_symbols(self, content: ShapeValue, name: str, where: str) -> Value:
        """Integers from dims; exact fractions as ``dims / denominator``; what is neither, one
        element at a time."""
        if content.dtype is BOOL or content.dtype in (F16, BF16):
            return self._decided(content, name, where)
        common = over_one_denominator(content.items)
        if common is None:
            return self._joined(content, name, where)
        numerators, denominator = common
        dtype = content.dtype
        stored = dtype if dtype in (I64, I32) else I64
        scalar = not content.shape
        value = self.op(
            "tensor::from_dims",
            [],
            {"values": numerators},
            hint=name,
            where=where,
            type=TensorType(stored, () if scalar else (as_dim(len(numerators)),)),
        )
        if stored is not dtype:
            value = self.op("rlxc::cast", [value], {"dtype": dtype}, hint=name, where=where)
        if denominator != 1:
            divisor = self.splat(float(denominator), dtype)
            value = self.op("rlxc::div", [value, divisor], hint=name, where=where)
        return self._shaped(value, content, name, where)

    def _decided(self, content: ShapeValue, name: str, where: str) -> Value:
        """Conditions as a constant tensor, with the guards that make them so."""
        truths = [
            item
            if isinstance(item, bool)
            else self.assume.decide(item, f"the tensor {name!r}", where)
            for item in content.items
            if isinstance(item, (bool, Compare, Every, Some))
        ]
        if len(truths) < content.size:
            raise ModelError(
                "import.data_dependent",
                "a tensor depends on sizes in a way that cannot be expressed",
                found=f"{content.dtype} {name!r}",
                where=where,
            )
        return self._from_content(ShapeValue(BOOL, content.shape, tuple(truths)), name, where)

    def _joined(self, content: ShapeValue, name: str, where: str) -> Value:
        parts = [
            self._from_content(ShapeValue(content.dtype, (1,), (item,)), name, where)
            for item in content.items
        ]
        value = self.op("rlxc::concat", parts, {"axis": 0}, hint=name, where=where)
        return self._shaped(value, content, name, where)

    def _shaped(self, value: Value, content: ShapeValue, name: str, where: str) -> Value:
        shape = tuple(as_dim(dim) for dim in content.shape)
        if value.type.shape == shape:
            return value
        return self.op("rlxc::reshape", [value], {"shape": shape}, hint=name, where=where)


def _dims(items: tuple[int | str | Dim, ...]) -> tuple[Dim, ...]:
    return tuple(item for item in items if isinstance(item, Dim))


def _simplicity(dim: Dim) -> tuple[bool, int, str]:
    """Constants first, then short expressions."""
    return (not dim.is_constant, len(str(dim)), str(dim))


def shortest_f32(value: float) -> float:
    """The double with the shortest decimal form that rounds to the same f32: 1e-05 for
    0.000009999999747378752."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack("<f", float(text)) == struct.pack("<f", value):
                return float(text)
        except OverflowError:
            continue
    return value
