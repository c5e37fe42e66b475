"""``Constant`` in all its forms."""

from __future__ import annotations

import struct

from rlx_edge.ir.onnx.bytes import ByteRange
from rlx_edge.ir.onnx.context import NodeContext
from rlx_edge.ir.onnx.convert.table import Converter
from rlx_edge.ir.onnx.entries import Entry
from rlx_edge.ir.onnx.tensors import TensorProto
from rlx_edge.ir.types import F32, I64

# Attribute -> (ONNX element type, struct format, whether it is a list).
_LITERALS = {
    "value_float": (F32.onnx, "f", False),
    "value_floats": (F32.onnx, "f", True),
    "value_int": (I64.onnx, "q", False),
    "value_ints": (I64.onnx, "q", True),
}


def _constant(n: NodeContext) -> Entry:
    name = n.node.outputs[0]
    tensor = n.tensor_attr("value")
    if tensor is not None:
        return Entry(name, tensor=TensorProto(name, tensor.data_type, tensor.dims, tensor.data))
    for attribute, (data_type, code, many) in _LITERALS.items():
        if attribute not in n.node.attributes:
            continue
        value = n.node.attributes[attribute].value
        items = value if isinstance(value, tuple) else (value,)
        if many != isinstance(value, tuple):
            n.fail("import.attribute", f"attribute {attribute!r} has the wrong type")
        data = ByteRange.of(struct.pack(f"<{len(items)}{code}", *items))
        dims = (len(items),) if many else ()
        return Entry(name, tensor=TensorProto(name, data_type, dims, data))
    n.unsupported("a constant that is not a dense tensor of numbers", found=list(n.node.attributes))


CONVERTERS: dict[str, Converter] = {"Constant": _constant}
