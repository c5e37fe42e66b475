"""Where a session's graph comes from: an ONNX model or IR text.

An ONNX model can be imported again for other values of its integer inputs; IR text is one module
for good. Both say which inputs and outputs they have before anything is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from rlx_edge.ir.core import Module
from rlx_edge.ir.dims import Dim
from rlx_edge.ir.errors import InputError, ModelError, ParseError
from rlx_edge.ir.module_file import load_module
from rlx_edge.ir.onnx.bytes import ByteSource, FileSource, MemorySource
from rlx_edge.ir.onnx.importer import as_model, declared_parameters, import_model
from rlx_edge.ir.onnx.model import OnnxModel, ValueInfo
from rlx_edge.ir.onnx.parameters import MAX_VALUE_ELEMENTS
from rlx_edge.ir.parser import parse_module
from rlx_edge.ir.program import Port
from rlx_edge.ir.sidecar import constant_types
from rlx_edge.ir.types import BY_ONNX
from rlx_edge.ir.verifier import verify
from rlx_edge.runtime.arrays import tensor_type_name

Array: TypeAlias = npt.NDArray[Any]
ModelLike: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | ByteSource | OnnxModel | Module
)
HEADER = b"rlx.module"
TEXT_SUFFIX = ".rlx"
_HEAD = 4096

Values: TypeAlias = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output as onnxruntime describes it: ``shape`` has integers, names of open
    sizes, and ``None`` for sizes without a name; ``type`` is like ``tensor(float)``."""

    name: str
    shape: list[int | str | None]
    type: str


class ModelSource(Protocol):
    """A graph by way of its file; ``name`` is for messages."""

    name: str
    checked: bool
    """Whether the weights are known to be those that the IR names."""
    fixed: bool
    """Whether there is one module, whatever the values and shapes."""

    def module(self, values: Values, shapes: Mapping[str, Sequence[int]]) -> Module:
        """The graph for these values of inputs; ``ModelError`` ``import.value_needed`` where it
        branches on one that is not given."""
        ...

    def ports(self) -> tuple[Port, ...]:
        """The inputs with their declared types."""
        ...

    def inputs(self) -> list[NodeArg]:
        """What must be fed."""
        ...

    def outputs(self) -> list[NodeArg]:
        """What a run gives."""
        ...


class OnnxSource:
    """An ONNX model, read once."""

    checked = True
    fixed = False

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.name = model.source

    def module(self, values: Values, shapes: Mapping[str, Sequence[int]]) -> Module:
        return import_model(self.model, values=values, shapes=shapes)

    def ports(self) -> tuple[Port, ...]:
        return tuple(Port(value.name, value.type) for value in declared_parameters(self.model))

    def inputs(self) -> list[NodeArg]:
        constants = {tensor.name for tensor in self.model.graph.initializers}
        return [_declared(info) for info in self.model.graph.inputs if info.name not in constants]

    def outputs(self) -> list[NodeArg]:
        return [_declared(info) for info in self.model.graph.outputs]


class TextSource:
    """A module of IR."""

    fixed = True

    def __init__(self, module: Module, name: str, *, checked: bool = False) -> None:
        self.name = name
        self.checked = checked
        self._module = module

    def module(self, values: Values, shapes: Mapping[str, Sequence[int]]) -> Module:
        return self._module

    def ports(self) -> tuple[Port, ...]:
        return tuple(Port(value.name, value.type) for value in self._module.function.params)

    def inputs(self) -> list[NodeArg]:
        return [
            NodeArg(value.name, shown_shape(value.type.shape), tensor_type_name(value.type.dtype))
            for value in self._module.function.params
        ]

    def outputs(self) -> list[NodeArg]:
        function = self._module.function
        names = function.output_names or [value.name for value in function.returns]
        return [
            NodeArg(name, shown_shape(value.type.shape), tensor_type_name(value.type.dtype))
            for name, value in zip(names, function.returns, strict=True)
        ]


def open_source(model: ModelLike, inspect: Callable[[Module], None] | None = None) -> ModelSource:
    """The source of a path, bytes, a ``ByteSource``, records or a module.

    What the content is decides, not the file's name; only ``.rlx`` always means IR text.
    ``inspect`` sees IR text from a file once it is parsed, before it is verified.
    ``ModelError`` and ``ParseError`` for files that are neither, ``InputError`` ``session.model``
    for another kind of argument.
    """
    if isinstance(model, Module):
        return TextSource(model, model.name)
    if isinstance(model, OnnxModel):
        return OnnxSource(model)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.suffix == TEXT_SUFFIX or is_text(FileSource(path)):
            module = load_module(path, check_digests=True, inspect=inspect)
            return TextSource(module, path.name, checked=True)
        return OnnxSource(as_model(path))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _of_bytes(MemorySource(model))
    if all(hasattr(model, part) for part in ("read", "size", "name")):
        return _of_bytes(model)
    raise InputError(
        "session.model",
        "not a model",
        found=type(model).__name__,
        allowed="a path, bytes, a byte source or an IR module",
    )


def _of_bytes(source: ByteSource) -> ModelSource:
    if not is_text(source):
        return OnnxSource(as_model(source))
    try:
        text = source.read(0, source.size).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(
            "parse.encoding",
            "not text in UTF-8",
            found=f"byte at offset {error.start}",
            where=source.name,
        ) from None
    module = parse_module(text, source.name)
    verify(module)
    if constant_types(module):
        raise ModelError(
            "session.weights",
            "the IR has constants, and only its text was given",
            where=source.name,
            hint="open the file by path, with its weights file beside it",
        )
    return TextSource(module, source.name)


def is_text(source: ByteSource) -> bool:
    """Whether it begins as IR text does, after comments and blank lines."""
    head = source.read(0, min(source.size, _HEAD))
    for line in head.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(b"//"):
            return stripped.startswith(HEADER)
    return False


def deciding_values(ports: Sequence[Port], arrays: Sequence[Array]) -> dict[str, list[int]]:
    """The content of every input that may decide what is computed: small, integer or bool, and
    of a fixed shape."""
    return {
        port.name: [int(item) for item in array.flat]
        for port, array in zip(ports, arrays, strict=True)
        if not port.type.dtype.is_float and port.type.is_static and array.size <= MAX_VALUE_ELEMENTS
    }


def shown_shape(shape: Sequence[Dim]) -> list[int | str | None]:
    """Integers where sizes are fixed, text where they are open."""
    return [dim.value if dim.is_constant else str(dim) for dim in shape]


def _declared(info: ValueInfo) -> NodeArg:
    dtype = BY_ONNX.get(info.data_type)
    kind = "tensor(unknown)" if dtype is None else tensor_type_name(dtype)
    return NodeArg(info.name, list(info.dims or ()), kind)
