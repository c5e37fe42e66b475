"""The inputs of a model as parameters: their types, size symbols and value symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rlx_edge.ir.core import Binding, Value
from rlx_edge.ir.dims import Dim, as_dim, symbol
from rlx_edge.ir.errors import InputError, ModelError
from rlx_edge.ir.onnx.conditions import Compare
from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.onnx.model import ValueInfo
from rlx_edge.ir.onnx.names import identifier
from rlx_edge.ir.onnx.shape_values import Item, ShapeValue
from rlx_edge.ir.onnx.state import ImportState
from rlx_edge.ir.types import BOOL, TensorType

MAX_VALUE_ELEMENTS = 64
"""Integer inputs with more elements are data, never part of a shape."""

_ANONYMOUS = ("?", "None", "none", "-1", "unk", "unknown")


class Parameters:
    """Declares the parameters of ``state.function``; ``replaced`` are sizes known to be others."""

    def __init__(self, state: ImportState, replaced: Mapping[str, Dim]) -> None:
        self.state = state
        self.replaced = replaced

    def declare(
        self, values: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]
    ) -> dict[str, Entry]:
        """Entries for the inputs; those with an initializer of the same name are constants."""
        initializers = {tensor.name for tensor in self.state.model.graph.initializers}
        inputs = [info for info in self.state.model.graph.inputs if info.name not in initializers]
        for name in (*values, *shapes):
            if name not in [info.name for info in inputs]:
                raise InputError(
                    "input.name",
                    "the model has no such input",
                    found=name,
                    allowed=[info.name for info in inputs],
                    where=self.state.file,
                )
        entries: dict[str, Entry] = {}
        for info in inputs:
            parameter = Value(info.name, self._declared_type(info))
            if not info.name or info.name in entries:
                raise ModelError(
                    "import.graph",
                    "an input has no name, or the name of another one",
                    found=repr(info.name),
                    where=self.state.file,
                )
            self.state.function.params.append(parameter)
            self.state.builder.names.add(info.name)
            entries[info.name] = Entry(info.name, value=parameter)
        for info in inputs:
            entry = entries[info.name]
            self._bind_shape(entry, shapes.get(info.name))
            self._bind_values(entry, values.get(info.name))
        return entries

    def _declared_type(self, info: ValueInfo) -> TensorType:
        where = f"{self.state.file}: input {info.name!r}"
        if info.kind != "tensor" or info.dims is None:
            raise ModelError(
                "import.input_type",
                "inputs must be tensors of a known rank",
                found="a tensor of unknown rank"
                if info.kind == "tensor"
                else info.kind or "no type",
                where=where,
            )
        dtype = self.state.dtype(info.data_type, where)
        dims = tuple(self._dim(info.name, axis, dim) for axis, dim in enumerate(info.dims))
        return TensorType(dtype, dims)

    def _dim(self, name: str, axis: int, declared: int | str | None) -> Dim:
        if isinstance(declared, int):
            return as_dim(declared)
        if declared is None or not declared.strip() or declared.strip() in _ANONYMOUS:
            text = self.state.symbols.fresh(f"{identifier(name, 'input')}_d{axis}")
        else:
            text = self.state.symbols.for_dim(declared)
        return self.replaced.get(text, symbol(text))

    def _bind_shape(self, entry: Entry, shape: Sequence[int] | None) -> None:
        """Remember concrete sizes for the symbols of one input."""
        if shape is None or entry.value is None:
            return
        declared = entry.value.type
        if len(shape) != declared.rank:
            raise self._shape_error(entry, shape)
        for dim, size in zip(declared.shape, shape, strict=True):
            names = dim.symbols()
            if names and dim is symbol(names[0]):
                known = self.state.assume.known.setdefault(names[0], size)
            else:
                known = dim.value if dim.is_constant else size
            if known != size or size < 1:
                raise self._shape_error(entry, shape)

    def _shape_error(self, entry: Entry, shape: Sequence[int]) -> InputError:
        assert entry.value is not None
        return InputError(
            "input.shape",
            f"the input {entry.name!r} has another shape",
            found=list(shape),
            allowed=str(entry.value.type),
            where=self.state.file,
        )

    def _bind_values(self, entry: Entry, given: Sequence[int] | None) -> None:
        """Symbols for the elements of a small integer input, with their values if given."""
        assert entry.value is not None
        declared = entry.value.type
        small = (
            (declared.dtype.is_integer or declared.dtype is BOOL)
            and declared.is_static
            and math.prod(declared.static_shape) <= MAX_VALUE_ELEMENTS
        )
        count = math.prod(declared.static_shape) if small else 0
        if given is not None and (not small or len(given) != count):
            raise InputError(
                "input.values",
                f"cannot fix the value of the input {entry.name!r}: {declared}",
                found=f"{len(given)} values",
                allowed=f"{count} values"
                if small
                else "only small integer inputs of a fixed shape",
                where=self.state.file,
            )
        if not small:
            return
        assume = self.state.assume
        base = identifier(entry.name, "v")
        items: list[Item] = []
        for position in range(count):
            hint = f"{base}_{position}" if declared.rank else base
            name = self.state.symbols.fresh(hint)
            assume.bindings[name] = Binding(name, entry.name, position)
            if given is not None:
                assume.known[name] = int(given[position])
            is_bool = declared.dtype is BOOL
            items.append(Compare(symbol(name), "!=", as_dim(0)) if is_bool else symbol(name))
        entry.content = ShapeValue(declared.dtype, declared.static_shape, tuple(items))
