"""Reading ONNX files: fields of the wire format become the records of ``model.py``."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

from rlx_edge.ir.errors import ModelError
from rlx_edge.ir.onnx.bytes import ByteSource, FileSource
from rlx_edge.ir.onnx.fields import Fields
from rlx_edge.ir.onnx.model import (
    ONNX_DOMAINS,
    Attribute,
    AttributeValue,
    Graph,
    ModelFunction,
    Node,
    OnnxModel,
    ValueInfo,
    check_opset,
)
from rlx_edge.ir.onnx.tensors import External, read_tensor
from rlx_edge.ir.onnx.wire import WireReader

# ---- entry points ----------------------------------------------------------------------------


def open_model(path: str | os.PathLike[str]) -> OnnxModel:
    """The model in the file ``path``; external data is looked for beside it."""
    return read_model(FileSource(path, Path(path).name), external=beside(Path(path).parent))


def read_model(source: ByteSource, *, external: External | None = None) -> OnnxModel:
    """The records of the ONNX file in ``source``.

    ``external(location, where)`` opens the files that ``external_data`` names. Errors
    (``ModelError``): ``import.empty``, ``import.not_onnx``, ``import.truncated``,
    ``import.malformed``, ``import.opset``, ``import.tensor``, ``import.external``.
    """
    if source.size == 0:
        raise ModelError("import.empty", "the file is empty", where=source.name)
    reader = _ModelReader(source, external or _no_external)
    try:
        return reader.model()
    except ModelError as error:
        if error.code in ("import.malformed", "import.truncated"):
            _refuse_other_formats(source)
        raise


def beside(folder: Path) -> External:
    """External data relative to ``folder``; nothing outside of it is ever opened."""

    def open_external(location: str, where: str) -> ByteSource:
        root = folder.resolve()
        try:
            path = (root / location).resolve()
            is_there = path.is_file()
        except (OSError, ValueError, RuntimeError):  # too long, a zero character, a ring of links
            raise ModelError(
                "import.external",
                "external data at a place that cannot be",
                found=repr(location),
                allowed="a relative path below the folder of the model",
                where=where,
            ) from None
        if Path(location).is_absolute() or not path.is_relative_to(root):
            raise ModelError(
                "import.external",
                "external data outside the folder of the model",
                found=repr(location),
                allowed="a relative path below it",
                where=where,
            )
        if not is_there:
            raise ModelError(
                "import.external",
                "the file with external data is missing",
                found=repr(location),
                where=where,
            )
        return FileSource(path, location)

    return open_external


def _no_external(location: str, where: str) -> ByteSource:
    raise ModelError(
        "import.external",
        "the model keeps weights in another file, and only its bytes were given",
        found=repr(location),
        hint="open the model by path, or say where external data is",
        where=where,
    )


_SIGNATURES = (
    (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint or .npz?)"),
    (0, b"\x89HDF\r\n", "an HDF5 file"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (4, b"ORTM", "an ONNX Runtime .ort model"),
    (0, b"\x1f\x8b", "gzip-compressed data"),
    (0, b"\x00asm", "a WebAssembly module"),
    (0, b"version https://git-lfs", "a Git LFS pointer; the model itself was not downloaded"),
)


def _refuse_other_formats(source: ByteSource) -> None:
    """``import.not_onnx`` if the file plainly is something else."""
    head = source.read(0, min(512, source.size))
    for offset, magic, what in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            raise ModelError(
                "import.not_onnx", f"not an ONNX file: it is {what}", where=source.name
            ) from None
    text = head.decode("utf-8", errors="replace").rstrip("\ufffd")
    if all(char.isprintable() or char in "\r\n\t\f" for char in text):
        first = text.strip().splitlines()[0][:40] if text.strip() else ""
        raise ModelError(
            "import.not_onnx",
            "not an ONNX file: it is text",
            found=f"it begins {first!r}",
            allowed="a protobuf ModelProto",
            where=source.name,
        ) from None


# ---- records from fields ---------------------------------------------------------------------

_KINDS = {
    1: "float",
    2: "int",
    3: "string",
    4: "tensor",
    5: "graph",
    6: "floats",
    7: "ints",
    8: "strings",
    9: "tensors",
    10: "graphs",
    11: "sparse_tensor",
    12: "sparse_tensors",
    13: "type_proto",
    14: "type_protos",
}
# AttributeProto's value fields, for files that do not state the type (IR version 1).
_KIND_OF_FIELD = {
    2: "float",
    3: "int",
    4: "string",
    5: "tensor",
    6: "graph",
    7: "floats",
    8: "ints",
    9: "strings",
    10: "tensors",
    11: "graphs",
}
_TYPE_KINDS = {4: "sequence", 5: "map", 8: "sparse_tensor", 9: "optional"}


class _ModelReader:
    """Turns fields into records; holds what every level needs."""

    def __init__(self, source: ByteSource, external: External) -> None:
        self.source = source
        self.external = external
        self.wire = WireReader(source)

    def model(self) -> OnnxModel:
        fields = Fields(self.wire, self.wire.root("ModelProto"))
        ir_version = fields.integer(1, "ModelProto.ir_version")
        graph = fields.message_at(7, "GraphProto")
        if graph is None or ir_version <= 0:
            missing = "graph" if graph is None else "ir_version"
            raise ModelError(
                "import.malformed",
                f"not a valid ONNX file: ModelProto has no {missing}",
                where=self.source.name,
            )
        opsets = self._opsets(fields.messages(8, "OperatorSetIdProto"))
        check_opset(opsets.get(""), self.source.name)
        functions = [self._function(item) for item in fields.messages(25, "FunctionProto")]
        version = fields.text(3, "ModelProto.producer_version")
        return OnnxModel(
            source=self.source.name,
            ir_version=ir_version,
            opsets=MappingProxyType(opsets),
            producer=f"{fields.text(2, 'ModelProto.producer_name')} {version}".strip(),
            graph=self._graph(graph),
            functions=MappingProxyType(
                {(item.domain, item.name, item.overload): item for item in functions}
            ),
            metadata=MappingProxyType(
                {
                    entry.text(1, "metadata_props.key"): entry.text(2, "metadata_props.value")
                    for entry in fields.messages(14, "StringStringEntryProto")
                }
            ),
        )

    def _opsets(self, entries: list[Fields]) -> dict[str, int]:
        opsets: dict[str, int] = {}
        for entry in entries:
            domain = entry.text(1, "OperatorSetIdProto.domain")
            version = entry.integer(2, "OperatorSetIdProto.version")
            opsets["" if domain in ONNX_DOMAINS else domain] = version
        return opsets

    def _graph(self, fields: Fields) -> Graph:
        name = fields.text(2, "GraphProto.name")
        if 15 in fields:
            raise ModelError(
                "import.sparse",
                "sparse initializers are not supported",
                where=f"{self.source.name}: graph {name!r}",
            )
        return Graph(
            name=name,
            nodes=tuple(self._node(item) for item in fields.messages(1, "NodeProto")),
            initializers=tuple(
                read_tensor(item, self.external, self.source.name)
                for item in fields.messages(5, "TensorProto")
            ),
            inputs=self._values(fields, 11),
            outputs=self._values(fields, 12),
        )

    def _node(self, fields: Fields) -> Node:
        domain = fields.text(7, "NodeProto.domain")
        node = Node(
            op_type=fields.text(4, "NodeProto.op_type"),
            domain="" if domain in ONNX_DOMAINS else domain,
            name=fields.text(3, "NodeProto.name"),
            inputs=fields.texts(1, "NodeProto.input"),
            outputs=fields.texts(2, "NodeProto.output"),
            attributes=MappingProxyType({}),
            overload=fields.text(8, "NodeProto.overload"),
        )
        attributes = self._attributes(fields.messages(5, "AttributeProto"), node.label)
        return Node(
            node.op_type,
            node.domain,
            node.name,
            node.inputs,
            node.outputs,
            MappingProxyType(attributes),
            node.overload,
        )

    def _attributes(self, items: list[Fields], node: str) -> dict[str, Attribute]:
        attributes = [self._attribute(item, node) for item in items]
        return {attribute.name: attribute for attribute in attributes}

    def _attribute(self, fields: Fields, node: str) -> Attribute:
        name = fields.text(1, "AttributeProto.name")
        number = fields.integer(20, "AttributeProto.type")
        reference = fields.text(21, "AttributeProto.ref_attr_name")
        kind = _KINDS.get(number, "")
        if not kind:
            kind = next((_KIND_OF_FIELD[key] for key in _KIND_OF_FIELD if key in fields), "ints")
        where = f"{self.source.name}: node {node!r}: attribute {name!r}"
        value = None if reference else self._attribute_value(fields, kind, where)
        return Attribute(name, kind, value, reference)

    def _attribute_value(self, fields: Fields, kind: str, where: str) -> AttributeValue | None:
        what = f"AttributeProto.{kind}"
        match kind:
            case "float":
                found = fields.all(2)
                return self.wire.float32(found[-1], what, fields.message) if found else 0.0
            case "int":
                return fields.integer(3, what)
            case "string":
                return self._string(fields, 4, what)[-1] if 4 in fields else ""
            case "floats":
                return fields.floats(7, what)
            case "ints":
                return fields.integers(8, what)
            case "strings":
                return self._string(fields, 9, what)
            case "tensor" | "tensors":
                tensors = tuple(
                    read_tensor(item, self.external, where)
                    for item in fields.messages(5 if kind == "tensor" else 10, "TensorProto")
                )
                return (tensors[-1] if tensors else None) if kind == "tensor" else tensors
            case "graph" | "graphs":
                graphs = tuple(
                    self._graph(item)
                    for item in fields.messages(6 if kind == "graph" else 11, "GraphProto")
                )
                return (graphs[-1] if graphs else None) if kind == "graph" else graphs
        return None

    def _string(self, fields: Fields, number: int, what: str) -> tuple[str, ...]:
        """Byte strings as text; bytes that are not UTF-8 appear as ``\\xNN``."""
        return tuple(
            self.wire.data(item, what, fields.message).decode("utf-8", "backslashreplace")
            for item in fields.all(number)
        )

    def _values(self, fields: Fields, number: int) -> tuple[ValueInfo, ...]:
        return tuple(self._value(item) for item in fields.messages(number, "ValueInfoProto"))

    def _value(self, fields: Fields) -> ValueInfo:
        name = fields.text(1, "ValueInfoProto.name")
        declared = fields.message_at(2, "TypeProto")
        if declared is None:
            return ValueInfo(name, "", 0, None)
        tensor = declared.message_at(1, "TypeProto.Tensor")
        if tensor is None:
            kind = next((_TYPE_KINDS[key] for key in _TYPE_KINDS if key in declared), "")
            return ValueInfo(name, kind, 0, None)
        data_type = tensor.integer(1, "TypeProto.Tensor.elem_type")
        shape = tensor.message_at(2, "TensorShapeProto")
        if shape is None:
            return ValueInfo(name, "tensor", data_type, None)
        dims = tuple(self._dim(item) for item in shape.messages(1, "Dimension"))
        return ValueInfo(name, "tensor", data_type, dims)

    def _dim(self, fields: Fields) -> int | str | None:
        """A size, a name, or ``None``; exporters write 0 and -1 for sizes they do not know."""
        if 1 in fields:
            size = fields.integer(1, "Dimension.dim_value")
            return size if size > 0 else None
        return fields.text(2, "Dimension.dim_param") or None

    def _function(self, fields: Fields) -> ModelFunction:
        name = fields.text(1, "FunctionProto.name")
        opsets = self._opsets(fields.messages(9, "OperatorSetIdProto"))
        return ModelFunction(
            domain=fields.text(10, "FunctionProto.domain"),
            name=name,
            overload=fields.text(13, "FunctionProto.overload"),
            inputs=fields.texts(4, "FunctionProto.input"),
            outputs=fields.texts(5, "FunctionProto.output"),
            attributes=fields.texts(6, "FunctionProto.attribute"),
            defaults=MappingProxyType(
                self._attributes(fields.messages(11, "AttributeProto"), name)
            ),
            nodes=tuple(self._node(item) for item in fields.messages(7, "NodeProto")),
            opsets=MappingProxyType(opsets),
        )
